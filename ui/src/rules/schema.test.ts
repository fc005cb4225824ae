// Cursor positions in rule files and their completions.
import { describe, expect, it } from 'vitest';
import { withRule } from './presets';
import { offers, tomlPlace, yamlPlace, type Schema } from './schema';

const SCHEMA: Schema = {
  properties: { rules: { type: 'array', items: { $ref: '#/$defs/Rule' } }, services: { additionalProperties: { $ref: '#/$defs/Service' } } },
  $defs: {
    Rule: {
      properties: {
        name: { type: 'string', description: 'Its name.' },
        when: { anyOf: [{ type: 'string' }, { properties: { host: { type: 'string' }, method: { type: 'string' } } }] },
        then: { anyOf: [{ $ref: '#/$defs/Action' }, { type: 'array', items: { $ref: '#/$defs/Action' } }] },
        stop: { type: 'boolean' },
      },
    },
    Action: { anyOf: [{ enum: ['block', 'abort'] }, { properties: { answer: { $ref: '#/$defs/Answer' }, delay: { type: 'string' } } }] },
    Answer: { anyOf: [{ type: 'string' }, { properties: { status: { type: 'integer' }, body: { type: 'string' } } }] },
    Service: { properties: { url: { type: 'string' } } },
  },
};
const at = (text: string) => {
  const [before, after = ''] = text.split('|') as [string, string?];
  const place = yamlPlace(before, after);
  return place && { ...place, offered: offers(SCHEMA, place).map((o) => o.label) };
};

describe('positions in YAML', () => {
  it.each([
    ['|', [], ['rules', 'services']],
    ['rules:\n  - |', ['rules'], ['name', 'when', 'then', 'stop']],
    ['rules:\n- |', ['rules'], ['name', 'when', 'then', 'stop']],
    ['rules:\n  - name: a\n    when: x\n    |', ['rules'], ['then', 'stop']],
    ['rules:\n  - name: a\n    |\n    stop: true\n  - then: block', ['rules'], ['when', 'then']],
    ['rules:\n  - name: a\n    when:\n      ho|', ['rules', 'when'], ['host', 'method']],
    ['rules:\n  - then:\n      - |', ['rules', 'then'], ['answer', 'delay']],
    ['rules:\n  - then:\n      - answer:\n          status: 200\n          |', ['rules', 'then', 'answer'], ['body']],
    ['rules:\n  - then:\n      - answer: { }\n    |', ['rules'], ['name', 'when', 'stop']],
    ['rules:\n  - then: |', ['rules', 'then'], ['block', 'abort']],
    ['rules:\n  - stop: |', ['rules', 'stop'], ['true', 'false']],
    ['services:\n  mine:\n    |', ['services', 'mine'], ['url']],
    ['# only a comment\n\nrules:\n\n  # more\n  - |', ['rules'], ['name', 'when', 'then', 'stop']],
  ])('%j', (text, path, offered) => {
    const place = at(text);
    expect(place?.path).toEqual(path);
    expect(place?.offered).toEqual(offered);
  });

  it('are null within flow mappings and block scalars', () => {
    expect(yamlPlace('rules:\n  - then: { answer: { st')?.kind).toBe('value');
    expect(yamlPlace('rules: [a, b')?.kind).toBe('value');
    expect(yamlPlace('  "quoted')).toBeNull();
  });
});

describe('positions in TOML', () => {
  it.each([
    ['ru', [], 'name'],
    ['[[rules]]\nna', ['rules'], 'name'],
    ['[[rules]]\nthen = "', ['rules', 'then'], 'value'],
    ['[[rules]]\n[rules.when]\n', ['rules', 'when'], 'name'],
    ['[ki', [], 'name'],
    ['[kind.em', ['kind'], 'name'],
    ['except = ["da', ['except'], 'value'],
    ['except = ["date", ', ['except'], 'value'],
    ['[kind.ssn]\nstrategy = { use = "ma', ['kind', 'ssn', 'strategy', 'use'], 'value'],
    ['strategy = { use = "mask", ch', ['strategy'], 'name'],
  ] as const)('%j', (text, path, kind) => expect(tomlPlace(text)).toMatchObject({ path, kind }));

  it('know whether they are quoted, and which keys exist', () => {
    expect(tomlPlace('except = ["da')).toMatchObject({ written: 'da', quoted: true });
    expect(tomlPlace('except = [')).toMatchObject({ written: '', quoted: false });
    expect(tomlPlace('name = "x"\n[kind.ssn] # mine\nconfidence = 3\n')).toMatchObject({ path: ['kind', 'ssn'], taken: ['confidence'] });
    expect(tomlPlace('except = ["date"]')).toBeNull();
  });
});

it('a recursive schema terminates', () => {
  const round: Schema = { $ref: '#/$defs/A', $defs: { A: { anyOf: [{ $ref: '#/$defs/A' }, { properties: { a: { $ref: '#/$defs/A' } } }] } } };
  expect(offers(round, { path: ['a', 'a'], kind: 'name', taken: [] }).map((o) => o.label)).toEqual(['a']);
});

describe('a rule added to a file', () => {
  const item = '  - name: b\n    then: block\n';
  it.each([
    ['', 'rules:\n  - name: b\n    then: block\n'],
    ['# mine\n', '# mine\n\nrules:\n  - name: b\n    then: block\n'],
    ['rules: []\n', 'rules:\n  - name: b\n    then: block\n'],
    ['rules:\n  - then: abort\n', 'rules:\n  - then: abort\n  - name: b\n    then: block\n'],
    ['rules:\n- then: abort\n', 'rules:\n- then: abort\n- name: b\n  then: block\n'],
    ['rules:\n  - then: abort\ntests: []\n', 'rules:\n  - then: abort\n  - name: b\n    then: block\n\ntests: []\n'],
  ])('%j', (before, after) => expect(withRule(before, item)).toBe(after));
});
