// Edits are never lost to changes on disk, nor the other way round.
import { beforeEach, describe, expect, it } from 'vitest';
import { Draft } from './draft.svelte';
import { isAnyUnsaved } from './unsaved';

let disk: Record<string, string>;
const draft = () => new Draft((file) => Promise.resolve(disk[file] ?? ''));

beforeEach(() => {
  disk = { a: 'one', b: 'two' };
});

describe('an edited file', () => {
  it('follows the disk without edits', async () => {
    const d = draft();
    await d.open('a');
    expect(await d.poll()).toBe(false);
    disk['a'] = 'other';
    expect(await d.poll()).toBe(true);
    expect([d.text, d.changed, d.diskText]).toEqual(['other', false, null]);
  });

  it('keeps the edits, and reports the version on disk', async () => {
    const d = draft();
    await d.open('a');
    d.text = 'mine';
    disk['a'] = 'theirs';
    expect(await d.poll()).toBe(false);
    expect([d.text, d.saved, d.diskText]).toEqual(['mine', 'one', 'theirs']);
    d.keepEdits();
    expect([d.text, d.saved, d.diskText]).toEqual(['mine', 'theirs', null]);
    expect(await d.poll()).toBe(false);
    expect(d.diskText).toBeNull();
  });

  it('restores its edits after another file or page', async () => {
    const d = draft();
    await d.open('a');
    d.text = 'mine';
    await d.open('b');
    expect([d.text, d.changed]).toEqual(['two', false]);
    await d.open('a');
    expect([d.text, d.saved, d.changed]).toEqual(['mine', 'one', true]);
    d.stash();
    disk['a'] = 'theirs';
    const later = draft();
    await later.open('a');
    expect([later.text, later.diskText]).toEqual(['mine', 'theirs']);
    const clean = draft();
    await clean.open('a');
    expect([clean.text, clean.changed]).toEqual(['theirs', false]);
  });

  it('has no conflict if the version on disk is the same', async () => {
    const d = draft();
    await d.open('a');
    d.text = 'same';
    disk['a'] = 'same';
    expect(await d.poll()).toBe(true);
    expect([d.changed, d.diskText]).toEqual([false, null]);
  });

  it('keeps CRLF line endings', async () => {
    disk['a'] = 'x\r\ny\r\n';
    const d = draft();
    await d.open('a');
    expect([d.text, d.changed]).toEqual(['x\ny\n', false]);
    expect(d.asFile('x\nz\n')).toBe('x\r\nz\r\n');
    await d.open('b');
    expect(d.asFile('x\n')).toBe('x\n');
  });

  it('is the one that was asked for last, and none once the page is left', async () => {
    const answers: ((text: string) => void)[] = [];
    const d = new Draft(() => new Promise((done) => answers.push(done)));
    const [a, b] = [d.open('a'), d.open('b')];
    answers[1]!('two\n');
    answers[0]!('one\r\n');
    expect([await a, await b, d.file, d.text, d.asFile('x\n')]).toEqual([false, true, 'b', 'two\n', 'x\n']);
    d.text = 'mine';
    const polled = d.poll();
    const c = d.open('c');
    answers[3]!('three');
    expect(await c).toBe(true);
    // What is read late of another file says nothing about the lines of this one.
    answers[2]!('two\r\n');
    expect([await polled, d.asFile('x\n')]).toEqual([false, 'x\n']);
    const back = d.open('b');
    d.stash();
    answers[4]!('two\n');
    expect([await back, d.file]).toEqual([false, 'c']);
    const later = new Draft(() => Promise.resolve('two\n'));
    await later.open('b');
    expect(later.text).toBe('mine');
    later.put('two\n');
  });

  it('that was saved while another one was opened is not unsaved', async () => {
    const d = draft();
    await d.open('a');
    d.text = 'mine';
    await d.open('b');
    d.wrote('a', 'mine');
    expect([isAnyUnsaved(), d.saved, d.changed]).toEqual([false, 'two', false]);
    d.text = 'more';
    d.wrote('b', 'mor');
    expect([d.saved, d.changed]).toEqual(['mor', true]);
  });

  it('that was loaded with the page follows the disk, too, with CRLF', async () => {
    disk['a'] = 'x\r\n';
    const d = draft();
    d.begin('a', disk['a']);
    expect([d.text, d.asFile('y\n'), await d.poll()]).toEqual(['x\n', 'y\r\n', false]);
  });
});
