// All that waits for somebody to decide, watched by every page: the queue, its count in the title, and notifications.
import { ApiError, get, send } from './api';
import { loadPref, savePref } from './app.svelte';
import { noticeOf, type Pending } from './pending';

interface Page {
  version: number;
  pending: Pending[];
}

/** Milliseconds between two tries while the instance cannot be reached. */
const AGAIN = 2000;

class Queue {
  all = $state.raw<Pending[]>([]);
  /** Whether the list was had at least once. */
  known = $state(false);
  /** Grows with each answer of the server. */
  version = $state(0);
  /** Milliseconds since 1970, a second apart while something waits. */
  now = $state(Date.now());
  notifying = $state(loadPref('notify') === 'yes' && typeof Notification !== 'undefined' && Notification.permission === 'granted');
  private seen = new Set<string>();
  private running = false;

  /** Watches for as long as the page lives, hidden or not: somebody who waits shall not wait for a look. */
  start(): void {
    if (this.running) return;
    this.running = true;
    void this.watch();
    setInterval(() => { if (this.all.length > 0) this.now = Date.now(); }, 1000);
  }

  async decide(item: Pending, decision: Record<string, unknown>): Promise<void> {
    await send('POST', `/pending/${item.id}`, decision);
    this.all = this.all.filter((other) => other.id !== item.id);
  }

  /** Asks the browser for its leave; whether it gave it. */
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
        const page = await get<Page>('/pending', after === undefined ? {} : { after, wait: '25s' });
        after = page.version;
        this.take(page);
      } catch (error) {
        after = undefined;
        await new Promise((go) => setTimeout(go, error instanceof ApiError && error.status === 404 ? 60_000 : AGAIN));
      }
    }
  }

  private take(page: Page): void {
    const fresh = page.pending.filter((p) => !this.seen.has(p.id));
    this.now = Date.now();
    this.seen = new Set(page.pending.map((p) => p.id));
    if (this.notifying && this.known && fresh.length > 0 && document.hidden) {
      const shown = new Notification('Interflow: approval needed', { body: noticeOf(fresh), tag: 'interflow-pending' });
      shown.onclick = () => window.focus();
    }
    [this.all, this.version, this.known] = [page.pending, page.version, true];
  }
}

export const queue = new Queue();
