// Rules made from flows, their text, and edits of rule files.
import { describe, expect, it } from 'vitest';
import type { Summary } from '../lib/types';
import { formFor, missingIn, ruleOf, type RuleKind } from './fromFlow';
import { blockAt, blockText, ruleBlocks, scalarOf, withEnabled, withScalar, withMoved, withoutBlock } from './ruleFile';
import { ruleText, yamlScalar } from './ruleText';
import { withItemIn } from './source';

const flow = { authority: 'api.test:8443', scheme: 'https', method: 'POST', path: '/v1/me?x=1', status: 201, response_type: 'text/plain' } as Summary;
const made = (kind: RuleKind, over = {}, file = 'r.yaml') => ruleText(ruleOf({ ...formFor(kind, flow), name: 'mine', ...over }), file);
const WHEN = `    when: 'host:api.test port:8443 path:="/v1/me" method:POST'\n`;

describe('a rule for a flow', () => {
  it.each<[RuleKind, object, string]>([
    ['hold', {}, '    then: hold\n'],
    ['hold', { note: 'look' }, '    then:\n      - hold:\n          note: look\n'],
    ['block', {}, '    then: block\n'],
    ['block', { blockStatus: '404', message: 'a ${b}' }, '    then:\n      - block:\n          status: 404\n          message: "a $${b}"\n'],
    ['answer', { body: 'one\ntwo' }, '    then:\n      - answer:\n          status: 201\n          content_type: text/plain\n          body: |-\n            one\n            two\n'],
    ['map_local', { file: '/srv/x' }, '    then:\n      - map_local: /srv/x\n'],
    ['map_remote', { remote: 'http://b:1', keepHost: true }, '    then:\n      - map_remote:\n          to: http://b:1\n          keep_host: true\n'],
    ['throttle', {}, '    then:\n      - delay: "300ms"\n      - throttle: "90KB"\n'],
    ['throttle', { network: 'offline' }, '    then: abort\n'],
    ['header', { header: 'X-A', value: '1' }, '    then:\n      - set_request_header:\n          X-A: "1"\n'],
    ['header', { header: 'X-A', side: 'response' }, '    then:\n      - remove_response_header: X-A\n'],
  ])('%s %j', (kind, over, then) => expect(made(kind, over)).toBe(`  - name: mine\n${WHEN}${then}`));

  it('holds a response with its body, and matches a pattern of paths', () => {
    const text = made('hold', { holdAt: 'response', path: '/v1/*', port: '', method: '' });
    expect(text).toBe('  - name: mine\n    phase: response_body\n    when: host:api.test path:/v1/*\n    then: hold\n');
  });
  it('is TOML in a TOML file', () => {
    expect(made('answer', { body: 'a "b"\n' }, 'r.toml')).toBe(
      '[[rules]]\nname = "mine"\nwhen = "host:api.test port:8443 path:=\\"/v1/me\\" method:POST"\nthen = [{ answer = { status = 201, content_type = "text/plain", body = "a \\"b\\"\\n" } }]\n',
    );
  });
  it('has a name that no other rule has', () => {
    const form = { ...formFor('block', flow), name: '' };
    expect(ruleOf(form).name).toBe('block POST api.test/v1/me');
    expect(ruleOf(form, new Set(['block POST api.test/v1/me', 'block POST api.test/v1/me (2)'])).name).toBe('block POST api.test/v1/me (3)');
  });
  it('says what is missing', () => {
    expect([missingIn(formFor('map_local', flow)), missingIn(formFor('hold', flow))]).toEqual(['Name a file or a folder.', '']);
  });
});

it.each([['yes', '"yes"'], ['a: b', '"a: b"'], ['12', '"12"'], ['*', '"*"'], ['# x', '"# x"'], ['a #b', '"a #b"'], ['', '""'], ['host:a', 'host:a'], ["it's \"x\"", '"it\'s \\"x\\""']])(
  '%j as a YAML scalar', (value, text) => expect(yamlScalar(value)).toBe(text));

const YAML = `# head
rules:
  # about a
  - name: a
    when: host:a

  - name: b
    enabled: false   # for now
    then: block
  - { name: c, then: block }
# tail
tests: []
`;
const TOML = `[[rules]]
name = "a"
[rules.when]
host = "a"

# about b
[[rules]]
name = "b"

# about tests
[[tests]]
`;

