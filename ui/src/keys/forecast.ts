// Spending by day, how much the month will cost at this pace, and when a budget is used up. Days are in UTC, as in the ledger.
import type { SpendRow } from '../lib/api.gen';
import type { Counter } from '../privacy/types';

export interface DaySum {
  /** `2026-01-31`. */
  day: string;
  dollars: number;
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

/** The day on which a budget of the month is used up at this month's pace; null if it lasts, is used up, or the month has just begun. */
export function usedUpOn(counter: Counter, now: number): string | null {
  if (!counter.counter.endsWith('_per_month') || counter.used >= counter.limit || counter.used <= 0) return null;
  const begin = start(`${dayOf(now).slice(0, 7)}-01`);
  const elapsed = now - begin;
  if (elapsed < DAY_MS) return null;
  const end = dayOf(begin + (counter.limit / counter.used) * elapsed);
  return end.slice(0, 7) === dayOf(now).slice(0, 7) ? end : null;
}
