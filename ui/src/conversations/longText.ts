// How much of a long text is shown.

/** Characters and lines shown initially, and characters added per click. */
const FIRST = 4000;
const LINES = 60;
export const MORE = 100_000;

/** Length of the beginning that is shown of a text. */
export function beginning(of: string): number {
  let at = 0;
  for (let line = 0; line < LINES; line += 1) {
    const end = of.indexOf('\n', at);
    if (end < 0 || end > FIRST) return Math.min(of.length, FIRST);
    at = end + 1;
  }
  return at;
}

/** Longest text that is parsed as Markdown, in characters; a longer one is shown as it is. */
export const MAX_MARKDOWN = 60_000;
