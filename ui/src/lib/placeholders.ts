// Finds redaction placeholders in a recorded body: kinds and locations, never values.

export interface PlaceholderLocation {
  /** The redacted kind, taken from the placeholder. */
  kind: string;
  /** JSONPath of the string; empty if the body is not JSON. */
  path: string;
  /** Character offset in that string. */
  at: number;
  placeholder: string;
}

/** `{{{REDACTED-ssn}}}`, and reversible placeholders: `EMAIL_ADDRESS_k3m2p9x0`. */
const PLACEHOLDER = /\{\{\{REDACTED-([^{}]{1,60})\}\}\}|\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)_[a-hjkmnp-z02-9]{8}\b/g;

/** Maximum of listed placeholders. */
export const MAX_PLACEHOLDERS = 500;
/** Maximum JSON nesting depth. */
const MAX_DEPTH = 200;

function inText(text: string, path: string, found: PlaceholderLocation[]): void {
  for (const match of text.matchAll(PLACEHOLDER)) {
    if (found.length >= MAX_PLACEHOLDERS) return;
    const kind = match[1] ?? (match[2] ?? '').toLowerCase().replaceAll('_', '-');
    found.push({ kind, path, at: match.index, placeholder: match[0] });
  }
}

function walk(value: unknown, path: string, depth: number, found: PlaceholderLocation[]): void {
  if (found.length >= MAX_PLACEHOLDERS || depth > MAX_DEPTH) return;
  if (typeof value === 'string') inText(value, path, found);
  else if (Array.isArray(value)) value.forEach((v, i) => walk(v, `${path}[${i}]`, depth + 1, found));
  else if (value !== null && typeof value === 'object') {
    for (const [name, v] of Object.entries(value)) {
      walk(v, /^[A-Za-z_]\w*$/.test(name) ? `${path}.${name}` : `${path}[${JSON.stringify(name)}]`, depth + 1, found);
    }
  }
}

/** All placeholders of a body, in document order. */
export function placeholdersIn(body: string): PlaceholderLocation[] {
  const found: PlaceholderLocation[] = [];
  try {
    walk(JSON.parse(body), '$', 0, found);
  } catch {
    inText(body, '', found);
  }
  return found;
}
