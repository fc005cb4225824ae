// Deletions that wait for their notice.
import { beforeEach, expect, it, vi } from 'vitest';
import { app } from './app.svelte';

vi.hoisted(() => {
  vi.useFakeTimers();
  vi.stubGlobal('location', { pathname: '/' });
  vi.stubGlobal('addEventListener', () => undefined);
  vi.stubGlobal('document', { hidden: true, querySelector: () => null });
});
vi.mock('./api', () => ({ get: () => new Promise(() => undefined), errorMessage: (error: Error) => error.message }));

const events: string[] = [];
let finish = (_error?: Error) => {};
const erase = () => {
  events.push('erase');
  return new Promise<void>((done, fail) => (finish = (error) => (error ? fail(error) : done())));
};
const restore = () => void events.push('restore');

beforeEach(() => {
  app.notices = [];
  events.length = 0;
});

it('is carried out once, when its notice goes, or before if something needs that', async () => {
  const carryOut = app.deleteLater('Flow deleted', erase, restore);
  await vi.advanceTimersByTimeAsync(9000);
  expect(events).toEqual([]);
  await vi.advanceTimersByTimeAsync(2000);
  expect([events, app.notices]).toEqual([['erase'], []]);
  const waiting = Promise.race([carryOut(), app.dismissAll()]).then(() => events.push('waited'));
  await vi.advanceTimersByTimeAsync(1000);
  expect(events).toEqual(['erase']);
  finish();
  await waiting;
  expect(events).toEqual(['erase', 'waited']);
  await app.deleteLater('Another', () => Promise.resolve(void events.push('another')), restore)();
  expect([events.at(-1), app.notices]).toEqual(['another', []]);
});

it('that is undone is not carried out, and one that fails shows again what it hid', async () => {
  const carryOut = app.deleteLater('Flow deleted', erase, restore);
  app.undo();
  await carryOut();
  await app.dismissAll();
  expect([events, app.notices]).toEqual([['restore'], []]);
  app.deleteLater('Flow deleted', erase, restore);
  const all = app.dismissAll();
  // Too late.
  app.undo();
  finish(new Error('it is still open'));
  await all;
  expect(events).toEqual(['restore', 'erase', 'restore']);
  expect(app.notices.map((n) => n.text)).toEqual(['it is still open']);
});
