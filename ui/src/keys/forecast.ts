// Spending by day, how much the month will cost at this pace, and when a budget is used up. Days are in UTC, as in the ledger.
import type { SpendRow } from '../lib/api.gen';
import type { Counter } from '../privacy/types';

export interface DaySum {
  /** `2026-01-31`. */
  day: string;
  dollars: number;
}

export interface DayParts extends DaySum {
  /** The part of each name, and of all others last. */
  parts: number[];
}

const DAY_MS = 86_400_000;
/** Complete days on which a forecast is based, at most. */
const BASIS = 14;
/** Days that a chart shows at most. */
const MAX_DAYS = 92;

const dayOf = (at: number) => new Date(at).toISOString().slice(0, 10);
const start = (day: string) => Date.parse(`${day}T00:00:00Z`);

/** The sum of each day from the first to the last, days without spending included; the latest ones if there are too many. */
export function dailySums(rows: SpendRow[], since: string, until: string): DaySum[] {
  const sums = new Map(rows.map((row) => [row.group['day'] ?? '', row.dollars]));
  const days: DaySum[] = [];
  for (let at = Math.max(start(since), start(until) - (MAX_DAYS - 1) * DAY_MS); at <= start(until); at += DAY_MS) days.push({ day: dayOf(at), dollars: sums.get(dayOf(at)) ?? 0 });
  return days;
}

/** The sums of days divided by the values of a column: those of `names`, and all others. */
export function dailyParts(rows: SpendRow[], since: string, until: string, column: string, names: (string | undefined)[]): DayParts[] {
  const days = dailySums([], since, until).map((d) => ({ ...d, parts: new Array<number>(names.length + 1).fill(0) }));
  const byDay = new Map(days.map((d) => [d.day, d]));
  for (const row of rows) {
    const day = byDay.get(row.group['day'] ?? '');
    if (!day) continue;
    const at = names.indexOf(row.group[column]);
    day.dollars += row.dollars;
    day.parts[at < 0 ? names.length : at]! += row.dollars;
  }
  return days;
}

/** The first day that a forecast needs: that of the month, or of the complete days that it is based on. */
export function forecastSince(now: number): string {
  return dayOf(Math.min(start(`${dayOf(now).slice(0, 7)}-01`), start(dayOf(now)) - BASIS * DAY_MS));
}

export interface Forecast {
  /** Dollars of the whole month, by its end. */
  month: number;
  perDay: number;
  /** Complete days that it is based on. */
  basis: number;
  /** The days after today until the end of the month. */
  days: string[];
}

/** The forecast of the month of `now`, from the complete days since the first spending; null without one, or if its days are missing. */
export function forecastOf(days: DaySum[], now: number): Forecast | null {
  const today = dayOf(now);
  const month = today.slice(0, 7);
  if (days[0] === undefined || days[0].day > `${month}-01` || days.at(-1)!.day !== today) return null;
  const first = days.findIndex((d) => d.dollars > 0);
  const complete = first < 0 ? [] : days.slice(first, -1).slice(-BASIS);
  if (complete.length === 0) return null;
  const perDay = complete.reduce((sum, d) => sum + d.dollars, 0) / complete.length;
  const spent = days.filter((d) => d.day.startsWith(month)).reduce((sum, d) => sum + d.dollars, 0);
  const rest: string[] = [];
  for (let at = start(today) + DAY_MS; dayOf(at).startsWith(month); at += DAY_MS) rest.push(dayOf(at));
  const leftToday = Math.max(0, perDay - days.at(-1)!.dollars);
  return { month: spent + leftToday + perDay * rest.length, perDay, basis: complete.length, days: rest };
}

/** When a budget is used up at its pace so far: a day of this month, or a time of today (UTC); null if it lasts, is used up, or has just begun. */
export function usedUpOn(counter: Counter, now: number): string | null {
  const isMonth = counter.counter.endsWith('_per_month');
  if (!(isMonth || counter.counter.endsWith('_per_day')) || counter.used >= counter.limit || counter.used <= 0) return null;
  const today = dayOf(now);
  const begin = start(isMonth ? `${today.slice(0, 7)}-01` : today);
  const elapsed = now - begin;
  if (elapsed < (isMonth ? DAY_MS : DAY_MS / 24)) return null;
  const at = begin + (counter.limit / counter.used) * elapsed;
  // Certainly not this month, and perhaps later than a date can be.
  if (at > now + 32 * DAY_MS) return null;
  const end = new Date(at).toISOString();
  if (isMonth) return end.slice(0, 7) === today.slice(0, 7) ? end.slice(0, 10) : null;
  return end.slice(0, 10) === today ? `${end.slice(11, 16)} UTC` : null;
}
