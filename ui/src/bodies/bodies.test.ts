// What bodies and heads are taken apart into: pairs, cookies, tokens, events, operations, parts; and finding in them.
import { describe, expect, it } from 'vitest';
import { assemble, dataOf, eventName, splitEvents } from './events';
import { findAll, lastAtMost, MAX_MATCHES } from './find';
import { operationsIn } from './graphql';
import { decodeJwt, jwtsIn } from './jwt';
import { boundaryOf, partsOf, textOf } from './multipart';
import { cookiePairs, formPairs, queryPairs, setCookie } from './pairs';

describe('pairs', () => {
  it.each([
    ['/x?a=1&b=&c&a=2#f', [['a', '1'], ['b', ''], ['c', ''], ['a', '2']]],
    ['/x?q=Zo%C3%AB+K%2B&bad=%zz%41%', [['q', 'Zoë K+'], ['bad', '%zzA%']]],
    ['/x?%E2=%FF&=v&&', [['%E2', '%FF'], ['', 'v']]],
    ['GET /p?u=/a?b=c HTTP/1.1', [['u', '/a?b=c HTTP/1.1']]],
    ['/x', []],
  ])('of the query of %s', (path, pairs) => expect(queryPairs(path).map((p) => [p.name, p.value])).toEqual(pairs));

  it('of a form keep equals signs in values', () => expect(formPairs('a=b=c\n')).toEqual([{ name: 'a', value: 'b=c' }]));

  it('of cookies are not decoded', () => {
    expect(cookiePairs('a=1; b="x=%20"; lone;; __proto__=y')).toEqual([
      { name: 'a', value: '1' }, { name: 'b', value: '"x=%20"' }, { name: '', value: 'lone' }, { name: '__proto__', value: 'y' },
    ]);
  });

  it.each([
    ['id=a=b; Path=/; HttpOnly; Max-Age=60; Expires=Wed, 21 Oct 2026 07:28:00 GMT', 4, 0],
    ['id=1; SameSite=None', 1, 1],
    ['id=1; samesite=none; SECURE', 2, 0],
    ['__Host-id=1; Secure; Path=/', 2, 0],
    ['__Host-id=1; Secure; Path=/; Domain=a.test', 3, 1],
    ['__Secure-id=1', 0, 1],
    ['', 0, 0],
  ])('of Set-Cookie %s', (field, attributes, notes) => {
    const cookie = setCookie(field);
    expect([cookie.attributes.length, cookie.notes.length]).toEqual([attributes, notes]);
  });
});

const base64url = (text: string) => Buffer.from(text).toString('base64url');
const token = (head: unknown, body: unknown, signature = 'c2ln') => `${base64url(JSON.stringify(head))}.${base64url(JSON.stringify(body))}.${signature}`;

describe('tokens', () => {
  const now = Date.parse('2026-06-01T00:00:00Z');
  it('are decoded, with their times', () => {
    const jwt = decodeJwt(token({ alg: 'RS256', typ: 'JWT' }, { sub: 'Zoë', exp: now / 1000 - 1, nbf: now / 1000 + 60, iat: now / 1000 }), now)!;
    expect(jwt.payload).toContain('"sub": "Zoë"');
    expect(jwt.times.map((t) => [t.name, t.text, t.bad])).toEqual([
      ['Expired', '2026-05-31T23:59:59Z', true], ['Not valid before', '2026-06-01T00:01:00Z', true], ['Issued', '2026-06-01T00:00:00Z', false],
    ]);
    expect(jwt.signed).toBe(true);
  });
  it('are found in fields, cookies and bodies, each once', () => {
    const [a, b] = [token({ alg: 'none' }, {}, ''), token({ alg: 'HS256' }, { n: 1 })];
    expect(jwtsIn(`Bearer ${a}; s=${b}, "again":"${b}"`).map((t) => [t.token, t.signed])).toEqual([[a, false], [b, true]]);
  });
  it.each(['', 'eyJhbGciOiJI.eyJ.x', 'a.b.c', `${base64url('{"typ":"JWT"}')}.${base64url('{}')}.x`, `${base64url('{"alg":1}')}.${base64url('[')}.x`, token({ alg: 'x' }, { exp: 1e300 })])(
    '%s does no harm',
    (text) => expect(jwtsIn(text, now).every((t) => t.times.length === 0)).toBe(true),
  );
  it('are bounded in number', () => {
    const many = Array.from({ length: 100 }, (_, i) => token({ alg: 'HS256' }, { i })).join(' ');
    expect(jwtsIn(many).length).toBe(20);
  });
});

