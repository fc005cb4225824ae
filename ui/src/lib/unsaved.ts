// What would be lost if the page were closed or loaded again.

const checks = new Set<() => boolean>();

/** Adds a check for unsaved edits, which runs when the page is about to be closed; returns a function that removes it. */
export function watchUnsaved(check: () => boolean): () => void {
  checks.add(check);
  return () => void checks.delete(check);
}

/** Whether anything is unsaved. */
export function isAnyUnsaved(): boolean {
  return [...checks].some((check) => check());
}
