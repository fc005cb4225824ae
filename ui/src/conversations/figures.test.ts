// Formatting of token counts, costs and totals.
import { describe, expect, it } from 'vitest';
import { ago, by, cached, COLOURS, cost, money, series, sign, stacks, textOf, tokens } from './figures';
import type { Exchange, Total, Used } from './types';

const used = (input: number, cost: number, unpriced = 0): Used => ({
  exchanges: 1, input, output: 1, cache_read: 0, cache_write: 0, reasoning: 0, cost, unpriced,
});

describe('figures', () => {
  it('are short', () => {
    expect([9999, 12_345, 999_949, 999_950, 2_500_000].map(tokens)).toEqual(['9999', '12.3k', '999.9k', '1.00M', '2.50M']);
    expect([0, 0.00042, 0.0123, 0.5, 12.345].map(money)).toEqual(['$0', '$0.00042', '$0.012', '$0.500', '$12.35']);
    expect([0, 61, 7200, 200_000].map((s) => ago(1e12 - s * 1e6, 1e9))).toEqual(['0 s', '1 min', '2 h', '2 d']);
  });

  it('indicate unknown prices', () => {
    expect(cost(used(1, 0, 1))).toBe('');
    expect(cost({ ...used(1, 2, 1), exchanges: 2 })).toBe('≥ $2.00');
  });

  it('give the share of the cache', () => {
    const usage = { input: 200, output: 1, cache_read: 150, cache_write: 0, reasoning: 0 };
    expect(cached({ usage } as Exchange)).toBe(75);
    expect(cached({ usage: null } as Exchange)).toBeNull();
  });
});

describe('a chart of totals', () => {
  const total = (from: number, model: string, input: number): Total => ({ from, agent: 'a', model, used: used(input, input) });

  it('colours names in the order of their table, and groups the rest', () => {
    const few = stacks([total(0, 'x', 5), total(0, 'y', 9), total(100, 'x', 1)], 'model', 0, 100, 150);
    // Each call also has one output token.
    expect(few.map((b) => b.parts)).toEqual([[10, 6], [0, 2]]);
    const many = Array.from({ length: 9 }, (_, i) => total(0, `m${i}`, 100 - i));
    const [bar] = stacks(many, 'model', 0, 100, 50);
    expect(bar?.parts.length).toBe(COLOURS);
    expect(bar?.parts.reduce((n, p) => n + p, 0)).toBe(bar!.used.input + bar!.used.output);
  });
});

describe('totals', () => {
  const totals: Total[] = [
    { from: 100, agent: 'a', model: 'x', used: used(5, 1) },
    { from: 300, agent: 'b', model: 'x', used: used(7, 2) },
    { from: 300, agent: '', model: 'y', used: used(9, 0) },
  ];

  it('are summed by model and agent, highest cost first', () => {
    expect(by(totals, 'model').map((r) => [r.name, r.used.input])).toEqual([['x', 12], ['y', 9]]);
    expect(by(totals, 'agent').map((r) => r.name)).toEqual(['b', 'a', '–']);
  });

  it('have an entry for every span', () => {
    expect(series(totals, 150, 100, 420).map((s) => s.used.input)).toEqual([5, 0, 16, 0]);
    expect(series(totals, 0, 1, 1e9).length).toBe(400);
  });
});

describe('blocks', () => {
  it('have a text each', () => {
    expect(
      textOf([
        { type: 'text', text: 'a' },
        { type: 'tool_result', content: [{ type: 'text', text: 'b' }] },
        { type: 'image', media_type: 'image/png' },
        { type: 'other', kind: 'x', value: { c: 1 } },
      ]),
    ).toBe('a\nb\n[image image/png]\n{\n  "c": 1\n}');
  });

  it('of tools have an icon', () => {
    expect(['Bash', 'Read', 'Edit', 'Grep', 'WebFetch', 'Task', 'mystery'].map(sign)).toEqual(['❯', '≡', '✎', '⌕', '⇄', '◆', '●']);
  });
});
