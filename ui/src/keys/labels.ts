// Names of limits and counters, and the spending of a key.
import { money } from '../conversations/figures';
import * as format from '../lib/format';
import type { KeyGroupView, Quota } from '../lib/api.gen';
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

/** Allowed models and limits, in words. */
export function limitWords(names: string[], quota: Quota | null | undefined): string {
  const words = (name: string, n: unknown) => {
    if (name === 'burst') return `bursts of ${String(n)}`;
    return isMoney(name) ? `$${String(n)} ${name.slice(6).replaceAll('_', ' ')}` : `${String(n)} ${name.replaceAll('_', ' ')}`;
  };
  const limits = Object.entries(quota ?? {}).filter(([, n]) => n !== null && n !== undefined).map(([name, n]) => words(name, n));
  return [...names, ...limits].join(', ') || 'everything';
}

/** What a key may do, in words. */
export function allowed(key: Key): string {
  return limitWords([...(key.models ?? []), ...(key.providers ?? []), ...(key.paths ?? []), ...(key.mcp ?? []).map((tool) => `MCP ${tool}`)], key.limits);
}

/** The budgets of a key: its own, and those that rules count by key. */
export function budgetsOf(key: Key, counters: Counter[]): Counter[] {
  return counters.filter((c) => c.who === key.id && c.counter.includes('_per_') && c.rule !== 'team' && c.rule !== 'organisation');
}

/** The budgets of a team or an organisation. One that no key has used yet is empty. */
export function groupBudgets(group: KeyGroupView, counters: Counter[]): Counter[] {
  const budgets = Object.entries(group.limits ?? {}).filter(([name, n]) => name.includes('_per_') && typeof n === 'number');
  return budgets.map(([counter, limit]) =>
    counters.find((c) => c.rule === group.level && c.who === group.id && c.counter === counter)
    ?? { rule: group.level, who: group.id, counter, used: 0, limit: Number(limit) });
}

/** `name=value, name=value`. */
export const tagText = (tags: Record<string, string> | undefined): string =>
  Object.entries(tags ?? {}).map(([name, value]) => `${name}=${value}`).join(', ');

/** Tags from such a text; what has no value gets an empty one, which the server explains. */
export function tagsFromText(text: string): Record<string, string> {
  const pairs = text.split(',').map((part) => part.trim()).filter(Boolean);
  return Object.fromEntries(pairs.map((pair) => [pair.split('=', 1)[0]!.trim(), pair.split('=').slice(1).join('=').trim()]));
}

/** The words of a list, whose separators are spaces and commas. */
export const listed = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

/** Limits from the fields of a form; an empty field, or 0, is not a limit. */
export function limitsFrom({ day, month, requests = '' }: { day: string; month: string; requests?: string }): Quota {
  return {
    ...(Number(day) > 0 ? { money_per_day: Number(day) } : {}),
    ...(Number(month) > 0 ? { money_per_month: Number(month) } : {}),
    ...(Number(requests) > 0 ? { requests: `${Number(requests)}/m` } : {}),
  };
}

/** The share that is used, in percent. */
export const share = (c: Counter): number => (c.limit > 0 ? Math.min(100, (100 * c.used) / c.limit) : 100);
