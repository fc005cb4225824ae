// Aggregation of findings, highlighting, and policy templates.
import { expect, it } from 'vitest';
import { grouped } from './history';
import { highlight, sentPieces } from './highlight';
import { POLICY_PRESETS, withPreset } from './presets';
import { completable } from './schema';

it('findings are aggregated into bars and sums', () => {
  const found = [
    { from: 100, kind: 'ssn', host: 'a', route: 'gateway', flows: 2 },
    { from: 120, kind: 'ssn', host: 'b', route: 'support', flows: 1 },
    { from: 120, kind: 'person', host: 'b', route: 'support', flows: 5 },
    { from: 900, kind: 'late', host: 'c', route: 'gateway', flows: 1 },
  ];
  const { bars, kinds, hosts, routes } = grouped({ since: 100, span: 10, found }, 135);
  expect(bars).toEqual([{ from: 100, flows: 2 }, { from: 110, flows: 0 }, { from: 120, flows: 6 }, { from: 130, flows: 0 }]);
  expect(kinds.map((k) => `${k.name} ${k.flows}`)).toEqual(['person 5', 'ssn 3', 'late 1']);
  expect(routes).toEqual([{ name: 'support', flows: 6 }, { name: 'gateway', flows: 3 }]);
  expect(hosts[0]).toEqual({ name: 'b', flows: 6 });
  expect(grouped({ since: 0, span: 1, found: [] }, 1e9).bars.length).toBe(1000);
});

it('a text is split at UTF-8 offsets, and overlapping spans are skipped', () => {
  const found = [{ type: 'email', start: 6, end: 9 }, { type: 'late', start: 7, end: 8 }, { type: 'beyond', start: 9, end: 99 }];
  expect(highlight('Zoë: a@b.', found)).toEqual([{ text: 'Zoë: ', type: '' }, { text: 'a@b', type: 'email' }, { text: '.', type: '' }]);
});

it('templates are inserted above the first table, or at the end', () => {
  expect(withPreset('', { head: 'a = 1' })).toBe('a = 1\n');
  expect(withPreset('# x\n', { tables: '[t]\nb = 2' })).toBe('# x\n\n[t]\nb = 2\n');
  expect(withPreset('name = "n"\n\n[kind.ssn]\nconfidence = 1\n', { head: 'a = 1' })).toBe('name = "n"\n\na = 1\n\n[kind.ssn]\nconfidence = 1\n');
  expect(new Set(POLICY_PRESETS.map((p) => p.name)).size).toBe(POLICY_PRESETS.length);
});

it('kinds are completed in lists and as tables', () => {
  const schema = { properties: { kinds: { type: 'array' }, kind: { additionalProperties: { $ref: '#/$defs/KindFile' } } } };
  const done = completable({ schema, kinds: ['ssn'] });
  expect(done.properties?.['except']?.items?.enum).toEqual(['ssn']);
  expect(done.properties?.['kind']?.properties?.['ssn']).toEqual({ $ref: '#/$defs/KindFile' });
});

it('what is sent is divided at the replacements, unless they do not explain it', () => {
  const span = (type: string, start: number, end: number, replacement: string) => ({ type, start, end, replacement, confidence: 90 });
  const spans = [span('email', 6, 9, 'EMAIL_x'), span('phone', 11, 14, 'PHONE_y')];
  expect(sentPieces('Zoë: a@b, 030!', spans, 'Zoë: EMAIL_x, PHONE_y!')).toEqual([
    { text: 'Zoë: ', type: '' }, { text: 'EMAIL_x', type: 'email' }, { text: ', ', type: '' }, { text: 'PHONE_y', type: 'phone' }, { text: '!', type: '' },
  ]);
  expect(sentPieces('Zoë: a@b, 030!', spans, 'something else')).toEqual([{ text: 'something else', type: '' }]);
});
