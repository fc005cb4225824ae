// Virtual scrolling and the loaded rows.
import { describe, expect, it } from 'vitest';
import { headerEdits } from '../traffic/edits';
import { estimate, Segment } from './segment';
import type { State, Summary } from './types';
import { clampOffset, compression, MAX_HEIGHT, reveal, scrollHeight, visible } from './window';

/** A flow whose id sorts by `n`. */
const flow = (n: number, state: State = 'complete') => ({ id: String(n).padStart(6, '0'), state }) as Summary;
const flows = (from: number, to: number) => Array.from({ length: from - to + 1 }, (_, i) => flow(from - i));
const ids = (segment: Segment) => segment.rows.map((f) => Number(f.id));

describe('the window', () => {
  it.each([
    [0, 260, 1000, { first: 0, end: 18 }],
    [2600, 260, 1000, { first: 92, end: 118 }],
    [25_740, 260, 1000, { first: 982, end: 1000 }],
    [0, 260, 3, { first: 0, end: 3 }],
    [0, 260, 0, { first: 0, end: 0 }],
  ])('at %d shows %d pixels of %d rows', (offset, view, total, span) => expect(visible(offset, view, 26, total)).toEqual(span));

  it('reaches the last of ten million rows over a compressed scroll bar', () => {
    const [total, view] = [10_000_000, 800];
    expect(scrollHeight(total, 26)).toBe(MAX_HEIGHT);
    const most = (MAX_HEIGHT - view) * compression(total, 26, view);
    expect(most).toBeCloseTo(total * 26 - view, 0);
    expect(visible(clampOffset(most, total, 26, view), view, 26, total).end).toBe(total);
  });
  it('is not compressed below the height limit', () => expect(compression(400_000, 26, 800)).toBe(1));
  it('moves as little as possible to show a row', () => {
    expect([reveal(0, 100, 260, 26), reveal(5, 100, 260, 26), reveal(20, 100, 260, 26)]).toEqual([0, 100, 286]);
  });
  it('stays within the rows', () => expect([clampOffset(-5, 10, 26, 100), clampOffset(1e9, 10, 26, 100), clampOffset(50, 2, 26, 100)]).toEqual([0, 160, 0]));
});

describe('loaded rows', () => {
  it('insert new flows at the top, and replace known ones', () => {
    const s = new Segment();
    s.reset(flows(5, 1), 0, 5);
    const merged = s.merge([flow(6, 'open'), flow(3, 'failed'), flow(7)], '000005');
    expect(merged).toEqual({ added: 2, above: 2 });
    expect([ids(s), s.total]).toEqual([[7, 6, 5, 4, 3, 2, 1], 7]);
    expect(s.at(4)?.state).toBe('failed');
    s.merge([flow(6, 'complete')], undefined);
    expect(s.total).toBe(7);
  });
  it('insert late matches in order', () => {
    const s = new Segment();
    s.reset([flow(9), flow(5)], 0, 2);
    expect(s.merge([flow(7)], '000009')).toEqual({ added: 1, above: 0 });
    expect(ids(s)).toEqual([9, 7, 5]);
  });
  it('count flows above the loaded rows once, even if updated twice', () => {
    const s = new Segment();
    s.reset(flows(500, 401), 1000, 5000);
    s.merge([flow(900, 'open')], '000480');
    s.merge([flow(900, 'complete')], '000480');
    expect([s.base, s.total]).toEqual([1001, 5001]);
  });
  it('stay bounded while flows arrive, and track dropped ones', () => {
    const s = new Segment();
    s.reset(flows(100, 1), 0, 100);
    for (let n = 101; n <= 9000; n += 100) s.merge(flows(n + 99, n), undefined);
    expect([s.rows.length, s.total, s.base]).toEqual([4000, 9000, 0]);
    expect([s.at(0)?.id, s.at(3999)?.id, s.at(4000)]).toEqual(['009000', '005001', undefined]);
  });
  it('grow downwards by pages until the end is known', () => {
    const s = new Segment();
    s.reset(flows(50, 41), 0, 100);
    s.append(flows(40, 31), false);
    expect([s.end, s.total]).toEqual([20, 100]);
    s.append(flows(30, 29), true);
    expect([s.end, s.total]).toEqual([22, 22]);
  });
  it('correct their base when the top is reached, and shift the view', () => {
    const s = new Segment();
    s.reset(flows(50, 41), 30, 100);
    expect(s.prepend(flows(55, 51), true)).toBe(-25);
    expect([s.base, s.at(0)?.id]).toEqual([0, '000055']);
  });
  it('adjust the base if there are more rows above than estimated', () => {
    const s = new Segment();
    s.reset(flows(50, 41), 2, 100);
    const moved = s.prepend(flows(55, 51), false);
    expect([moved, s.base, s.total]).toEqual([1003, 1000, 1103]);
    expect(s.indexOf('000055')).toBe(1000);
  });
  it('remove deleted flows', () => {
    const s = new Segment();
    s.reset(flows(5, 1), 0, 5);
    s.remove(new Set(['000004', '000099']));
    expect([ids(s), s.total, s.indexOf('000003'), s.indexOf('000004')]).toEqual([[5, 3, 2, 1], 4, 1, -1]);
  });
});

it('times of indices are interpolated', () => {
  const known = [{ index: 100, millis: 0 }, { index: 0, millis: 1000 }, { index: 50, millis: 900 }];
  expect([estimate(0, known), estimate(25, known), estimate(75, known), estimate(400, known)]).toEqual([1000, 950, 450, 0]);
  expect(estimate(5, [])).toBe(0);
});

describe('edited header fields', () => {
  const before: [string, string][] = [['Accept', '*/*'], ['X-Two', '1'], ['x-two', '2'], ['Gone', 'x']];
  it.each([
    ['Accept: */*\nX-Two: 1\nx-two: 2\nGone: x', []],
    ['Accept: text/html\nX-Two: 1\nx-two: 2\nNew:\n', ['Accept: text/html', 'New;', 'Gone:']],
    ['Accept: */*\nX-Two: 3\nGone: x', ['X-Two: 3']],
  ])('%j become the changes that lead there', (written, edits) => expect(headerEdits(before, written)).toEqual(edits));
  it.each(['no colon', ': nameless', 'A: 1\nA: 2'])('%j is rejected', (written) => expect(() => headerEdits([], written)).toThrow());
});
