// Spending by day and its forecast.
import { describe, expect, it } from 'vitest';
import type { SpendRow } from '../lib/api.gen';
import { dailyParts, dailySums, forecastOf, forecastSince, usedUpOn } from './forecast';

const row = (day: string, dollars: number) => ({ group: { day }, dollars }) as unknown as SpendRow;
const NOW = Date.parse('2026-11-10T12:00:00Z');

describe('spending by day', () => {
  it('has days without spending, and no more days than fit', () => {
    expect(dailySums([row('2026-11-02', 3)], '2026-11-01', '2026-11-03')).toEqual([
      { day: '2026-11-01', dollars: 0 }, { day: '2026-11-02', dollars: 3 }, { day: '2026-11-03', dollars: 0 },
    ]);
    expect(dailySums([], '2020-01-01', '2026-11-03').length).toBe(92);
  });
});

it('days are divided by name, and what has none of the names is one part', () => {
  const of = (day: string, team: string | undefined, dollars: number) => ({ group: { day, ...(team ? { team } : {}) }, dollars }) as unknown as SpendRow;
  const rows = [of('2026-11-01', 'a', 1), of('2026-11-01', 'b', 2), of('2026-11-01', 'c', 4), of('2026-11-02', undefined, 8), of('2026-10-01', 'a', 16)];
  expect(dailyParts(rows, '2026-11-01', '2026-11-02', 'team', ['b', undefined])).toEqual([
    { day: '2026-11-01', dollars: 7, parts: [2, 0, 5] }, { day: '2026-11-02', dollars: 8, parts: [0, 8, 0] },
  ]);
});

describe('the forecast', () => {
  it('is based on days of the month before, where this one is young', () => {
    expect(forecastSince(Date.parse('2026-12-02T08:00:00Z'))).toBe('2026-11-18');
    expect(forecastSince(NOW)).toBe('2026-10-27');
    expect(forecastSince(Date.parse('2026-11-29T08:00:00Z'))).toBe('2026-11-01');
    const now = Date.parse('2026-12-01T00:30:00Z');
    const forecast = forecastOf(dailySums([row('2026-11-29', 2), row('2026-11-30', 4)], forecastSince(now), '2026-12-01'), now)!;
    expect([forecast.perDay, forecast.basis, forecast.month]).toEqual([3, 2, 93]);
  });


  const days = dailySums([row('2026-11-06', 2), row('2026-11-07', 4), row('2026-11-10', 1)], '2026-11-01', '2026-11-10');

  it('goes on with the mean of the complete days since the first spending', () => {
    const forecast = forecastOf(days, NOW)!;
    // Four complete days with 6 dollars, today is not over, and 20 days follow.
    expect([forecast.perDay, forecast.basis, forecast.days.length]).toEqual([1.5, 4, 20]);
    expect(forecast.month).toBeCloseTo(7 + 0.5 + 30);
  });

  it('needs a complete day, and all days of the month until today', () => {
    expect(forecastOf(dailySums([row('2026-11-10', 1)], '2026-11-01', '2026-11-10'), NOW)).toBeNull();
    expect(forecastOf(days.slice(2), NOW)).toBeNull();
    expect(forecastOf(days.slice(0, -1), NOW)).toBeNull();
    expect(forecastOf([], NOW)).toBeNull();
  });
});

describe('a budget', () => {
  const budget = (used: number, limit = 10, counter = 'money_per_month') => ({ rule: 'key', who: 'k', counter, used, limit });

  it('is used up on a day, if it does not last', () => {
    expect(usedUpOn(budget(5), NOW)).toBe('2026-11-20');
    expect(usedUpOn(budget(2), NOW)).toBeNull();
    expect(usedUpOn(budget(10), NOW)).toBeNull();
    // Later than a date can be.
    expect(usedUpOn(budget(0.000001, 1e9), NOW)).toBeNull();
    expect(usedUpOn(budget(5), Date.parse('2026-11-01T09:00:00Z'))).toBeNull();
  });

  it('of a day is used up at a time', () => {
    expect(usedUpOn(budget(8, 10, 'money_per_day'), NOW)).toBe('15:00 UTC');
    expect(usedUpOn(budget(5, 10, 'tokens_per_day'), NOW)).toBeNull();
    expect(usedUpOn(budget(8, 10, 'requests'), NOW)).toBeNull();
    expect(usedUpOn(budget(8, 10, 'money_per_day'), Date.parse('2026-11-10T00:20:00Z'))).toBeNull();
  });
});
