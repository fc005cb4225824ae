// Groups of the list of conversations, and the marks of each.
import * as format from '../lib/format';
import type { ConversationSummary, Note } from './types';

export const GROUPINGS = [
  ['day', 'day'], ['agent', 'agent'], ['model', 'model'], ['user', 'user or key'], ['none', 'nothing'],
] as const;
export type Grouping = (typeof GROUPINGS)[number][0];

/** The columns by which the table is sorted. */
export const SORT_KEYS = ['title', 'agent', 'model', 'turns', 'input', 'output', 'cost', 'lasted', 'updated'] as const;
export type SortKey = (typeof SORT_KEYS)[number];
export interface Sort {
  key: SortKey;
  isDescending: boolean;
}

/** As the server lists them. */
export const NEWEST: Sort = { key: 'updated', isDescending: true };

const VALUES: Record<SortKey, (one: ConversationSummary) => string | number> = {
  title: (c) => c.title.toLowerCase(), agent: (c) => c.agent.toLowerCase(), model: (c) => c.model.toLowerCase(), turns: (c) => c.turns,
  input: (c) => c.used.input, output: (c) => c.used.output, cost: (c) => c.used.cost, lasted: (c) => c.updated - c.started, updated: (c) => c.updated,
};

/** Sorted by a column; equal ones stay in their order. */
export function sorted<T extends ConversationSummary>(list: T[], { key, isDescending }: Sort): T[] {
  const value = VALUES[key];
  const order = (a: T, b: T) => {
    const [x, y] = [value(a), value(b)];
    return x === y ? 0 : (typeof x === 'string' ? x.localeCompare(String(y)) : x - Number(y)) * (isDescending ? -1 : 1);
  };
  return [...list].sort(order);
}

/** The order after a click on the heading of a column: names begin with A, figures with the largest. */
export function nextSort(sort: Sort, key: SortKey): Sort {
  if (sort.key === key) return { key, isDescending: !sort.isDescending };
  return { key, isDescending: !['title', 'agent', 'model'].includes(key) };
}

/** Reads an order as it is written by `sortText`. */
export function sortOf(text: string | null): Sort {
  const [name, direction] = (text ?? '').split(' ');
  const key = SORT_KEYS.find((k) => k === name);
  return key ? { key, isDescending: direction === 'down' } : NEWEST;
}

export const sortText = ({ key, isDescending }: Sort): string => `${key} ${isDescending ? 'down' : 'up'}`;

export interface Group<T> {
  title: string;
  list: T[];
}

/** Groups in the order of their first conversation; those of `day` follow one another because the list is sorted by time. */
export function groups<T extends ConversationSummary>(list: T[], by: Grouping, now = Date.now()): Group<T>[] {
  if (by === 'none') return list.length > 0 ? [{ title: '', list }] : [];
  const found = new Map<string, T[]>();
  for (const one of list) {
    const title = titleOf(one, by, now);
    const group = found.get(title);
    if (group) group.push(one);
    else found.set(title, [one]);
  }
  return [...found].map(([title, members]) => ({ title, list: members }));
}

function titleOf(one: ConversationSummary, by: Exclude<Grouping, 'none'>, now: number): string {
  if (by === 'day') return format.day(one.updated, now);
  if (by === 'agent') return one.agent || 'Unknown client';
  if (by === 'model') return one.model || 'Unknown model';
  return one.user || 'No user';
}

/** The tag of starred conversations, as of flows. */
export const STARRED = 'starred';

/** The note on a message, or on the conversation itself. */
export function noteOn(notes: Note[] | undefined, message?: string): Note | undefined {
  return notes?.find((n) => n.message === message);
}

/** Tags of a conversation itself, without the star. */
export function tagsOf(one: { notes?: Note[] }): string[] {
  return (noteOn(one.notes)?.tags ?? []).filter((t) => t !== STARRED);
}

export function isStarred(one: { notes?: Note[] }, message?: string): boolean {
  return noteOn(one.notes, message)?.tags?.includes(STARRED) ?? false;
}

/** How many comments a conversation has, with those on its messages. */
export function comments(one: { notes?: Note[] }): number {
  return one.notes?.filter((n) => n.comment).length ?? 0;
}
