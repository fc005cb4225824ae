// The trace of a conversation: what ran when, beside what, and for how much.
import type { ConversationView, Exchange, Item } from './types';

export interface TraceRow {
  id: string;
  depth: number;
  kind: 'model' | 'tool';
  label: string;
  detail: string;
  /** Microseconds since the epoch; `to` equals `from` if the end is not known. */
  from: number;
  to: number;
  /** When the response began. */
  first: number | null;
  /** Whether it has no end yet, or none was recorded. */
  isOpen: boolean;
  failed: boolean;
  turn: number;
  cost: number | null;
  input: number;
  cached: number;
  output: number;
  conversation: string;
  /** The flow of a request. */
  flow: string | null;
  /** The key of the message that it belongs to. */
  key: string | null;
  /** The conversation of the sub-agent that a tool call started. */
  child: string | null;
}

const purposes: Record<Exchange['purpose'], string> = {
  step: '', compact: 'compaction', title: 'title', probe: 'probe', utility: 'utility call',
};

function modelRow(view: ConversationView, exchange: Exchange, key: string | null, depth: number): TraceRow {
  const words = [purposes[exchange.purpose], exchange.error ?? exchange.stop ?? ''];
  return {
    id: `${view.id} ${exchange.flow} ${exchange.part}`, depth, kind: 'model', label: exchange.model || 'request',
    detail: words.filter(Boolean).join(', '), from: exchange.started, to: exchange.started + exchange.duration,
    first: exchange.first_byte === undefined ? null : exchange.started + exchange.first_byte,
    isOpen: false, failed: exchange.error !== undefined, turn: exchange.turn, cost: exchange.cost,
    input: exchange.usage?.input ?? 0, cached: exchange.usage?.cache_read ?? 0, output: exchange.usage?.output ?? 0,
    conversation: view.id, flow: exchange.flow, key, child: null,
  };
}

function toolRow(view: ConversationView, item: Extract<Item, { kind: 'tool' }>, turn: number, depth: number, n: number): TraceRow {
  return {
    id: `${view.id} ${item.key} ${n}`, depth, kind: 'tool', label: item.name || 'tool', detail: item.summary, from: item.at,
    to: Math.max(item.at, item.result?.at ?? item.at), first: null, isOpen: !item.result, failed: item.result?.is_error === true,
    turn, cost: null, input: 0, cached: 0, output: 0, conversation: view.id, flow: null, key: item.key, child: item.child ?? null,
  };
}

/** Depth up to which sub-agents are nested. */
const MAX_DEPTH = 8;

/** The rows in the order of their start; those of a sub-agent below the call that started it, if it is loaded. */
export function traceRows(view: ConversationView, loaded: ReadonlyMap<string, ConversationView>, depth = 0): TraceRow[] {
  const keys = new Map<number, string>();
  const rows: TraceRow[] = [];
  for (const turn of view.thread.turns) {
    turn.items.forEach((item, n) => {
      if (item.exchange !== undefined) keys.set(item.exchange, item.key);
      if (item.kind === 'tool') rows.push(toolRow(view, item, turn.number, depth, n));
    });
  }
  view.thread.exchanges.forEach((exchange, i) => rows.push(modelRow(view, exchange, keys.get(i) ?? null, depth)));
  rows.sort((a, b) => a.from - b.from || a.to - b.to);
  return rows.flatMap((row) => {
    const child = row.child && depth < MAX_DEPTH ? loaded.get(row.child) : undefined;
    return child ? [row, ...traceRows(child, loaded, depth + 1)] : [row];
  });
}

export interface Span {
  from: number;
  to: number;
}

/** Spans without overlaps, in order. */
export function union(spans: Span[]): Span[] {
  const sorted = spans.filter((s) => s.to > s.from).sort((a, b) => a.from - b.from);
  const found: Span[] = [];
  for (const { from, to } of sorted) {
    const last = found.at(-1);
    if (last && from <= last.to) last.to = Math.max(last.to, to);
    else found.push({ from, to });
  }
  return found;
}

const length = (spans: Span[]) => spans.reduce((n, s) => n + s.to - s.from, 0);

