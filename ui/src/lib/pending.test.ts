import { describe, expect, it } from 'vitest';
import { selectedBy, type Pending } from './pending';

const all = ['a', 'b', 'c'].map((id) => ({ id }) as Pending);
const ids = (list: Pending[]) => list.map((p) => p.id);

describe('pending items under a filter', () => {
  it('are all listed without one', () => {
    expect(selectedBy('  ', all, null)).toEqual({ shown: all, note: '' });
  });

  it('are listed if they match, and counted if that is unknown', () => {
    const judged = { query: 'host:a', ids: new Map([['a', true], ['b', false], ['c', null]]) };
    const { shown, note } = selectedBy(' host:a', all, judged);
    expect(ids(shown)).toEqual(['a']);
    expect(note).toBe('1 more pending request cannot be matched against this filter yet:');
    expect(selectedBy('host:a', all.slice(0, 2), judged).note).toBe('');
  });

  it('are not listed by the result of another filter', () => {
    const { shown, note } = selectedBy('host:b', all, { query: 'host:a', ids: new Map([['a', true]]) });
    expect([ids(shown), note]).toEqual([[], '3 more pending requests cannot be matched against this filter yet:']);
  });
});
