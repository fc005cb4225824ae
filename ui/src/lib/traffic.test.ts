// The list of flows while the connection breaks, and while deletions wait.
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { Link, Listener } from './events';
import { Traffic } from './traffic.svelte';
import type { Summary } from './types';

let listener: Listener;
vi.mock('./events', () => ({
  Events: class {
    constructor(given: Listener) {
      listener = given;
    }
    start(): void {}
    stop(): void {}
    subscribe(): void {}
  },
}));

const flow = (n: number) => ({ id: String(n).padStart(6, '0'), state: 'complete', authority: 'a.test:443' }) as Summary;
/** Flows that the instance has, newest first, how often the top of the list was asked for, and whether it cannot be reached. */
let stored: Summary[];
let loads = 0;
let isGone = false;
vi.mock('./api', () => ({
  ApiError: class extends Error {},
  errorMessage: String,
  getAs: () => Promise.resolve({}),
  get: (path: string, { limit = 0, after }: { limit?: number; after?: string } = {}) => {
    if (path === '/flows/count') return Promise.resolve({ count: stored.length });
    if (isGone) return Promise.reject(new Error('gone'));
    if (!after) loads += 1;
    return Promise.resolve({ flows: stored.filter((f) => !after || f.id < after).slice(0, limit) });
  },
}));

const settled = () => vi.advanceTimersByTimeAsync(0);
const link = (to: Link) => listener.onLink(to, true);
const add = (n: number) => void (stored = [flow(n), ...stored]);
const top = (traffic: Traffic) => traffic.summary(stored[0]!.id)?.id;

async function shown(): Promise<Traffic> {
  const traffic = new Traffic();
  traffic.start('');
  await settled();
  loads = 0;
  return traffic;
}

beforeEach(() => {
  vi.useFakeTimers();
  stored = Array.from({ length: 100 }, (_, i) => flow(100 - i));
});
afterEach(() => void vi.useRealTimers());

it('a list at the top is loaded again when the connection is back', async () => {
  const traffic = await shown();
  add(101);
  link('broken');
  link('live');
  await settled();
  expect([loads, top(traffic)]).toEqual([1, '000101']);
});

it('a list that came before the first connection is loaded again, and one that is under way is not', async () => {
  const traffic = new Traffic();
  loads = 0;
  traffic.start('');
  listener.onLink('live', false);
  await settled();
  expect(loads).toBe(1);
  const late = await shown();
  add(101);
  listener.onLink('live', false);
  await settled();
  expect([loads, top(late)]).toEqual([1, '000101']);
});

it('a paused list stays as it is until it is resumed', async () => {
  const traffic = await shown();
  traffic.scrollTo(520);
  traffic.pause(true);
  add(101);
  link('live');
  listener.onLag();
  await settled();
  expect([loads, traffic.offset, top(traffic)]).toEqual([0, 520, undefined]);
  listener.onFlows([flow(101)]);
  traffic.scrollTo(0);
  traffic.selectAt(0);
  await settled();
  expect([loads, top(traffic), traffic.unseenCount]).toEqual([0, undefined, 1]);
  traffic.pause(false);
  await settled();
  expect([loads, top(traffic)]).toEqual([1, '000101']);
});

it('an error is replaced by the list when the connection is back, wherever it was scrolled', async () => {
  const traffic = await shown();
  isGone = true;
  void traffic.reload();
  await settled();
  traffic.scrollTo(520);
  expect(traffic.failure).not.toBe('');
  isGone = false;
  link('live');
  await settled();
  expect([loads, traffic.failure]).toEqual([1, '']);
});

it.each([['scrolling', (t: Traffic) => t.scrollTo(0)], ['a key', (t: Traffic) => t.selectAt(0)]])('a scrolled list shows what was missed once it is back at the top by %s', async (_, back) => {
  const traffic = await shown();
  traffic.scrollTo(520);
  add(101);
  listener.onLag();
  link('live');
  await settled();
  expect([loads, traffic.offset]).toEqual([0, 520]);
  // What arrives now closes no gap.
  add(102);
  listener.onFlows([flow(102)]);
  back(traffic);
  await settled();
  expect([loads, traffic.summary('000101')?.id, traffic.unseenCount]).toEqual([1, '000101', 0]);
});

it('a sorted list offers what was missed, and a paused one is loaded when it is resumed', async () => {
  const traffic = await shown();
  traffic.arrange({ sort: { key: 'size', descending: true }, group: null });
  await settled();
  loads = 0;
  add(101);
  link('live');
  await settled();
  expect([loads, traffic.unseenCount]).toEqual([0, 1]);
  traffic.pause(true);
  listener.onLag();
  traffic.pause(false);
  await settled();
  expect([loads, top(traffic)]).toEqual([1, '000101']);
});

it('flows that are to be deleted are hidden in a list that is opened meanwhile, until that is undone', async () => {
  const before = await shown();
  before.hide(['000100']);
  before.stop();
  const now = await shown();
  expect([now.summary('000100'), now.total]).toEqual([undefined, 99]);
  Traffic.restore(['000100']);
  await settled();
  expect([now.summary('000100')?.id, now.total]).toEqual(['000100', 100]);
  now.hide(['000099']);
  stored = stored.filter((f) => f.id !== '000099');
  Traffic.deleted(['000099']);
  await vi.advanceTimersByTimeAsync(11_000);
  expect(now.total).toBe(99);
  now.stop();
  // None is shown: there is nothing to load.
  loads = 0;
  Traffic.restore(['000099']);
  await settled();
  expect(loads).toBe(0);
});
