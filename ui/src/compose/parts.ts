// The query and the credentials of a request as fields, read from and written to its URL and header fields.
import { fromBase64, toBase64 } from '../lib/base64';

export interface Pair {
  name: string;
  value: string;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text.replace(/\+/g, ' '));
  } catch {
    return text;
  }
}

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
  const [, query] = parts(url);
  return query.split('&').filter(Boolean).map((pair) => {
    const at = pair.indexOf('=');
    return at < 0 ? { name: decoded(pair), value: '' } : { name: decoded(pair.slice(0, at)), value: decoded(pair.slice(at + 1)) };
  });
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

/** The header fields with these credentials in place of others; empty ones are none. */
export function withAuth(fields: string, auth: Auth): string {
  const others = fields.split('\n').filter((line) => !isAuth(line) && line.trim() !== '');
  const line = isEmptyAuth(auth) ? ''
    : auth.kind === 'bearer' ? `Authorization: Bearer ${auth.token}`
    : auth.kind === 'basic' ? `Authorization: Basic ${toBase64(new TextEncoder().encode(`${auth.user}:${auth.password}`))}`
    : auth.kind === 'key' ? `${auth.field.trim() || 'X-Api-Key'}: ${auth.key}` : '';
  return [...others, ...(line ? [line] : [])].join('\n');
}
