// Changes of a collection that overlap.
import { afterEach, expect, it, vi } from 'vitest';
import type { Collection } from './http';
import { Library } from './library.svelte';

vi.mock('../lib/app.svelte', () => ({}));

/** The collections of the instance, which refuses a change of an older revision. */
const stored = new Map<string, { revision: string; collection: Collection }>();
vi.stubGlobal('fetch', async (address: string, init: RequestInit = {}) => {
  await new Promise((done) => setTimeout(done, 5));
  const name = address.split('/').at(-1)!;
  const before = stored.get(name);
  if (init.method !== 'PUT') return Response.json(before);
  const asked = JSON.parse(init.body as string) as { revision?: string; collection: Collection };
  if (asked.revision !== before?.revision) return Response.json({ error: { kind: 'conflict', message: 'it has changed' } }, { status: 409 });
  const revision = String(Number(before?.revision ?? 0) + 1);
  stored.set(name, { revision, collection: asked.collection });
  return Response.json({ revision });
});
afterEach(() => stored.clear());

const named = (name: string) => ({ name, method: 'GET', url: '', headers: [], body: '', assertions: [] });

it('are made one after the other, and belong to the collection that was open', async () => {
  stored.set('a', { revision: '1', collection: { variables: [], requests: [] } });
  stored.set('b', { revision: '7', collection: { variables: [], requests: [] } });
  const library = new Library();
  await library.open('a');
  const variables = [{ name: 'base', value: 'x' }];
  // As when a field is left by a click on a button that saves.
  await Promise.all([
    library.change((c) => ({ ...c, variables })),
    library.change((c) => ({ ...c, requests: [...c.requests, named('one')] })),
    library.open('b'),
  ]);
  expect(stored.get('a')!.collection).toEqual({ variables, requests: [named('one')] });
  expect([library.name, library.collection.requests]).toEqual(['b', []]);
  const opening = library.open('a');
  await expect(library.change((c) => ({ ...c, variables: [] }))).rejects.toThrow('it is not open');
  await opening;
  expect([library.name, stored.get('a')!.collection.variables, stored.get('b')!.revision]).toEqual(['a', variables, '7']);
});
