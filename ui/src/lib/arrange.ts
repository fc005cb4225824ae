// Sorts and groups a bounded window of flows.
import type { Summary } from './types';

export type SortKey = 'method' | 'status' | 'host' | 'path' | 'type' | 'size' | 'sent' | 'dur' | 'time' | 'client' | 'user' | 'version';
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

const VALUES: Record<SortKey, (flow: Summary) => string | number> = {
  method: (f) => f.method ?? '',
  status: (f) => f.status ?? (f.error ? 999 : 0),
  host: (f) => f.authority,
  path: (f) => f.path ?? '',
  type: (f) => f.response_type ?? '',
  size: (f) => f.response_size,
  sent: (f) => f.request_size,
  dur: (f) => f.duration,
  time: (f) => f.started,
  client: (f) => f.client ?? '',
  user: (f) => f.user ?? '',
  version: (f) => f.version,
};

/** The flows in order; equal ones newest first. */
export function sorted(flows: Summary[], sort: Sort | null): Summary[] {
  const newest = (a: Summary, b: Summary) => (a.id < b.id ? 1 : a.id > b.id ? -1 : 0);
  if (!sort) return [...flows].sort(newest);
  const value = VALUES[sort.key];
  const sign = sort.descending ? -1 : 1;
  return [...flows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    const order = typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y));
    return order === 0 ? newest(a, b) : order * sign;
  });
}

/** The rows of the table: flows, or groups with their flows, in the order of the first flow of each. */
export function arranged(
  flows: Summary[], { sort, group }: Arrangement, groupOf: (flow: Summary) => { key: string; label: string }, closed: ReadonlySet<string>,
): Item[] {
  const list = sorted(flows, sort);
  if (!group) return list;
  const groups = new Map<string, { row: GroupRow; flows: Summary[] }>();
  for (const flow of list) {
    const { key, label } = groupOf(flow);
    let found = groups.get(key);
    if (!found) groups.set(key, (found = { row: { group: key, label, count: 0, failed: 0, bytes: 0, open: !closed.has(key) }, flows: [] }));
    found.row.count += 1;
    found.row.failed += flow.error || (flow.status ?? 0) >= 400 ? 1 : 0;
    found.row.bytes += flow.request_size + flow.response_size;
    found.flows.push(flow);
  }
  return [...groups.values()].flatMap(({ row, flows: own }) => (row.open ? [row, ...own] : [row]));
}
