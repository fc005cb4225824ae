// Details of visible rows that lists do not contain: requested in batches, and cached.
import { SvelteMap } from 'svelte/reactivity';
import { getAs } from './api';
import type { RowDetails, RowDetailsById } from './api.gen';
import type { Summary } from './types';

/** Milliseconds for which lookups are batched. */
const GATHER = 120;
/** Flows per request; the server takes no more. */
const BATCH = 200;
const MAX_CACHED = 5000;

export class DetailsCache {
  readonly known = new SvelteMap<string, RowDetails>();
  /** Ids that were requested, and whether their flow had ended by then. */
  private readonly asked = new Map<string, boolean>();
  private wanted = new Map<string, boolean>();
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly ask: (ids: string[]) => Promise<Record<string, RowDetails>> = askServer) {}

  /** Requests the details of these flows; those of an open flow again once it has ended. */
  want(flows: (Summary | undefined)[]): void {
    for (const flow of flows) {
      if (!flow || flow.state === 'open' || this.asked.has(flow.id)) continue;
      this.wanted.set(flow.id, true);
      this.timer ??= setTimeout(() => void this.flush(), GATHER);
    }
  }

  private async flush(): Promise<void> {
    // The rows that came into view last are those that are in view.
    const ids = [...this.wanted.keys()].slice(-BATCH);
    this.wanted.clear();
    this.timer = undefined;
    if (this.known.size > MAX_CACHED) {
      this.known.clear();
      this.asked.clear();
    }
    for (const id of ids) this.asked.set(id, true);
    try {
      for (const [id, details] of Object.entries(await this.ask(ids))) this.known.set(id, details);
    } catch {
      for (const id of ids) this.asked.delete(id);
    }
  }

  /** Loads the details of many flows, batch by batch. */
  async load(ids: string[]): Promise<void> {
    const missing = ids.filter((id) => !this.known.has(id));
    for (let at = 0; at < missing.length; at += BATCH) {
      for (const [id, details] of Object.entries(await this.ask(missing.slice(at, at + BATCH)))) this.known.set(id, details);
    }
  }

  forget(id: string): void {
    this.asked.delete(id);
    this.known.delete(id);
  }
}

async function askServer(ids: string[]): Promise<Record<string, RowDetails>> {
  return (await getAs<RowDetailsById>('/flows/details', { flows: ids.join(',') })).flows;
}

export const rowDetails = new DetailsCache();