describe('a rule file', () => {
  it.each([['r.yaml', YAML, ['a', 'b', 'c']], ['r.toml', TOML, ['a', 'b']]])('%s has its rules', (file, text, names) => {
    const blocks = ruleBlocks(text, file);
    expect(blocks.map((b) => /name\W+(\w)/.exec(blockText(text, b))?.[1])).toEqual(names);
    const line = text.split('\n').findIndex((l) => /name.*b"?$/.test(l)) + 1;
    expect(blockAt(blocks, line)).toBe(1);
    for (const b of blocks) expect(blockText(text, b)).not.toMatch(/tail|tests/);
  });
  it('has none where rules are written in another form', () => {
    expect(ruleBlocks('rules: [{ then: block }]\n', 'r.yaml')).toEqual([]);
    expect(ruleBlocks('- filter: {}\n', 'r.yaml')).toEqual([]);
  });
  it('enables and disables rules, and keeps comments', () => {
    const [a, b, c] = ruleBlocks(YAML, 'r.yaml');
    expect(withEnabled(YAML, 'r.yaml', a!, false)).toBe(YAML.replace('name: a\n', 'name: a\n    enabled: false\n'));
    expect(withEnabled(YAML, 'r.yaml', b!, true)).toBe(YAML.replace('enabled: false', 'enabled: true'));
    expect(withEnabled(YAML, 'r.yaml', c!, false)).toBe(YAML.replace('{ name: c', '{ enabled: false, name: c'));
    expect(withEnabled(TOML, 'r.toml', ruleBlocks(TOML, 'r.toml')[0]!, false)).toBe(TOML.replace('[[rules]]\n', '[[rules]]\nenabled = false\n'));
  });
  it('does not tear a key from a value on the next lines', () => {
    const text = 'rules:\n  - when:\n      host: a\n    then: block\n';
    expect(withEnabled(text, 'r.yaml', ruleBlocks(text, 'r.yaml')[0]!, false)).toBe('rules:\n  - enabled: false\n    when:\n      host: a\n    then: block\n');
  });
  it('does not mistake a key inside a rule for its own', () => {
    const text = 'rules:\n  - name: a\n    then:\n      - script: { enabled: true }\n      - call:\n          enabled: true\n';
    expect(withEnabled(text, 'r.yaml', ruleBlocks(text, 'r.yaml')[0]!, false)).toBe(text.replace('name: a\n', 'name: a\n    enabled: false\n'));
  });
  it('moves rules with their comments, and back again', () => {
    const moved = withMoved(YAML, 'r.yaml', 0, 2);
    expect(ruleBlocks(moved, 'r.yaml').map((b) => /name: (\w)/.exec(blockText(moved, b))?.[1])).toEqual(['b', 'c', 'a']);
    expect(moved).toContain('  # about a\n  - name: a');
    expect(moved).toMatch(/^# head\nrules:\n/);
    expect(moved).toMatch(/\n# tail\ntests: \[\]\n$/);
    expect(withMoved(moved, 'r.yaml', 2, 0)).toBe(YAML);
    const toml = withMoved(TOML, 'r.toml', 0, 1);
    expect(toml.indexOf('name = "b"')).toBeLessThan(toml.indexOf('name = "a"'));
    expect(toml).toMatch(/# about tests\n\[\[tests\]\]\n$/);
  });
  it('removes rules', () => {
    const [a, b] = ruleBlocks(YAML, 'r.yaml');
    expect(withoutBlock(YAML, b!)).not.toContain('name: b');
    expect(withoutBlock(YAML, a!)).not.toContain('about a');
  });
  it('gets new rules in its own format and line endings', () => {
    const added = (text: string, file: string) => withItemIn(text, ruleText({ name: 'x', then: 'block' }, file), file);
    expect(added('rules:\r\n  - then: abort\r\n', 'r.yaml')).toBe('rules:\r\n  - then: abort\r\n  - name: x\r\n    then: block\r\n');
    expect(added('', 'r.toml')).toBe('[[rules]]\nname = "x"\nthen = "block"\n');
    expect(added('[[rules]]\nthen = "abort"\n', 'r.toml')).toBe('[[rules]]\nthen = "abort"\n\n[[rules]]\nname = "x"\nthen = "block"\n');
  });
});

describe('one rule as text', () => {
  it.each([
    ['r.yaml', '  - name: a b # c\n    when: "x \\"y\\""\n', 'a b', 'x "y"'],
    ['r.yaml', "  # about\n  - when: 'it''s' # no\n    then:\n      - name: z\n", null, "it's"],
    ['r.yaml', '  - name: a\n    when:\n      host: b\n', 'a', undefined],
    ['r.toml', '[[rules]]\nname = "a" # b\n[rules.when]\nhost = "b"\n', 'a', null],
  ])('%s %j has name and condition', (file, text, name, when) => {
    expect([scalarOf(text, file, 'name'), scalarOf(text, file, 'when')]).toEqual([name, when]);
  });
  it('gets another name and condition, and keeps the rest', () => {
    expect(withScalar('  # about\n  - name: a # why\n    then: block', 'r.yaml', 'name', 'b: c')).toBe('  # about\n  - name: "b: c" # why\n    then: block');
    expect(withScalar('  - then: block', 'r.yaml', 'when', 'host:a')).toBe('  - when: host:a\n    then: block');
    expect(withScalar('[[rules]]\nthen = "block"', 'r.toml', 'when', 'host:a')).toBe('[[rules]]\nwhen = "host:a"\nthen = "block"');
  });
});
