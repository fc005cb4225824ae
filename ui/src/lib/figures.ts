// Statistics derived from counters and lists of flows.
import type { Summary } from './types';

/** Percentile of a histogram in microseconds: the upper bound of the bucket. */
export function percentile(counts: number[], bounds: number[], share: number): number {
  const total = counts.reduce((n, k) => n + k, 0);
  if (total === 0) return 0;
  let seen = 0;
  for (const [i, n] of counts.entries()) {
    seen += n;
    if (seen >= total * share) return bounds[i] ?? bounds.at(-1) ?? 0;
  }
  return bounds.at(-1) ?? 0;
}

export interface HostFigures {
  host: string;
  flows: number;
  failed: number;
  bytes: number;
}

export function topHosts(flows: Summary[], most: number): HostFigures[] {
  const found = new Map<string, HostFigures>();
  for (const flow of flows) {
    const host = flow.authority.replace(/:\d+$/, '').replace(/^\[|\]$/g, '');
    const figures = found.get(host) ?? { host, flows: 0, failed: 0, bytes: 0 };
    figures.flows += 1;
    figures.failed += flow.error || (flow.status ?? 0) >= 500 ? 1 : 0;
    figures.bytes += flow.request_size + flow.response_size;
    found.set(host, figures);
  }
  return [...found.values()].sort((a, b) => b.flows - a.flows || a.host.localeCompare(b.host)).slice(0, most);
}
