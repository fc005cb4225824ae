// The event socket: connects again when it breaks, and says what comes.
import { url } from './api';
import type { Summary } from './types';

export type Link = 'connecting' | 'live' | 'broken';

export interface Listener {
  onFlows(flows: Summary[]): void;
  /** Some news were not sent. */
  onLag(): void;
  /** How the connection stands; `again` when it had been up before. */
  onLink(link: Link, again: boolean): void;
}

type Said = { type: string; generation?: number; flows?: Summary[] | number };

export class Events {
  private socket: WebSocket | null = null;
  private query = '';
  /** The number of the present query: messages that name another one are about an earlier query. */
  private generation = 0;
  private running = false;
  private wait = 500;
  private before = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly listener: Listener) {}

  start(query: string): void {
    this.query = query;
    this.generation += 1;
    this.running = true;
    this.connect();
  }

  stop(): void {
    this.running = false;
    clearTimeout(this.timer);
    this.socket?.close();
    this.socket = null;
  }

  subscribe(query: string): void {
    this.query = query;
    this.generation += 1;
    this.announce();
  }

  /** Tells an open socket the present query. */
  private announce(): void {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    this.socket.send(JSON.stringify({ subscribe: { query: this.query, generation: this.generation } }));
  }

  private connect(): void {
    const announced = this.generation;
    const address = new URL(url('/events', { query: this.query, generation: announced }), location.href);
    address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(address);
    this.socket = socket;
    socket.onopen = () => {
      this.wait = 500;
      // The address names the query that was the present one then.
      if (this.generation !== announced) this.announce();
      this.listener.onLink('live', this.before);
      this.before = true;
    };
    socket.onmessage = (event) => this.hear(String(event.data));
    socket.onclose = () => {
      if (!this.running || this.socket !== socket) return;
      this.listener.onLink('broken', this.before);
      this.timer = setTimeout(() => this.connect(), this.wait);
      this.wait = Math.min(this.wait * 2, 10_000);
    };
  }

  private hear(text: string): void {
    const said = JSON.parse(text) as Said;
    if (said.generation !== this.generation) return;
    if (said.type === 'flows' && Array.isArray(said.flows)) this.listener.onFlows(said.flows);
    if (said.type === 'lag') this.listener.onLag();
  }
}
