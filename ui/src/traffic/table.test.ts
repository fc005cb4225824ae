// Columns, menu entries, sorting and grouping, phases, and value completion, without a browser.
import { describe, expect, it } from 'vitest';
import { arranged, isGroup, sizeOf, sorted, type Arrangement } from '../lib/arrange';
import { ago, day, dayAndTime, relative } from '../lib/format';
import type { Summary } from '../lib/types';
import { completionsOf, valueAt } from '../lib/valueCompletion';
import type { MenuEntry } from '../parts/ContextMenu.svelte';
import { defaultChoices, fitting, readChoices, template, withPlace, withShift } from './columns';
import { filterTerms, flowMenu, urlOf, type FlowActions } from './flowMenu';
import { kindOf } from './kinds';
import { barWidth, phasesOf } from './phases';

const flow = (over: Partial<Summary> = {}) => ({
  id: '01', state: 'complete', kind: 'http', started: 0, duration: 1000, scheme: 'https', authority: 'api.test:443', method: 'GET', path: '/a?b=1',
  status: 200, version: 'HTTP/1.1', client: '10.0.0.1:5000', request_size: 0, response_size: 10, response_type: 'application/json', messages: 0, ...over,
}) as Summary;
const ids = (shown: { id: string }[]) => shown.map((c) => c.id);

describe('columns', () => {
  it('are left out by importance where they do not fit', () => {
    const wide = ids(fitting(defaultChoices(), 1400));
    expect(wide).toContain('fall');
    expect(wide).not.toContain('client');
    const middle = ids(fitting(defaultChoices(), 700));
    expect(middle).not.toContain('fall');
    expect(middle).toEqual(expect.arrayContaining(['method', 'status', 'host', 'path']));
    expect(ids(fitting(defaultChoices(), 10))).toHaveLength(2);
  });
  it('keep a stored choice, add new columns, and ignore what is not one', () => {
    const stored = readChoices(JSON.stringify([{ id: 'path', shown: true, width: 99999 }, { id: 'nope', shown: true }, { id: 'method', shown: false }, { id: 'path', shown: false }]));
    expect(stored.filter((c) => c.id === 'path')).toEqual([{ id: 'path', shown: true, width: 1200 }]);
    expect(stored.find((c) => c.id === 'method')?.shown).toBe(false);
    expect(stored).toHaveLength(defaultChoices().length);
    for (const bad of ['', '{', '{"a":1}', '[null]', null]) expect(readChoices(bad).filter((c) => c.shown)).toEqual(defaultChoices().filter((c) => c.shown));
  });
  it('are moved past hidden ones', () => {
    const choices = defaultChoices();
    const moved = withShift(choices, 'size', 1);
    expect(ids(moved.filter((c) => c.shown)).join()).toContain('type,dur,size');
    expect(withShift(choices, 'method', -1)).toBe(choices);
    expect(ids(withPlace(choices, 'fall', 'method')).slice(0, 2)).toEqual(['select', 'fall']);
  });
  it('always fill the width', () => {
    expect(template([{ id: 'host', shown: true, width: 80 }, { id: 'path', shown: true, width: 90 }])).toBe('80px minmax(90px, 1fr)');
    expect(template([{ id: 'host', shown: true, width: 80 }, { id: 'path', shown: true }])).toBe('80px minmax(130px, 2.2fr)');
  });
});

