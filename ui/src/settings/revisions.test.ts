import { describe, expect, it } from 'vitest';
import type { SettingRevision, SettingStatus } from '../lib/api.gen';
import type { UnixMicros } from '../lib/time';
import { before, laggards, titleOf } from './revisions';

const at = 0 as UnixMicros;
const revision = (name: string, n: number): SettingRevision => ({ name, revision: n, author: 'ann (a)', at, restores: null, bytes: 1 });
const status = (replica: string, n: number, refused: string | null = null): SettingStatus => ({ replica, name: 'rules', revision: n, at, refused });

describe('revisions of shared settings', () => {
  it('name the replicas that refused the newest one or do not have it yet', () => {
    const list = { enabled: true, settings: [revision('rules', 3)], replicas: [status('a', 3), status('b', 2), status('c', 3, 'no such file')] };
    expect(laggards(list, 'rules')).toEqual(['b has revision 2', 'c refused revision 3: no such file']);
    expect(laggards(list, 'keys')).toEqual([]);
  });

  it('are compared with the one before, and the first one with nothing', () => {
    const all = [revision('rules', 5), revision('rules', 4), revision('rules', 1)];
    expect([before(all, 5), before(all, 4), before(all, 1)]).toEqual([4, 1, 0]);
  });

  it('have a title', () => {
    expect([titleOf('policy'), titleOf('later')]).toEqual(['Redaction policy', 'later']);
  });
});
