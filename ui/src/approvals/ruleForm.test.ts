import { describe, expect, it } from 'vitest';
import { formOf, ruleOf } from './ruleForm';
import { describeRule, type Rule } from './types';

const rule = { id: '1', source: 'global', removable: true, used: 3, action: 'deny', hosts: ['a.test', '*.b.test'], containers: ['box'], until: '2027-01-31T12:00:00Z' } as unknown as Rule;

describe('the form of an access rule', () => {
  it('makes a rule of what is filled in', () => {
    const form = { ...formOf(null), hosts: ' a.test,b.test  c.test', methods: 'GET', note: ' why ', span: '12h' };
    expect(ruleOf(form, null, Date.UTC(2026, 0, 1))).toEqual({
      action: 'allow', hosts: ['a.test', 'b.test', 'c.test'], methods: ['GET'], until: '2026-01-01T12:00:00Z', note: 'why',
    });
    expect(ruleOf(formOf(null), null, 0)).toEqual({ action: 'allow' });
  });

  it('keeps what it does not show of an edited rule', () => {
    expect(ruleOf(formOf(rule), rule, 0)).toEqual({ action: 'deny', hosts: ['a.test', '*.b.test'], containers: ['box'], until: '2027-01-31T12:00:00Z' });
    expect(ruleOf({ ...formOf(rule), span: '' }, rule, 0)).not.toHaveProperty('until');
    const spaced = { ...rule, processes: ['Google Chrome', 'node*'], users: ['Ann Lee'] };
    expect(ruleOf(formOf(spaced), spaced, 0)).toMatchObject({ processes: ['Google Chrome', 'node*'], users: ['Ann Lee'] });
  });

  it('keeps commas in paths', () => {
    const of = (paths: string) => ruleOf({ ...formOf(null), paths }, null, 0).paths;
    expect([of('/a,b /c'), of('/a,b, /c\n/d')]).toEqual([['/a,b', '/c'], ['/a,b', '/c', '/d']]);
    const commas = { ...rule, paths: ['/a,b', '/c,', '/d'] };
    expect(ruleOf(formOf(commas), commas, 0).paths).toEqual(['/a,b', '/c,', '/d']);
  });
});

it('the conditions of a rule name the containers', () => {
  expect(describeRule({ action: 'allow', hosts: ['a.test'], containers: ['box', 'crate-*'] })).toBe('to a.test · container box, crate-*');
});
