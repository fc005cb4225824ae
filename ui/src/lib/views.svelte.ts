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

  save(name: string, query: string): void {
    this.put([...this.list.filter((v) => v.name !== name), { name, query }].slice(-MAX_VIEWS));
  }

  remove(name: string): void {
    this.put(this.list.filter((v) => v.name !== name));
  }

  private put(list: View[]): void {
    this.list = list;
    savePref('views', list.length > 0 ? JSON.stringify(list) : null);
  }
}

export const views = new Views();
