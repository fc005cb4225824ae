import { expect, it } from 'vitest';
import * as format from '../lib/format';
import type { ModelPrice, ModelView } from '../lib/api.gen';
import { extraPrices, perMillion, takes } from './models';

it('tells an unpublished price from one that there is not', () => {
  expect([perMillion(2), perMillion(0), perMillion(null), perMillion(undefined)]).toEqual(['$2', '$0', 'not published', '—']);
});

it('lists all parts of a price with its conditions', () => {
  const price = { input: 2, output: 10, cache_read: 0.1, search: null, over: [{ tokens: 272000, input: null, output: 15 }], tiers: { batch: { factor: 0.5 }, flex: { input: 1 } }, regions: { us: 1.1 } } as unknown as ModelPrice;
  expect(extraPrices(price)).toEqual([
    ['Cache read', '$0.1'], ['Search, each', 'not published'], [`Prompts over ${format.count(272000)}`, 'not published in, $15 out'],
    ['Level batch', '× 0.5'], ['Level flex', 'prices of its own'], ['Region us', '× 1.1'],
  ]);
});

it('says what a model takes', () => {
  const model = { name: 'a/b', price: null, mode: 'chat', limits: { input: 1000 }, capabilities: { apis: ['chat'], thinking: 'default', effort: { levels: ['low', 'high'], default: 'low' } } } as unknown as ModelView;
  expect(takes(model)).toEqual([['Kind', 'chat'], ['Context', `${format.count(1000)} in, — out`], ['APIs', 'chat'], ['Thinks', 'unless turned off'], ['Efforts', 'low, high; low by default'], ['Structured output', 'no']]);
  expect(takes({ name: 'local/*', price: null } as unknown as ModelView)).toEqual([]);
});
