// Spending by day and its forecast.
import { describe, expect, it } from 'vitest';
import type { SpendRow } from '../lib/api.gen';
import { dailySums, forecastOf, usedUpOn } from './forecast';

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

describe('the forecast', () => {
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

describe('a budget of the month', () => {
  const budget = (used: number, limit = 10, counter = 'money_per_month') => ({ rule: 'key', who: 'k', counter, used, limit });

  it('is used up on a day, if it does not last', () => {
    expect(usedUpOn(budget(5), NOW)).toBe('2026-11-20');
    expect(usedUpOn(budget(2), NOW)).toBeNull();
    expect(usedUpOn(budget(10), NOW)).toBeNull();
    expect(usedUpOn(budget(5, 10, 'money_per_day'), NOW)).toBeNull();
    expect(usedUpOn(budget(5), Date.parse('2026-11-01T09:00:00Z'))).toBeNull();
  });
});
