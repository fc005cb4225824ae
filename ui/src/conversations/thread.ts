// Which items of a thread are rendered, and where a text occurs in it.
import { textOf } from './figures';
import type { Item, Turn } from './types';

/** Items and turns rendered at once; more are added on request. */
export const ITEMS = 300;
export const TURNS = 60;

/** A range of the items of all turns, counted through; without its end. */
export interface Range {
  from: number;
  to: number;
}

/** A turn with those of its items that are rendered. */
export interface Part {
  turn: Turn;
  items: Item[];
  /** Index of the first of them, counted through all turns, and within the turn. */
  at: number;
  offset: number;
}

export function itemCount(turns: Turn[]): number {
  return turns.reduce((n, turn) => n + turn.items.length, 0);
}

/** The range before `to` that is rendered at once. */
export function lastRange(turns: Turn[], to = itemCount(turns)): Range {
  let from = to;
  let start = itemCount(turns);
  let count = 0;
  for (let i = turns.length - 1; i >= 0 && count < TURNS; i -= 1) {
    start -= turns[i]!.items.length;
    if (start >= to) continue;
    count += 1;
    from = Math.max(start, to - ITEMS);
    if (from > start) break;
  }
  return { from, to };
}

/** The range with more items before it. */
export function earlier(turns: Turn[], range: Range): Range {
  return { from: lastRange(turns, range.from).from, to: range.to };
}

/** A range in which the item is rendered: the same if it already is. */
export function reveal(turns: Turn[], range: Range, at: number): Range {
  if (at >= range.from && at < range.to) return range;
  const total = itemCount(turns);
  const from = Math.max(0, at - 40);
  return { from, to: Math.min(total, from + ITEMS) };
}

/** The turns of a range, the first and the last of them perhaps in part. A turn without items is shown with its successor. */
export function parts(turns: Turn[], range: Range): Part[] {
  const found: Part[] = [];
  let start = 0;
  for (const turn of turns) {
    const end = start + turn.items.length;
    const [from, to] = [Math.max(start, range.from), Math.min(end, range.to)];
    if (from < to || (turn.items.length === 0 && start >= range.from && start <= range.to)) {
      found.push({ turn, items: turn.items.slice(from - start, to - start), at: from, offset: from - start });
    }
    start = end;
  }
  return found;
}

/** The texts of an item that are searched: what it shows. */
export function textsOf(item: Item): string[] {
  switch (item.kind) {
    case 'text':
    case 'thinking':
    case 'context':
      return [item.text];
    case 'tool':
      return [
        item.name, item.summary, ...strings(item.input), ...(item.result ? [textOf(item.result.content)] : []),
      ];
    case 'image':
    case 'document':
      return [item.title ?? '', item.url ?? ''];
    case 'error':
      return [item.name, item.message];
    case 'other':
      return [item.name, ...strings(item.value)];
  }
}

/** The strings and names within a value, without recursion: arguments may be nested as deeply as they like. */
function strings(value: unknown): string[] {
  const found: string[] = [];
  const waiting: unknown[] = [value];
  while (waiting.length > 0) {
    const one = waiting.pop();
    if (typeof one === 'string') found.push(one);
    else if (typeof one === 'number') found.push(String(one));
    else if (one !== null && typeof one === 'object') {
      if (!Array.isArray(one)) found.push(...Object.keys(one));
      for (const member of Object.values(one)) waiting.push(member);
    }
  }
  return found;
}

/** The items that contain a text, whatever its case, counted through all turns. */
export function findItems(turns: Turn[], wanted: string): number[] {
  const needle = wanted.trim().toLowerCase();
  if (!needle) return [];
  const found: number[] = [];
  let at = 0;
  for (const turn of turns) {
    for (const item of turn.items) {
      if (textsOf(item).some((text) => text.toLowerCase().includes(needle))) found.push(at);
      at += 1;
    }
  }
  return found;
}

/** Index of the item of a message, counted through all turns; -1 if it is not on this path. */
export function itemOf(turns: Turn[], key: string): number {
  let at = 0;
  for (const turn of turns) {
    const i = turn.items.findIndex((item) => item.key === key);
    if (i >= 0) return at + i;
    at += turn.items.length;
  }
  return -1;
}