describe('finding', () => {
  it('ignores the case and does not overlap', () => expect(findAll('aAaa bB', 'AA').starts).toEqual([0, 2]));
  it('keeps places where a lower case has another length', () => {
    const text = 'İx İX x';
    for (const at of findAll(text, 'x').starts) expect(text[at]).toBe('x');
    expect(findAll(text, 'x').starts.length).toBe(2);
  });
  it('is bounded and quick', () => {
    const found = findAll('a'.repeat(8_000_000), 'a');
    expect([found.starts.length, found.more]).toEqual([MAX_MATCHES, true]);
    expect(findAll('abc', '').starts).toEqual([]);
  });
  it('finds the block of a place', () => expect([0, 9, 10, 25, 99].map((at) => lastAtMost([0, 10, 20], at))).toEqual([0, 0, 1, 2, 2]));
});

describe('events', () => {
  const data = (value: unknown) => `data: ${JSON.stringify(value)}`;
  it('are read with and without their fields', () => {
    expect([dataOf('event: a\ndata: x\ndata:y\n\n'), dataOf('{"a":1}'), eventName('event: a\ndata: x')]).toEqual(['x\ny', '{"a":1}', 'a']);
    expect(dataOf(': comment')).toBe('');
  });
  it('of Anthropic are joined by block', () => {
    const delta = (index: number, value: object) => data({ type: 'content_block_delta', index, delta: value });
    expect(assemble([
      data({ type: 'message_start' }), delta(0, { type: 'thinking_delta', thinking: 'hm' }), delta(1, { type: 'text_delta', text: 'Hel' }),
      delta(1, { type: 'text_delta', text: 'lo' }), delta(2, { type: 'input_json_delta', partial_json: '{"a"' }), delta(2, { type: 'input_json_delta', partial_json: ':1}' }),
    ])).toEqual([{ kind: 'thinking', text: 'hm' }, { kind: 'text', text: 'Hello' }, { kind: 'tool input', text: '{"a":1}' }]);
  });
  it('of OpenAI are joined by choice and item', () => {
    const chunk = (content: string) => data({ choices: [{ index: 0, delta: { content } }] });
    expect(assemble([chunk('a'), chunk('b'), 'data: [DONE]'])).toEqual([{ kind: 'text', text: 'ab' }]);
    expect(assemble([
      data({ type: 'response.output_text.delta', output_index: 0, content_index: 0, delta: 'x' }),
      data({ type: 'response.output_text.delta', output_index: 0, content_index: 0, delta: 'y' }),
      data({ type: 'response.output_text.done', text: 'xy' }),
    ])).toEqual([{ kind: 'text', text: 'xy' }]);
    const call = (text: string) => data({ choices: [{ delta: { tool_calls: [{ index: 0, function: { arguments: text } }] } }] });
    expect(assemble([call('{'), call('}')])).toEqual([{ kind: 'tool input', text: '{}' }]);
  });
  it('of Bedrock are joined by block', () => {
    const delta = (contentBlockIndex: number, delta: object) => data({ contentBlockIndex, delta, p: 'abc' });
    expect(assemble([
      data({ role: 'assistant' }), delta(0, { reasoningContent: { text: 'hm' } }), delta(1, { text: 'Hel' }), delta(1, { text: 'lo' }),
      delta(2, { toolUse: { input: '{}' } }), data({ contentBlockIndex: 2 }),
    ])).toEqual([{ kind: 'thinking', text: 'hm' }, { kind: 'text', text: 'Hello' }, { kind: 'tool input', text: '{}' }]);
  });
  it('of Interactions are joined by step', () => {
    const delta = (index: number, delta: object) => data({ event_type: 'step.delta', index, delta });
    expect(assemble([
      data({ event_type: 'step.start', index: 0, step: { type: 'thought' } }), delta(0, { type: 'thought_summary', content: { type: 'text', text: 'hm' } }),
      delta(1, { type: 'text', text: 'Hel' }), delta(1, { type: 'text', text: 'lo' }), delta(2, { type: 'arguments_delta', arguments: '{}' }),
    ])).toEqual([{ kind: 'thinking', text: 'hm' }, { kind: 'text', text: 'Hello' }, { kind: 'tool input', text: '{}' }]);
  });
  it('are split at blank lines', () => {
    expect(splitEvents('event: a\ndata: 1\ndata: 2\n\n\ndata: 3\r\n\r\n: byte 9: cut\n')).toEqual(['event: a\ndata: 1\ndata: 2', 'data: 3', ': byte 9: cut\n']);
    expect(splitEvents('\n\n')).toEqual([]);
  });
  it('of Gemini are joined', () => {
    const part = (text: string) => data({ candidates: [{ content: { parts: [{ text }] } }] });
    expect(assemble([part('1'), part('2')])).toEqual([{ kind: 'text', text: '12' }]);
  });
  it('without text, or damaged, have none', () => {
    expect(assemble(['', 'data: {', 'data: 1', 'data: {"choices":[null,{"delta":null}],"candidates":{}}', 'data: {"delta":{"text":1}}'])).toEqual([]);
  });
});

