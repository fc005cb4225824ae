// The words that the table shows, and the query of each: for cells and chips. The server completes and parses the same words.
import { shortType } from '../lib/format';
import { term } from '../lib/query';
import type { Summary } from '../lib/types';

/** Common filters, offered as chips. */
export const CHIPS: { term: string; label: string }[] = [
  { term: 'is:error', label: 'Errors' },
  { term: 'status:4xx,5xx', label: '4xx 5xx' },
  { term: 'is:slow', label: 'Slow' },
  { term: 'type:ws', label: 'WebSocket' },
  { term: 'type:sse', label: 'SSE' },
  { term: 'method:TUNNEL', label: 'Tunnels' },
  { term: 'is:llm', label: 'LLM' },
  { term: 'is:redacted', label: 'Redacted' },
  { term: 'is:rule-matched', label: 'Rule matched' },
  { term: 'is:starred', label: '★ Starred' },
  { term: 'is:replay', label: 'Replays' },
];

/** A cell: what it says, and the filter for flows that say the same. */
export interface Cell {
  text: string;
  term?: string;
}

/** Types that have a word of their own in the query language. */
const TYPE_WORDS = ['sse', 'hls'];

export function methodCell(flow: Pick<Summary, 'method' | 'kind'>): Cell {
  if (flow.method) return { text: flow.method, term: term('method', flow.method) };
  return flow.kind === 'tunnel' ? { text: 'TUNNEL', term: 'method:TUNNEL' } : { text: '' };
}

export function statusCell(flow: Pick<Summary, 'status' | 'error' | 'state' | 'kind'>): Cell {
  if (flow.status !== undefined) return { text: String(flow.status), term: `status:${flow.status}` };
  if (flow.error) return { text: 'ERR', term: 'status:ERR' };
  if (flow.state === 'open') return { text: '…', term: 'is:open' };
  return { text: flow.kind === 'tunnel' ? '' : '—' };
}

export function typeCell(flow: Pick<Summary, 'kind' | 'request_type' | 'response_type'>): Cell {
  if (flow.kind === 'websocket') return { text: 'ws', term: 'type:ws' };
  if (flow.request_type?.startsWith('application/grpc')) return { text: 'grpc', term: 'type:grpc' };
  const text = shortType(flow.response_type);
  if (!flow.response_type) return { text };
  return { text, term: TYPE_WORDS.includes(text) ? `type:${text}` : term('resp.type', flow.response_type) };
}

/** The whole host name: without `=`, a name without a dot would also find longer ones. */
export function hostTerm(authority: string): string {
  const host = authority.replace(/:\d+$/, '').replace(/[[\]]/g, '');
  return term('host', host, !/[.:]/.test(host));
}
