// Pure functions: formatters, queries, keys, JSON, ids, statistics, timings.
import { describe, expect, it, test } from 'vitest';
import * as format from './format';
import { percentile } from './figures';
import { firstIdAt, millisOf } from './flowid';
import { parse } from './json';
import { actionOf, BINDINGS, keyOfPage, KeySequence, needsKey, type Pressed } from './keys';
import { hasJsonFrames, imageType, isEventStream, isPretty } from './imageType';
import { chips, completed, narrowed, quote, term, without, words } from './query';
import { timingSpans } from './timings';
import { badgesOf, fittingBadges, unredactedNotice } from '../traffic/badges';
import { defaultChoices, fitting, widthIn } from '../traffic/columns';
import type { UnixMicros } from './time';
import type { Summary } from './types';

describe('formatting', () => {
  it.each([
    [0, '0 B'], [999, '999 B'], [1000, '1.00 kB'], [9_994, '9.99 kB'], [12_345, '12.3 kB'], [999_499, '999 kB'],
    [999_500, '1.00 MB'], [5e15, '5.00 PB'],
  ])('%d bytes are %s', (n, text) => expect(format.size(n)).toBe(text));

  it.each([
    [0, '0 µs'], [850, '850 µs'], [1000, '1.00 ms'], [12_345, '12.3 ms'], [999_499, '999 ms'], [999_500, '1.00 s'],
    [59_994_000, '60.0 s'], [60_000_000, '1 min 0 s'], [3_725e6, '1 h 2 min'], [90_000e6, '1 d 1 h'],
  ])('%d microseconds are %s', (n, text) => expect(format.duration(n)).toBe(text));

  it('counts with a noun', () => expect([0, 1, 2, 1000].map((n) => format.counted(n, 'value'))).toEqual(['0 values', '1 value', '2 values', '1\u202f000 values']));
  it('separates thousands', () => expect(format.count(1234567)).toBe('1\u202f234\u202f567'));
  it('shows the date unless it is today', () => {
    const at = new Date(2026, 0, 31, 7, 5, 9, 45).getTime();
    expect(format.clock(at * 1000, at)).toBe('07:05:09.045');
    expect(format.clock(at * 1000, at + 3 * 86_400_000)).toBe('2026-01-31 07:05:09');
  });
  it.each([
    ['application/json', 'json'], ['application/vnd.api+json', 'json'], ['text/event-stream', 'sse'],
    ['image/svg+xml', 'svg'], ['application/dash+xml', 'dash'], ['application/vnd.ms-excel', 'ms-excel'], ['text/plain', 'text'], ['application/x-ndjson', 'ndjson'], [undefined, ''],
  ])('%s is short for %s', (media, short) => expect(format.shortType(media)).toBe(short));
  it('omits the default port', () => {
    expect(format.host('a.test:443', 'https')).toBe('a.test');
    expect(format.host('a.test:443', 'http')).toBe('a.test:443');
    expect(format.host('[::1]:80', 'http')).toBe('[::1]');
  });
  it('decodes non-text bytes', () => {
    expect([...format.octets({ base64: '//4=' })]).toEqual([255, 254]);
    expect(format.hex(Uint8Array.from([0x41, 0]))).toMatch(/^00000000 {2}41 00 +\|A\.\|$/);
  });
});

