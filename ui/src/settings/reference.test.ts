import { describe, expect, it } from 'vitest';
import { isKeyFound, linkOf, referenceKeys } from './reference';

const TABLES = [
  { section: '', anchor: '', rows: [['data_dir', 'string', '', 'Data directory.']] },
  { section: '[record]', anchor: 'record', rows: [['bodies', 'boolean', 'true', 'Record bodies.'], ['dir', 'string', '"store"', 'Where flows are stored.']] },
  { section: '[[quota.rule]]', anchor: 'quotarule', rows: [['name', 'string', 'required', 'Its name.']] },
];

describe('keys without a field', () => {
  const keys = referenceKeys(TABLES, { record: { dir: '/var/flows' }, quota: { rule: [] } }, ['record.bodies']);

  it('are those of the reference, with their values', () => {
    expect(keys.map((k) => [k.key, k.value])).toEqual([['data_dir', undefined], ['record.dir', '/var/flows'], ['quota.rule[].name', undefined]]);
    expect(keys.map(linkOf)).toEqual(['/docs/reference/configuration.html', '/docs/reference/configuration.html#record', '/docs/reference/configuration.html#quotarule']);
  });

  it('are found by name, meaning, value and default', () => {
    const found = (search: string) => keys.filter((k) => isKeyFound(search, k)).map((k) => k.key);
    expect(found('record dir')).toEqual(['record.dir']);
    expect(found('/var/')).toEqual(['record.dir']);
    expect(found('stored')).toEqual(['record.dir']);
    expect(found('quota')).toEqual(['quota.rule[].name']);
    expect(found('nothing of that kind')).toEqual([]);
  });
});
