// Totals over time: buckets of hours, days and weeks in local time, and their rows as CSV.
import { add, NONE } from './figures';
import type { Total, Used } from './types';

export type Unit = 'hour' | 'day' | 'week';
export type GroupKey = 'agent' | 'model' | 'user';

export interface Sum {
  used: Used;
  failed: number;
}

export interface Bucket extends Sum {
  /** Microseconds since the epoch; `to` is not part of it. */
  from: number;
  to: number;
  /** Sums by name, in the order of `names`. */
  parts: Sum[];
}

export interface NamedSum extends Sum {
  name: string;
}

const empty = (): Sum => ({ used: NONE, failed: 0 });
const plus = (a: Sum, b: Sum): Sum => ({ used: add(a.used, b.used), failed: a.failed + b.failed });

/** The begin of the hour, day or week (from Monday) of a moment, in local time. */
export function beginOf(micros: number, unit: Unit): number {
  const at = new Date(micros / 1000);
  if (unit === 'hour') at.setMinutes(0, 0, 0);
  else at.setHours(0, 0, 0, 0);
  if (unit === 'week') at.setDate(at.getDate() - ((at.getDay() + 6) % 7));
  return at.getTime() * 1000;
}

/** The begin of the following one: days have 23 to 25 hours. */
export function nextOf(micros: number, unit: Unit): number {
  const at = new Date(micros / 1000);
  if (unit === 'hour') return micros + 3600e6;
  at.setDate(at.getDate() + (unit === 'week' ? 7 : 1));
  return at.getTime() * 1000;
}

/** Most buckets that are drawn: the latest ones. */
const MAX_BUCKETS = 400;
const LENGTHS: Record<Unit, number> = { hour: 3600e6, day: 86_400e6, week: 7 * 86_400e6 };

/** Sums by name, the largest first. */
export function namedSums(totals: Total[], key: GroupKey, weight: (sum: Sum) => number): NamedSum[] {
  const found = new Map<string, Sum>();
  for (const t of totals) found.set(t[key], plus(found.get(t[key]) ?? empty(), t));
  const list = [...found].map(([name, sum]) => ({ name, ...sum }));
  return list.sort((a, b) => weight(b) - weight(a) || b.used.exchanges - a.used.exchanges || a.name.localeCompare(b.name));
}

/** The buckets of a range, also the empty ones; names behind the last of `names` are summed up in one more part. */
export function bucketsOf(totals: Total[], key: GroupKey, names: string[], unit: Unit, since: number, until: number): Bucket[] {
  const found = new Map<number, Bucket>();
  const earliest = until - MAX_BUCKETS * LENGTHS[unit];
  const begin = beginOf(Math.max(since, earliest), unit);
  for (let from = since < earliest && begin < earliest ? nextOf(begin, unit) : begin; from < until; from = nextOf(from, unit)) {
    found.set(from, { from, to: nextOf(from, unit), ...empty(), parts: Array.from({ length: names.length + 1 }, empty) });
  }
  for (const t of totals) {
    // The server's bucket may begin before the range.
    const bucket = found.get(beginOf(Math.max(t.from, since), unit));
    if (!bucket) continue;
    Object.assign(bucket, plus(bucket, t));
    const at = names.indexOf(t[key]);
    const part = at < 0 ? names.length : at;
    bucket.parts[part] = plus(bucket.parts[part]!, t);
  }
  return [...found.values()];
}

export function sumOf(totals: Total[]): Sum {
  return totals.reduce<Sum>(plus, empty());
}

/** A field of CSV; one that a spreadsheet would take for a formula is marked as text. */
function cell(value: string | number): string {
  const text = typeof value === 'string' && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** One line per bucket of the server, user, agent and model. */
export function csv(totals: Total[]): string {
  const head = ['from', 'agent', 'model', 'user', 'requests', 'errors', 'input', 'cache_read', 'cache_write', 'output', 'reasoning', 'cost_usd', 'without_price'];
  const lines = totals.map(({ from, agent, model, user, failed, used: u }) =>
    [new Date(from / 1000).toISOString(), agent, model, user, u.exchanges, failed, u.input, u.cache_read, u.cache_write, u.output, u.reasoning, u.cost, u.unpriced].map(cell).join(','));
  return [head.join(','), ...lines, ''].join('\r\n');
}
