// JSON Web Tokens in headers, cookies and bodies: decoded here, verified nowhere and sent nowhere.
import { fromBase64 } from '../lib/base64';

export interface Jwt {
  token: string;
  /** Indented JSON. */
  header: string;
  payload: string;
  /** Times of the payload, as text with what they mean now. */
  times: { name: string; text: string; bad: boolean }[];
  signed: boolean;
}

/** The three parts of a signed token in base64url; a header always begins with `{"`, which is `eyJ`. */
const TOKEN = /\beyJ[\w-]{8,}\.(?:eyJ|e30)[\w-]*\.[\w-]*/g;
/** Tokens shown, and characters of a text that are searched for them. */
const MAX_TOKENS = 20;
const MAX_SEARCHED = 1 << 20;

function json(part: string): unknown {
  return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(fromBase64(part)));
}

/** A decoded token; null if it is none. `now` is in milliseconds. */
export function decodeJwt(token: string, now = Date.now()): Jwt | null {
  const [head = '', body = '', signature = ''] = token.split('.');
  try {
    const [header, payload] = [json(head), json(body)];
    if (typeof header !== 'object' || header === null || !('alg' in header)) return null;
    if (typeof payload !== 'object' || payload === null) return null;
    const claims = payload as Record<string, unknown>;
    const times = ([['exp', 'Expires'], ['nbf', 'Valid from'], ['iat', 'Issued']] as const).flatMap(([claim, name]) => {
      const seconds = claims[claim];
      if (typeof seconds !== 'number' || !Number.isFinite(seconds) || Math.abs(seconds) > 8.64e12) return [];
      const past = seconds * 1000 <= now;
      const bad = claim === 'exp' ? past : claim === 'nbf' ? !past : false;
      const label = bad ? (claim === 'exp' ? 'Expired' : 'Not valid before') : name;
      return [{ name: label, text: new Date(seconds * 1000).toISOString().replace('.000', ''), bad }];
    });
    return { token, header: JSON.stringify(header, null, 2), payload: JSON.stringify(payload, null, 2), times, signed: signature !== '' };
  } catch {
    return null;
  }
}

/** The different tokens in a text. */
export function jwtsIn(text: string, now?: number): Jwt[] {
  const found = new Map<string, Jwt>();
  for (const [token] of text.slice(0, MAX_SEARCHED).matchAll(TOKEN)) {
    if (found.has(token)) continue;
    const jwt = decodeJwt(token, now);
    if (jwt) found.set(token, jwt);
    if (found.size >= MAX_TOKENS) break;
  }
  return [...found.values()];
}
