// The loaded part of a very long list: contiguous rows, newest first, and their offset.
import type { Summary } from './types';

/** Maximum of loaded rows; rows far from the view are dropped. */
const MAX_ROWS = 4000;
/** Maximum of ids remembered as counted but not loaded. */
const MAX_COUNTED = 20_000;

export class Segment {
  /** Newest first, without gaps. */
  rows: Summary[] = [];
  /** Index of the first loaded row in the whole list. */
  base = 0;
  /** Rows in the whole list; may be an estimate. */
  total = 0;
  private counted = new Set<string>();

  get end(): number {
    return this.base + this.rows.length;
  }

  at(index: number): Summary | undefined {
    return this.rows[index - this.base];
  }

  reset(rows: Summary[], base: number, total: number): void {
    this.rows = rows;
    this.base = base;
    this.total = Math.max(total, base + rows.length);
    this.counted.clear();
  }

  /** Index of an id in the loaded rows, or its insertion point. */
  private place(id: string): number {
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle]!.id > id) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Index of a flow in the whole list; -1 if it is not loaded. */
  indexOf(id: string): number {
    const at = this.place(id);
    return this.rows[at]?.id === id ? this.base + at : -1;
  }

  /**
   * Prepends a page of newer rows (newest first). Returns by how many indices all rows moved down; nonzero
   * if the estimate of `base` was wrong.
   */
  prepend(page: Summary[], atTop: boolean): number {
    const fresh = page.filter((f) => this.rows.length === 0 || f.id > this.rows[0]!.id);
    this.rows = [...fresh, ...this.rows];
    this.base -= fresh.length;
    let moved = 0;
    if (atTop) {
      moved = -this.base;
    } else if (this.base <= 0) {
      moved = 1000 - this.base;
    }
    this.base += moved;
    this.total = Math.max(this.total + moved, this.end);
    if (this.rows.length > MAX_ROWS) this.drop(MAX_ROWS, this.rows.length);
    return moved;
  }

  /** Appends a page of older rows. */
  append(page: Summary[], atEnd: boolean): void {
    const last = this.rows.at(-1);
    this.rows = [...this.rows, ...page.filter((f) => !last || f.id < last.id)];
    if (atEnd) this.total = this.end;
    else this.total = Math.max(this.total, this.end + 1);
    const over = this.rows.length - MAX_ROWS;
    if (over > 0) {
      this.drop(0, over);
      this.base += over;
    }
  }

  private drop(from: number, to: number): void {
    for (const flow of this.rows.splice(from, to - from)) if (flow.state === 'open') this.remember(flow.id);
  }

  private remember(id: string): void {
    this.counted.add(id);
    if (this.counted.size > MAX_COUNTED) {
      const [oldest] = this.counted;
      if (oldest !== undefined) this.counted.delete(oldest);
    }
  }

  /** Applies updates: replaces loaded rows and inserts new ones. Returns how many were added, and how many above the anchor. */
  merge(news: Summary[], anchor: string | undefined): { added: number; above: number } {
    let added = 0;
    let above = 0;
    const top: Summary[] = [];
    for (const flow of [...news].sort((a, b) => (a.id < b.id ? 1 : -1))) {
      const at = this.place(flow.id);
      if (this.rows[at]?.id === flow.id) {
        this.rows[at] = flow;
        continue;
      }
      if (this.counted.has(flow.id)) {
        if (flow.state !== 'open') this.counted.delete(flow.id);
        continue;
      }
      if (at === 0 && this.base > 0) {
        this.base += 1;
        if (flow.state === 'open') this.remember(flow.id);
      } else if (at === 0) {
        top.push(flow);
      } else if (at < this.rows.length || this.end >= this.total) {
        this.rows.splice(at, 0, flow);
      } else if (flow.state === 'open') {
        this.remember(flow.id);
      }
      added += 1;
      this.total += 1;
      if (anchor !== undefined && flow.id > anchor) above += 1;
    }
    if (top.length > 0) this.rows = [...top, ...this.rows];
    if (this.rows.length > MAX_ROWS) this.drop(MAX_ROWS, this.rows.length);
    return { added, above };
  }

  /** Removes deleted flows. */
  remove(ids: ReadonlySet<string>): void {
    const left = this.rows.filter((f) => !ids.has(f.id));
    this.total -= this.rows.length - left.length;
    this.rows = left;
  }
}

/** Estimates the time (milliseconds) of a list index by interpolating between known indices. */
export function estimate(index: number, known: { index: number; millis: number }[]): number {
  const sorted = [...known].sort((a, b) => a.index - b.index);
  let low = sorted[0];
  if (!low) return 0;
  for (const high of sorted) {
    if (high.index >= index && high.index > low.index) {
      return low.millis + ((high.millis - low.millis) * (index - low.index)) / (high.index - low.index);
    }
    low = high;
  }
  return low.millis;
}
