// Groups and marks of the list.
import { expect, it } from 'vitest';
import { comments, groups, isStarred, NEWEST, nextSort, noteOn, sorted, sortOf, sortText, tagsOf } from './list';
import type { ConversationSummary } from './types';

const now = new Date('2026-11-23T12:00').getTime();
const one = (id: string, hoursAgo: number, agent = 'a'): ConversationSummary => ({ id, agent, model: 'm', user: '', updated: (now - hoursAgo * 3_600_000) * 1000 }) as ConversationSummary;

it('conversations are grouped by day or by what made them', () => {
  const list = [one('1', 1), one('2', 2, 'b'), one('3', 20), one('4', 24 * 9)];
  expect(groups(list, 'day', now).map((g) => [g.title, g.list.length])).toEqual([['Today', 2], ['Yesterday', 1], ['Sat 14 Nov', 1]]);
  expect(groups(list, 'agent', now).map((g) => [g.title, g.list.map((c) => c.id).join('')])).toEqual([['a', '134'], ['b', '2']]);
  expect(groups(list, 'user', now)[0]!.title).toBe('No user');
  expect([groups(list, 'none', now).length, groups([], 'none', now).length]).toEqual([1, 0]);
});

it('notes are of the conversation or of a message', () => {
  const notes = [{ tags: ['starred', 'x'], comment: 'c' }, { message: 'k', comment: 'd', tags: ['starred'] }];
  expect([isStarred({ notes }), isStarred({ notes }, 'k'), isStarred({ notes }, 'z'), isStarred({})]).toEqual([true, true, false, false]);
  expect([tagsOf({ notes }), comments({ notes }), noteOn(notes, 'k')?.comment, noteOn(undefined)]).toEqual([['x'], 2, 'd', undefined]);
});

it('the table is sorted by any column, and by time if nothing else is known', () => {
  const one = (title: string, cost: number, updated: number) => ({ title, agent: '', model: '', turns: 1, started: 0, updated, used: { input: 0, output: 0, cost } }) as unknown as ConversationSummary;
  const list = [one('b', 2, 9), one('A', 1, 8), one('c', 2, 7)];
  const by = (text: string) => sorted(list, sortOf(text)).map((c) => c.title).join('');
  expect([by('cost down'), by('cost up'), by('title up'), by('updated up'), by('nonsense')]).toEqual(['bcA', 'Abc', 'Abc', 'cAb', 'bAc']);
  expect(nextSort(NEWEST, 'title')).toEqual({ key: 'title', isDescending: false });
  expect(nextSort(NEWEST, 'cost')).toEqual({ key: 'cost', isDescending: true });
  expect(sortText(nextSort(nextSort(NEWEST, 'cost'), 'cost'))).toBe('cost up');
});
