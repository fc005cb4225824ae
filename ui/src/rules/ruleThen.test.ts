// Actions of rules as forms: what is read from the text, and what is written back.
import { describe, expect, it } from 'vitest';
import type { Field } from '../lib/types';
import { actionForms, emptyAction, fieldValues, joinAction, splitAction } from './actionSchema';
import { storedEdits } from './edits.svelte';
import { formFor, missingIn, mockFields, ruleOf } from './fromFlow';
import { inlineText } from './ruleText';
import { thenOf, typedValue, withThen } from './ruleThen';
import type { Schema } from './schema';

const rule = (then: string) => `  # about\n  - name: a\n    when: host:a\n${then}\n    stop: true`;

describe('the actions of a rule', () => {
  it.each<[string, unknown]>([
    ['    then: block', ['block']],
    ['    then: { tag: one }', [{ tag: 'one' }]],
    ['    then: [hold, { answer: { status: 404, body: "a, b" } }]', ['hold', { answer: { status: 404, body: 'a, b' } }]],
    ['    then:\n      - delay: 2s\n      - set_request_header: { X-A: "1", "X-B": \'it\'\'s\' }', [{ delay: '2s' }, { set_request_header: { 'X-A': '1', 'X-B': "it's" } }]],
    ['    then:\n    - answer:\n        status: 200\n        body: |\n          {\n            "a": 1\n          }\n    - abort', [{ answer: { status: 200, body: '{\n  "a": 1\n}\n' } }, 'abort']],
    ['    then:\n      - edit_response_body:\n          json_set:\n            "$.plan": pro\n            $.n: 1.5', [{ edit_response_body: { json_set: { '$.plan': 'pro', '$.n': 1.5 } } }]],
    ['    then: []', []],
  ])('%j are read', (then, actions) => expect(thenOf(rule(then), 'r.yaml')).toEqual(actions));

  it.each([
    '    then:\n      # why\n      - block', '    then: block # why', '    then: *anchor', '    then:\n      - &a tag: x', '    then: >\n      folded', '    then:\n      - http_version: 1.10',
    '    then: { tag: a, tag: b }', '    then: "open', '    then:\n      - answer:\n          body: two\n            lines', `    then: ${'['.repeat(40)}${']'.repeat(40)}`, '    then:\n      - tag: yes', '    then: { tag: [1, }',
  ])('%j is left to the text', (then) => expect(thenOf(rule(then), 'r.yaml')).toBeUndefined());

  it('are read from TOML, in one line or several', () => {
    const head = '[[rules]]\nname = "a"\n';
    expect(thenOf(`${head}then = "block"\nwhen = "host:a"`, 'r.toml')).toEqual(['block']);
    expect(thenOf(`${head}then = [\n  { tag = 'x' },\n  { answer = { status = 404, headers = { "X-A" = "b" } } },\n]\nstop = true`, 'r.toml')).toEqual([{ tag: 'x' }, { answer: { status: 404, headers: { 'X-A': 'b' } } }]);
    for (const then of ['then = """a"""', 'then = [ # why\n "block"]', 'then = block', '[[rules.then]]\ntag = "x"']) expect(thenOf(head + then, 'r.toml')).toBeUndefined();
  });

  it('are written back, and everything else stays', () => {
    const actions = ['hold', { answer: { status: 404, headers: { 'X-A': 'b: c' }, body: 'a\nb\n' } }];
    for (const then of ['    then: block', '    then:\n      - tag: x\n      - block', '    then:\n    - tag: x']) {
      const text = withThen(rule(then), 'r.yaml', actions);
      expect(thenOf(text, 'r.yaml')).toEqual(actions);
      expect(text).toMatch(/^ {2}# about\n {2}- name: a\n {4}when: host:a\n {4}then:\n/);
      expect(text).toMatch(/\n {4}stop: true$/);
    }
    expect(withThen('  - then: block\n    name: a', 'r.yaml', [{ tag: 'x' }])).toBe('  - then:\n      - tag: x\n    name: a');
    expect(withThen('- name: a', 'r.yaml', ['abort'])).toBe('- name: a\n  then: abort');
    const toml = withThen('[[rules]]\nthen = [\n  "block",\n]\nname = "a"', 'r.toml', actions);
    expect(thenOf(toml, 'r.toml')).toEqual(actions);
    expect(toml).toMatch(/\nname = "a"$/);
    expect(withThen(rule('    then: block'), 'r.yaml', [])).toContain('    then: []\n');
    // What was just added is empty.
    const empty = [{ set_request_header: {} }, { remove_request_header: [] }, { tag: '' }];
    expect(thenOf(withThen(rule('    then: block'), 'r.yaml', empty), 'r.yaml')).toEqual(empty);
    expect(thenOf(withThen('[[rules]]', 'r.toml', empty), 'r.toml')).toEqual(empty);
  });

  it('have values that are typed on one line', () => {
    expect(typedValue('{ a: [1, b] }')).toEqual({ a: [1, 'b'] });
    expect(typedValue('{ open')).toBe('{ open');
    for (const value of [{ '$.a': 'x, y', b: [1, true] }, ['a', 'b: c']]) expect(typedValue(inlineText(value))).toEqual(value);
  });
});

const SCHEMA: Schema = {
  $defs: {
    Action: { anyOf: [
      { type: 'string', enum: ['block', 'abort', 'delay'] },
      { type: 'object', description: 'Rejects.', properties: { block: { $ref: '#/$defs/BlockParams' } }, required: ['block'] },
      { type: 'object', properties: { abort: { anyOf: [{ type: 'null' }, { const: true }] } }, required: ['abort'] },
      { type: 'object', properties: { set_request_header: { type: 'object', additionalProperties: { type: 'string' } } }, required: ['set_request_header'] },
      { type: 'object', properties: { remove_request_header: { type: ['string', 'array'] } }, required: ['remove_request_header'] },
      { type: 'object', properties: { tag: { type: ['string', 'number'] } }, required: ['tag'] },
    ] },
    BlockParams: { anyOf: [{ type: ['string', 'integer'], description: '`status`' }, { $ref: '#/$defs/BlockMap' }] },
    BlockMap: { type: 'object', properties: { status: { type: 'integer' }, message: { type: 'string' }, quiet: { type: 'boolean' }, how: { enum: ['a', 'b'] } }, required: ['status'] },
  },
};

describe('the form of an action', () => {
  const forms = actionForms(SCHEMA);
  it('follows from the schema', () => {
    expect([...forms.values()].map((f) => f.kind)).toEqual(['fields', 'none', 'pairs', 'names', 'text']);
    const block = forms.get('block')!;
    expect([block.about, block.short, block.fields.map((f) => f.kind)]).toEqual(['Rejects.', 'status', ['number', 'text', 'flag', 'choice']]);
    expect([...forms.values()].map(emptyAction)).toEqual([{ block: '' }, 'abort', { set_request_header: {} }, { remove_request_header: [] }, { tag: '' }]);
  });
  it('takes both forms of its parameters, and writes the shorter one', () => {
    const block = forms.get('block')!;
    for (const [action, values] of [['block', {}], [{ block: 404 }, { status: 404 }], [{ block: { status: 404, message: 'm' } }, { status: 404, message: 'm' }]] as const) {
      const { name, params } = splitAction(action);
      expect(name).toBe('block');
      expect(fieldValues(block, params)).toEqual(values);
      expect(joinAction(block, fieldValues(block, params))).toEqual(action);
    }
  });
});

describe('the mock of a response', () => {
  const fields: Field[] = [
    ['Content-Type', 'application/json'], ['Content-Length', '9'], ['Content-Encoding', 'gzip'], ['Connection', 'close, X-Hop'], ['X-Hop', '1'], ['Date', 'now'],
    ['Access-Control-Allow-Origin', '*'], ['Location', '/next?${a}'], ['Set-Cookie', 'a=1'], ['Set-Cookie', 'b=2'], ['X-Token', 'Bearer *** (20 bytes)'],
  ];
  it('has the fields that belong to the response, and says which were masked', () => {
    expect(mockFields(fields)).toEqual({
      headers: 'Access-Control-Allow-Origin: *\nLocation: /next?${a}\nSet-Cookie: a=1\nSet-Cookie: b=2', masked: ['X-Token'],
    });
  });
  it('sends each of them, repeated ones as well, and literally', () => {
    const form = { ...formFor('answer', null), headers: mockFields(fields).headers };
    const [{ answer }] = ruleOf(form).then as [{ answer: { headers: Record<string, string> } }];
    expect(Object.entries(answer.headers)).toEqual([['Access-Control-Allow-Origin', '*'], ['Location', '/next?$${a}'], ['Set-Cookie', 'a=1'], ['set-Cookie', 'b=2']]);
    expect(missingIn({ ...form, headers: 'no field' })).toContain('no field');
  });
});

describe('undo', () => {
  it('takes what is stored, and nothing else', () => {
    const edit = { file: 'r.yaml', before: 'a', after: 'b', words: 'add' };
    expect(storedEdits(JSON.stringify([edit, { file: 1 }, null]))).toEqual([edit]);
    for (const bad of [null, '{', '{}', '3']) expect(storedEdits(bad)).toEqual([]);
  });
});
