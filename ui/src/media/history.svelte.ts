// The links that were created on this page. Each one grants access, so the browser keeps them no longer than they are valid,
// for 30 days at most, for the person who created them, and until the log-out.
import { caller } from '../lib/me.svelte';
import { loadPref, savePref } from '../lib/prefs';

export interface CreatedLink {
  link: string;
  /** The address that it stands for. */
  destination: string;
  /** The endpoint of the link. */
  endpoint: string;
  /** What the page plays in its place: DASH, which browsers do not play, as HLS. */
  playable?: string | undefined;
  /** In milliseconds since the epoch. */
  created: number;
  /** Of a link without an expiry, null. */
  expires: number | null;
  /** Who created it. */
  by?: string | undefined;
}

const KEY = 'media.links';
const MAX_LINKS = 50;
const MAX_AGE_MS = 30 * 86_400_000;

/** Those that are still worth keeping. */
export function lasting(links: CreatedLink[], now: number): CreatedLink[] {
  return links.filter((l) => l.created > now - MAX_AGE_MS && (l.expires === null || l.expires > now)).slice(0, MAX_LINKS);
}

function read(): CreatedLink[] {
  try {
    const found: unknown = JSON.parse(loadPref(KEY) ?? '[]');
    const isLink = (l: unknown): l is CreatedLink => typeof (l as CreatedLink | null)?.link === 'string' && typeof (l as CreatedLink).endpoint === 'string';
    return Array.isArray(found) ? lasting(found.filter(isLink), Date.now()) : [];
  } catch {
    return [];
  }
}

class LinkHistory {
  private all = $state.raw<CreatedLink[]>(read());
  /** Those of the person who uses the page. */
  readonly list = $derived(this.all.filter((l) => caller.me !== null && l.by === caller.me.name));

  add(link: CreatedLink): void {
    // The same request within a second has the same link.
    const list = [{ ...link, by: caller.me?.name }, ...this.all.filter((l) => l.link !== link.link)];
    this.keep(list.sort((a, b) => b.created - a.created));
  }

  forget(link: string): void {
    this.keep(this.all.filter((l) => l.link !== link));
  }

  /** Forgets those in the list; links of other people, whom it does not show, stay. */
  clear(): void {
    this.keep(this.all.filter((l) => !this.list.includes(l)));
  }

  private keep(list: CreatedLink[]): void {
    this.all = lasting(list, Date.now());
    savePref(KEY, this.all.length > 0 ? JSON.stringify(this.all) : null);
  }
}

export const links = new LinkHistory();