describe('the menu of a flow', () => {
  const calls: unknown[][] = [];
  const act = new Proxy({}, { get: (_, name) => (...given: unknown[]) => calls.push([name, ...given]) }) as FlowActions;
  const copies = [{ format: 'curl', label: 'curl' }];
  const entry = (items: MenuEntry[], ...path: string[]): MenuEntry => {
    const found = items.find((i) => i.label === path[0]);
    if (!found) throw new Error(`no ${path[0]} in ${items.map((i) => i.label).join()}`);
    return path.length > 1 ? entry(found.items ?? [], ...path.slice(1)) : found;
  };
  it('does what it says', () => {
    const menu = flowMenu({ flow: flow(), selection: new Set(), copies }, act);
    calls.length = 0;
    entry(menu, 'Copy', 'URL').run?.();
    entry(menu, 'Copy', 'curl').run?.();
    entry(menu, 'Filter by', 'Host api.test').run?.();
    entry(menu, 'Filter out', 'Status 200').run?.();
    entry(menu, 'New rule', 'Break here…').run?.();
    entry(menu, 'Delete').run?.();
    expect(calls).toEqual([
      ['copyText', 'https://api.test/a?b=1', 'URL'], ['copyAs', '01', 'curl'], ['filter', 'host:api.test', false], ['filter', 'status:200', true],
      ['rule', 'hold', flow()], ['remove', ['01']],
    ]);
  });
  it('offers no replay and no rule for a tunnel', () => {
    const menu = flowMenu({ flow: flow({ kind: 'tunnel' }), selection: new Set(), copies }, act);
    expect([entry(menu, 'Replay').disabled, entry(menu, 'New rule').disabled]).toEqual([true, true]);
  });
  it('is that of the selection if the flow is part of it', () => {
    const two = flowMenu({ flow: flow(), selection: new Set(['01', '02']), copies }, act);
    expect(two.map((i) => i.label)).toEqual(['Compare', 'Star 2 flows', 'Export 2 flows', 'Delete 2 flows']);
    expect(flowMenu({ flow: flow(), selection: new Set(['02']), copies }, act).some((i) => i.label.startsWith('Compare'))).toBe(true);
  });
  it('filters by what is known', () => {
    const terms = filterTerms({ flow: flow({ user: 'anna' }), call: { model: 'gpt-5', agent: 'codex', conversation: 'c' }, process: 'curl' });
    expect(terms.map((t) => t.term)).toEqual([
      'host:api.test', 'path:="/a"', 'method:GET', 'status:200', 'resp.type:application/json', 'model:gpt-5', 'agent:codex', 'process:curl', 'user:anna',
      'client:10.0.0.1',
    ]);
  });
  it('copies the URL without an implied port', () => {
    expect(urlOf(flow({ scheme: 'http', authority: 'a.test:8080' }))).toBe('http://a.test:8080/a?b=1');
  });
});

describe('an arrangement', () => {
  const flows = [flow({ id: '1', duration: 5, authority: 'b' }), flow({ id: '2', duration: 9, authority: 'a', status: 500 }), flow({ id: '3', duration: 5, authority: 'b' })];
  const byHost = (f: Summary) => ({ key: f.authority, label: f.authority });
  it('sorts by value, and equal ones newest first', () => {
    expect(ids(sorted(flows, { key: 'dur', descending: false }))).toEqual(['3', '1', '2']);
    expect(ids(sorted(flows, { key: 'dur', descending: true }))).toEqual(['2', '3', '1']);
    expect(ids(sorted(flows, null))).toEqual(['3', '2', '1']);
  });
  it('sorts by the size that is shown, of tunnels as well', () => {
    const list = [flow({ id: '1', response_size: 5 }), flow({ id: '2', kind: 'tunnel', request_size: 100, response_size: 3 }), flow({ id: '3', response_size: 9 })];
    expect(sorted(list, { key: 'size', descending: true }).map(sizeOf)).toEqual([9, 5, 3]);
  });
  it('sorts by what is looked up for each flow', () => {
    const details: Record<string, { process?: string; container?: string; comment?: string }> = { '1': { process: 'curl' }, '2': { container: 'box', comment: 'b' }, '3': { comment: 'a' } };
    const of = (key: 'process' | 'comment') => ids(sorted(['1', '2', '3'].map((id) => flow({ id })), { key, descending: false }, (id) => details[id]));
    expect([of('process'), of('comment')]).toEqual([['3', '2', '1'], ['1', '3', '2']]);
  });
  it('shows the day among times of several days', () => {
    const now = new Date(2026, 10, 24, 12).getTime();
    const at = (...when: [number, number, number, number, number]) => dayAndTime(new Date(...when).getTime() * 1000, now);
    expect([at(2026, 10, 24, 7, 5), at(2026, 10, 3, 7, 5), at(2025, 10, 3, 7, 5)]).toEqual(['07:05:00.000', '3 Nov 07:05', '3 Nov 2025']);
  });
  it('groups, counts failures, and hides the flows of a collapsed group', () => {
    const group: Arrangement = { sort: null, group: 'host' };
    const rows = arranged(flows, group, byHost, new Set(['b']));
    expect(rows.map((r) => (isGroup(r) ? `${r.label} ${r.count} ${r.failed} ${r.open}` : r.id))).toEqual(['b 2 0 false', 'a 1 1 true', '2']);
  });
});