describe('terms of a query', () => {
  it.each([
    ['plain', 'plain'], ['two words', '"two words"'], ['a"b\\c', '"a\\"b\\\\c"'], ['(x)', '"(x)"'], ['', '""'],
    ['-dash', '"-dash"'], ['/path', '"/path"'], ['a*b', '"a*b"'], ['1..2', '"1..2"'],
  ])('%s is quoted as %s', (value, quoted) => expect(quote(value)).toBe(quoted));

  it('are split, except in quotes and parentheses', () => {
    expect(words('host:a  "two words" (x OR "y)") body:"a \\" b"')).toEqual(['host:a', '"two words"', '(x OR "y)")', 'body:"a \\" b"']);
  });
  it.each([
    ['', 'host:a', false, 'host:a'],
    ['host:a', 'host:a', false, 'host:a'],
    ['host:a', 'status:200', true, 'host:a -status:200'],
    ['-host:a x', 'host:a', false, 'x host:a'],
    ['a OR b', 'host:a', false, '(a OR b) host:a'],
  ])('%j narrowed by %s, out: %s, is %s', (query, wanted, out, result) => expect(narrowed(query, wanted, out)).toBe(result));
  it('can be removed one by one, unless combined by OR', () => {
    expect(without('a b c', 1)).toBe('a c');
    expect(chips('a b')).toEqual(['a', 'b']);
    expect(chips('a OR b')).toEqual(['a OR b']);
    expect(chips('')).toEqual([]);
  });
  it('can be exact', () => expect(term('path', '/a b', true)).toBe('path:="/a b"'));
  it('are completed at the cursor (byte offsets)', () => {
    expect(completed('é sta x', 5, { start: 3, text: 'status:', doc: '' })).toEqual({ text: 'é status: x', cursor: 9 });
    expect(completed('is:we', 5, { start: 3, text: 'websocket', doc: '' })).toEqual({ text: 'is:websocket ', cursor: 13 });
  });
});

describe('keys', () => {
  const press = (key: string, held: Partial<Pressed> = {}) => ({
    key, ctrlKey: false, metaKey: false, altKey: false, shiftKey: false, ...held,
  });
  it('are unique', () => {
    const all = BINDINGS.flatMap((b) => b.keys);
    expect(new Set(all).size).toBe(all.length);
  });
  it.each([
    ['j', {}, 'next'], ['G', { shiftKey: true }, 'last'], ['k', { ctrlKey: true }, 'palette'], ['k', { metaKey: true }, 'palette'],
    [' ', { shiftKey: true }, 'pageUp'], ['r', { ctrlKey: true }, null], ['c', { metaKey: true }, null], ['ArrowDown', {}, 'next'],
    ['3', { altKey: true }, null], ['?', { shiftKey: true }, 'help'],
  ])('%j with %j is %s', (key, held, action) => expect(actionOf(press(key, held), true)).toBe(action));
  it('of flows work only on the traffic page', () => {
    expect(actionOf(press('d'), false)).toBeNull();
    expect(actionOf(press('?'), false)).toBe('help');
  });
  it('that are held down move on, and do everything else once', () => {
    const repeated = BINDINGS.filter((b) => actionOf(press(b.keys.at(-1)!.replace(/^(Ctrl|Shift)\+/, ''), { repeat: true }), true) === b.action);
    expect(repeated.map((b) => b.action).sort()).toEqual(['first', 'last', 'next', 'nextTab', 'pageDown', 'previous', 'previousTab']);
    expect(actionOf(press(' ', { shiftKey: true, repeat: true }), true)).toBe('pageUp');
    expect(['d', 'r', 'm', 'x', 'p', 'u', 'T'].map((key) => actionOf(press(key, { repeat: true }), true))).toEqual(Array(7).fill(null));
  });
});

describe('JSON', () => {
  it('keeps every token as it was written', () => {
    const [node] = parse('{"a":1.0000000000000000001,"a":[],"é":"\\u00e9 \\"","n":[true,null,-0.0e5]}');
    expect(node?.children.map((c) => [c.name, c.kind, c.raw])).toEqual([
      ['a', 'number', '1.0000000000000000001'], ['a', 'array', ''], ['é', 'string', '"\\u00e9 \\""'], ['n', 'array', ''],
    ]);
  });
  it('may be several values in sequence', () => expect(parse('{"a":1}\n{"b":2}\n')).toHaveLength(2));
  it.each(['', '{', '[1,]', '{"a"}', '{a:1}', '[1 2', 'nul', '"a\nb"', '[1]]', '{"a":1,}', '['.repeat(100_000)])(
    'is refused when it is none: %.20s',
    (text) => expect(() => parse(text)).toThrow(),
  );
});

