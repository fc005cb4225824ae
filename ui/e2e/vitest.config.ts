// The browser tests: real traffic through a real instance, one file after the other.
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    dir: 'e2e',
    include: ['*.test.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // A busy machine needs longer than the default second.
    expect: { poll: { timeout: 8000 } },
    fileParallelism: false,
  },
});
