// The part of a very long list that is held in memory: a run of neighbouring rows, newest first, and where it stands.
import type { Summary } from './types';

/** Rows held at most; what is far from the view is let go. */
const MAX_ROWS = 4000;
/** Flows remembered that were counted but are not held. */
const MAX_COUNTED = 20_000;

export class Segment {
  /** Newest first, without gaps. */
  rows: Summary[] = [];
  /** The place of the first row held in the whole list. */
  base = 0;
  /** Rows in the whole list, as far as is known. */
  total = 0;
  /** The base was reached from the top by neighbours, so that it is no estimate. */
  exact = true;
  private counted = new Set<string>();

  get end(): number {
    return this.base + this.rows.length;
  }

  at(index: number): Summary | undefined {
    return this.rows[index - this.base];
  }

  reset(rows: Summary[], base: number, total: number, exact: boolean): void {
    this.rows = rows;
    this.base = base;
    this.total = Math.max(total, base + rows.length);
    this.exact = exact;
    this.counted.clear();
  }

  /** Where this id stands, or would stand, in the rows held. */
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

  /** The flow's place in the whole list; -1 when it is not held. */
  indexOf(id: string): number {
    const at = this.place(id);
    return this.rows[at]?.id === id ? this.base + at : -1;
  }

  /**
   * Takes up a page of newer neighbours (newest first). Returns by how many places everything moved down, which is not
   * zero when the base turns out to have been estimated wrongly.
   */
  prepend(page: Summary[], atTop: boolean): number {
    const fresh = page.filter((f) => this.rows.length === 0 || f.id > this.rows[0]!.id);
    this.rows = [...fresh, ...this.rows];
    this.base -= fresh.length;
    let moved = 0;
    if (atTop) {
      moved = -this.base;
      this.exact = true;
    } else if (this.base <= 0) {
      moved = 1000 - this.base;
    }
    this.base += moved;
    this.total = Math.max(this.total + moved, this.end);
    if (this.rows.length > MAX_ROWS) this.drop(MAX_ROWS, this.rows.length);
    return moved;
  }

  /** Takes up a page of older neighbours. */
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

  /** Takes up news: rows held are replaced, new ones put in their place. Says how many came in above the anchor. */
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

  /** Lets go of what was deleted. */
  remove(ids: ReadonlySet<string>): void {
    const left = this.rows.filter((f) => !ids.has(f.id));
    this.total -= this.rows.length - left.length;
    this.rows = left;
  }
}

/** The moment, in milliseconds, that a place in the list probably has, from moments of places that are known. */
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
