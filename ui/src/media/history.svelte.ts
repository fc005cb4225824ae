// The links that were created on this page, kept while the browser's tab is open: each one grants access.

export interface CreatedLink {
  link: string;
  /** The address that it stands for. */
  destination: string;
  kind: string;
  /** In milliseconds since the epoch. */
  created: number;
  /** Of a link without an expiry, null. */
  expires: number | null;
}

const KEY = 'media.links';
const MAX_LINKS = 30;

function read(): CreatedLink[] {
  try {
    const found: unknown = JSON.parse(sessionStorage.getItem(KEY) ?? '[]');
    return Array.isArray(found) ? found.filter((l): l is CreatedLink => typeof (l as CreatedLink | null)?.link === 'string') : [];
  } catch {
    return [];
  }
}

class LinkHistory {
  list = $state.raw<CreatedLink[]>(read());

  add(link: CreatedLink): void {
    // The same request within a second has the same link.
    this.keep([link, ...this.list.filter((l) => l.link !== link.link)].slice(0, MAX_LINKS));
  }

  clear(): void {
    this.keep([]);
  }

  private keep(list: CreatedLink[]): void {
    this.list = list;
    try {
      sessionStorage.setItem(KEY, JSON.stringify(list));
    } catch {
      // Not kept then.
    }
  }
}

export const links = new LinkHistory();
