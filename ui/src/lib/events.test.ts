import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Events } from './events';
import type { Summary } from './types';

class FakeSocket {
  static readonly OPEN = 1;
  static all: FakeSocket[] = [];
  readyState = 0;
  sent: { subscribe: { query: string; generation: number } }[] = [];
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: (() => void) | null = null;

  constructor(readonly address: URL) {
    FakeSocket.all.push(this);
  }

  open(): void {
    this.readyState = FakeSocket.OPEN;
    this.onopen?.();
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text) as (typeof this.sent)[number]);
  }

  hear(message: unknown): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }

  close(): void {
    this.onclose?.();
  }
}

const flow = (id: string): Summary => ({ id }) as Summary;

describe('the event socket', () => {
  const received: string[] = [];
  const events = () =>
    new Events({ onFlows: (flows) => received.push(...flows.map((f) => f.id)), onLag: () => received.push('lag'), onLink: () => {} });
  const socket = () => FakeSocket.all.at(-1)!;

  beforeEach(() => {
    received.length = 0;
    FakeSocket.all = [];
    vi.stubGlobal('WebSocket', FakeSocket);
    vi.stubGlobal('location', { href: 'http://127.0.0.1:7072/' });
  });
  afterEach(() => vi.unstubAllGlobals());

  it('sends its query in the URL, so that no other updates arrive first', () => {
    events().start('host:a.test');
    const { searchParams, protocol } = socket().address;
    expect(searchParams.get('query')).toBe('host:a.test');
    expect(searchParams.get('generation')).toBe('1');
    expect(protocol).toBe('ws:');
    socket().open();
    expect(socket().sent).toEqual([]);
  });

  it('drops messages of an earlier query', () => {
    const it = events();
    it.start('host:a.test');
    socket().open();
    socket().hear({ type: 'flows', generation: 1, flows: [flow('a')] });
    it.subscribe('host:b.test');
    expect(socket().sent).toEqual([{ subscribe: { query: 'host:b.test', generation: 2 } }]);
    socket().hear({ type: 'flows', generation: 1, flows: [flow('late')] });
    socket().hear({ type: 'lag', generation: 1, flows: 3 });
    socket().hear({ type: 'flows', flows: [flow('unnumbered')] });
    socket().hear({ type: 'flows', generation: 2, flows: [flow('b')] });
    expect(received).toEqual(['a', 'b']);
  });

  it('subscribes to a query set while the socket was opening', () => {
    const it = events();
    it.start('host:a.test');
    it.subscribe('host:b.test');
    socket().open();
    expect(socket().sent).toEqual([{ subscribe: { query: 'host:b.test', generation: 2 } }]);
  });
});
