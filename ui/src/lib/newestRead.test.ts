// A read that returns late does not bring back what was before.
import { describe, expect, it } from 'vitest';
import { NewestRead } from './newestRead';

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
