// The queue of pending requests, used by every page: list, count in the title and browser notifications.
import { ApiError, get, sendAs } from './api';
import type { PendingItems } from './api.gen';
import { loadPref, savePref } from './app.svelte';
import { noticeOf, type Pending } from './pending';
import { heldForms } from './typed.svelte';

/** Retry interval while the instance cannot be reached, in milliseconds. */
const AGAIN = 2000;

class Queue {
  all = $state.raw<Pending[]>([]);
  /** Whether the list has been loaded at least once. */
  known = $state(false);
  /** Increases with each response of the server. */
  version = $state(0);
  /** Milliseconds since the epoch, updated every second while requests are pending. */
  now = $state(Date.now());
  notifying = $state(loadPref('notify') === 'yes' && typeof Notification !== 'undefined' && Notification.permission === 'granted');
  private seen = new Set<string>();
  private running = false;

  /** Long-polls for the lifetime of the page, even when it is hidden, so that pending requests are noticed at once. */
  start(): void {
    if (this.running) return;
    this.running = true;
    void this.watch();
    setInterval(() => { if (this.all.length > 0) this.now = Date.now(); }, 1000);
  }

  async decide(item: Pending, decision: Record<string, unknown>): Promise<void> {
    await sendAs('POST', `/pending/${item.id}`, decision);
    heldForms.drop(item.id);
    this.all = this.all.filter((other) => other.id !== item.id);
  }

  /** Requests notification permission; returns whether the wanted state was reached. */
  async notify(wanted: boolean): Promise<boolean> {
    const granted = wanted && typeof Notification !== 'undefined' && (await Notification.requestPermission()) === 'granted';
    this.notifying = granted;
    savePref('notify', granted ? 'yes' : null);
    return granted === wanted;
  }

  private async watch(): Promise<void> {
    let after: number | undefined;
    for (;;) {
      try {
        const page = await get('/pending', after === undefined ? {} : { after, wait: '25s' });
        after = page.version;
        this.take(page);
      } catch (error) {
        after = undefined;
        await new Promise((go) => setTimeout(go, error instanceof ApiError && error.status === 404 ? 60_000 : AGAIN));
      }
    }
  }

  private take(page: PendingItems): void {
    const fresh = page.pending.filter((p) => !this.seen.has(p.id));
    this.now = Date.now();
    const ids = new Set(page.pending.map((p) => p.id));
    this.seen = ids;
    heldForms.keepOnly((id) => ids.has(id));
    if (this.notifying && this.known && fresh.length > 0 && document.hidden) {
      const shown = new Notification('Interflow: approval needed', { body: noticeOf(fresh), tag: 'interflow-pending' });
      shown.onclick = () => window.focus();
    }
    [this.all, this.version, this.known] = [page.pending, page.version, true];
  }
}

export const queue = new Queue();
