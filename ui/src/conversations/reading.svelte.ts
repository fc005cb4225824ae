// How messages are shown, remembered by the browser, and the Markdown view, loaded with the first message.
import type { Component } from 'svelte';
import { loadPref, savePref } from '../lib/app.svelte';

class Reading {
  /** Texts as they are, instead of as Markdown. */
  plain = $state(loadPref('conversations.plain') === 'yes');
  markdown = $state.raw<Component<{ text: string }> | null>(null);
  private loading = false;

  setPlain(plain: boolean): void {
    this.plain = plain;
    savePref('conversations.plain', plain ? 'yes' : null);
  }

  /** Loads the view; until it is there, and if it does not come, texts are shown as they are. */
  load(): void {
    if (this.loading) return;
    this.loading = true;
    import('./MarkdownView.svelte').then(
      (found) => (this.markdown = found.default),
      () => (this.loading = false),
    );
  }
}

export const reading = new Reading();
