// Figures of axes.
import { expect, it } from 'vitest';
import { shortDuration } from './figures';

it('durations of an axis fit beside it', () => {
  expect([0, 250, 200e3, 4e6, 90e6, 500e6, 5400e6, 86_400e6].map(shortDuration)).toEqual(['0', '250 µs', '200 ms', '4 s', '1.5 min', '8.3 min', '1.5 h', '24 h']);
});
