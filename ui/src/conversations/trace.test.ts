// The trace: rows, parallel work, waiting, and the scale of time.
import { describe, expect, it } from 'vitest';
import { scaleOf, traceRows, traceTotals, union, type TraceRow } from './trace';
import type { ConversationView } from './types';

const S = 1e6;

function call(flow: string, from: number, to: number, more: object = {}) {
  return { flow, part: 0, started: from * S, duration: (to - from) * S, first_byte: 0.5 * S, model: 'm', usage: null, cost: 0.1, speed: null, missed: false, purpose: 'step', turn: 1, status: 200, complete: true, ...more };
}

function tool(key: string, from: number, to: number | null, child?: string) {
  return { kind: 'tool', key, id: key, name: 'Task', summary: '', input: null, at: from * S, role: 'assistant', result: to === null ? null : { at: to * S, content: [], is_error: false }, ...(child ? { child } : {}) };
}

function view(id: string, exchanges: object[], items: object[]): ConversationView {
  return { id, children: [], thread: { exchanges, turns: [{ number: 1, exchanges: [], items }], branches: [], leaf: null } } as unknown as ConversationView;
}

// A request of 2 s, two tools at once of which one starts a sub-agent, a request, a pause of 100 s, and a request.
const main = view('main', [call('f1', 0, 2), call('f2', 6, 8), call('f3', 108, 110)], [
  { ...tool('t1', 2, 6, 'sub'), exchange: 0 }, tool('t2', 2, 5),
]);
const sub = view('sub', [call('g1', 2.5, 4.5)], []);

describe('rows', () => {
  it('are in the order of their start, with sub-agents below their calls', () => {
    const rows = traceRows(main, new Map([['sub', sub]]));
    expect(rows.map((r) => [r.kind, r.flow ?? r.key, r.depth])).toEqual([
      ['model', 'f1', 0], ['tool', 't2', 0], ['tool', 't1', 0], ['model', 'g1', 1], ['model', 'f2', 0], ['model', 'f3', 0],
    ]);
    expect([rows[0]!.key, rows[0]!.first]).toEqual(['t1', 0.5 * S]);
    expect(traceRows(main, new Map()).length).toBe(5);
  });

  it('of calls without a result have no length', () => {
    const [row] = traceRows(view('x', [], [tool('t', 3, null)]), new Map());
    expect([row!.from, row!.to, row!.isOpen]).toEqual([3 * S, 3 * S, true]);
  });
});

describe('totals', () => {
  it('say where the time went', () => {
    const totals = traceTotals(traceRows(main, new Map([['sub', sub]])));
    // Requests: 0-2, 2.5-4.5, 6-8, 108-110; tools alone: 2-2.5 and 4.5-6; nothing: 8-108.
    expect([totals.whole, totals.model, totals.tools, totals.waiting]).toEqual([110 * S, 8 * S, 2 * S, 100 * S]);
    // The call that started the sub-agent is not counted beside it.
    expect(totals.work).toBe(11 * S);
    expect(totals.parallel).toBeCloseTo(1.1);
    expect(traceTotals([]).whole).toBe(0);
  });

  it('join spans that touch or overlap', () => {
    expect(union([{ from: 5, to: 6 }, { from: 0, to: 2 }, { from: 1, to: 3 }, { from: 3, to: 4 }, { from: 9, to: 9 }])).toEqual([{ from: 0, to: 4 }, { from: 5, to: 6 }]);
  });
});

describe('the scale', () => {
  const rows = traceRows(main, new Map());

  it('is linear, or with shortened pauses', () => {
    const plain = scaleOf(rows, false);
    expect([plain.x(0), plain.x(55 * S), plain.x(110 * S), plain.gaps.length]).toEqual([0, 0.5, 1, 0]);
    const short = scaleOf(rows, true);
    expect(short.gaps.map((g) => [g.from / S, g.to / S])).toEqual([[8, 108]]);
    expect(short.x(8 * S)).toBeGreaterThan(0.75);
    expect(short.x(110 * S)).toBe(1);
    const places = [0, 2, 6, 8, 50, 108, 109, 110].map((t) => short.x(t * S));
    expect([...places].sort((a, b) => a - b)).toEqual(places);
  });

  it('has a bounded number of ticks', () => {
    for (const isShort of [true, false]) expect(scaleOf(rows, isShort).ticks.length).toBeLessThan(14);
    const year: TraceRow[] = [{ ...rows[0]! }, { ...rows[0]!, from: 3e13, to: 3e13 + S }];
    expect(scaleOf(year, true).ticks.length).toBeLessThan(14);
    expect(scaleOf([], true).ticks.length).toBe(1);
  });
});
