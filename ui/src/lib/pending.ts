// Pending requests: filtering, and the text of notifications.
import type { PendingItem as Pending } from './api.gen';

export type { PendingItem as Pending } from './api.gen';

/** Result of a filter for each pending item. */
export interface Judged {
  query: string;
  ids: Map<string, boolean | null>;
}

/** Pending items that match a filter, and a note on those that cannot be decided yet (which are not listed). */
export function selectedBy(query: string, all: Pending[], judged: Judged | null): { shown: Pending[]; note: string } {
  const wanted = query.trim();
  if (wanted === '') return { shown: all, note: '' };
  const ids = judged?.query === wanted ? judged.ids : new Map<string, boolean | null>();
  const shown = all.filter((p) => ids.get(p.id) === true);
  const open = all.filter((p) => (ids.get(p.id) ?? null) === null).length;
  if (open === 0) return { shown, note: '' };
  const words = open === 1 ? '1 more pending request cannot be matched' : `${open} more pending requests cannot be matched`;
  return { shown, note: `${words} against this filter yet:` };
}

/** Text of a notification: client and host only, never a path, header field or body. */
export function noticeOf(fresh: Pick<Pending, 'client' | 'host' | 'port' | 'kind' | 'rule'>[]): string {
  const first = fresh[0];
  if (!first) return '';
  const who = first.client.user ?? first.client.container ?? first.client.process ?? first.client.address;
  const where = first.port === null ? first.host : `${first.host}:${first.port}`;
  const more = fresh.length > 1 ? `, and ${fresh.length - 1} more` : '';
  return (first.kind === 'rule' ? `${first.rule ?? 'a rule'} holds a flow from ${who} to ${where}` : `${who} requests access to ${where}`) + more;
}
