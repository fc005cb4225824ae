import { describe, expect, it } from 'vitest';
import { noticeOf } from '../lib/pending';
import { countdown, left, type Micros, type UnixMicros } from '../lib/time';
import { below, scopesOf, wordsOfRule } from './always';
import { leftOfMode } from './types';

const client = { address: '127.0.0.1', user: null, process: 'curl', container: null, sessions: [] };
const asked = { method: 'GET', url: 'https://api.shop.test/x?q=1', host: 'api.shop.test', port: 443, client };

describe('a rule in words', () => {
  it('names scope, clients and duration', () => {
    expect(wordsOfRule(asked, 'allow', 'host', '1h', false)).toBe('Allows all requests to api.shop.test:443, from curl, for 1 hour.');
    expect(wordsOfRule(asked, 'deny', 'path', '', true)).toBe('Denies GET api.shop.test:443/x, from every client, until the rule is removed.');
    expect(wordsOfRule(asked, 'deny', 'subdomains', '1d', false)).toBe('Denies all requests to .api.shop.test, any port, from curl, for 1 day.');
  });

  it('applies to every client if the client is unknown', () => {
    const unknown = { ...asked, client: { ...client, process: null } };
    expect(wordsOfRule(unknown, 'allow', 'host', '1h', false)).toContain('from every client');
  });

  it('offers subdomains only of a name with a dot', () => {
    expect([below('a.b.test'), below('b.test'), below('10.0.0.7'), below('::1')]).toEqual(['.a.b.test', '.b.test', '10.0.0.7', '::1']);
    expect(scopesOf({ ...asked, method: null, host: 'b' }).map(([s]) => s)).toEqual(['host', 'any_port']);
  });
});

describe('times', () => {
  it('are microseconds', () => {
    const now = 1_700_000_000_000;
    const until = ((now + 15 * 60_000) * 1000) as UnixMicros;
    expect(countdown(left(until, now))).toBe('15:00');
    expect(countdown(left(until, now + 20 * 60_000))).toBe('0:00');
    expect(countdown((3_723 * 1e6) as Micros)).toBe('1:02:03');
  });

  it('of a mode show the remaining time', () => {
    const now = 1_700_000_000_000;
    const mode_until = ((now + 15 * 60_000) * 1000) as UnixMicros;
    expect(leftOfMode({ mode_until, mode_is_configured: false }, now)).toBe('for 15:00 more');
    expect(leftOfMode({ mode_until: null, mode_is_configured: false }, now)).toBe('until Interflow stops');
    expect(leftOfMode({ mode_until: null, mode_is_configured: true }, now)).toBe('');
  });
});

it('a notification names client and host, never a path', () => {
  expect(noticeOf([{ ...asked, kind: 'approval', rule: null }])).toBe('curl requests access to api.shop.test:443');
  const held = { ...asked, kind: 'rule' as const, rule: 'look' };
  expect(noticeOf([held, held])).toBe('look holds a flow from curl to api.shop.test:443, and 1 more');
});
