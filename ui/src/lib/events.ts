// WebSocket of live events, with reconnection.
import { url } from './api';
import type { EventMessage } from './api.gen';
import type { Summary } from './types';

export type Link = 'connecting' | 'live' | 'broken';

export interface Listener {
  onFlows(flows: Summary[]): void;
  /** The server dropped updates. */
  onLag(): void;
  /** Connection state; `again` is set on a reconnection. */
  onLink(link: Link, again: boolean): void;
}

export class Events {
  private socket: WebSocket | null = null;
  private query = '';
  /** Number of the current query; messages with another number belong to an earlier one. */
  private generation = 0;
  private running = false;
  private wait = 500;
  private wasConnected = false;
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
    this.sendSubscription();
  }

  /** Subscribes an open socket to the current query. */
  private sendSubscription(): void {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    this.socket.send(JSON.stringify({ subscribe: { query: this.query, generation: this.generation } }));
  }

  private connect(): void {
    const sentGeneration = this.generation;
    const address = new URL(url('/events', { query: this.query, generation: sentGeneration }), location.href);
    address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(address);
    this.socket = socket;
    socket.onopen = () => {
      this.wait = 500;
      // The URL carries the query at connection time.
      if (this.generation !== sentGeneration) this.sendSubscription();
      this.listener.onLink('live', this.wasConnected);
      this.wasConnected = true;
    };
    socket.onmessage = (event) => this.receive(String(event.data));
    socket.onclose = () => {
      if (!this.running || this.socket !== socket) return;
      this.listener.onLink('broken', this.wasConnected);
      this.timer = setTimeout(() => this.connect(), this.wait);
      this.wait = Math.min(this.wait * 2, 10_000);
    };
  }

  private receive(text: string): void {
    const message = JSON.parse(text) as EventMessage;
    if (!('generation' in message) || message.generation !== this.generation) return;
    if (message.type === 'flows') this.listener.onFlows(message.flows);
    if (message.type === 'lag') this.listener.onLag();
  }
}
