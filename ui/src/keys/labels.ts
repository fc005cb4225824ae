// Names of limits and counters, and the spending of a key.
import { money } from '../conversations/figures';
import * as format from '../lib/format';
import type { Counter, Key } from '../privacy/types';

const LABELS: Record<string, string> = {
  money_per_day: 'Budget per day (USD)', money_per_month: 'Budget per month (USD)', tokens_per_day: 'Tokens per day',
  tokens_per_month: 'Tokens per month', requests: 'Requests', tokens: 'Tokens', concurrent: 'Concurrent requests',
};

export function counterLabel(counter: string): string {
  return LABELS[counter] ?? counter.replaceAll('_', ' ');
}

export const isMoney = (counter: string): boolean => counter.startsWith('money');

export function amount(counter: string, n: number): string {
  return isMoney(counter) ? money(n) : format.count(Math.round(n));
}

/** What a key may do, in words. */
export function allowed(key: Key): string {
  const words = (name: string, n: unknown) => {
    if (name === 'burst') return `bursts of ${String(n)}`;
    return isMoney(name) ? `$${String(n)} ${name.slice(6).replaceAll('_', ' ')}` : `${String(n)} ${name.replaceAll('_', ' ')}`;
  };
  const limits = Object.entries(key.limits ?? {}).filter(([, n]) => n !== null && n !== undefined).map(([name, n]) => words(name, n));
  return [...(key.models ?? []), ...(key.providers ?? []), ...(key.paths ?? []), ...limits].join(', ') || 'everything';
}

/** The budgets of a key: its own, and those that rules count by key. */
export function budgetsOf(key: Key, counters: Counter[]): Counter[] {
  return counters.filter((c) => c.who === key.id && c.counter.includes('_per_'));
}

/** The share that is used, in percent. */
export const share = (c: Counter): number => (c.limit > 0 ? Math.min(100, (100 * c.used) / c.limit) : 100);
