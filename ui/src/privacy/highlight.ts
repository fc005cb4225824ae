// Splits a text into highlighted pieces.
import type { Span } from './types';

/** Splits a text at the spans (UTF-8 byte offsets); pieces without a finding have an empty type. */
export function highlight(text: string, spans: Pick<Span, 'type' | 'start' | 'end'>[]): { text: string; type: string }[] {
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
