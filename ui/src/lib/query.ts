// Terms of the query language, put into and taken out of a query by a click; and completion as it is typed.
import type { Completion } from './types';

/** A value as a term needs it: in quotes when it holds what the language reads otherwise. */
export function quote(value: string): string {
  if (value !== '' && !/[\s"()|&!~*\\]/.test(value) && !/^[-=/<>:,]/.test(value) && !value.includes('..')) return value;
  return `"${value.replace(/[\\"]/g, (c) => `\\${c}`)}"`;
}

/** The term that a cell stands for: `host:api.test`. Values that are figures or patterns come as they are. */
export function term(key: string, value: string, exact = false): string {
  return `${key}:${exact ? '=' : ''}${quote(value)}`;
}

/** The top-level words of a query, quotes and parentheses kept together. */
export function words(query: string): string[] {
  const found: string[] = [];
  let word = '';
  let depth = 0;
  let quoted = false;
  for (let i = 0; i < query.length; i += 1) {
    const c = query.charAt(i);
    if (c === '\\' && i + 1 < query.length) {
      word += c + query.charAt(i + 1);
      i += 1;
      continue;
    }
    if (c === '"') quoted = !quoted;
    if (!quoted && c === '(') depth += 1;
    if (!quoted && c === ')') depth -= 1;
    if (!quoted && depth <= 0 && /\s/.test(c)) {
      if (word) found.push(word);
      word = '';
    } else {
      word += c;
    }
  }
  if (word) found.push(word);
  return found;
}

function isAlternative(word: string): boolean {
  return word === 'OR' || word === '|' || word === '||';
}

/** The query with one more term that must hold, or must not; its opposite gives way. */
export function narrowed(query: string, wanted: string, out: boolean): string {
  const added = out ? `-${wanted}` : wanted;
  const opposite = out ? wanted : `-${wanted}`;
  const list = words(query);
  if (list.some(isAlternative)) return list.includes(added) && list.length === 1 ? query : `(${query.trim()}) ${added}`;
  if (list.includes(added)) return query;
  return [...list.filter((w) => w !== opposite), added].join(' ');
}

/** The query without its word at this place. */
export function without(query: string, index: number): string {
  return words(query)
    .filter((_, i) => i !== index)
    .join(' ');
}

/** The words of a query that can each be taken away by a click: none when they hang together by OR or NOT. */
export function chips(query: string): string[] {
  const list = words(query);
  return list.some((w) => isAlternative(w) || /^(NOT|AND|&|!)$/.test(w)) ? [query.trim()] : list;
}

/** The text with a completion put in before the cursor, and where the cursor then stands. The API counts in bytes. */
export function completed(text: string, cursor: number, completion: Completion): { text: string; cursor: number } {
  const before = new TextEncoder().encode(text.slice(0, cursor));
  const kept = new TextDecoder().decode(before.subarray(0, completion.start));
  const head = kept + completion.text;
  const open = completion.text.endsWith(':') || text.slice(cursor).startsWith(' ');
  const gap = open ? '' : ' ';
  return { text: head + gap + text.slice(cursor), cursor: head.length + gap.length };
}
