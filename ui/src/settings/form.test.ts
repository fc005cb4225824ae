import { describe, expect, it } from 'vitest';
import type { Setting } from '../lib/api.gen';
import { changesOf, edited, entriesOf, isSettingFound, reset, shortText, UNSET, valueOf } from './form';

const setting = (key: string, value: unknown, more: Partial<Setting> = {}): Setting => ({
  key, value, default: [], label: key, group: 'recording', description: '', kind: 'list', source: { kind: 'default' }, effect: 'now', ...more,
});

describe('edits of settings', () => {
  const list = setting('a', ['x']);

  it('are only kept where they differ', () => {
    const edits = edited(list, {}, ['x', 'y']);
    expect(valueOf(list, edits)).toEqual(['x', 'y']);
    expect(edited(list, edits, ['x'])).toEqual({});
  });

  it('are sent without unfinished entries, and not for locked keys', () => {
    const locked = setting('b', true, { locked: 'the option --no-record determines it' });
    const proxy = setting('c', []);
    const edits = { a: ['x', 'y', ''], b: false, c: [{ hosts: [], via: [] }] };
    expect(changesOf([list, locked, proxy], edits)).toEqual([{ key: 'a', value: ['x', 'y'] }]);
  });

  it('remove a key from the file for its default', () => {
    const fromFile = setting('a', ['x'], { source: { kind: 'file', line: 3 } });
    const edits = reset(fromFile, { a: ['z'] });
    expect(edits).toEqual({ a: UNSET });
    expect(valueOf(fromFile, edits)).toEqual([]);
    expect(changesOf([fromFile], edits)).toEqual([{ key: 'a', value: UNSET }]);
    expect(reset(list, { a: ['z'] })).toEqual({});
  });
});

it('lists are written with commas, spaces or lines', () => {
  expect(entriesOf(' a.test, *.b.test\n\nc.test a.test')).toEqual(['a.test', '*.b.test', 'c.test']);
});

it('values have short texts', () => {
  expect([true, [], ['a', 'b'], null, '30d', [{ hosts: ['*'], via: [] }]].map(shortText)).toEqual(['on', 'none', 'a, b', 'not set', '30d', '* → direct']);
});

describe('the search of settings', () => {
  const found = setting('record.bodies', true, { label: 'Record bodies', description: 'Whether bodies are kept.', choices: [{ value: 'all', description: 'every body' }] });

  it('finds values and defaults', () => {
    const hosts = setting('intercept.exclude', ['bank.test', '*.health.test'], { default: ['old.test'] });
    for (const text of ['bank.test', 'health', 'old.test']) expect(isSettingFound(text, hosts, 'Interception'), text).toBe(true);
  });

  it('finds names, keys, descriptions, values and the title of the group, all words of it', () => {
    for (const text of ['', 'bodies', 'record.bod', 'KEPT', 'every', 'recording bodies']) expect(isSettingFound(text, found, 'Recording'), text).toBe(true);
    for (const text of ['tls', 'bodies tls']) expect(isSettingFound(text, found, 'Recording'), text).toBe(false);
  });
});
