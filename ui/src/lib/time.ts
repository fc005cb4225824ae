// Branded types for API timestamps and durations, so that they cannot be confused with each other or with seconds.
import { two } from './format';

declare const unit: unique symbol;

/** A timestamp: microseconds since the Unix epoch. */
export type UnixMicros = number & { readonly [unit]: 'instant' };
/** A duration in microseconds. */
export type Micros = number & { readonly [unit]: 'span' };

/** Time until a timestamp; 0 once it has passed. `now` is in milliseconds, as from `Date.now()`. */
export function left(until: UnixMicros, now: number): Micros {
  return Math.max(0, until - now * 1000) as Micros;
}

/** Time since a timestamp. */
export function ago(since: UnixMicros, now: number): Micros {
  return Math.max(0, now * 1000 - since) as Micros;
}

/** `0:27`, `14:59`, `2:03:00`. */
export function countdown(span: Micros): string {
  const whole = Math.round(span / 1e6);
  const [hours, minutes, seconds] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  return hours > 0 ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`;
}
