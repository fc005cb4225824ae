// Turns the recording on and off: the setting `record.enabled`, written to the configuration file.
import { errorMessage, get, send } from '../lib/api';
import { app } from '../lib/app.svelte';
import { caller } from '../lib/me.svelte';

const KEY = 'record.enabled';

class Recording {
  /** Why it cannot be changed; empty if it can. */
  private locked = $state('');
  /** The state that was just chosen, until the statistics have it. */
  private chosen = $state<boolean | null>(null);
  busy = $state(false);

  readonly on = $derived.by(() => {
    const known = app.stats?.store?.recording ?? false;
    return this.chosen ?? known;
  });
  readonly why = $derived(caller.why('administer') || (app.stats && !app.stats.store ? 'This instance was started without a recorder' : this.locked));
  /** Known to be off, which must not be overlooked. */
  readonly isOff = $derived(app.stats !== null && !this.on);

  load(): void {
    get('/settings').then(
      (view) => (this.locked = view.locked ?? view.settings.find((s) => s.key === KEY)?.locked ?? ''),
      // What is wrong is said when it is tried.
      () => undefined,
    );
  }

  /** The statistics have what was chosen. */
  settled(): void {
    if (app.stats?.store?.recording === this.chosen) this.chosen = null;
  }

  async turn(on: boolean, isUndo = false): Promise<void> {
    this.busy = true;
    try {
      const changes = [{ key: KEY, value: on }];
      const { base } = await send('POST', '/settings/preview', { changes });
      await send('POST', '/settings', { base, changes });
      this.chosen = on;
      const undo = isUndo ? undefined : { label: 'Undo', run: () => void this.turn(!on, true) };
      app.notify(on ? 'New requests are recorded' : 'New requests are not recorded', undo);
    } catch (error) {
      app.notify(errorMessage(error), undefined, true);
    } finally {
      this.busy = false;
    }
  }
}

export const recording = new Recording();
