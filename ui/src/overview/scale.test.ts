// Scales and shapes of the charts.
import { describe, expect, test } from 'vitest';
import { DAY, HOUR, MINUTE } from './range';
import { barPath, bucketAt, change, largest, linePath, niceCeil, stacked, timeTicks, valueTicks, type Series } from './scale';

const series = (...lists: (number | null)[][]): Series[] => lists.map((values, i) => ({ label: `s${i}`, values, colour: '', query: null }));

describe('the axis of values', () => {
  test('ends at or above the largest value, in even steps', () => {
    for (const most of [0, 0.003, 1, 3, 7, 99, 100, 101, 12_345, 9e9]) {
      const ticks = valueTicks(most, false);
      expect(ticks.at(-1), String(most)).toBeGreaterThanOrEqual(most);
      expect(ticks.length).toBeGreaterThan(1);
      expect(ticks.length).toBeLessThan(8);
    }
  });
  test('of counts has whole numbers', () => {
    expect(valueTicks(1, true)).toEqual([0, 1]);
    expect(valueTicks(3, true)).toEqual([0, 1, 2, 3]);
    expect(valueTicks(0, true)).toEqual([0, 1]);
  });
  test('rounds to 1, 2, 2.5 and 5', () => {
    expect([0.011, 1, 1.2, 2.2, 3, 7].map(niceCeil)).toEqual([0.02, 1, 2, 2.5, 5, 10]);
  });
});

test('stacked series stand on one another', () => {
  const list = series([1, 0, 3], [2, null, 4]);
  expect(stacked(list, 3)).toEqual([
    [{ low: 0, high: 1 }, { low: 0, high: 0 }, { low: 0, high: 3 }],
    [{ low: 1, high: 3 }, { low: 0, high: 0 }, { low: 3, high: 7 }],
  ]);
  expect([largest(list, 3, true), largest(list, 3, false)]).toEqual([7, 4]);
});

test('bars leave out what is nothing, and show the smallest value', () => {
  const x = (i: number) => i * 10;
  const path = barPath([{ low: 0, high: 0 }, { low: 0, high: 1e-9 }], x, (v) => 100 - v);
  expect(path).toBe('M10,100V99H19V100Z');
});

test('lines are interrupted where there is no value', () => {
  const path = linePath([1, 2, null, 3, null], (i) => i * 10, (v) => v);
  expect(path).toBe('M5,1L15,2M35,3m-2,0h4');
});

test('a place in the drawing belongs to one bucket, also outside', () => {
  const span = { from: 0, to: 100, step: 30 };
  expect([-5, 50, 79, 81, 149, 151, 500].map((place) => bucketAt(place, 50, 100, span, 4))).toEqual([0, 0, 0, 1, 3, 3, 3]);
});

describe('the axis of time', () => {
  test('has room for its labels, and names days', () => {
    const from = Date.UTC(2026, 10, 20, 3) * 1000;
    for (const [length, width] of [[15 * MINUTE, 300], [DAY, 400], [7 * DAY, 700], [400 * DAY, 900]] as const) {
      const ticks = timeTicks(from, from + length, width);
      expect(ticks.length).toBeGreaterThan(1);
      expect(ticks.length * 70).toBeLessThanOrEqual(width * 1.3 + 70);
      expect(new Set(ticks.map((t) => t.label)).size).toBe(ticks.length);
    }
    expect(timeTicks(from, from + 7 * DAY, 700).every((t) => /^\d+ [A-Z]/.test(t.label))).toBe(true);
    expect(timeTicks(from, from + HOUR, 400).every((t) => /^\d\d:\d\d$/.test(t.label) || /^\d+ /.test(t.label))).toBe(true);
  });
});

test('changes are told in percent, or as what they are', () => {
  expect(change(112, 100)).toEqual({ text: '+12 %', direction: 1 });
  expect(change(97, 100)).toEqual({ text: '−3.0 %', direction: -1 });
  expect(change(5, 0)).toEqual({ text: 'none before', direction: 1 });
  expect(change(0, 0)?.direction).toBe(0);
  expect(change(1000, 100)?.text).toBe('+900 %');
  expect(change(5000, 100)?.text).toBe('50 times');
});
