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

export interface KeyForm {
  owner: string;
  team: string;
  models: string;
  mcp: string;
  /** In days; empty for a key that does not expire. */
  expires: string;
  day: string;
  month: string;
  requests: string;
}

/** A list for a sentence: `a, b and c`. */
const enumerated = (names: string[]): string => new Intl.ListFormat('en-GB').format(names);

/** What a key will allow, in sentences. */
export function keySummary(form: KeyForm, now: number): string {
  const owner = form.owner.trim();
  const uses = [
    listed(form.models).length > 0 ? `the models ${enumerated(listed(form.models))}` : 'any model',
    listed(form.mcp).length > 0 ? `the MCP tools ${enumerated(listed(form.mcp))}` : 'any MCP tool',
  ];
  const { money_per_day, money_per_month, requests } = limitsFrom(form);
  const limits = [
    money_per_day ? `${money(money_per_day)} a day` : '', money_per_month ? `${money(money_per_month)} a month` : '', requests ? `${format.counted(Number(requests.split('/')[0]), 'request')} a minute` : '',
  ].filter(Boolean);
  const end = form.expires ? `expires on ${format.moment((now + Number(form.expires) * 86_400_000) * 1000).slice(0, 10)}` : 'does not expire';
  return `A key ${owner ? `for ${owner}` : 'without an owner'}${form.team ? ` in the team ${form.team}` : ''}. It may use ${enumerated(uses)}, ${limits.length > 0 ? `up to ${enumerated(limits)}` : 'without a limit of its own'}, and ${end}.`;
}

/** An argument of a shell. */
const quoted = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/** The command that creates the same key. */
export function keyCommand(form: KeyForm, interflow: string): string {
  const { money_per_day, money_per_month, requests } = limitsFrom(form);
  const options: [string, string | number | undefined | null][] = [
    ['owner', form.owner.trim()], ['team', form.team], ['expires', form.expires && `${form.expires}d`],
    ...listed(form.models).map((name): [string, string] => ['model', name]), ...listed(form.mcp).map((name): [string, string] => ['mcp', name]),
    ['money-per-day', money_per_day], ['money-per-month', money_per_month], ['requests', requests],
  ];
  return [`${interflow} keys add`, ...options.filter(([, value]) => value).map(([name, value]) => `--${name} ${quoted(String(value))}`)].join(' ');
}

/** The share that is used, in percent. */
export const share = (c: Counter): number => (c.limit > 0 ? Math.min(100, (100 * c.used) / c.limit) : 100);
