// The changes of rule files made in this tab, so that they can be undone in reverse.
import type { RulesView } from '../lib/api.gen';
import { saveEdit, sourceOf, undoEdit, type Edit } from './source';

const MAX_EDITS = 50;

class Edits {
  private stack = $state.raw<(Edit & { words: string })[]>([]);
  /** The change that would be undone next. */
  readonly last = $derived(this.stack.at(-1) ?? null);

  push(edit: Edit, words: string): void {
    if (edit.before !== edit.after) this.stack = [...this.stack.slice(1 - MAX_EDITS), { ...edit, words }];
  }

  /** Changes a file, unless `change` finds nothing to do; the result is in force at once. */
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
  async undo(): Promise<{ rules: RulesView; edit: Edit & { words: string } } | null> {
    const edit = this.last;
    if (!edit) return null;
    const rules = await undoEdit(edit);
    this.stack = this.stack.slice(0, -1);
    return { rules, edit };
  }

  forget(edit: Edit): void {
    this.stack = this.stack.filter((e) => e.after !== edit.after || e.file !== edit.file);
  }
}

export const edits = new Edits();