test('ids are constructed for a time, and their time is read', () => {
  const millis = 1_763_640_000_123;
  expect(millisOf(firstIdAt(millis))).toBe(millis);
  expect(firstIdAt(millis)).toHaveLength(26);
  expect(firstIdAt(millis) < firstIdAt(millis + 1)).toBe(true);
});

test('images are recognised by magic bytes; SVG is excluded', () => {
  expect(imageType(Uint8Array.from([0xff, 0xd8, 0xff, 0xe0]))).toBe('image/jpeg');
  expect(imageType(new TextEncoder().encode('RIFF\0\0\0\0WEBPVP8 '))).toBe('image/webp');
  expect(imageType(new TextEncoder().encode('<svg onload="x()">'))).toBeNull();
  expect(imageType(new Uint8Array())).toBeNull();
});

test('percentiles are the bounds of their buckets', () => {
  expect(percentile([5, 4, 1], [10, 20], 0.5)).toBe(10);
  expect(percentile([5, 4, 1], [10, 20], 0.9)).toBe(20);
  expect(percentile([0, 0, 1], [10, 20], 0.5)).toBe(20);
  expect(percentile([], [10, 20], 0.5)).toBe(0);
});

test('timings become spans on both sides', () => {
  const found = timingSpans(
    { request_head: 100, request_body: 150, dns: 20, connect: 30, tls: 50, request_sent: 260, first_byte: 400, last_byte: 500, done: 520 },
    520,
  );
  expect(found.map((s) => [s.side, s.label, s.start, s.length])).toEqual([
    ['client', 'receive request head', 0, 100], ['client', 'receive request body', 100, 50],
    ['upstream', 'DNS', 100, 20], ['upstream', 'connect', 120, 30], ['upstream', 'TLS', 150, 50], ['upstream', 'send request', 200, 60],
    ['upstream', 'wait (TTFB)', 260, 140], ['upstream', 'receive response', 400, 100], ['client', 'send response', 400, 120],
  ]);
  expect(timingSpans({}, 10)).toEqual([]);
});

describe('prompts that left with findings', () => {
  const tags = ['redact:flagged', 'unredacted:5', 'unredacted:2', 'redact:route:gateway', 'found:ssn'];

  it('have one badge, in the tone of a warning', () => {
    const flow = { id: 'a', kind: 'http', scheme: 'http', state: 'complete', messages: 0, tags } as unknown as Parameters<typeof badgesOf>[0];
    expect(badgesOf(flow)).toMatchObject([{ label: 'unredacted', term: 'tag:redact:flagged', tone: 'bad' }]);
  });

  it('say how many findings left', () => {
    expect(unredactedNotice(tags)).toContain('7 findings unredacted');
    expect(unredactedNotice(['redact:flagged', 'unredacted:1'])).toContain('1 finding unredacted');
    expect(unredactedNotice(['redact:flagged'])).toContain('with findings unredacted');
  });
});

describe('the reason for a passthrough', () => {
  const tunnel: Summary = {
    id: 'x', state: 'complete', kind: 'tunnel', started: 0 as UnixMicros, duration: 1, scheme: 'https', authority: 'a.test:443', version: '',
    client: null, request_size: 1, response_size: 1, messages: 0,
  };
  it('is a badge and a filter term', () => {
    expect(badgesOf({ ...tunnel, passthrough: 'pinning_bypass' })[0]).toMatchObject({ label: 'pinned', term: 'passthrough:pinning_bypass', tone: 'bad' });
    expect(badgesOf({ ...tunnel, passthrough: 'excluded' })[0]).toMatchObject({ label: 'excluded', tone: 'plain' });
    expect(badgesOf({ ...tunnel, passthrough: 'of_tomorrow' })[0]!.label).toBe('of_tomorrow');
    expect(badgesOf(tunnel)[0]!.label).toBe('tun');
  });
});

