import { describe, expect, it } from 'vitest';
import { selectedBy, type Pending } from './pending';

const all = ['a', 'b', 'c'].map((id) => ({ id }) as Pending);
const ids = (list: Pending[]) => list.map((p) => p.id);

describe('what waits, under a filter', () => {
  it('is all there without one', () => {
    expect(selectedBy('  ', all, null)).toEqual({ shown: all, note: '' });
  });

  it('is shown where the filter selects it, and counted where that cannot be said', () => {
    const judged = { query: 'host:a', ids: new Map([['a', true], ['b', false], ['c', null]]) };
    const { shown, note } = selectedBy(' host:a', all, judged);
    expect(ids(shown)).toEqual(['a']);
    expect(note).toBe('1 more is pending, but too little is known to apply this filter:');
    expect(selectedBy('host:a', all.slice(0, 2), judged).note).toBe('');
  });

  it('is not shown by what another filter said of it', () => {
    const { shown, note } = selectedBy('host:b', all, { query: 'host:a', ids: new Map([['a', true]]) });
    expect([ids(shown), note]).toEqual([[], '3 more are pending, but too little is known to apply this filter:']);
  });
});
