// Formats numbers, times and bytes.
import { fromBase64 } from './base64';
import type { Bytes, Field, Summary } from './types';

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];

/** Bytes with a decimal unit and three digits: `999 B`, `1.23 kB`. */
export function size(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  if (unit === 0) return `${Math.round(value)} B`;
  return `${value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${UNITS[unit]}`;
}

/** Microseconds as a duration: `850 µs`, `12.3 ms`, `4.20 s`, `3 min 5 s`. */
export function duration(micros: number): string {
  if (micros < 999.5) return `${Math.round(micros)} µs`;
  const millis = micros / 1000;
  if (millis < 999.5) return `${millis.toFixed(millis < 9.995 ? 2 : millis < 99.95 ? 1 : 0)} ms`;
  const seconds = micros / 1e6;
  if (seconds < 59.995) return `${seconds.toFixed(seconds < 9.995 ? 2 : 1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** A count with thousands separators. */
export function count(n: number): string {
  return Math.round(n)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, '\u202f');
}

/** A count with its noun: `1 flow`, `2 flows`. */
export function counted(n: number, noun: string): string {
  return `${count(n)} ${noun}${n === 1 ? '' : 's'}`;
}

/** A rate; small ones with one decimal. */
export function rate(perSecond: number): string {
  return perSecond < 9.95 ? perSecond.toFixed(1) : count(perSecond);
}

/** A number with leading zeros, in two digits. */
export function two(n: number, digits = 2): string {
  return String(n).padStart(digits, '0');
}

/** Time of day of a timestamp (microseconds), with the date if it is not today. */
export function clock(micros: number, now = Date.now()): string {
  const at = new Date(micros / 1000);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const today = new Date(now);
  if (at.toDateString() === today.toDateString()) return `${time}.${String(at.getMilliseconds()).padStart(3, '0')}`;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

/** Time since a timestamp (microseconds), in one unit: `now`, `12 s`, `5 min`, `3 h`, `2 d`. */
export function relative(micros: number, now = Date.now()): string {
  const seconds = Math.max(0, now - micros / 1000) / 1000;
  if (seconds < 1) return 'now';
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 86400 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

/** The same as a sentence says it: `now`, `12 s ago`. */
export function ago(micros: number, now = Date.now()): string {
  const text = relative(micros, now);
  return text === 'now' ? text : `${text} ago`;
}

/** Time of day of a timestamp (microseconds), whatever its day. */
export function timeOfDay(micros: number): string {
  const at = new Date(micros / 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, '0')}`;
}

/** Time of a timestamp (microseconds) among those of other days: `07:05:09.045` today, `23 Nov 07:05`, `23 Nov 2025`. */
export function dayAndTime(micros: number, now = Date.now()): string {
  const at = new Date(micros / 1000);
  const today = new Date(now);
  if (at.toDateString() === today.toDateString()) return timeOfDay(micros);
  const [, month, date, year] = at.toDateString().split(' ');
  return at.getFullYear() === today.getFullYear() ? `${Number(date)} ${month} ${two(at.getHours())}:${two(at.getMinutes())}` : `${Number(date)} ${month} ${year}`;
}

/** The local day of a timestamp (microseconds): `Today`, `Yesterday`, `Mon 23 Nov`, `Mon 23 Nov 2025`. */
export function day(micros: number, now = Date.now()): string {
  const at = new Date(micros / 1000);
  const today = new Date(now);
  if (at.toDateString() === today.toDateString()) return 'Today';
  const yesterday = new Date(today.getFullYear(), today.getMonth(), today.getDate() - 1);
  if (at.toDateString() === yesterday.toDateString()) return 'Yesterday';
  const [weekday, month, date, year] = at.toDateString().split(' ');
  return `${weekday} ${Number(date)} ${month}${year === String(today.getFullYear()) ? '' : ` ${year}`}`;
}

/** Full local date and time of a timestamp (microseconds). */
export function moment(micros: number): string {
  const at = new Date(micros / 1000);
  const fraction = String(Math.floor(micros % 1e6)).padStart(6, '0');
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${fraction}`;
}

/** Decodes `Bytes` of the API. */
export function octets(bytes: Bytes): Uint8Array {
  if (typeof bytes === 'string') return new TextEncoder().encode(bytes);
  return fromBase64(bytes.base64);
}

/** Bytes as text; non-UTF-8 is read as Latin-1, as in header fields. */
export function text(bytes: Bytes): string {
  return typeof bytes === 'string' ? bytes : atob(bytes.base64);
}

/** A hex dump with sixteen bytes per line. */
export function hex(bytes: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = Array.from(bytes.subarray(at, at + 16));
    const digits = part.map((b) => b.toString(16).padStart(2, '0')).join(' ');
    const shown = part.map((b) => (b >= 0x20 && b <= 0x7e ? String.fromCharCode(b) : '.')).join('');
    lines.push(`${at.toString(16).padStart(8, '0')}  ${digits.padEnd(47)}  |${shown}|`);
  }
  return lines.join('\n');
}

/** First value of a header field; `name` is lower case. */
export function field(headers: Field[], name: string): string | undefined {
  const found = headers.find(([n]) => text(n).toLowerCase() === name);
  return found && text(found[1]);
}

/** `application/json; charset=utf-8` without its parameters. */
export function mediaType(value: string | undefined): string {
  return (value ?? '').split(';')[0]?.trim().toLowerCase() ?? '';
}

/** A short media type for a column: `json`, `javascript`, `svg`. The command line shows the same words. */
export function shortType(media: string | undefined): string {
  if (!media) return '';
  if (/mpegurl$/.test(media)) return 'hls';
  if (media.endsWith('+json')) return 'json';
  const sub = media.slice(media.indexOf('/') + 1).replace(/\+.*$/, '').replace(/^(x-|vnd\.)/, '');
  return media === 'text/event-stream' ? 'sse' : media === 'text/plain' ? 'text' : sub;
}

/** An authority without the default port of its scheme. */
export function host(authority: string, scheme: string): string {
  const implied = scheme === 'https' ? ':443' : ':80';
  return authority.endsWith(implied) ? authority.slice(0, -implied.length) : authority;
}

/** CSS class of a status. */
export function statusClass(flow: Pick<Summary, 'status' | 'error' | 'state'>): string {
  if (flow.error) return 'error';
  return flow.status ? `s${Math.floor(flow.status / 100)}` : 'none';
}
