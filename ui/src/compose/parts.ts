// The query and the credentials of a request as fields, read from and written to its URL and header fields.
import { formPairs, type Pair } from '../bodies/pairs';
import { fromBase64, toBase64 } from '../lib/base64';

/** Percent-encodes, but for variables, `{{name}}`. */
function encoded(text: string): string {
  return text.split(/(\{\{[^{}]*\}\})/).map((part, i) => (i % 2 === 1 ? part : encodeURIComponent(part))).join('');
}

const parts = (url: string): [string, string, string] => {
  const hash = url.indexOf('#');
  const before = hash < 0 ? url : url.slice(0, hash);
  const at = before.indexOf('?');
  return at < 0 ? [before, '', url.slice(before.length)] : [before.slice(0, at), before.slice(at + 1), url.slice(before.length)];
};

/** The parameters of a URL's query, in order. */
export function queryOf(url: string): Pair[] {
  return formPairs(parts(url)[1]);
}

/** The URL with these parameters; those without a name and a value are left out. */
export function withQuery(url: string, pairs: Pair[]): string {
  const [base, , hash] = parts(url);
  const query = pairs.filter((p) => p.name || p.value).map((p) => `${encoded(p.name)}=${encoded(p.value)}`).join('&');
  return `${base}${query ? `?${query}` : ''}${hash}`;
}

export type Auth =
  | { kind: 'none' }
  | { kind: 'bearer'; token: string }
  | { kind: 'basic'; user: string; password: string }
  | { kind: 'key'; field: string; key: string };

/** Header fields that carry the key of an API. */
const KEY_FIELDS = /^(x-api-key|api-key|x-goog-api-key)$/i;

function textOfBase64(text: string): string {
  try {
    return new TextDecoder().decode(fromBase64(text.trim()));
  } catch {
    return '';
  }
}

const nameOf = (line: string) => line.slice(0, Math.max(0, line.indexOf(':'))).trim();
const isAuth = (line: string) => /^authorization$/i.test(nameOf(line)) || KEY_FIELDS.test(nameOf(line));

/** The credentials in header fields, one per line. */
export function authOf(fields: string): Auth {
  const line = fields.split('\n').find(isAuth);
  if (!line) return { kind: 'none' };
  const value = line.slice(line.indexOf(':') + 1).trim();
  if (KEY_FIELDS.test(nameOf(line))) return { kind: 'key', field: nameOf(line), key: value };
  const [scheme = '', ...rest] = value.split(' ');
  if (/^basic$/i.test(scheme)) {
    const [user = '', ...password] = textOfBase64(rest.join(' ')).split(':');
    return { kind: 'basic', user, password: password.join(':') };
  }
  return { kind: 'bearer', token: /^bearer$/i.test(scheme) ? rest.join(' ') : value };
}

/** Whether nothing was typed into them yet. */
export function isEmptyAuth(auth: Auth): boolean {
  if (auth.kind === 'basic') return auth.user === '' && auth.password === '';
  return auth.kind === 'none' || (auth.kind === 'bearer' ? auth.token : auth.key) === '';
}

/** The header field of credentials; empty ones have none. */
function lineOf(auth: Auth): string {
  return isEmptyAuth(auth) ? ''
    : auth.kind === 'bearer' ? `Authorization: Bearer ${auth.token}`
    : auth.kind === 'basic' ? `Authorization: Basic ${toBase64(new TextEncoder().encode(`${auth.user}:${auth.password}`))}`
    : auth.kind === 'key' ? `${auth.field.trim() || 'X-Api-Key'}: ${auth.key}` : '';
}

/** The header fields with these credentials in place of others; those `before` may be in a field that is not known to carry any. */
export function withAuth(fields: string, auth: Auth, before: Auth = { kind: 'none' }): string {
  const others = fields.split('\n').filter((line) => !isAuth(line) && line !== lineOf(before) && line.trim() !== '');
  const line = lineOf(auth);
  return [...others, ...(line ? [line] : [])].join('\n');
}