it('tells framed JSON and event streams from what is pretty-printed first', () => {
  for (const media of ['application/connect+json', 'application/grpc+json', 'application/grpc-web+json']) {
    expect([hasJsonFrames(media), isPretty(media)]).toEqual([true, false]);
  }
  for (const media of ['application/grpc', 'application/grpc-web-text', 'application/proto', 'application/vnd.acme+cbor']) {
    expect([hasJsonFrames(media), isPretty(media)]).toEqual([false, true]);
  }
  expect(['application/vnd.amazon.eventstream', 'text/event-stream'].map(isEventStream)).toEqual([true, false]);
});

describe('keys of two presses', () => {
  const key = (k: string, held: Partial<Pressed> = {}): Pressed => ({ key: k, ctrlKey: false, metaKey: false, altKey: false, shiftKey: false, ...held });

  it('name a page, unless the second comes late or belongs to nothing', () => {
    const keys = new KeySequence();
    const press = (pressed: Pressed, now: number) => {
      const binding = keys.press(pressed, now);
      return binding && binding.action;
    };
    expect([press(key('g'), 0), press(key('r'), 400)]).toEqual([null, 'goRules']);
    expect([press(key('g'), 0), press(key('r'), 5000)]).toEqual([null, undefined]);
    expect([press(key('g'), 0), press(key('x'), 100), press(key('r'), 200)]).toEqual([null, undefined, undefined]);
    expect([press(key('g'), 0), press(key('g'), 100), press(key('g'), 200)]).toEqual([null, 'first', null]);
    expect(press(key('g', { ctrlKey: true }), 0)).toBe(undefined);
  });

  it('are different for every page, and none is a key of the browser', () => {
    const pages = BINDINGS.filter((b) => b.action.startsWith('go'));
    expect(pages.length).toBe(11);
    expect(new Set(pages.flatMap((b) => b.keys)).size).toBe(11);
    expect([keyOfPage('conversations'), keyOfPage('nowhere')]).toEqual(['g v', '']);
    expect(BINDINGS.flatMap((b) => b.keys).filter((k) => k.startsWith('Alt+'))).toEqual([]);
  });
});

describe('keys in form controls', () => {
  it.each([
    ['INPUT', 'text', 'j', true], ['INPUT', 'search', '?', true], ['INPUT', 'number', 'ArrowUp', true], ['INPUT', 'password', ' ', true],
    ['TEXTAREA', '', 'j', true], ['SELECT', '', 'j', true], ['INPUT', 'checkbox', 'j', false], ['INPUT', 'checkbox', 'ArrowDown', false],
    ['INPUT', 'checkbox', ' ', true], ['INPUT', 'checkbox', 'Enter', true], ['INPUT', 'radio', 'x', false], ['INPUT', 'radio', 'ArrowDown', true],
    ['INPUT', 'range', 'Home', true], ['INPUT', 'button', 'd', false], ['BUTTON', '', 'j', false], ['DIV', '', ' ', false],
  ])('%s %s needs %s: %s', (tag, type, key, isNeeded) => expect(needsKey(tag, type, key)).toBe(isNeeded));
});

describe('badges in a narrow column', () => {
  const labels = (...list: string[]) => list.map((label) => ({ label, title: '', term: '', tone: 'plain' as const }));

  it('are shown whole, or not', () => {
    expect(fittingBadges(labels('redacted', 'edited', 'held'), 96)).toBe(1);
    expect(fittingBadges(labels('redacted', 'edited', 'held'), 160)).toBe(3);
    expect(fittingBadges(labels('ws', 'cut'), 96)).toBe(2);
  });

  it('begin with the first one, even if it does not fit', () => {
    expect(fittingBadges(labels('a very long tag', 'b'), 60)).toBe(1);
    expect(fittingBadges([], 60)).toBe(0);
  });

  it('have the width that the grid gives to their column', () => {
    const shown = fitting(defaultChoices(), 2000);
    const sum = shown.reduce((n, c) => n + widthIn(shown, c.id, 2000), 0);
    expect(sum).toBeCloseTo(2000 - 20 - 10 * (shown.length - 1));
    expect(widthIn(shown, 'badges', 1000)).toBe(96);
    expect(widthIn([{ id: 'badges', shown: true, width: 140 }], 'badges', 1000)).toBe(140);
  });
});
