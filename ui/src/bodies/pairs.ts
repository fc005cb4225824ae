// Query parameters, form fields and cookies as names and values.

export interface Pair {
  name: string;
  value: string;
}

/** Decodes `+` and `%XX`; what is not valid stays as written. */
export function decoded(text: string): string {
  const spaced = text.replaceAll('+', ' ');
  try {
    return decodeURIComponent(spaced);
  } catch {
    // One wrong escape must not hide the others.
    return spaced.replace(/(%[0-9a-f]{2})+/gi, (run) => {
      try {
        return decodeURIComponent(run);
      } catch {
        return run;
      }
    });
  }
}

/** The fields of `application/x-www-form-urlencoded`, which is also the form of a query. */
export function formPairs(text: string): Pair[] {
  return text.trim().split('&').filter(Boolean).map((pair) => {
    const at = pair.indexOf('=');
    return at < 0 ? { name: decoded(pair), value: '' } : { name: decoded(pair.slice(0, at)), value: decoded(pair.slice(at + 1)) };
  });
}

/** The parameters of a path's or URL's query. */
export function queryPairs(path: string): Pair[] {
  const from = path.indexOf('?');
  return from < 0 ? [] : formPairs(path.slice(from + 1).split('#')[0] ?? '');
}

/** The cookies of a `Cookie` field. Values are not decoded: their encoding is the application's. */
export function cookiePairs(field: string): Pair[] {
  return field.split(';').map((part) => part.trim()).filter(Boolean).map(splitCookie);
}

function splitCookie(text: string): Pair {
  const at = text.indexOf('=');
  return at < 0 ? { name: '', value: text } : { name: text.slice(0, at).trim(), value: text.slice(at + 1).trim() };
}

/** A cookie that a response sets, with its attributes in order. */
export interface SetCookie extends Pair {
  attributes: Pair[];
  /** What a browser would object to, or an attacker like. */
  notes: string[];
}

export function setCookie(field: string): SetCookie {
  const [first = '', ...rest] = field.split(';');
  const attributes = rest.map((part) => part.trim()).filter(Boolean).map((part) => {
    const at = part.indexOf('=');
    return at < 0 ? { name: part, value: '' } : { name: part.slice(0, at).trim(), value: part.slice(at + 1).trim() };
  });
  const cookie = splitCookie(first.trim());
  const has = (name: string) => attributes.find((a) => a.name.toLowerCase() === name);
  const notes: string[] = [];
  if (has('samesite')?.value.toLowerCase() === 'none' && !has('secure')) notes.push('SameSite=None without Secure: browsers reject it');
  if (cookie.name.startsWith('__Host-') && (!has('secure') || has('domain') || has('path')?.value !== '/')) {
    notes.push('__Host- needs Secure, Path=/ and no Domain: browsers reject it');
  } else if (cookie.name.startsWith('__Secure-') && !has('secure')) notes.push('__Secure- needs Secure: browsers reject it');
  return { ...cookie, attributes, notes };
}