describe('GraphQL', () => {
  it('operations are named', () => {
    const query = 'fragment F on A { b } mutation Pay($id: ID!) { pay(id: $id) { ...F } }';
    expect(operationsIn(JSON.stringify({ query, variables: { id: 7 } }))).toEqual([
      { kind: 'mutation', name: 'Pay', query, variables: '{\n  "id": 7\n}', hash: '' },
    ]);
    const two = 'query A { a } subscription B { b }';
    expect(operationsIn(JSON.stringify([{ query: '{ a }' }, { query: two, operationName: 'B' }])).map((o) => [o.kind, o.name])).toEqual([['query', ''], ['subscription', 'B']]);
    expect(operationsIn(JSON.stringify({ operationName: 'P', extensions: { persistedQuery: { sha256Hash: 'ab' } } }))[0]).toMatchObject({ name: 'P', hash: 'ab', query: '' });
  });
  it.each(['{"query":"shoes"}', '{"query":""}', '{"query":5}', '[]x', '{', '[{"query":"{a}"},{"query":"red {"}]', '{"q":"{a}"}'])('is not in %s', (body) => {
    expect(operationsIn(body)).toEqual([]);
  });
});

describe('multipart', () => {
  const bytes = (text: string) => Uint8Array.from(Buffer.from(text, 'latin1'));
  it.each([
    ['multipart/form-data; boundary=abc', 'abc'], ['multipart/mixed; charset=x; boundary="a b;c"', 'a b;c'], ['multipart/mixed', null],
    [`multipart/mixed; boundary=${'x'.repeat(71)}`, 'x'.repeat(70)],
  ])('boundary of %s', (field, boundary) => expect(boundaryOf(field)).toBe(boundary));

  it('parts are taken apart', () => {
    const body = bytes('preamble\r\n--B\r\nContent-Disposition: form-data; name="a\\"b"\r\n\r\none--B\r\n\r\n--B\r\nContent-Disposition: form-data; name=f; filename*=UTF-8\'\'%C3%A9.png\r\nContent-Type: image/png; x\r\n\r\n\x89PNG\0\r\n--B--\r\nepilogue');
    const parts = partsOf(body, 'B');
    expect(parts.map((p) => [p.name, p.filename, p.media, p.bytes.length])).toEqual([['a"b', '', '', 8], ['f', 'é.png', 'image/png', 5]]);
    expect(parts.map(textOf)).toEqual(['one--B\r\n', null]);
  });
  it('a part without fields, without CR, cut off, or none', () => {
    expect(partsOf(bytes('--B\n\nx\n--B\r\n\r\ny'), 'B').map(textOf)).toEqual(['x', 'y']);
    expect(partsOf(bytes('--B--'), 'B')).toEqual([]);
    expect(partsOf(bytes(''), 'B')).toEqual([]);
    expect(partsOf(bytes('--B\r\n\r\n'.repeat(2000)), 'B').length).toBeLessThanOrEqual(501);
  });
});
