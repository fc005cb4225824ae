// Edits are never lost to changes on disk, nor the other way round.
import { beforeEach, describe, expect, it } from 'vitest';
import { Draft } from './draft.svelte';

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
});
