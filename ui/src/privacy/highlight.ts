// Splits a text into highlighted pieces.
import type { Span } from './types';

/** The text as it is sent, divided at what replaced the findings; in one piece if the replacements do not explain it. */
export function sentPieces(text: string, spans: Span[], output: string): { text: string; type: string }[] {
  const replacements = [...spans].sort((a, b) => a.start - b.start).map((s) => s.replacement);
  const pieces = highlight(text, spans).map((p, i) => (i % 2 === 1 ? { text: replacements[(i - 1) / 2]!, type: p.type } : p));
  return pieces.map((p) => p.text).join('') === output ? pieces : [{ text: output, type: '' }];
}

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
