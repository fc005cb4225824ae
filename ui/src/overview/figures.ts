// The charts and lists of the overview, made from the API's figures: series, colours, and the queries behind them.
import type { Overview } from '../lib/api.gen';
import { duration } from '../lib/format';
import { term } from '../lib/query';
import type { Series } from './scale';

/** Of series without a meaning of their own; the last one is that of all others. */
const COLOURS = ['var(--accent)', 'var(--violet)', 'var(--info)', 'var(--warn)', 'var(--good)'];
const OTHER = 'var(--soft)';

/** The classes of results. A flow is in one of them. */
export const RESULTS = {
  ok: { label: 'OK', query: '-is:error -status:>=400', colour: 'var(--accent)' },
  client: { label: '4xx', query: '-is:error status:4xx', colour: 'var(--warn)' },
  server: { label: '5xx', query: '-is:error status:>=500', colour: 'var(--bad)' },
  failed: { label: 'Failed', query: 'is:error', colour: 'var(--violet)' },
} as const;

export function errorSeries({ series }: Overview): Series[] {
  const { client, server, failed } = RESULTS;
  return [
    { ...client, values: series.client_errors }, { ...server, values: series.server_errors }, { ...failed, values: series.failed },
  ];
}

export function requestSeries(found: Overview): Series[] {
  const { requests, client_errors, server_errors, failed } = found.series;
  const ok = requests.map((n, i) => n - (client_errors[i] ?? 0) - (server_errors[i] ?? 0) - (failed[i] ?? 0));
  return [{ ...RESULTS.ok, values: ok }, ...errorSeries(found)];
}

/** The condition of HTTP exchanges that took at least so long; percentiles are within 2 %, so it takes that much less. */
export function slowQuery(micros: number | null | undefined): string | null {
  return micros === null || micros === undefined ? null : `is:http dur:>=${Math.floor(micros * 0.98)}us`;
}

export function durationSeries({ series, totals }: Overview): Series[] {
  return [
    { label: 'p50', values: series.p50, colour: 'var(--accent)', total: totals.p50, query: slowQuery(totals.p50) },
    { label: 'p95', values: series.p95, colour: 'var(--warn)', total: totals.p95, query: slowQuery(totals.p95) },
    { label: 'p99', values: series.p99, colour: 'var(--bad)', total: totals.p99, query: slowQuery(totals.p99) },
  ];
}

export function byteSeries({ series }: Overview): Series[] {
  return [
    { label: 'Received', values: series.received, colour: 'var(--accent)', query: 'resp.size:>0' },
    { label: 'Sent', values: series.sent, colour: 'var(--violet)', query: 'req.size:>0' },
  ];
}

/** Names and their values; what has no name is all others. */
function named(list: { name: string | null; values: number[] }[], key: string, others: string): Series[] {
  const names = list.flatMap((s) => (s.name === null ? [] : [s.name]));
  const rest = [others, ...names.map((name) => `-${term(key, name, true)}`)].filter(Boolean).join(' ');
  return list.map(({ name, values }, i) => ({
    label: name ?? 'Others', values, colour: name === null ? OTHER : (COLOURS[i] ?? OTHER), query: name === null ? rest : term(key, name, true),
  }));
}

export function hostSeries(found: Overview): Series[] {
  return named(found.host_series, 'host', '');
}

export function tokenSeries(found: Overview): Series[] {
  return named(found.model_series.map((s) => ({ name: s.name, values: s.tokens })), 'model', 'model:*');
}

export function costSeries(found: Overview): Series[] {
  return named(found.model_series.map((s) => ({ name: s.name, values: s.cost })), 'model', 'model:*');
}

/** Failed flows and errors of both classes. */
export function errorsOf(totals: Overview['totals']): number {
  return totals.client_errors + totals.server_errors + totals.failed;
}

/** `3.2 %`. */
export function percent(part: number, whole: number): string {
  if (whole === 0 || part === 0) return '0 %';
  const share = (part / whole) * 100;
  return `${share > 0 && share < 0.1 ? '< 0.1' : share.toFixed(share < 9.95 ? 1 : 0)} %`;
}

const round = (n: number) => String(Math.round(n * 10) / 10);

/** A duration for an axis, without digits that say nothing. */
export function shortDuration(micros: number): string {
  const minutes = micros / 60e6;
  if (minutes >= 1) return minutes < 60 ? `${round(minutes)} min` : `${round(minutes / 60)} h`;
  return micros === 0 ? '0' : duration(micros).replace(/\.0+(?= )/, '').replace(/(\.\d*?)0+(?= )/, '$1');
}

/** US dollars, with cents or less for small amounts. */
export function dollars(amount: number): string {
  if (amount === 0) return '$0';
  if (amount >= 1000) return `$${Math.round(amount).toLocaleString('en-US')}`;
  return `$${amount.toFixed(amount < 0.01 ? 4 : 2)}`;
}

/** A count in three digits: `950`, `1.22k`, `34M`. */
export function short(n: number): string {
  const units = ['', 'k', 'M', 'G', 'T'];
  let [value, unit] = [n, 0];
  while (value >= 999.5 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return unit === 0 ? String(Math.round(value * 100) / 100) : `${Number(value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0))}${units[unit]}`;
}
