// Adds terms to and removes them from a query, and applies completions.
import type { Completion } from './types';

/** Quotes a value if it contains characters with a meaning in the query language. */
export function quote(value: string): string {
  if (value !== '' && !/[\s"()|&!~*,\\]/.test(value) && !/^[-=/<>:,]/.test(value) && !value.includes('..')) return value;
  return `"${value.replace(/[\\"]/g, (c) => `\\${c}`)}"`;
}

/** A term such as `host:api.test`; `exact` disables pattern matching. */
export function term(key: string, value: string, exact = false): string {
  return `${key}:${exact ? '=' : ''}${quote(value)}`;
}

/** The top-level words of a query; quoted strings and parentheses are not split. */
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

/** The query with a term added (or excluded, if `out`); the opposite term is removed. */
export function narrowed(query: string, wanted: string, out: boolean): string {
  const added = out ? `-${wanted}` : wanted;
  const opposite = out ? wanted : `-${wanted}`;
  const list = words(query);
  if (list.some(isAlternative)) return list.includes(added) && list.length === 1 ? query : `(${query.trim()}) ${added}`;
  if (list.includes(added)) return query;
  return [...list.filter((w) => w !== opposite), added].join(' ');
}

/** The query without the word at this index. */
export function without(query: string, index: number): string {
  return words(query)
    .filter((_, i) => i !== index)
    .join(' ');
}

/** The words of a query that can be removed one by one; the whole query if it contains OR or NOT. */
export function chips(query: string): string[] {
  const list = words(query);
  return list.some((w) => isAlternative(w) || /^(NOT|AND|&|!)$/.test(w)) ? [query.trim()] : list;
}

/** Applies a completion at the cursor; returns the text and the new cursor. The API counts bytes. */
export function completed(text: string, cursor: number, completion: Completion): { text: string; cursor: number } {
  const before = new TextEncoder().encode(text.slice(0, cursor));
  const kept = new TextDecoder().decode(before.subarray(0, completion.start));
  const head = kept + completion.text;
  const open = completion.text.endsWith(':') || text.slice(cursor).startsWith(' ');
  const gap = open ? '' : ' ';
  return { text: head + gap + text.slice(cursor), cursor: head.length + gap.length };
}
