// Watches which cards have had their first request since the instance was started.
import { get } from '../lib/api';
import { Events } from '../lib/events';
import type { Summary } from '../lib/types';
import { QUERIES, since, type CardId } from './setup';

/** Pause between two looks, in milliseconds: flows may arrive by thousands per second. */
const PAUSE = 500;

export class Arrivals {
  first = $state.raw<Partial<Record<CardId, Summary>>>({});
  private events: Events | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly start: number) {}

  watch(): () => void {
    this.events = new Events({ onFlows: () => this.lookSoon(), onLag: () => this.lookSoon(), onLink: () => this.lookSoon() });
    this.events.start('');
    return () => {
      this.events?.stop();
      clearTimeout(this.timer);
    };
  }

  private lookSoon(): void {
    this.timer ??= setTimeout(() => void this.look().finally(() => (this.timer = undefined)), PAUSE);
  }

  /** Looks for the first flow of each card that still waits. */
  private async look(): Promise<void> {
    const waiting = (Object.keys(QUERIES) as CardId[]).filter((id) => !this.first[id]);
    const found = await Promise.all(waiting.map(async (id) => {
      try {
        const page = await get('/flows', { query: since(id, this.start), limit: 1, order: 'oldest' });
        return [id, page.flows[0]] as const;
      } catch {
        // The next flow, or the next connection, looks again.
        return [id, undefined] as const;
      }
    }));
    const arrived = found.filter(([, flow]) => flow);
    if (arrived.length > 0) this.first = { ...this.first, ...Object.fromEntries(arrived) };
    if (arrived.length === waiting.length) this.events?.stop();
  }
}
