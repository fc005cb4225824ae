// Revisions of the settings that replicas share, as the settings page shows them.
import type { SettingRevision, SharedSettingList } from '../lib/api.gen';

const NAMES: Record<string, string> = {
  approvals: 'Approval rules', keys: 'Virtual keys and teams', policy: 'Redaction policy', rules: 'Rules', secrets: 'Secrets',
};

export function titleOf(name: string): string {
  return NAMES[name] ?? name;
}

/** What replicas did with the newest revision of a setting, as far as they do not have it. */
export function laggards(list: SharedSettingList, name: string): string[] {
  const newest = list.settings.find((s) => s.name === name)?.revision ?? 0;
  return list.replicas.filter((r) => r.name === name).flatMap((r) => {
    if (r.refused) return [`${r.replica} refused revision ${r.revision}: ${r.refused}`];
    return r.revision < newest ? [`${r.replica} has revision ${r.revision}`] : [];
  });
}

/** The revision that one is compared with: the one before it in the list, or an empty text before the first. */
export function before(revisions: SettingRevision[], revision: number): number {
  return Math.max(0, ...revisions.map((r) => r.revision).filter((n) => n < revision));
}
