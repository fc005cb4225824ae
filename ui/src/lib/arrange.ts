// Sorts and groups a bounded window of flows.
import type { Summary } from './types';

export type SortKey = 'method' | 'status' | 'host' | 'path' | 'type' | 'size' | 'sent' | 'dur' | 'time' | 'client' | 'user' | 'version' | 'process' | 'comment';
export type GroupKey = 'host' | 'process' | 'conversation';

export interface Sort {
  key: SortKey;
  descending: boolean;
}

export interface Arrangement {
  sort: Sort | null;
  group: GroupKey | null;
}

/** The heading of a group. */
export interface GroupRow {
  group: string;
  label: string;
  count: number;
  failed: number;
  bytes: number;
  open: boolean;
}

export type Item = Summary | GroupRow;

export function isGroup(item: Item | undefined): item is GroupRow {
  return item !== undefined && 'group' in item;
}

/** What the list does not contain, by flow. */
export type DetailsOf = (id: string) => { process?: string; container?: string; comment?: string } | undefined;

/** The bytes that a client received: shown, sorted and filtered by the column of sizes. */
export function sizeOf(flow: Summary): number {
  return flow.response_size;
}

/** The client's program, or its container. */
export function programOf(details: ReturnType<DetailsOf>): string {
  return details?.process ?? details?.container ?? '';
}

const VALUES: Record<SortKey, (flow: Summary, details: DetailsOf) => string | number> = {
  method: (f) => f.method ?? '',
  status: (f) => f.status ?? (f.error ? 999 : 0),
  host: (f) => f.authority,
  path: (f) => f.path ?? '',
  type: (f) => f.response_type ?? '',
  size: sizeOf,
  sent: (f) => f.request_size,
  dur: (f) => f.duration,
  time: (f) => f.started,
  client: (f) => f.client ?? '',
  user: (f) => f.user ?? '',
  version: (f) => f.version,
  process: (f, details) => programOf(details(f.id)),
  comment: (f, details) => details(f.id)?.comment ?? '',
};

/** The flows in order; equal ones newest first. */
export function sorted(flows: Summary[], sort: Sort | null, details: DetailsOf = () => undefined): Summary[] {
  const newest = (a: Summary, b: Summary) => (a.id < b.id ? 1 : a.id > b.id ? -1 : 0);
  if (!sort) return [...flows].sort(newest);
  const value = VALUES[sort.key];
  const sign = sort.descending ? -1 : 1;
  return [...flows].sort((a, b) => {
    const [x, y] = [value(a, details), value(b, details)];
    const order = typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y));
    return order === 0 ? newest(a, b) : order * sign;
  });
}

/** The rows of the table: flows, or groups with their flows, in the order of the first flow of each. */
export function arranged(
  flows: Summary[], { sort, group }: Arrangement, groupOf: (flow: Summary) => { key: string; label: string }, closed: ReadonlySet<string>,
  details?: DetailsOf,
): Item[] {
  const list = sorted(flows, sort, details);
  if (!group) return list;
  const groups = new Map<string, { row: GroupRow; flows: Summary[] }>();
  for (const flow of list) {
    const { key, label } = groupOf(flow);
    let found = groups.get(key);
    if (!found) groups.set(key, (found = { row: { group: key, label, count: 0, failed: 0, bytes: 0, open: !closed.has(key) }, flows: [] }));
    found.row.count += 1;
    found.row.failed += flow.error || (flow.status ?? 0) >= 400 ? 1 : 0;
    found.row.bytes += sizeOf(flow);
    found.flows.push(flow);
  }
  return [...groups.values()].flatMap(({ row, flows: own }) => (row.open ? [row, ...own] : [row]));
}
