// What waits for somebody to decide, as the API tells it, and what a notification says of it.
import type { UnixMicros } from './time';

/** A request, tunnel, response or message that waits: for an answer of the approvals, or held by a rule. */
export interface Pending {
  id: string;
  kind: 'approval' | 'rule';
  what: 'request' | 'tunnel' | 'response' | 'message';
  method: string | null;
  url: string;
  host: string;
  port: number | null;
  status: number | null;
  headers: [string, string][];
  body: string | null;
  body_size: number | null;
  client: { address: string; user: string | null; process: string | null; container: string | null; sessions: string[] };
  waiting: number;
  flows: string[];
  since: UnixMicros;
  until: UnixMicros;
  at_end: 'deny' | 'continue';
  rule: string | null;
  phase: string | null;
  note: string | null;
  /** Where a filter was asked about: whether it selects this; null where too little is known for that. */
  matches?: boolean | null;
}

/** What a filter says of each that waits. */
export interface Judged {
  query: string;
  ids: Map<string, boolean | null>;
}

/** Those that a filter selects, and a note on those that it cannot be judged of. What has not been judged yet is not shown. */
export function selectedBy(query: string, all: Pending[], judged: Judged | null): { shown: Pending[]; note: string } {
  const wanted = query.trim();
  if (wanted === '') return { shown: all, note: '' };
  const ids = judged?.query === wanted ? judged.ids : new Map<string, boolean | null>();
  const shown = all.filter((p) => ids.get(p.id) === true);
  const open = all.filter((p) => (ids.get(p.id) ?? null) === null).length;
  if (open === 0) return { shown, note: '' };
  const words = open === 1 ? '1 more is pending, but too little is known' : `${open} more are pending, but too little is known`;
  return { shown, note: `${words} to apply this filter:` };
}

/** What a notification says: who wants to reach which host, never a path, a field or a body. */
export function noticeOf(fresh: Pick<Pending, 'client' | 'host' | 'port' | 'kind' | 'rule'>[]): string {
  const first = fresh[0];
  if (!first) return '';
  const who = first.client.user ?? first.client.container ?? first.client.process ?? first.client.address;
  const where = first.port === null ? first.host : `${first.host}:${first.port}`;
  const more = fresh.length > 1 ? `, and ${fresh.length - 1} more` : '';
  return (first.kind === 'rule' ? `${first.rule ?? 'a rule'} holds a flow from ${who} to ${where}` : `${who} wants to reach ${where}`) + more;
}
