// Converts the timings of a flow to spans on the client side and the upstream side.
import type { Timings } from './types';

export interface TimingSpan {
  side: 'client' | 'upstream';
  label: string;
  /** Microseconds after the start of the flow. */
  start: number;
  length: number;
}

/** The spans in order. Durations (DNS, connect, TLS) follow the wait for a pooled connection. */
export function timingSpans(t: Timings, total: number): TimingSpan[] {
  const found: TimingSpan[] = [];
  const add = (side: TimingSpan['side'], label: string, start: number | undefined, end: number | undefined) => {
    if (start !== undefined && end !== undefined && end >= start) found.push({ side, label, start, length: end - start });
  };
  add('client', 'receive request head', 0, t.request_head);
  add('client', 'receive request body', t.request_head, t.request_body);
  let at = t.request_head ?? 0;
  for (const [label, length] of [
    ['queued for a connection', t.blocked],
    ['DNS', t.dns],
    ['connect', t.connect],
    ['TLS', t.tls],
  ] as const) {
    if (length === undefined) continue;
    found.push({ side: 'upstream', label, start: at, length });
    at += length;
  }
  add('upstream', 'send request', Math.min(at, t.request_sent ?? at), t.request_sent);
  add('upstream', 'wait (TTFB)', t.request_sent ?? at, t.first_byte);
  add('upstream', 'receive response', t.first_byte, t.last_byte ?? (t.done === undefined ? total : undefined));
  add('client', 'send response', t.first_byte, t.done ?? total);
  return found.filter((s) => s.length > 0 || s.label !== 'queued for a connection');
}
