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

type Said = { type: string; flows?: Summary[] | number };

export class Events {
  private socket: WebSocket | null = null;
  private query = '';
  private running = false;
  private wait = 500;
  private before = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly listener: Listener) {}

  start(query: string): void {
    this.query = query;
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
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ subscribe: { query } }));
  }

  private connect(): void {
    const address = new URL(url('/events'), location.href);
    address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(address);
    this.socket = socket;
    socket.onopen = () => {
      this.wait = 500;
      this.subscribe(this.query);
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
    if (said.type === 'flows' && Array.isArray(said.flows)) this.listener.onFlows(said.flows);
    if (said.type === 'lag') this.listener.onLag();
  }
}
