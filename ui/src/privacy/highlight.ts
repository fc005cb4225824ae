// A text cut where something was found in it.
import type { Span } from './types';

/** The text in pieces, those that were found with their type; places count in bytes of UTF-8. */
export function highlight(text: string, spans: Span[]): { text: string; type: string }[] {
  const bytes = new TextEncoder().encode(text);
  const word = (from: number, to: number) => new TextDecoder().decode(bytes.slice(from, to));
  const out: { text: string; type: string }[] = [];
  let at = 0;
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    if (span.start < at || span.end > bytes.length) continue;
    out.push({ text: word(at, span.start), type: '' }, { text: word(span.start, span.end), type: span.type });
    at = span.end;
  }
  return [...out, { text: word(at, bytes.length), type: '' }];
}
