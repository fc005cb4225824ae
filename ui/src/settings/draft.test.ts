// Edits that are made while others are applied.
import { expect, it, vi } from 'vitest';
import type { Setting } from '../lib/api.gen';
import { draft } from './draft.svelte';

const setting = (key: string, value: number) => ({ key, value, default: 0, source: { kind: 'default' } }) as Setting;
const stored: Record<string, number> = { a: 1, b: 1, c: 1 };
let during = () => {};
vi.stubGlobal('fetch', (_: string, init: RequestInit = {}) => {
  if (init.method === 'POST') {
    for (const { key, value } of (JSON.parse(init.body as string) as { changes: { key: string; value: number }[] }).changes) stored[key] = value;
    during();
  }
  return Promise.resolve(Response.json(init.method === 'POST' ? { changes: [] } : { settings: Object.entries(stored).map(([key, value]) => setting(key, value)) }));
});

it('stay, but for those that were sent', async () => {
  await draft.load();
  draft.edits = { a: 2, b: 2 };
  during = () => (draft.edits = { ...draft.edits, b: 3, c: 3 });
  await draft.apply('base');
  expect(stored).toEqual({ a: 2, b: 2, c: 1 });
  expect([draft.edits, draft.changes]).toEqual([{ b: 3, c: 3 }, [{ key: 'b', value: 3 }, { key: 'c', value: 3 }]]);
});
