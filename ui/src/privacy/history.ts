// Aggregates findings for a chart and lists.
import type { FindingsHistory as Findings } from '../lib/api.gen';

export type { FindingsHistory as Findings } from '../lib/api.gen';

export interface Named {
  name: string;
  flows: number;
}

/** One bar per span until now, and sums by kind, host and route, largest first. */
export function grouped({ since, span, found }: Findings, now: number): { bars: { from: number; flows: number }[]; kinds: Named[]; hosts: Named[]; routes: Named[] } {
  const bars: { from: number; flows: number }[] = [];
  for (let from = since; from <= now && bars.length < 1000; from += span) bars.push({ from, flows: 0 });
  const sums = { kind: new Map<string, number>(), host: new Map<string, number>(), route: new Map<string, number>() };
  for (const f of found) {
    const bar = bars[Math.floor((f.from - since) / span)];
    if (bar) bar.flows += f.flows;
    for (const key of ['kind', 'host', 'route'] as const) sums[key].set(f[key], (sums[key].get(f[key]) ?? 0) + f.flows);
  }
  const list = (map: Map<string, number>) =>
    [...map].map(([name, flows]) => ({ name, flows })).sort((a, b) => b.flows - a.flows || a.name.localeCompare(b.name)).slice(0, 20);
  return { bars, kinds: list(sums.kind), hosts: list(sums.host), routes: list(sums.route) };
}
