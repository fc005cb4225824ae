// Figures of axes.
import { expect, it } from 'vitest';
import { percent, short, shortDuration } from './figures';

it('durations of an axis fit beside it', () => {
  expect([0, 250, 200e3, 4e6, 90e6, 500e6, 5400e6, 86_400e6].map(shortDuration)).toEqual(['0', '250 µs', '200 ms', '4 s', '1.5 min', '8.3 min', '1.5 h', '24 h']);
});

it('shares have the digits that say something', () => {
  expect([[0, 0], [0, 9], [1, 3000], [1, 30], [1, 2], [9, 9]].map(([part, whole]) => percent(part!, whole!))).toEqual(['0 %', '0 %', '< 0.1 %', '3.3 %', '50 %', '100 %']);
});

it('counts have three digits, so that parts can be compared with their sum', () => {
  expect([0, 41, 999, 1047, 1218, 20_000, 24_130, 427_400, 1_999_600].map(short)).toEqual(['0', '41', '999', '1.05k', '1.22k', '20k', '24.1k', '427k', '2M']);
});