/** Where the time from the first to the last moment went. */
export interface TraceTotals {
  whole: number;
  /** While a request to a model ran. */
  model: number;
  /** While only tools ran. */
  tools: number;
  /** While nothing ran. */
  waiting: number;
  /** The time of all requests and calls one after the other, and how often it fits into the time they took. */
  work: number;
  parallel: number;
}

export function traceTotals(rows: TraceRow[]): TraceTotals {
  if (rows.length === 0) return { whole: 0, model: 0, tools: 0, waiting: 0, work: 0, parallel: 1 };
  const from = Math.min(...rows.map((r) => r.from));
  const whole = rows.reduce((n, r) => Math.max(n, r.to), from) - from;
  const model = length(union(rows.filter((r) => r.kind === 'model')));
  const busy = length(union(rows));
  // A call that started a sub-agent is not work beside the sub-agent's.
  const shown = new Set(rows.map((r) => r.conversation));
  const work = length(rows.filter((r) => !(r.child && shown.has(r.child))));
  return { whole, model, tools: busy - model, waiting: whole - busy, work, parallel: busy > 0 ? Math.max(1, work / busy) : 1 };
}

/** A span in which nothing ran, and where it is drawn, from 0 to 1. */
export interface Gap extends Span {
  x: number;
  end: number;
}

export interface Scale {
  /** Where a moment is drawn, from 0 to 1. */
  x: (at: number) => number;
  gaps: Gap[];
  ticks: { x: number; elapsed: number }[];
}

/** Shortest span without work that is shortened, in microseconds, and its share of the work. */
const MIN_GAP = 2e6;
const GAP_SHARE = 0.05;
/** The share of the work that a shortened span takes. */
const SHORT = 0.02;

/** Where moments are drawn; long spans in which nothing ran are shortened if `isShort`. */
export function scaleOf(rows: TraceRow[], isShort: boolean): Scale {
  const busy = union(rows);
  const from = rows.reduce((n, r) => Math.min(n, r.from), rows[0]?.from ?? 0);
  const end = rows.reduce((n, r) => Math.max(n, r.to), from);
  const work = Math.max(1, length(busy));
  const least = Math.max(MIN_GAP, work * GAP_SHARE);
  const pauses = busy.slice(1).map((span, i) => ({ from: busy[i]!.to, to: span.from }));
  const gaps = isShort ? pauses.filter((p) => p.to - p.from >= least) : [];
  const short = work * SHORT;
  const whole = Math.max(1, end - from - length(gaps) + gaps.length * short);
  const x = (at: number) => {
    let drawn = at - from;
    for (const gap of gaps) {
      if (at >= gap.to) drawn -= gap.to - gap.from - short;
      else if (at > gap.from) drawn -= (at - gap.from) * (1 - short / (gap.to - gap.from));
    }
    return Math.max(0, Math.min(1, drawn / whole));
  };
  return { x, gaps: gaps.map((g) => ({ ...g, x: x(g.from), end: x(g.to) })), ticks: ticks(from, end, gaps, x) };
}

const STEPS = [1, 2, 5];
/** Ticks are at least this far apart. */
const APART = 0.08;

function ticks(from: number, end: number, gaps: Span[], x: (at: number) => number): Scale['ticks'] {
  const visible = end - from - length(gaps);
  let step = 1000;
  for (let i = 0; visible / step > 10 && i < 60; i += 1) step = STEPS[(i + 1) % 3]! * 10 ** (3 + Math.floor((i + 1) / 3));
  const found: Scale['ticks'] = [{ x: 0, elapsed: 0 }];
  // Jumps over the gaps, so that the number of steps is bounded by what is visible.
  let at = from + step;
  while (at < end) {
    const gap = gaps.find((g) => at > g.from && at < g.to);
    if (gap) {
      at = from + Math.ceil((gap.to - from) / step) * step;
      continue;
    }
    if (x(at) - found.at(-1)!.x >= APART && x(at) < 0.96) found.push({ x: x(at), elapsed: at - from });
    at += step;
  }
  return found;
}
