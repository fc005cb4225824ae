// Compares two conversations: figures, tools, and turns aligned by their prompts.
import { itemCount } from './thread';
import type { ConversationView, Turn } from './types';

export interface Figure {
  label: string;
  kind: 'count' | 'money' | 'duration';
  a: number;
  b: number;
}

function toolsOf(view: ConversationView): Map<string, { calls: number; failed: number }> {
  const found = new Map<string, { calls: number; failed: number }>();
  for (const turn of view.thread.turns) {
    for (const item of turn.items) {
      if (item.kind !== 'tool' || !item.name) continue;
      const tool = found.get(item.name) ?? { calls: 0, failed: 0 };
      found.set(item.name, { calls: tool.calls + 1, failed: tool.failed + (item.result?.is_error ? 1 : 0) });
    }
  }
  return found;
}

const calls = (view: ConversationView) => [...toolsOf(view).values()].reduce((n, t) => n + t.calls, 0);
const errors = (view: ConversationView) => view.thread.exchanges.filter((e) => e.error).length;
const modelTime = (view: ConversationView) => view.thread.exchanges.reduce((n, e) => n + e.duration, 0);

export function figuresOf(a: ConversationView, b: ConversationView): Figure[] {
  const of = (label: string, kind: Figure['kind'], value: (view: ConversationView) => number): Figure => ({ label, kind, a: value(a), b: value(b) });
  return [
    of('Turns', 'count', (v) => v.thread.turns.filter((t) => t.number > 0).length),
    of('Requests', 'count', (v) => v.used.exchanges),
    of('Errors', 'count', errors),
    of('Tool calls', 'count', calls),
    of('Messages', 'count', (v) => itemCount(v.thread.turns)),
    of('Input tokens', 'count', (v) => v.used.input),
    of('Cached tokens', 'count', (v) => v.used.cache_read),
    of('Output tokens', 'count', (v) => v.used.output),
    of('Cost', 'money', (v) => v.used.cost),
    of('Model time', 'duration', modelTime),
    of('From first to last', 'duration', (v) => v.updated - v.started),
  ];
}

/** The change from `a` to `b` in percent; null if there is none to name. */
export function change(a: number, b: number): number | null {
  return a === 0 || a === b ? null : ((b - a) / a) * 100;
}

export interface ToolUse {
  name: string;
  a: number;
  b: number;
  failedA: number;
  failedB: number;
}

/** How often each tool was called, the most used first. */
export function toolUse(a: ConversationView, b: ConversationView): ToolUse[] {
  const [before, after] = [toolsOf(a), toolsOf(b)];
  const names = new Set([...before.keys(), ...after.keys()]);
  const none = { calls: 0, failed: 0 };
  const list = [...names].map((name) => {
    const [x, y] = [before.get(name) ?? none, after.get(name) ?? none];
    return { name, a: x.calls, b: y.calls, failedA: x.failed, failedB: y.failed };
  });
  return list.sort((x, y) => y.a + y.b - (x.a + x.b) || x.name.localeCompare(y.name));
}

/** The prompt of a turn: what the user says in it. */
export function promptOf(turn: Turn): string {
  return turn.items.filter((i) => i.kind === 'text' && i.role === 'user').map((i) => (i.kind === 'text' ? i.text.trim() : '')).join('\n\n');
}

/** The last text of the response in a turn. */
export function replyOf(turn: Turn): string {
  const last = turn.items.findLast((i) => i.kind === 'text' && i.role === 'assistant');
  return last?.kind === 'text' ? last.text.trim() : '';
}

/** Words that are compared per prompt. */
const WORDS = 400;

function wordsOf(text: string): Set<string> {
  return new Set((text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? []).slice(0, WORDS));
}

/** How similar two texts are, from 0 to 1, by the words they share. */
export function similarity(a: Set<string>, b: Set<string>): number {
  if (a.size + b.size === 0) return 1;
  let shared = 0;
  for (const word of a) if (b.has(word)) shared += 1;
  return (2 * shared) / (a.size + b.size);
}

