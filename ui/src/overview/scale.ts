// Scales and shapes of the charts.
import { two } from '../lib/format';
import { alignDown, DAY, HOUR, MINUTE, niceStep, SECOND } from './range';

/** One value per bucket; null where there is none. */
export interface Series {
  label: string;
  values: readonly (number | null)[];
  colour: string;
  /** The value of the whole span, if it is not the sum. */
  total?: number | null;
  /** The condition of its flows, beside that on their time; null if they cannot be shown. */
  query: string | null;
}

/** The next of 1, 2, 5 × 10ⁿ (or 1, 2, 4, 8 × 1000ⁿ … for `whole` numbers at least 1) at or above `value`. */
export function niceCeil(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const factor = [1, 2, 2.5, 5, 10].find((f) => f * power >= value * (1 - 1e-9)) ?? 10;
  return factor * power;
}

/** The top of an axis and its ticks, some four of them. Ticks of counts are whole numbers. */
export function valueTicks(most: number, isCount: boolean): number[] {
  let step = niceCeil((most > 0 ? most : 1) / 4);
  if (isCount) step = Math.max(1, Math.ceil(step));
  const ticks = [];
  for (let i = 0; i * step < most + step * 0.999 && ticks.length < 8; i += 1) ticks.push(i * step);
  return ticks.length > 1 ? ticks : [0, step];
}

/** The lower and upper edge of each value when series are stacked. */
export function stacked(series: readonly Series[], buckets: number): { low: number; high: number }[][] {
  const sums = new Array<number>(buckets).fill(0);
  return series.map((s) =>
    sums.map((low, i) => {
      const high = low + (s.values[i] ?? 0);
      sums[i] = high;
      return { low, high };
    }),
  );
}

/** The largest value that a chart shows. */
export function largest(series: readonly Series[], buckets: number, isStacked: boolean): number {
  if (!isStacked) return Math.max(0, ...series.flatMap((s) => s.values.map((v) => v ?? 0)));
  return Math.max(0, ...(stacked(series, buckets).at(-1) ?? []).map((edge) => edge.high));
}

const round = (n: number) => Math.round(n * 10) / 10;

/** The bars of one stacked series. `y` maps a value to a height. */
export function barPath(edges: readonly { low: number; high: number }[], x: (i: number) => number, y: (v: number) => number): string {
  let path = '';
  for (const [i, { low, high }] of edges.entries()) {
    if (high <= low) continue;
    const [left, right] = [x(i), x(i + 1)];
    // A gap only where it leaves most of the bar.
    const gap = right - left > 4 ? 1 : 0;
    // Every value can be seen, however small.
    const top = Math.min(y(high), y(low) - 1);
    path += `M${round(left)},${round(y(low))}V${round(top)}H${round(right - gap)}V${round(y(low))}Z`;
  }
  return path;
}

/** A line through the middle of its buckets, interrupted where there is no value; a lone value is a short dash. */
export function linePath(values: readonly (number | null)[], x: (i: number) => number, y: (v: number) => number): string {
  let path = '';
  for (const [i, value] of values.entries()) {
    if (value === null) continue;
    const before = values[i - 1] ?? null;
    const middle = (x(i) + x(i + 1)) / 2;
    path += `${before === null ? 'M' : 'L'}${round(middle)},${round(y(value))}`;
    if (before === null && (values[i + 1] ?? null) === null) path += `m-2,0h4`;
  }
  return path;
}

/** The bucket at a place of the drawing, within the chart. */
export function bucketAt(place: number, left: number, width: number, span: { from: number; to: number; step: number }, buckets: number): number {
  const at = ((place - left) / Math.max(1, width)) * (span.to - span.from);
  return Math.min(buckets - 1, Math.max(0, Math.floor(at / span.step)));
}

export interface TimeTick {
  at: number;
  label: string;
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/** The label of a point on the time axis; midnight is a date. */
export function timeLabel(at: number, step: number): string {
  const d = new Date(at / 1000);
  const date = `${d.getDate()} ${MONTHS[d.getMonth()]}`;
  if (step >= DAY) return step >= 300 * DAY ? `${date} ${d.getFullYear()}` : date;
  if (d.getHours() === 0 && d.getMinutes() === 0 && d.getSeconds() === 0 && step >= MINUTE) return date;
  const minutes = `${two(d.getHours())}:${two(d.getMinutes())}`;
  if (step >= MINUTE) return minutes;
  const seconds = `${minutes}:${two(d.getSeconds())}`;
  return step >= SECOND ? seconds : `${seconds}.${String(d.getMilliseconds()).padStart(3, '0')}`;
}

/** Ticks of a time axis of this width in pixels. */
export function timeTicks(from: number, to: number, width: number): TimeTick[] {
  const most = Math.max(1, Math.floor(width / 58));
  const step = Math.max(niceStep(to - from, most), 1000);
  const ticks: TimeTick[] = [];
  // Days are counted by the calendar, which has longer and shorter ones.
  let at = alignDown(from, step);
  while (at <= to && ticks.length < 40) {
    if (at >= from) ticks.push({ at, label: timeLabel(at, step) });
    at = step >= HOUR ? alignDown(at + step + HOUR, step) : at + step;
  }
  return ticks;
}

/** A change against a figure before: text, and whether it grew. Null if nothing can be said. */
export function change(now: number, before: number): { text: string; direction: -1 | 0 | 1 } | null {
  if (before === 0) return now === 0 ? { text: 'unchanged', direction: 0 } : { text: 'none before', direction: 1 };
  const share = (now - before) / before;
  if (Math.abs(share) < 0.005) return { text: 'unchanged', direction: 0 };
  const direction = share > 0 ? 1 : -1;
  const percent = Math.abs(share) * 100;
  const text = share > 9.995 ? `${(share + 1).toFixed(0)} times` : `${percent.toFixed(percent < 9.95 ? 1 : 0)} %`;
  return { text: `${share > 0 ? '+' : '−'}${text}`.replace(/^\+(\d+ times)$/, '$1'), direction };
}
