// Spans of time and the queries that select their flows.
import { describe, expect, test } from 'vitest';
import { alignDown, DAY, HOUR, joined, localOffset, MINUTE, niceStep, presetFor, readRange, SECOND, spanOf, timeTerm, widened, writeRange, zoomed, type Range } from './range';

const NOON = Date.UTC(2026, 10, 23, 12) * 1000;

/** The bounds of a time term, in microseconds, as the query language reads it. */
function bounds(term: string): [number, number] {
  const [from, to] = term.replace('time:', '').split('..') as [string, string];
  const at = (text: string) => Date.parse(text.replace(/(\.\d{3})\d{3}/, '$1')) * 1000 + Number(/\.\d{3}(\d{3})/.exec(text)?.[1] ?? 0);
  const lasts = /\.\d{6}/.test(to) ? 1 : /T\d\d:\d\d:\d\d/.test(to) ? SECOND : MINUTE;
  return [at(from), at(to) + lasts];
}

describe('buckets', () => {
  test('have lengths that people expect, and begin at even local times', () => {
    for (const [preset, step] of [['15m', 10 * SECOND], ['1h', MINUTE], ['6h', 5 * MINUTE], ['24h', 15 * MINUTE], ['7d', 2 * HOUR], ['30d', 12 * HOUR]] as const) {
      const span = spanOf({ preset }, NOON + 123_456, NOON);
      expect(span.step, preset).toBe(step);
      expect((span.from + localOffset(span.from)) % span.step, preset).toBe(0);
      expect(span.to).toBe(NOON + 123_456);
    }
  });
  test('of all flows begin at the oldest one', () => {
    const oldest = NOON - 400 * DAY;
    const span = spanOf({ preset: 'all' }, NOON, oldest);
    expect(span.from).toBeLessThanOrEqual(oldest);
    expect((span.to - span.from) / span.step).toBeLessThan(98);
    // A recording that has just begun still has a span.
    expect(spanOf({ preset: 'all' }, NOON, NOON).from).toBeLessThanOrEqual(NOON - MINUTE);
  });
  test('of very long spans are whole days', () => {
    expect(niceStep(365 * 100 * DAY, 96) % DAY).toBe(0);
    expect(alignDown(NOON + 5, HOUR) % HOUR).toBe(alignDown(NOON, HOUR) % HOUR);
  });
});

test('ranges survive the URL, and nonsense is the default', () => {
  const ranges: Range[] = [{ preset: '24h' }, { preset: 'all' }, { from: NOON, to: NOON + 90 * SECOND }];
  for (const range of ranges) {
    const search = new URLSearchParams();
    writeRange(search, range);
    expect(readRange(new URLSearchParams(search.toString()))).toEqual(range);
  }
  for (const text of ['', 'range=2y', 'from=2026-01-02T00:00:00Z', 'from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z', 'from=x&to=y']) {
    expect(readRange(new URLSearchParams(text)), text).toEqual({ preset: '24h' });
  }
});

describe('zooming', () => {
  const span = { from: NOON, to: NOON + 10 * MINUTE, step: MINUTE };
  test('takes whole buckets, in either direction', () => {
    expect(zoomed(span, 2, 4)).toEqual({ from: NOON + 2 * MINUTE, to: NOON + 5 * MINUTE });
    expect(zoomed(span, 4, 2)).toEqual(zoomed(span, 2, 4));
    expect(zoomed(span, 9, 9)).toEqual({ from: NOON + 9 * MINUTE, to: NOON + 10 * MINUTE });
    expect(zoomed({ ...span, step: 1000 }, 1, 1)).toBeNull();
  });
  test('out is twice as long, and not in the future', () => {
    expect(widened(span, NOON + HOUR)).toEqual({ from: NOON - 5 * MINUTE, to: NOON + 15 * MINUTE });
    expect(widened(span, NOON + 10 * MINUTE)).toEqual({ from: NOON - 10 * MINUTE, to: NOON + 10 * MINUTE });
  });
});

describe('the time of a query', () => {
  test('covers exactly the span, as short as it can be written', () => {
    for (const [from, to, digits] of [
      [NOON, NOON + HOUR, /T\d\d:\d\d(Z|[+-])/], [NOON + 5 * SECOND, NOON + 6 * SECOND, /T\d\d:\d\d:\d\d(Z|[+-])/], [NOON + 1, NOON + 250_000, /\.000001/],
    ] as const) {
      const term = timeTerm(from, to);
      expect(bounds(term)).toEqual([from, to]);
      expect(term).toMatch(digits);
    }
  });
  test('has no end for a range that ends now, and each end its own precision', () => {
    expect(timeTerm(NOON, null)).toMatch(/^time:\S+T\d\d:\d\d(Z|[+-]\d\d:\d\d)\.\.$/);
    expect(bounds(timeTerm(NOON, NOON + 1500))).toEqual([NOON, NOON + 1500]);
  });
  test('is joined with the filter, alternatives in parentheses', () => {
    expect(joined('time:a..b', 'host:x OR host:y', 'is:error')).toBe('time:a..b (host:x OR host:y) is:error');
    expect(joined('time:a..b', '', 'status:4xx')).toBe('time:a..b status:4xx');
  });
});

describe('without a choice', () => {
  test('the range is the whole recording, or its last day', () => {
    const ages: [number, string][] = [[0, 'all'], [14 * MINUTE, 'all'], [DAY, 'all'], [DAY + HOUR, '24h'], [9 * DAY, '24h']];
    for (const [age, preset] of ages) expect(presetFor(age), String(age)).toBe(preset);
  });

  test('a recording of some seconds has bars of a second', () => {
    expect(spanOf({ preset: 'all' }, NOON + 20 * SECOND, NOON).step).toBe(SECOND);
  });
});
