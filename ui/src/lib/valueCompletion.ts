// Completes the values of a filter with those that occur in recorded flows, and how often.
import { get } from './api';
import { counted } from './format';
import { quote } from './query';
import type { Completion } from './types';

/** A completion with the number of flows that have the value. */
export interface CountedCompletion extends Completion {
  count?: number;
}

/** Keys of the query language, with the key under which the API counts their values. */
const COUNTED: Record<string, string> = {
  host: 'host', domain: 'host', method: 'method', status: 'status', type: 'type', mime: 'type', 'content-type': 'type',
  'resp.type': 'type', 'response.type': 'type', tag: 'tag', user: 'user', process: 'process', program: 'process',
  error: 'error', err: 'error', agent: 'agent', model: 'model',
};
/** Milliseconds for which counts are reused. */
const FRESH = 10_000;
const MAX_SHOWN = 30;

export interface ValuePlace {
  key: string;
  /** What is typed of the value. */
  typed: string;
  /** The query without the term that is being typed. */
  rest: string;
  /** Byte offset of the value. */
  start: number;
}

/** The value at the cursor, if its key is one whose values are counted. */
export function valueAt(text: string, cursor: number): ValuePlace | null {
  const before = text.slice(0, cursor);
  if ((before.match(/(?<!\\)"/g)?.length ?? 0) % 2 === 1) return null;
  const found = /(?:^|[\s(])([-!]*)([\w.-]+):(=?)([^\s"()]*)$/.exec(before);
  const key = found && COUNTED[found[2]!.toLowerCase()];
  if (!found || !key) return null;
  const typed = found[4]!;
  if (/[*<>]|\.\./.test(typed)) return null;
  const word = before.length - typed.length - found[3]!.length - 1 - found[2]!.length - found[1]!.length;
  const after = text.slice(cursor).replace(/^[^\s()]*/, '');
  return {
    key, typed, rest: `${text.slice(0, word)}${after}`.trim(),
    start: new TextEncoder().encode(before.slice(0, before.length - typed.length)).length,
  };
}

/** Completions from counted values: those that begin with the text first, then those that contain it. */
export function completionsOf(place: ValuePlace, values: { value: string; count: number }[]): CountedCompletion[] {
  const typed = place.typed.toLowerCase();
  const fits = values.filter((v) => v.value.toLowerCase().includes(typed) && v.value !== place.typed);
  const begins = (v: { value: string }) => Number(v.value.toLowerCase().startsWith(typed));
  return fits
    .sort((a, b) => begins(b) - begins(a) || b.count - a.count)
    .slice(0, MAX_SHOWN)
    .map((v) => ({ start: place.start, text: quote(v.value), doc: '', count: v.count }));
}

export interface Counted {
  values: { value: string; count: number }[];
  /** What was counted. */
  note: string;
}

const cache = new Map<string, { at: number; counted: Promise<Counted> }>();

async function askServer(key: string, query: string): Promise<Counted> {
  if (key === 'agent' || key === 'model') {
    const { totals } = await get('/conversations/totals');
    const counts = new Map<string, number>();
    for (const t of totals) counts.set(t[key], (counts.get(t[key]) ?? 0) + t.used.exchanges);
    return { values: [...counts].map(([value, count]) => ({ value, count })).filter((v) => v.value).sort((a, b) => b.count - a.count), note: 'calls of the last 7 days' };
  }
  const found = await get('/flows/values', { key, query });
  return { values: found.values, note: found.complete ? counted(found.examined, 'flow') : `the newest ${counted(found.examined, 'flow')}` };
}

/** The values at a place with their counts. */
export function countedAt({ key, rest }: ValuePlace, now = Date.now()): Promise<Counted> {
  const id = `${key} ${rest}`;
  const known = cache.get(id);
  if (known && now - known.at < FRESH) return known.counted;
  if (cache.size > 50) cache.clear();
  // A rest that is not yet valid does not narrow the counts.
  const counted = askServer(key, rest).catch(() => askServer(key, ''));
  cache.set(id, { at: now, counted });
  counted.catch(() => cache.delete(id));
  return counted;
}
