// Instants and lengths of time as the API tells them, in types that cannot be taken for one another or for seconds.

declare const unit: unique symbol;

/** A moment: microseconds since the Unix epoch. */
export type UnixMicros = number & { readonly [unit]: 'instant' };
/** A length of time in microseconds. */
export type Micros = number & { readonly [unit]: 'span' };

/** How long it is until a moment; nothing once it is over. `now` is in milliseconds, as `Date.now()` has it. */
export function left(until: UnixMicros, now: number): Micros {
  return Math.max(0, until - now * 1000) as Micros;
}

/** How long ago a moment was. */
export function ago(since: UnixMicros, now: number): Micros {
  return Math.max(0, now * 1000 - since) as Micros;
}

/** `0:27`, `14:59`, `2:03:00`: hours where there are some, minutes, seconds. */
export function countdown(span: Micros): string {
  const whole = Math.round(span / 1e6);
  const two = (n: number) => String(n).padStart(2, '0');
  const [hours, minutes, seconds] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  return hours > 0 ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`;
}
