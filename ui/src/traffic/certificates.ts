// What to say about a certificate of a recorded connection.
import type { CertificateView } from '../lib/api.gen';
import { moment } from '../lib/format';
import type { Fact } from './Facts.svelte';

/** The common name of a distinguished name, or all of it: `CN=example.com, O=Example` is `example.com`. */
export function commonName(name: string): string {
  return /(?:^|, )CN=((?:\\.|[^,\\])+)/.exec(name)?.[1] ?? (name || '(no name)');
}

/** What was wrong with the certificate at `index` of a chain, at a time in microseconds. Roots are self-signed by their nature. */
export function warningsOf(certificate: CertificateView, index: number, at: number): string[] {
  const found = [];
  if (at > certificate.not_after) found.push('expired');
  if (at < certificate.not_before) found.push('not valid yet');
  if (certificate.self_signed && index === 0) found.push('self-signed');
  return found;
}

/** The part that the certificate at `index` has in its chain. */
export function roleOf(certificate: CertificateView, index: number): string {
  if (index === 0) return `issued by ${commonName(certificate.issuer)}`;
  return certificate.self_signed ? 'root' : 'intermediate';
}

export function factsOf(certificate: CertificateView): Fact[] {
  const more = certificate.more_names > 0 ? `, and ${certificate.more_names} more` : '';
  return [
    { name: 'Subject', value: certificate.subject || '(empty)' },
    { name: 'Issuer', value: certificate.self_signed ? `${certificate.issuer} (the same: self-signed)` : certificate.issuer },
    ...(certificate.names.length > 0 ? [{ name: 'Valid for (SAN)', value: certificate.names.join(', ') + more }] : []),
    { name: 'Valid from', value: date(certificate.not_before) },
    { name: 'Valid until', value: date(certificate.not_after) },
    { name: 'Key', value: certificate.key },
    { name: 'Signature', value: certificate.signature },
    { name: 'Serial number', value: certificate.serial },
    { name: 'SHA-256', value: certificate.sha256 },
  ];
}

/** Certificates are valid to the second. */
function date(micros: number): string {
  return moment(micros).replace(/\.\d+$/, '');
}

/** Certificates in PEM, in the order of the chain. */
export function pem(chain: Pick<CertificateView, 'der'>[]): string {
  const block = (der: string) => `-----BEGIN CERTIFICATE-----\n${der.replace(/.{1,64}/g, '$&\n')}-----END CERTIFICATE-----\n`;
  return chain.map(({ der }) => block(der)).join('');
}
