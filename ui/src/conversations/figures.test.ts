// Formatting of token counts and costs.
import { describe, expect, it } from 'vitest';
import { cached, cost, money, sign, textOf, tokens } from './figures';
import type { Exchange, Used } from './types';

const used = (input: number, cost: number, unpriced = 0): Used => ({
  exchanges: 1, input, output: 1, cache_read: 0, cache_write: 0, reasoning: 0, cost, unpriced,
});

describe('figures', () => {
  it('are short', () => {
    expect([0, 950, 1888, 8046, 9996, 12_345, 99_960, 155_900, 999_499, 999_500, 2_500_000].map(tokens)).toEqual(
      ['0', '950', '1.89k', '8.05k', '10.0k', '12.3k', '100k', '156k', '999k', '1.00M', '2.50M'],
    );
    expect([0, 0.00042, 0.0123, 0.5, 12.345].map(money)).toEqual(['$0', '$0.00042', '$0.012', '$0.500', '$12.35']);
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
