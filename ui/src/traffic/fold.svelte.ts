// Whether the header fields are shown beside the bodies; the last choice is kept, for both sides.
import { loadPref, savePref } from '../lib/prefs';

const KEY = 'exchange.fields';

class Fold {
  /** Null until something was chosen. */
  private chosen = $state<boolean | null>(loadPref(KEY) === null ? null : loadPref(KEY) === 'open');

  /** Before a choice, the fields are shown where there is no body. */
  isOpen(hasBody: boolean): boolean {
    return this.chosen ?? !hasBody;
  }

  /** Called when the user opened or closed a fold, and when its state was set. */
  toggled(fold: HTMLDetailsElement, hasBody: boolean): void {
    if (fold.open === this.isOpen(hasBody)) return;
    this.chosen = fold.open;
    savePref(KEY, fold.open ? 'open' : 'closed');
  }
}

export const fold = new Fold();
