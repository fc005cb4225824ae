// Named filters, stored in the browser.
import { loadPref, savePref } from './app.svelte';

export interface View {
  name: string;
  query: string;
}

/** Maximum of stored views. */
const MAX_VIEWS = 50;

function read(): View[] {
  try {
    const found: unknown = JSON.parse(loadPref('views') ?? '[]');
    if (!Array.isArray(found)) return [];
    return found.filter((v): v is View => typeof (v as View)?.name === 'string' && typeof (v as View).query === 'string');
  } catch {
    return [];
  }
}

class Views {
  list = $state.raw<View[]>(read());

  /** Saves a view at this place, or as the last. */
  save(name: string, query: string, at = MAX_VIEWS): void {
    this.put(this.list.filter((v) => v.name !== name).toSpliced(at, 0, { name, query }).slice(-MAX_VIEWS));
  }

  /** Returns its place. */
  remove(name: string): number {
    const at = this.list.findIndex((v) => v.name === name);
    this.put(this.list.filter((v) => v.name !== name));
    return at;
  }

  private put(list: View[]): void {
    this.list = list;
    savePref('views', list.length > 0 ? JSON.stringify(list) : null);
  }
}

export const views = new Views();
