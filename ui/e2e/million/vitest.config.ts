// The measurement over very many flows; not part of the ordinary tests.
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: { dir: 'e2e/million', include: ['*.measure.ts'], testTimeout: 7_200_000, hookTimeout: 1_800_000, fileParallelism: false },
});
