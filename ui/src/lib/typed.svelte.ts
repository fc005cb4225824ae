// What was typed into forms that were closed, kept until it is sent or its subject is gone.
import { watchUnsaved } from './unsaved';

type Fields = Record<string, string>;

/** The fields of a form, and what they were at first. */
export class Typed<F extends Fields> {
  now: F = $state({} as F);
  readonly isChanged = $derived.by(() => Object.entries(this.original).some(([name, value]) => this.now[name] !== value));

  constructor(readonly original: F) {
    this.now = { ...original };
  }

  /** Back to what the fields were at first. */
  restart(): void {
    this.now = { ...this.original };
  }
}

export class TypedForms<F extends Fields> {
  private readonly kept = new Map<string, Typed<F>>();

  constructor() {
    watchUnsaved(() => this.isAnyChanged());
  }

  /** The form of a subject as it was left, or a new one. */
  open(subject: string, form: string, original: F): Typed<F> {
    const key = `${subject} ${form}`;
    const before = this.kept.get(key);
    if (before?.isChanged) return before;
    const fresh = new Typed(original);
    this.kept.set(key, fresh);
    return fresh;
  }

  isAnyChanged(): boolean {
    return [...this.kept.values()].some((typed) => typed.isChanged);
  }

  /** Forgets all forms of a subject. */
  drop(subject: string): void {
    this.keepOnly((other) => other !== subject);
  }

  /** Forgets the forms of other subjects. */
  keepOnly(isWanted: (subject: string) => boolean): void {
    for (const key of this.kept.keys()) if (!isWanted(key.slice(0, key.lastIndexOf(' ')))) this.kept.delete(key);
  }
}

/** The edits of held flows, by the flow's id. */
export const heldForms = new TypedForms<{ method: string; url: string; status: string; fields: string; body: string }>();
