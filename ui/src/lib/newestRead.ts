// Reads of one value that may overlap, with each other and with changes.

/** How long an edit rests before it is checked, in milliseconds. */
const REST = 300;

/** A read counts only if neither a later read nor a change came meanwhile: it would bring back what was before. */
export class NewestRead {
  private turn = 0;
  private pending = 0;

  /** Reads the value; undefined, also in place of an error, if the read was overtaken. */
  async read<T>(get: () => Promise<T>): Promise<T | undefined> {
    const turn = ++this.turn;
    this.pending += 1;
    try {
      const found = await get();
      return turn === this.turn ? found : undefined;
    } catch (error) {
      if (turn === this.turn) throw error;
      return undefined;
    } finally {
      this.pending -= 1;
    }
  }

  /** The value was changed; returns whether it has to be read again, because a read was under way. */
  change(): boolean {
    this.turn += 1;
    return this.pending > 0;
  }
}

/** For an effect: checks an edit after a rest. The function that is returned ends the check; a late answer does not count. */
export function soon<T>(check: () => Promise<T>, use: (found: T) => void, fail: (error: unknown) => void): () => void {
  let isOver = false;
  const unlessOver = <A>(then: (answer: A) => void) => (answer: A) => { if (!isOver) then(answer); };
  const timer = setTimeout(() => void check().then(unlessOver(use), unlessOver(fail)), REST);
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}
