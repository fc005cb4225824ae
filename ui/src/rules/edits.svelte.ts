// The changes of rule files made in this tab, so that they can be undone in reverse. They survive a reload of the tab.
import type { RulesView } from '../lib/api.gen';
import { saveEdit, sourceOf, undoEdit, type Edit } from './source';

type NamedEdit = Edit & { words: string };

const MAX_EDITS = 50;
const STORED = 'rule-edits';

/** The stored changes, oldest first; none where the browser allows no storage. */
export function storedEdits(stored: string | null): NamedEdit[] {
  let found: unknown;
  try {
    found = JSON.parse(stored ?? '[]');
  } catch {
    return [];
  }
  const texts = ['file', 'before', 'after', 'words'] as const;
  return Array.isArray(found) ? found.filter((e): e is NamedEdit => texts.every((t) => typeof (e as NamedEdit | null)?.[t] === 'string')).slice(-MAX_EDITS) : [];
}

function read(): NamedEdit[] {
  try {
    return storedEdits(sessionStorage.getItem(STORED));
  } catch {
    return [];
  }
}

function write(edits: NamedEdit[]): void {
  // What does not fit is forgotten, oldest first.
  for (let from = 0; from <= edits.length; from += 1) {
    try {
      sessionStorage.setItem(STORED, JSON.stringify(edits.slice(from)));
      return;
    } catch {
      // Full, or not allowed.
    }
  }
}

class Edits {
  private stack = $state.raw<NamedEdit[]>(read());
  /** The change that would be undone next. */
  readonly last = $derived(this.stack.at(-1) ?? null);

  private put(stack: NamedEdit[]): void {
    this.stack = stack;
    write(stack);
  }

  /** Forgets all changes, at the log-out: they hold the texts of the rules. */
  clear(): void {
    this.put([]);
  }

  push(edit: Edit, words: string): void {
    if (edit.before !== edit.after) this.put([...this.stack.slice(1 - MAX_EDITS), { ...edit, words }]);
  }

  /** Changes a file, unless `change` finds nothing to do; the result is active at once. */
  async apply(file: string, words: string, change: (text: string) => string | null): Promise<{ rules: RulesView; edit: Edit } | null> {
    const before = await sourceOf(file);
    const crlf = before.includes('\r\n');
    const changed = change(crlf ? before.replaceAll('\r\n', '\n') : before);
    if (changed === null) return null;
    const edit = { file, before, after: crlf ? changed.replaceAll('\n', '\r\n') : changed };
    const rules = await saveEdit(edit);
    this.push(edit, words);
    return { rules, edit };
  }

  /** Undoes the last change; fails if the file was changed since then. */
  async undo(): Promise<{ rules: RulesView; edit: NamedEdit } | null> {
    const edit = this.last;
    if (!edit) return null;
    const rules = await undoEdit(edit);
    this.put(this.stack.slice(0, -1));
    return { rules, edit };
  }

  forget(edit: Edit): void {
    this.put(this.stack.filter((e) => e.after !== edit.after || e.file !== edit.file));
  }
}

export const edits = new Edits();
