// The browser tests: real traffic through a real instance, one file after the other.
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    dir: 'e2e',
    include: ['*.test.ts'],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    fileParallelism: false,
  },
});
