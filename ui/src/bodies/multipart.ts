// The parts of a multipart body (RFC 2046).

export interface Part {
  headers: [string, string][];
  /** Of `Content-Disposition`. */
  name: string;
  filename: string;
  media: string;
  bytes: Uint8Array;
}

/** Parts shown. */
const MAX_PARTS = 500;

/** The boundary in a `Content-Type` field; RFC 2046 limits it to 70 characters. */
export function boundaryOf(contentType: string): string | null {
  const found = /;\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))/i.exec(contentType);
  return found?.[1] ?? found?.[2] ?? null;
}

function indexOf(bytes: Uint8Array, wanted: Uint8Array, from: number): number {
  const first = wanted[0]!;
  for (let at = bytes.indexOf(first, from); at >= 0; at = bytes.indexOf(first, at + 1)) {
    if (wanted.every((b, i) => bytes[at + i] === b)) return at;
  }
  return -1;
}

function parameter(field: string, name: string): string {
  // RFC 5987's form in UTF-8 wins over the plain one.
  const long = new RegExp(`;\\s*${name}\\*=utf-8'[^']*'([^;\\s]+)`, 'i').exec(field)?.[1];
  if (long) {
    try {
      return decodeURIComponent(long);
    } catch {
      return long;
    }
  }
  const found = new RegExp(`;\\s*${name}=(?:"((?:[^"\\\\]|\\\\.)*)"|([^;\\s]+))`, 'i').exec(field);
  return (found?.[1] ?? found?.[2] ?? '').replace(/\\(["\\])/g, '$1');
}

/** The parts; the last may be cut. */
export function partsOf(bytes: Uint8Array, boundary: string): Part[] {
  const mark = new TextEncoder().encode(`--${boundary}`);
  const starts: number[] = [];
  for (let at = indexOf(bytes, mark, 0); at >= 0 && starts.length <= MAX_PARTS; at = indexOf(bytes, mark, at + mark.length)) {
    // A boundary counts only at the start of a line.
    if (at === 0 || bytes[at - 1] === 10) starts.push(at);
  }
  const parts: Part[] = [];
  for (const [i, start] of starts.entries()) {
    let from = start + mark.length;
    // The closing boundary.
    if (bytes[from] === 45 && bytes[from + 1] === 45) break;
    while (from < bytes.length && bytes[from] !== 10) from += 1;
    from += 1;
    let end = starts[i + 1] ?? bytes.length;
    if (starts[i + 1] !== undefined) end -= bytes[end - 2] === 13 ? 2 : 1;
    parts.push(part(bytes.subarray(from, Math.max(from, end))));
  }
  return parts;
}

function part(bytes: Uint8Array): Part {
  let at = 0;
  const headers: [string, string][] = [];
  for (;;) {
    const end = bytes.indexOf(10, at);
    if (end < 0) break;
    const line = new TextDecoder().decode(bytes.subarray(at, end)).trimEnd();
    at = end + 1;
    if (line === '') break;
    const colon = line.indexOf(':');
    if (colon > 0) headers.push([line.slice(0, colon).trim(), line.slice(colon + 1).trim()]);
  }
  const value = (name: string) => headers.find(([n]) => n.toLowerCase() === name)?.[1] ?? '';
  const disposition = value('content-disposition');
  return {
    headers,
    name: parameter(disposition, 'name'),
    filename: parameter(disposition, 'filename'),
    media: (value('content-type').split(';')[0] ?? '').trim().toLowerCase(),
    bytes: bytes.subarray(at),
  };
}

/** Text of a part; null if it is not text. */
export function textOf(part: Part): string | null {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(part.bytes);
    return text.includes('\0') ? null : text;
  } catch {
    return null;
  }
}
