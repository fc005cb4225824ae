import { describe, expect, it } from 'vitest';
import type { CertificateView } from '../lib/api.gen';
import type { UnixMicros } from '../lib/time';
import { commonName, factsOf, pem, warningsOf } from './certificates';

const certificate = (changes: Partial<CertificateView> = {}): CertificateView => ({
  subject: 'CN=api.test', issuer: 'CN=Root, O=Example', names: ['api.test', '127.0.0.1'], more_names: 0, not_before: 1e15 as UnixMicros, not_after: 2e15 as UnixMicros,
  key: 'EC P-256', signature: 'ecdsa-with-SHA256', serial: '01', authority: false, self_signed: false, sha256: 'ab', der: 'AAAA', ...changes,
});

describe('the name of a certificate', () => {
  it.each([
    ['C=US, O=Example, CN=api.test', 'api.test'], ['CN=Example\\, Inc., O=X', 'Example\\, Inc.'], ['O=Only', 'O=Only'], ['', '(no name)'],
  ])('%s', (name, shown) => expect(commonName(name)).toBe(shown));
});

describe('warnings', () => {
  it('name what was wrong when the flow was recorded', () => {
    expect(warningsOf(certificate(), 0, 1.5e15)).toEqual([]);
    expect(warningsOf(certificate(), 1, 2.5e15)).toEqual(['expired']);
    expect(warningsOf(certificate({ self_signed: true, authority: true }), 0, 0.5e15)).toEqual(['not valid yet', 'self-signed']);
  });

  it('do not complain about a root', () => {
    expect(warningsOf(certificate({ self_signed: true, authority: true }), 2, 1.5e15)).toEqual([]);
  });
});

it('names that were left out are counted', () => {
  expect(factsOf(certificate({ more_names: 3 })).find((f) => f.name === 'Valid for (SAN)')?.value).toBe('api.test, 127.0.0.1, and 3 more');
});

it('a chain is written in PEM with lines of 64 characters', () => {
  expect(pem([{ der: 'A'.repeat(70) }, { der: 'BB==' }])).toBe(
    `-----BEGIN CERTIFICATE-----\n${'A'.repeat(64)}\n${'A'.repeat(6)}\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nBB==\n-----END CERTIFICATE-----\n`,
  );
});