export interface Pair {
  a: Turn | null;
  b: Turn | null;
}

/** Least similarity of two prompts that stand beside each other. */
const ALIKE = 0.3;
/** Most turns that are aligned by their prompts; longer conversations are by their numbers. */
const MAX_TURNS = 400;

/** Pairs of turns in order: those with similar prompts stand beside each other, the others alone. */
export function alignTurns(a: Turn[], b: Turn[]): Pair[] {
  if (a.length > MAX_TURNS || b.length > MAX_TURNS) {
    return Array.from({ length: Math.max(a.length, b.length) }, (_, i) => ({ a: a[i] ?? null, b: b[i] ?? null }));
  }
  const [left, right] = [a, b].map((turns) => turns.map((t) => wordsOf(promptOf(t)))) as [Set<string>[], Set<string>[]];
  const alike = left.map((x) => right.map((y) => similarity(x, y)));
  // The best sum of similarities of what comes behind each pair.
  const best = Array.from({ length: a.length + 1 }, () => new Float64Array(b.length + 1));
  const both = (i: number, j: number) => (alike[i]![j]! >= ALIKE ? alike[i]![j]! + best[i + 1]![j + 1]! : -1);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) best[i]![j] = Math.max(both(i, j), best[i + 1]![j]!, best[i]![j + 1]!);
  }
  const pairs: Pair[] = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    if (both(i, j) === best[i]![j]) pairs.push({ a: a[i++]!, b: b[j++]! });
    else if (best[i + 1]![j] === best[i]![j]) pairs.push({ a: a[i++]!, b: null });
    else pairs.push({ a: null, b: b[j++]! });
  }
  for (; i < a.length; i += 1) pairs.push({ a: a[i]!, b: null });
  for (; j < b.length; j += 1) pairs.push({ a: null, b: b[j]! });
  return pairs;
}

export interface DiffLine {
  side: 'same' | 'before' | 'after';
  text: string;
}

/** Lines that are compared with each other; of longer texts the middle is replaced as a whole. */
const MAX_LINES = 500;

/** The differences of two texts by lines. */
export function diffLines(before: string, after: string): DiffLine[] {
  const [a, b] = [before.split('\n'), after.split('\n')];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const lines = (side: DiffLine['side'], list: string[]): DiffLine[] => list.map((text) => ({ side, text }));
  const [x, y] = [a.slice(head, a.length - tail), b.slice(head, b.length - tail)];
  const middle = x.length > MAX_LINES || y.length > MAX_LINES ? [...lines('before', x), ...lines('after', y)] : longestCommon(x, y);
  return [...lines('same', a.slice(0, head)), ...middle, ...lines('same', a.slice(a.length - tail))];
}

function longestCommon(a: string[], b: string[]): DiffLine[] {
  const best = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      best[i]![j] = a[i] === b[j] ? best[i + 1]![j + 1]! + 1 : Math.max(best[i + 1]![j]!, best[i]![j + 1]!);
    }
  }
  const found: DiffLine[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push({ side: 'same', text: a[i]! });
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && best[i + 1]![j]! >= best[i]![j + 1]!)) found.push({ side: 'before', text: a[i++]! });
    else found.push({ side: 'after', text: b[j++]! });
  }
  return found;
}

/** Usage of the requests of a turn. */
export function turnUsage(view: ConversationView, turn: Turn): { requests: number; output: number; cost: number; duration: number; tools: number } {
  const all = turn.exchanges.map((i) => view.thread.exchanges[i]!).filter(Boolean);
  return {
    requests: all.length,
    output: all.reduce((n, e) => n + (e.usage?.output ?? 0), 0),
    cost: all.reduce((n, e) => n + (e.cost ?? 0), 0),
    duration: all.reduce((n, e) => n + e.duration, 0),
    tools: turn.items.filter((i) => i.kind === 'tool').length,
  };
}
