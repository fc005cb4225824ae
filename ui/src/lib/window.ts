// Virtual scrolling: which rows of equal height are rendered, and where.

/** Browsers clip elements at 17 to 33 million pixels; above this height the scroll bar is compressed. */
export const MAX_HEIGHT = 12_000_000;

export interface Span {
  /** First rendered row. */
  first: number;
  /** End of the rendered rows (exclusive). */
  end: number;
}

/** Height of the scrolled element. */
export function scrollHeight(total: number, row: number): number {
  return Math.min(total * row, MAX_HEIGHT);
}

/** Row pixels per scroll bar pixel. */
export function compression(total: number, row: number, view: number): number {
  const real = total * row - view;
  const bar = scrollHeight(total, row) - view;
  return real <= 0 || bar <= 0 || real <= bar ? 1 : real / bar;
}

export function clampOffset(offset: number, total: number, row: number, view: number): number {
  return Math.max(0, Math.min(offset, total * row - view));
}

/** The rows to render at this offset, with `extra` rows on either side. */
export function visible(offset: number, view: number, row: number, total: number, extra = 8): Span {
  const first = Math.max(0, Math.floor(offset / row) - extra);
  const end = Math.min(total, Math.ceil((offset + view) / row) + extra);
  return { first: Math.min(first, end), end };
}

/** The nearest offset at which a row is visible. */
export function reveal(index: number, offset: number, view: number, row: number): number {
  const top = index * row;
  if (top < offset) return top;
  return top + row > offset + view ? top + row - view : offset;
}
