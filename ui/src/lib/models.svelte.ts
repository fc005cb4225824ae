// Which flows are calls of language models: asked of the server for the rows in view, a few at a time, and remembered.
import { SvelteMap } from 'svelte/reactivity';
import { get } from './api';
import type { Summary } from './types';

/** What is known of a flow that is a call of a model. */
export interface Call {
  conversation: string;
  agent: string;
  model: string;
  input: number;
  output: number;
  cost: number | null;
}

/** Milliseconds that wishes are gathered before the server is asked. */
const GATHER = 150;
/** Flows in one question. */
const BATCH = 200;
/** Flows that are remembered. */
const MAX_CACHED = 5000;
/** A call is known some time after its flow has ended: it is asked for so often, so many milliseconds apart. */
const TRIES = 3;
const AGAIN = 1500;

/** Whether a flow may be a call of a model, by what its row says. */
export function mayCall(flow: Summary): boolean {
  if (flow.kind === 'websocket') return /\/responses(\?|$)/.test(flow.path ?? '');
  if (flow.method !== 'POST' || flow.state === 'open') return false;
  const type = flow.response_type ?? '';
  return /json|stream$/.test(type) || /\/(messages|completions|responses|chat|converse|invoke)|generateContent/i.test(flow.path ?? '');
}

export class Models {
  readonly calls = new SvelteMap<string, Call>();
  private readonly tries = new Map<string, { n: number; at: number }>();
  private readonly wanted = new Set<string>();
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly ask: (ids: string[]) => Promise<Record<string, Call>> = askServer) {}

  /** Says which flows are in view. */
  want(flows: (Summary | undefined)[], now = Date.now()): void {
    for (const flow of flows) {
      if (flow && mayCall(flow)) this.wantOne(flow.id, now);
    }
  }

  /** Says that somebody looks at a flow. */
  wantOne(id: string, now = Date.now()): void {
    const tried = this.tries.get(id);
    if (this.calls.has(id) || (tried && (tried.n >= TRIES || now - tried.at < AGAIN))) return;
    this.wanted.add(id);
    this.timer ??= setTimeout(() => void this.flush(), GATHER);
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
      // The rows do without.
    }
    const open = ids.filter((id) => !this.calls.has(id) && (this.tries.get(id)?.n ?? TRIES) < TRIES);
    if (open.length > 0) setTimeout(() => open.forEach((id) => this.wantOne(id)), AGAIN);
  }
}

async function askServer(ids: string[]): Promise<Record<string, Call>> {
  return (await get<{ flows: Record<string, Call> }>('/conversations/of', { flows: ids.join(',') })).flows;
}

export const models = new Models();
