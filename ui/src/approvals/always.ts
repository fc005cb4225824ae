// Describes the approval rule that "Always…" creates: scope, clients and duration.
import type { ResolutionScope } from '../lib/api.gen';
import type { Pending } from '../lib/pending';

export type Scope = Exclude<ResolutionScope, 'once'>;

/** Durations of a rule; the empty string means no expiry. */
export const SPANS: [string, string][] = [
  ['15m', '15 minutes'], ['1h', '1 hour'], ['12h', '12 hours'], ['1d', '1 day'], ['7d', '7 days'], ['30d', '30 days'], ['', 'no expiry'],
];

type Asked = Pick<Pending, 'method' | 'url' | 'host' | 'port' | 'client'>;

/** The pattern that covers a host and what is below it; the host itself if it is an address or has no dot. */
export function below(host: string): string {
  const address = /^[\d.]+$|:/.test(host);
  return !address && host.includes('.') ? `.${host}` : host;
}

function path(asked: Asked): string {
  return asked.url.replace(/^[a-z]+:\/\/[^/]*/, '').split('?')[0] ?? '';
}

/** The scopes available for a request, with labels. */
export function scopesOf(asked: Asked): [Scope, string][] {
  const port = asked.port === null ? '' : `:${asked.port}`;
  const wide = below(asked.host);
  return [
    ...(asked.method ? [['path', `${asked.method} ${asked.host}${port}${path(asked)}`] as [Scope, string]] : []),
    ['host', `${asked.host}${port}`],
    ['any_port', `${asked.host}, any port`],
    ...(wide === asked.host ? [] : [['subdomains', `${wide}, any port`] as [Scope, string]]),
  ];
}

/** The clients that the rule applies to. */
export function whoseOf(asked: Asked, everyone: boolean): string {
  const { user, process, container, sessions } = asked.client;
  const known = [process, user, container, ...sessions].filter(Boolean);
  return everyone || known.length === 0 ? 'every client' : known.join(', ');
}

export function wordsOfRule(asked: Asked, action: 'allow' | 'deny', scope: Scope, span: string, everyone: boolean): string {
  const what = scopesOf(asked).find(([s]) => s === scope)?.[1] ?? asked.host;
  const time = SPANS.find(([s]) => s === span)?.[1] ?? span;
  const lasting = span === '' ? 'until the rule is removed' : `for ${time}`;
  const requests = scope === 'path' ? what : `all requests to ${what}`;
  return `${action === 'allow' ? 'Allows' : 'Denies'} ${requests}, from ${whoseOf(asked, everyone)}, ${lasting}.`;
}
