// Statistics derived from counters.

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
