// Which visible flows are LLM calls: requested from the server in batches, and cached.
import { SvelteMap } from 'svelte/reactivity';
import { get } from './api';
import type { FlowConversation as Call } from './api.gen';
import type { Summary } from './types';

/** Milliseconds for which lookups are batched. */
const GATHER = 150;
/** Flows per request. */
const BATCH = 200;
/** Cached flows. */
const MAX_CACHED = 5000;
/** A call is indexed some time after its flow has ended: number of attempts, and milliseconds between them. */
const TRIES = 3;
const AGAIN = 1500;

/** Whether a flow may be an LLM call, judging by its summary. */
export function mayCall(flow: Summary): boolean {
  if (flow.kind === 'websocket') return /\/responses(\?|$)/.test(flow.path ?? '');
  if (flow.method !== 'POST' || flow.state === 'open') return false;
  const type = flow.response_type ?? '';
  return /json|stream$/.test(type) || /\/(messages|completions|responses|interactions|chat|converse|invoke)|generateContent/i.test(flow.path ?? '');
}

export class Models {
  readonly calls = new SvelteMap<string, Call>();
  private readonly tries = new Map<string, { n: number; at: number }>();
  private readonly wanted = new Set<string>();
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly ask: (ids: string[]) => Promise<Record<string, Call>> = askServer) {}

  /** Requests the calls of the visible flows. */
  want(flows: (Summary | undefined)[], now = Date.now()): void {
    for (const flow of flows) {
      if (flow && mayCall(flow)) this.wantOne(flow.id, now);
    }
  }

  /** Requests the call of one flow. */
  wantOne(id: string, now = Date.now()): void {
    const tried = this.tries.get(id);
    if (this.calls.has(id) || (tried && (tried.n >= TRIES || now - tried.at < AGAIN))) return;
    this.wanted.add(id);
    this.timer ??= setTimeout(() => void this.flush(), GATHER);
  }

  /** Loads the calls of many flows, batch by batch. */
  async load(flows: Summary[]): Promise<void> {
    const ids = flows.filter(mayCall).map((f) => f.id).filter((id) => !this.calls.has(id));
    for (let at = 0; at < ids.length; at += BATCH) {
      for (const [id, call] of Object.entries(await this.ask(ids.slice(at, at + BATCH)))) this.calls.set(id, call);
    }
  }

  private async flush(): Promise<void> {
    const ids = [...this.wanted].slice(0, BATCH);
    this.wanted.clear();
    this.timer = undefined;
    for (const id of ids) this.tries.set(id, { n: (this.tries.get(id)?.n ?? 0) + 1, at: Date.now() });
    if (this.tries.size > MAX_CACHED) this.tries.clear();
    if (this.calls.size > MAX_CACHED) this.calls.clear();
    try {
      for (const [id, call] of Object.entries(await this.ask(ids))) this.calls.set(id, call);
    } catch {
      // The rows are shown without model names.
    }
    const open = ids.filter((id) => !this.calls.has(id) && (this.tries.get(id)?.n ?? TRIES) < TRIES);
    if (open.length > 0) setTimeout(() => open.forEach((id) => this.wantOne(id)), AGAIN);
  }
}

async function askServer(ids: string[]): Promise<Record<string, Call>> {
  return (await get('/conversations/by-flow', { flows: ids.join(',') })).flows;
}

export const models = new Models();
