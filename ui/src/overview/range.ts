// Spans of time of the overview: presets, their place in the URL, buckets, and the queries that select their flows.
import { two } from '../lib/format';

/** Microseconds. */
export const SECOND = 1e6;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

export const PRESETS = [
  { id: '15m', label: '15 min', length: 15 * MINUTE },
  { id: '1h', label: '1 h', length: HOUR },
  { id: '6h', label: '6 h', length: 6 * HOUR },
  { id: '24h', label: '24 h', length: DAY },
  { id: '7d', label: '7 d', length: 7 * DAY },
  { id: '30d', label: '30 d', length: 30 * DAY },
  { id: 'all', label: 'All', length: 0 },
] as const;

export type Preset = (typeof PRESETS)[number]['id'];

/** A preset that ends now, or two points in time in microseconds since the Unix epoch. */
export type Range = { preset: Preset } | { from: number; to: number };

export const DEFAULT: Range = { preset: '24h' };

/** The shortest span that can be zoomed into. */
const SHORTEST = SECOND / 10;
/** Buckets of a chart at most. */
const BUCKETS = 96;

/** Lengths of buckets and distances of ticks that people expect. */
const STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500].map((n) => n * 1000),
  ...[1, 2, 5, 10, 15, 30].map((n) => n * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
  ...[1, 2, 3, 6, 12].map((n) => n * HOUR),
  ...[1, 2, 7, 14, 28, 91, 182, 364].map((n) => n * DAY),
];

/** The smallest expected step that divides `length` into at most `most` parts. */
export function niceStep(length: number, most: number): number {
  return STEPS.find((step) => length / step <= most) ?? Math.ceil(length / most / DAY) * DAY;
}

/** Microseconds that local time is ahead of UTC. */
export function localOffset(at: number): number {
  return -new Date(at / 1000).getTimezoneOffset() * MINUTE;
}

/** The last multiple of `step` in local time that is not after `at`. */
export function alignDown(at: number, step: number): number {
  const offset = localOffset(at);
  return Math.floor((at + offset) / step) * step - offset;
}

export interface Span {
  from: number;
  to: number;
  step: number;
}

/** The span to ask for, with buckets at even local times. `oldest` is the start of the first flow. */
export function spanOf(range: Range, now: number, oldest: number): Span {
  let [from, to] = [0, now];
  if ('from' in range) ({ from, to } = range);
  else {
    const length = PRESETS.find((p) => p.id === range.preset)?.length ?? DAY;
    from = length > 0 ? now - length : Math.min(oldest, now - MINUTE);
  }
  const step = niceStep(to - from, BUCKETS);
  return { from: alignDown(from, step), to: Math.max(to, from + step), step };
}

/** Reads a range from the parameters of the URL; the default if they make no sense. */
export function readRange(search: URLSearchParams): Range {
  const preset = PRESETS.find((p) => p.id === search.get('range'));
  if (preset) return { preset: preset.id };
  const [from, to] = ['from', 'to'].map((name) => Date.parse(search.get(name) ?? '') * 1000);
  if (from === undefined || to === undefined || !(from >= 0) || !(to > from)) return DEFAULT;
  return { from, to };
}

/** Whether the parameters of the URL name a range. */
export function namesRange(search: URLSearchParams): boolean {
  return search.has('range') || search.has('from');
}

/** The preset for a recording of this age: all of a young one, which fills its charts, and the last day of an older one. */
export function presetFor(age: number): Preset {
  return age <= DAY ? 'all' : '24h';
}

/** Writes a range into parameters of the URL. */
export function writeRange(search: URLSearchParams, range: Range): void {
  if ('preset' in range) {
    search.set('range', range.preset);
    return;
  }
  search.set('from', new Date(range.from / 1000).toISOString());
  search.set('to', new Date(range.to / 1000).toISOString());
}

export function sameRange(a: Range, b: Range): boolean {
  return 'preset' in a ? 'preset' in b && a.preset === b.preset : 'from' in b && a.from === b.from && a.to === b.to;
}

/** The range of these buckets, both included; null if it is too short. */
export function zoomed(span: Span, first: number, last: number): Range | null {
  const [a, b] = first <= last ? [first, last] : [last, first];
  const from = span.from + a * span.step;
  const to = Math.min(span.from + (b + 1) * span.step, Math.max(span.to, from + span.step));
  return to - from < SHORTEST ? null : { from, to };
}

/** Twice as long around the same middle, not into the future. */
export function widened(span: Span, now: number): Range {
  const length = span.to - span.from;
  const to = Math.min(span.to + length / 2, Math.max(now, span.to));
  return { from: Math.max(0, Math.round(to - 2 * length)), to: Math.round(to) };
}

/** A point in time in the query language, in local time, as precisely as `unit` (a minute, a second, a microsecond). */
function point(at: number, unit: number): string {
  const offset = localOffset(at);
  const local = new Date(Math.floor((at + offset) / 1000)).toISOString();
  const minutes = Math.abs(offset / MINUTE);
  const zone = offset === 0 ? 'Z' : `${offset > 0 ? '+' : '-'}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
  if (unit === MINUTE) return local.slice(0, 16) + zone;
  if (unit === SECOND) return local.slice(0, 19) + zone;
  return `${local.slice(0, 19)}.${two(Math.floor(at % SECOND), 6)}${zone}`;
}

/** The term of the flows that began from `from` until before `to`, or since `from`. Both ends of a range in a query are
 * included, so the second one names the last minute, second or microsecond of the span. */
export function timeTerm(from: number, to: number | null): string {
  const unit = (at: number) => [MINUTE, SECOND].find((u) => at % u === 0) ?? 1;
  return `time:${point(from, unit(from))}..${to === null ? '' : point(to - unit(to), unit(to))}`;
}

/** A query of several parts. A part with alternatives is put in parentheses. */
export function joined(...parts: string[]): string {
  const safe = (part: string) => (/(^|\s)(OR|\||\|\|)(\s|$)/.test(part) ? `(${part})` : part);
  return parts.filter(Boolean).map(safe).join(' ');
}

/** `2026-11-23 16:00 – 17:00`, or with both days. */
export function spanText(from: number, to: number): string {
  const precise = from % MINUTE !== 0 || to % MINUTE !== 0 || to - from < 2 * MINUTE;
  const text = (at: number) => {
    const d = new Date(at / 1000);
    const time = `${two(d.getHours())}:${two(d.getMinutes())}${precise ? `:${two(d.getSeconds())}` : ''}${to - from < 2 * SECOND ? `.${two(d.getMilliseconds(), 3)}` : ''}`;
    return [`${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`, time] as const;
  };
  const [a, b] = [text(from), text(to)];
  return a[0] === b[0] ? `${a[0]} ${a[1]} – ${b[1]}` : `${a.join(' ')} – ${b.join(' ')}`;
}

/** `Europe/Berlin (UTC+01:00)`. */
export function zoneText(now: number): string {
  const offset = localOffset(now);
  const minutes = Math.abs(offset / MINUTE);
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const utc = offset === 0 ? 'UTC' : `UTC${offset > 0 ? '+' : '−'}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
  return name && name !== utc ? `${name} (${utc})` : utc;
}
