// The view of a body that was chosen last, for each media type.
import { loadPref, savePref } from '../lib/prefs';

const KEY = 'body.views';
/** Media types that are kept; the one that was chosen longest ago is forgotten. */
const MAX_KEPT = 40;

function kept(): [string, string][] {
  try {
    const list = JSON.parse(loadPref(KEY) ?? '[]') as unknown;
    return Array.isArray(list) ? list.filter((e): e is [string, string] => Array.isArray(e) && typeof e[0] === 'string' && typeof e[1] === 'string') : [];
  } catch {
    return [];
  }
}

export function viewOf(media: string): string | null {
  return kept().find(([name]) => name === media)?.[1] ?? null;
}

export function keepView(media: string, view: string): void {
  const others = kept().filter(([name]) => name !== media);
  savePref(KEY, JSON.stringify([...others, [media, view]].slice(-MAX_KEPT)));
}
