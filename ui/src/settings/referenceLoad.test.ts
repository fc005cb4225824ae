import { expect, it, vi } from 'vitest';
import { loadTables } from './reference';
import { reference } from './reference.svelte';

vi.mock('./reference', () => ({ loadTables: vi.fn() }));

it('the reference is loaded once, and again after a failure', async () => {
  vi.mocked(loadTables).mockRejectedValueOnce(new Error('offline'));
  await reference.load();
  expect([reference.failure, reference.tables.length, reference.isLoading]).toEqual(['offline', 0, false]);
  vi.mocked(loadTables).mockResolvedValue([{ section: '', anchor: '', rows: [] }]);
  await Promise.all([reference.load(), reference.load()]);
  await reference.load();
  expect([reference.failure, reference.tables.length, reference.isLoading]).toEqual(['', 1, false]);
  expect(loadTables).toHaveBeenCalledTimes(2);
});
