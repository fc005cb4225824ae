// Changes of keys, teams and organisations.
import { app } from '../lib/app.svelte';

/** Runs a change, and then `onchange`, which reads what it changed; tells the user of it, or of its failure. */
export async function runChange(work: () => Promise<unknown>, onchange: () => void, text = ''): Promise<void> {
  try {
    await work();
    if (text) app.notify(text);
    onchange();
  } catch (error) {
    app.notifyError(error);
  }
}
