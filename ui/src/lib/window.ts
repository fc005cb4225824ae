// The maths of the table's window: which of very many rows of one height are drawn, and where.

/** Browsers cut elements off at some 17 to 33 million pixels; from here on the scroll bar is compressed. */
export const MAX_HEIGHT = 12_000_000;

export interface Span {
  /** The first row drawn. */
  first: number;
  /** The row behind the last one drawn. */
  end: number;
}

/** The height that the scroll bar is given for so many rows. */
export function scrollHeight(total: number, row: number): number {
  return Math.min(total * row, MAX_HEIGHT);
}

/** How many pixels of rows one pixel of the scroll bar stands for. */
export function compression(total: number, row: number, view: number): number {
  const real = total * row - view;
  const bar = scrollHeight(total, row) - view;
  return real <= 0 || bar <= 0 || real <= bar ? 1 : real / bar;
}

/** An offset into the rows, held within them. */
export function clampOffset(offset: number, total: number, row: number, view: number): number {
  return Math.max(0, Math.min(offset, total * row - view));
}

/** The rows to draw at this offset, with some more on either side. */
export function visible(offset: number, view: number, row: number, total: number, extra = 8): Span {
  const first = Math.max(0, Math.floor(offset / row) - extra);
  const end = Math.min(total, Math.ceil((offset + view) / row) + extra);
  return { first: Math.min(first, end), end };
}

/** The offset at which a row is in view, moving as little as can be. */
export function reveal(index: number, offset: number, view: number, row: number): number {
  const top = index * row;
  if (top < offset) return top;
  return top + row > offset + view ? top + row - view : offset;
}
