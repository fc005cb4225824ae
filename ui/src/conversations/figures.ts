// Formats tokens, costs and totals.
import type { Block, Exchange, Used } from './types';

/** A token count in three digits, so that those of a column compare: `950`, `9.50k`, `12.3k`, `156k`, `2.50M`. */
export function tokens(n: number): string {
  if (n < 1000) return String(Math.round(n));
  const [value, unit] = n < 999_500 ? [n / 1000, 'k'] : [n / 1e6, 'M'];
  return `${value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)}${unit}`;
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

/** Share of the prompt read from the provider's cache, in percent. */
export function cached(exchange: Exchange): number | null {
  const usage = exchange.usage;
  if (!usage || usage.input === 0) return null;
  return Math.round((usage.cache_read * 100) / usage.input);
}

export const NONE: Used = {
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
