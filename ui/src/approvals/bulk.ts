// Pending requests by host, for decisions about several.
import type { Pending } from '../lib/pending';

/** Hosts offered; those with the most pending requests first. */
const MAX_HOSTS = 12;

export function hostsOf<Item extends Pick<Pending, 'host'>>(pending: Item[]): { host: string; items: Item[] }[] {
  const hosts = new Map<string, Item[]>();
  for (const item of pending) hosts.set(item.host, [...(hosts.get(item.host) ?? []), item]);
  return [...hosts].map(([host, items]) => ({ host, items })).sort((a, b) => b.items.length - a.items.length || a.host.localeCompare(b.host)).slice(0, MAX_HOSTS);
}
