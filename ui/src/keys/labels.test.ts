import { expect, it } from 'vitest';
import type { Counter, Key } from '../privacy/types';
import { allowed, amount, budgetsOf, counterLabel, groupBudgets, keyCommand, keySummary, limitsFrom, listed, share, tagsFromText, tagText } from './labels';

const key = (more: Partial<Key>): Key => ({ id: 'a1', state: 'active', disabled: false, ...more });
const counter = (more: Partial<Counter>): Counter => ({ rule: 'key', who: 'a1', counter: 'money_per_day', used: 1, limit: 4, ...more }) as Counter;

it('limits have the names of the field', () => {
  expect(counterLabel('money_per_day')).toBe('Budget per day (USD)');
  expect(allowed(key({ models: ['gpt-5*'], limits: { requests: '60/m', money_per_day: 5 } }))).toBe('gpt-5*, 60/m requests, $5 per day');
  expect(allowed(key({ mcp: ['github/get_*'] }))).toBe('MCP github/get_*');
  expect(allowed(key({}))).toBe('everything');
});

it('the budgets of a key are its own and those counted by key', () => {
  const counters = [counter({}), counter({ rule: 'each', counter: 'tokens_per_day' }), counter({ who: 'b2' }), counter({ counter: 'requests' }), counter({ rule: 'team' })];
  expect(budgetsOf(key({}), counters).map((c) => c.counter)).toEqual(['money_per_day', 'tokens_per_day']);
  expect([share(counter({})), share(counter({ used: 9 })), share(counter({ limit: 0 }))]).toEqual([25, 100, 100]);
  expect(amount('tokens_per_day', 1234.4)).toMatch(/^1.?234$/);
});

it('the budgets of a team are shown before anything is spent', () => {
  const team = { level: 'team', id: 'a1', disabled: false, state: 'active', keys: 1, limits: { money_per_month: 5, requests: '60/m' } } as const;
  const of = (counters: Counter[]) => groupBudgets(team as never, counters).map((c) => [c.counter, c.used, c.limit]);
  expect(of([])).toEqual([['money_per_month', 0, 5]]);
  expect(of([counter({ counter: 'money_per_month' }), counter({ rule: 'team', counter: 'money_per_month', used: 2, limit: 5 })])).toEqual([['money_per_month', 2, 5]]);
});

it('tags are written as pairs', () => {
  expect(tagsFromText(' a=1, b=2=3,c ')).toEqual({ a: '1', b: '2=3', c: '' });
  expect(tagText({ a: '1', b: '2' })).toBe('a=1, b=2');
});

it('limits and lists are read from the fields of a form', () => {
  expect(limitsFrom({ day: '2.5', month: '', requests: '60' })).toEqual({ money_per_day: 2.5, requests: '60/m' });
  expect(limitsFrom({ day: '0', month: '7' })).toEqual({ money_per_month: 7 });
  expect(listed(' a, b\tc,')).toEqual(['a', 'b', 'c']);
});

it('a form of a key is summed up in words, and as a command', () => {
  const empty = { owner: '', team: '', models: '', mcp: '', expires: '', day: '', month: '', requests: '' };
  const now = Date.parse('2026-11-29T10:00:00Z');
  expect(keySummary(empty, now)).toBe('A key without an owner. It may use any model and any MCP tool, without a limit of its own, and does not expire.');
  expect(keyCommand(empty, 'interflow')).toBe('interflow keys add');
  const form = { owner: "Ada L'or", team: 'search', models: 'claude-*, gpt-6', mcp: 'github', expires: '30', day: '5', month: '', requests: '60' };
  expect(keySummary(form, now)).toBe("A key for Ada L'or in the team search. It may use the models claude-* and gpt-6 and the MCP tools github, up to $5.00 a day and 60 requests a minute, and expires on 2026-12-29.");
  expect(keySummary({ ...form, models: 'a, b, c' }, now)).toContain('the models a, b and c and');
  expect(keyCommand(form, 'interflow --data-dir /d')).toBe(
    `interflow --data-dir /d keys add --owner 'Ada L'\\''or' --team search --expires 30d --model 'claude-*' --model gpt-6 --mcp github --money-per-day 5 --requests 60/m`,
  );
});
