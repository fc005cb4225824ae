// What was typed into a form that was closed is there when it is opened again.
import { describe, expect, it } from 'vitest';
import { TypedForms } from './typed.svelte';
import { isAnyUnsaved, watchUnsaved } from './unsaved';

describe('a form that was closed', () => {
  it('has what was typed when it is opened again, until its subject is gone', () => {
    const forms = new TypedForms<{ body: string }>();
    forms.open('a', 'change', { body: 'one' }).now.body = 'mine';
    forms.open('b', 'change', { body: 'two' });
    expect(forms.open('a', 'change', { body: 'one' }).now.body).toBe('mine');
    expect(forms.open('a', 'answer', { body: '' }).now.body).toBe('');
    expect(isAnyUnsaved()).toBe(true);
    forms.keepOnly((id) => id === 'b');
    expect(forms.open('a', 'change', { body: 'one' }).now.body).toBe('one');
    expect(isAnyUnsaved()).toBe(false);
  });

  it('starts again with what it was at first', () => {
    const typed = new TypedForms<{ body: string }>().open('a', 'change', { body: 'one' });
    typed.now.body = 'mine';
    expect(typed.isChanged).toBe(true);
    typed.restart();
    expect([typed.now.body, typed.isChanged]).toEqual(['one', false]);
  });
});

describe('unsaved edits', () => {
  it('are looked for as long as their place is shown', () => {
    const stop = watchUnsaved(() => true);
    expect(isAnyUnsaved()).toBe(true);
    stop();
    expect(isAnyUnsaved()).toBe(false);
  });
});
