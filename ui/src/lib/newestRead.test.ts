// A read that returns late does not bring back what was before.
import { describe, expect, it, vi } from 'vitest';
import { NewestRead, soon } from './newestRead';

/** A request that is answered when the test says so. */
function request() {
  let answer!: (value: string) => void;
  let fail!: (error: Error) => void;
  const promise = new Promise<string>((resolve, reject) => { answer = resolve; fail = reject; });
  return { get: () => promise, answer, fail };
}

describe('a read', () => {
  it('counts if nothing overtook it', async () => {
    const reads = new NewestRead();
    expect(await reads.read(() => Promise.resolve('a'))).toBe('a');
    expect(reads.change()).toBe(false);
    await expect(reads.read(() => Promise.reject(new Error('gone')))).rejects.toThrow('gone');
  });

  it('does not count if a later one was answered before it', async () => {
    const reads = new NewestRead();
    const [older, newer] = [request(), request()];
    const results = [reads.read(older.get), reads.read(newer.get)];
    newer.answer('new');
    older.answer('old');
    expect(await Promise.all(results)).toEqual([undefined, 'new']);
  });

  it('does not count if the value was changed meanwhile, and has to be repeated', async () => {
    const reads = new NewestRead();
    const [older, failing] = [request(), request()];
    const results = [reads.read(older.get), reads.read(failing.get)];
    expect(reads.change()).toBe(true);
    older.answer('without the tag');
    failing.fail(new Error('late'));
    expect(await Promise.all(results)).toEqual([undefined, undefined]);
    expect(await reads.read(() => Promise.resolve('with the tag'))).toBe('with the tag');
  });
});

it('a check comes after a rest, and does not count once it is ended', async () => {
  vi.useFakeTimers();
  const shown: string[] = [];
  const begin = ({ get }: { get: () => Promise<string> }) => soon(get, (found) => shown.push(found), (error) => shown.push(String(error)));
  const [never, late, newest, failing] = [request(), request(), request(), request()];
  begin(never)();
  const end = begin(late);
  await vi.advanceTimersByTimeAsync(300);
  end();
  begin(newest);
  await vi.advanceTimersByTimeAsync(300);
  newest.answer('newest');
  late.answer('late');
  never.answer('never');
  await vi.advanceTimersByTimeAsync(300);
  begin(failing);
  await vi.advanceTimersByTimeAsync(300);
  failing.fail(new Error('gone'));
  await vi.advanceTimersByTimeAsync(0);
  expect(shown).toEqual(['newest', 'Error: gone']);
  vi.useRealTimers();
});
