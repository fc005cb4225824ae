import { describe, expect, it } from 'vitest';
import { ApiError } from './api';
import { failureOf, isArchive } from './importer';

describe('importing', () => {
  it.each([
    ['a.har', true], ['A.HAR', true], ['a.har.gz', true], ['x.saz', true], ['x.flows', true], ['flows', true], ['x.fxzy', true], ['x.jsonl', true],
    ['x.png', false], ['x.http', false], ['har.txt', false], ['x.pcapng', false], ['x.pcap', false],
  ])('takes %s: %s', (name, taken) => expect(isArchive(name)).toBe(taken));
  it('says what was stored before an error', () => {
    expect(failureOf(new ApiError(422, { kind: 'x', message: 'bad', imported: 3 }))).toBe('Import failed: bad. 3 flows before the error were imported');
    expect(failureOf(new Error('bad'))).toBe('Import failed: bad');
  });
});
