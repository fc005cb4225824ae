// Formats tokens, costs and totals.
import type { Block, Exchange, Total, Used } from './types';

/** Short form of a token count: `950`, `12.3k`, `2.50M`. */
export function tokens(n: number): string {
  if (n < 10_000) return String(n);
  if (n < 999_950) return `${(n / 1000).toFixed(1)}k`;
  return `${(n / 1e6).toFixed(2)}M`;
}

/** US dollars; small amounts keep more digits. */
export function money(dollars: number): string {
  if (dollars === 0) return '$0';
  if (dollars < 0.01) return `$${dollars.toPrecision(2)}`;
  return `$${dollars.toFixed(dollars < 1 ? 3 : 2)}`;
}

/** The cost; empty if no price is known, prefixed with `≥` if some prices are unknown. */
export function cost(used: Used): string {
  if (used.exchanges === used.unpriced) return '';
  return (used.unpriced > 0 ? '≥ ' : '') + money(used.cost);
}

/** Time since a moment (microseconds), in the largest unit that fits. */
export function ago(micros: number, now = Date.now()): string {
  const seconds = Math.max(0, Math.round(now / 1000 - micros / 1e6));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** Share of the prompt read from the provider's cache, in percent. */
export function cached(exchange: Exchange): number | null {
  const usage = exchange.usage;
  if (!usage || usage.input === 0) return null;
  return Math.round((usage.cache_read * 100) / usage.input);
}

export interface Row {
  name: string;
  used: Used;
}

const NONE: Used = {
  exchanges: 0, input: 0, output: 0, cache_read: 0, cache_write: 0, reasoning: 0, cost: 0, unpriced: 0,
};

export function add(a: Used, b: Used): Used {
  return {
    exchanges: a.exchanges + b.exchanges,
    input: a.input + b.input,
    output: a.output + b.output,
    cache_read: a.cache_read + b.cache_read,
    cache_write: a.cache_write + b.cache_write,
    reasoning: a.reasoning + b.reasoning,
    cost: a.cost + b.cost,
    unpriced: a.unpriced + b.unpriced,
  };
}

/** Totals by model or agent, highest cost first. */
export function by(totals: Total[], key: 'model' | 'agent'): Row[] {
  const rows = new Map<string, Used>();
  for (const t of totals) rows.set(t[key] || '–', add(rows.get(t[key] || '–') ?? NONE, t.used));
  const list = [...rows].map(([name, used]) => ({ name, used }));
  return list.sort((a, b) => b.used.cost - a.used.cost || b.used.input - a.used.input || a.name.localeCompare(b.name));
}

/** One total per time span from `since` until now, including empty spans. */
export function series(totals: Total[], since: number, span: number, now: number): { from: number; used: Used }[] {
  const first = Math.floor(since / span) * span;
  const count = Math.min(400, Math.floor((now - first) / span) + 1);
  const list = Array.from({ length: Math.max(0, count) }, (_, i) => ({ from: first + i * span, used: NONE }));
  for (const t of totals) {
    const slot = list[Math.round((t.from - first) / span)];
    if (slot) slot.used = add(slot.used, t.used);
  }
  return list;
}

/** Number of chart colours; names beyond it share the last one. */
export const COLOURS = 6;

/** Usage per span, with tokens per colour in the order of `by`. */
export function stacks(totals: Total[], key: 'model' | 'agent', since: number, span: number, now: number): { from: number; used: Used; parts: number[] }[] {
  const names = by(totals, key).map((row) => row.name);
  const colour = (t: Total) => Math.min(names.indexOf(t[key] || '–'), COLOURS - 1);
  const layers = Array.from({ length: Math.min(names.length, COLOURS) }, (_, i) => series(totals.filter((t) => colour(t) === i), since, span, now));
  const of = (at: number) => layers.map((layer) => (layer[at] ? layer[at].used.input + layer[at].used.output : 0));
  return series(totals, since, span, now).map((bar, at) => ({ ...bar, parts: of(at) }));
}

/** Plain text of a tool result or of a message in a diff. */
export function textOf(blocks: Block[]): string {
  const one = (b: Block): string => {
    switch (b.type) {
      case 'text':
      case 'thinking':
        return b.text;
      case 'tool_use':
        return `${b.name}(${JSON.stringify(b.input, null, 1)})`;
      case 'tool_result':
        return textOf(b.content);
      case 'image':
      case 'document':
        return `[${[b.type, b.title, b.media_type, b.url].filter(Boolean).join(' ')}]`;
      case 'error':
        return `${b.kind}: ${b.message}`;
      case 'other':
        return typeof b.value === 'string' ? b.value : JSON.stringify(b.value, null, 2);
    }
  };
  return blocks.map(one).join('\n');
}

const CATEGORIES: [RegExp, string][] = [
  [/bash|shell|exec|command|terminal/i, '❯'],
  [/read|view|cat|open|notebook/i, '≡'],
  [/edit|write|patch|replace|create/i, '✎'],
  [/grep|glob|search|find|ls$|list/i, '⌕'],
  [/fetch|web|http|browser|url/i, '⇄'],
  [/task|agent|spawn/i, '◆'],
  [/todo|plan/i, '☑'],
];

/** An icon for the kind of tool, guessed from its name. */
export function sign(name: string): string {
  return CATEGORIES.find(([words]) => words.test(name))?.[1] ?? '●';
}