describe('a waterfall bar', () => {
  it('has the upstream phases in order within its length', () => {
    const spans = phasesOf({ request_head: 10, dns: 10, connect: 20, tls: 30, request_sent: 75, first_byte: 90, last_byte: 100, done: 100 }, 100);
    expect(spans.map((s) => s.phase)).toEqual(['dns', 'connect', 'tls', 'send', 'wait', 'receive']);
    for (const s of spans) expect(s.from + s.width).toBeLessThanOrEqual(100);
    expect(phasesOf(undefined, 100)).toEqual([]);
  });
  it('is scaled by the longest', () => expect([barWidth(100, 100), barWidth(25, 100), barWidth(5, 0)]).toEqual([100, 50, 0]));
});

describe('a value being typed', () => {
  it.each([
    ['host:', 5, { key: 'host', typed: '', rest: '', start: 5 }],
    ['status:200 -domain:=api', 23, { key: 'host', typed: 'api', rest: 'status:200', start: 20 }],
    ['ü:x (type:js) a:b', 12, { key: 'type', typed: 'js', rest: 'ü:x () a:b', start: 11 }],
  ])('%j', (text, cursor, place) => expect(valueAt(text, cursor)).toEqual(place));
  it.each(['"host:', 'path:/x', 'status:>=4', 'host:*.a', 'host'])('%j has no counted values', (text) => expect(valueAt(text, text.length)).toBeNull());
  it('is completed by frequency, beginnings first, quoted if needed', () => {
    const place = valueAt('tag:a', 5)!;
    const found = completionsOf(place, [{ value: 'ba', count: 9 }, { value: 'a b', count: 1 }, { value: 'abc', count: 4 }, { value: 'x', count: 99 }]);
    expect(found.map((c) => [c.text, c.count])).toEqual([['abc', 4], ['"a b"', 1], ['ba', 9]]);
  });
});

it('kinds come from types', () => {
  expect([kindOf(flow()), kindOf(flow({ kind: 'tunnel' })), kindOf(flow({ response_type: 'image/svg+xml' })), kindOf(flow({ response_type: 'text/event-stream' })), kindOf(flow({ response_type: 'application/x-foo' }))])
    .toEqual(['json', 'tunnel', 'image', 'stream', 'binary']);
});

it('times are relative, and days have names', () => {
  const now = new Date(2026, 10, 23, 12).getTime();
  expect([0, 12_000, 300_000, 7_200_000, 2 * 86_400_000].map((past) => relative((now - past) * 1000, now))).toEqual(['now', '12 s', '5 min', '2 h', '2 d']);
  expect([ago(now * 1000, now), ago((now - 12_000) * 1000, now)]).toEqual(['now', '12 s ago']);
  expect([day(now * 1000, now), day((now - 86_400_000) * 1000, now), day((now - 3 * 86_400_000) * 1000, now)]).toEqual(['Today', 'Yesterday', 'Fri 20 Nov']);
});
