// Totals by time and name, and their CSV.
import { describe, expect, it } from 'vitest';
import { beginOf, bucketsOf, csv, namedSums, nextOf, sumOf } from './totals';
import type { Total } from './types';

const at = (text: string) => new Date(text).getTime() * 1000;
const total = (from: string, model: string, cost: number, more: Partial<Total> = {}): Total => ({
  from: at(from), agent: 'a', model, user: '', failed: 0,
  used: { exchanges: 1, input: 10, output: 1, cache_read: 5, cache_write: 0, reasoning: 0, cost, unpriced: 0 }, ...more,
});

describe('buckets', () => {
  it('are hours, days and weeks of local time', () => {
    expect(beginOf(at('2026-11-25T13:45'), 'hour')).toBe(at('2026-11-25T13:00'));
    expect(beginOf(at('2026-11-25T13:45'), 'week')).toBe(at('2026-11-23T00:00'));
    expect(beginOf(at('2026-11-29T23:59'), 'week')).toBe(at('2026-11-23T00:00'));
    expect(nextOf(at('2026-11-30T00:00'), 'day')).toBe(at('2026-12-01T00:00'));
  });

  it('include the empty ones and sum up the names without a colour', () => {
    const totals = [total('2026-11-23T10:00', 'x', 3), total('2026-11-23T12:00', 'y', 2), total('2026-11-25T00:00', 'z', 1, { failed: 1 })];
    const bars = bucketsOf(totals, 'model', ['x', 'y'], 'day', at('2026-11-23T08:00'), at('2026-11-25T12:00'));
    expect(bars.map((b) => b.parts.map((p) => p.used.cost))).toEqual([[3, 2, 0], [0, 0, 0], [0, 0, 1]]);
    expect(bars.map((b) => b.failed)).toEqual([0, 0, 1]);
  });

  it('are the latest ones, if there are too many', () => {
    const hours = (since: string, until: string) => bucketsOf([total('2026-11-25T11:00', 'x', 3)], 'model', [], 'hour', at(since), at(until));
    const bars = hours('2026-10-26T12:00', '2026-11-25T12:30');
    expect([bars.length, bars[0]!.from, bars.at(-1)!.from]).toEqual([400, at('2026-11-25T12:30') - 399.5 * 3600e6, at('2026-11-25T12:00')]);
    expect(bars.at(-2)!.used.cost).toBe(3);
    expect(hours('2026-11-24T12:20', '2026-11-25T12:30')[0]!.from).toBe(at('2026-11-24T12:00'));
  });

  it('count what the server dates before the range within its first', () => {
    expect(bucketsOf([total('2026-11-23T09:00', 'x', 3)], 'model', [], 'hour', at('2026-11-23T10:30'), at('2026-11-23T12:00'))[0]!.used.cost).toBe(3);
  });
});

it('names are in the order of what is measured', () => {
  const totals = [total('2026-11-23T10:00', 'x', 1, { failed: 2 }), total('2026-11-23T10:00', 'y', 5), total('2026-11-23T11:00', 'x', 1)];
  expect(namedSums(totals, 'model', (s) => s.used.cost).map((r) => [r.name, r.used.cost])).toEqual([['y', 5], ['x', 2]]);
  expect(namedSums(totals, 'model', (s) => s.failed)[0]!.name).toBe('x');
  expect([sumOf(totals).failed, sumOf(totals).used.exchanges]).toEqual([2, 3]);
});

it('CSV quotes its fields and has no formulas', () => {
  const lines = csv([total('2026-11-23T10:00Z', 'a"b,c', 0.5, { agent: '=cmd()', user: '@x' })]).split('\r\n');
  expect(lines[0]).toMatch(/^from,agent,model,user,requests,errors,/);
  expect(lines[1]).toBe(`2026-11-23T10:00:00.000Z,'=cmd(),"a""b,c",'@x,1,0,10,5,0,1,0,0.5,0`);
});
