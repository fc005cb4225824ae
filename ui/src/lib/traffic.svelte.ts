// State of the traffic table: loaded rows, selection and live updates.
import { SvelteSet } from 'svelte/reactivity';
import { ApiError, get, errorMessage } from './api';
import { arranged, isGroup, programOf, type Arrangement, type Item } from './arrange';
import { Events, type Link } from './events';
import { firstIdAt, millisOf } from './flowid';
import { models } from './models.svelte';
import { rowDetails } from './rowDetails.svelte';
import { estimate, Segment } from './segment';
import type { Summary, ApiErrorBody } from './types';
import { clampOffset, reveal, visible, type Span } from './window';

/** Height of a row in pixels, and of a row of two lines in a narrow table. */
export const ROW = 26;
export const TALL_ROW = 48;
/** Height of a row of one line that a finger can hit. */
export const TOUCH_ROW = 44;
/** Flows that are sorted or grouped: a window of the list, so that the cost does not grow with the store. */
const WINDOW = 2000;
const WINDOW_PAGE = 1000;
/** Rows per page. */
const PAGE = 500;
/** Rows of the first page: enough for any window, and fast to load. */
const FIRST = 120;
/** The next page is requested when fewer loaded rows than this remain beyond the view. */
const MARGIN = 200;
/** Updates buffered while the table is paused; beyond this it is reloaded on resume. */
const MAX_BUFFERED_UPDATES = 5000;
/** A flow arrives alone if none did so many milliseconds before; for how many it is marked. */
const ALONE = 1000;
const ARRIVAL = 400;
/** Minimum interval between two total counts, in milliseconds. */
const RECOUNT = 10_000;

/** Flows that are deleted once that cannot be undone any more. Another table hides them, too, once this one is left. */
const hidden = new Set<string>();
/** The table that is shown when a deletion is carried out or undone. */
let shown: Traffic | null = null;

export class Traffic {
  query = $state('');
  /** Syntax error of the query; the rows are those of the last valid one. */
  queryError = $state.raw<ApiErrorBody | null>(null);
  /** Why loading the rows failed. */
  failure = $state('');
  loading = $state(true);
  offset = $state(0);
  view = $state(600);
  row = $state(ROW);
  selected = $state<string | null>(null);
  selection = new SvelteSet<string>();
  paused = $state(false);
  /** The flow that has just arrived at the top, for a moment; none while many arrive. */
  arrived = $state<string | null>(null);
  unseenCount = $state(0);
  link = $state<Link>('connecting');
  /** Called with updated flows, for the detail pane. */
  onUpdates: ((flows: Summary[]) => void) | null = null;

  /** How the rows are sorted and grouped; then they are a window of the list. */
  arrangement = $state.raw<Arrangement>({ sort: null, group: null });
  /** Keys of collapsed groups. */
  closed = new SvelteSet<string>();
  /** Flows that match the query; may be an estimate. */
  matching = $state(0);
  private window = $state.raw<Summary[] | null>(null);
  private arrangedItems: Item[] | null = $derived(
    this.window ? arranged(this.window, this.arrangement, (flow) => this.groupOf(flow), this.closed, (id) => rowDetails.known.get(id)) : null,
  );

  private version = $state(0);
  private segment = new Segment();
  private bufferedUpdates = new Map<string, Summary>();
  /** New flows that the sorted or grouped window does not contain. */
  private unseenIds = new Set<string>();
  private lastArrival = 0;
  private arrivalTimer: ReturnType<typeof setTimeout> | undefined;
  /** Whether updates were missed: the list is loaded again once it may move, at the top or when it is resumed. */
  private stale = false;
  private generation = 0;
  private fetching = false;
  private oldest: number | null = null;
  private counted = 0;
  private countTimer: ReturnType<typeof setTimeout> | undefined;
  private lastIndex = 0;
  private events: Events;

  span: Span = $derived(visible(this.offset, this.view, this.row, this.total));
  /** The rendered rows; those that are not loaded yet are undefined. */
  items: (Item | undefined)[] = $derived.by(() => {
    void this.version;
    return Array.from({ length: this.span.end - this.span.first }, (_, i) => this.at(this.span.first + i));
  });
  rows: Summary[] = $derived(this.items.filter((item): item is Summary => item !== undefined && !isGroup(item)));

  constructor() {
    this.events = new Events({
      onFlows: (flows) => this.take(flows),
      onLag: () => this.lagged(),
      onLink: (link, again) => {
        this.link = link;
        // A list that came before the first connection lacks what happened meanwhile.
        if (link !== 'live' || (!again && this.loading)) return;
        // Where an error is shown, no list has to stay in its place.
        if (this.failure) void this.reload();
        else this.lagged();
      },
    });
  }

  /** Number of rows, headings of groups included. */
  get total(): number {
    return this.arrangedItems?.length ?? this.matching;
  }

  /** Flows in the sorted or grouped window; null if the list is not arranged. */
  get windowSize(): number | null {
    return this.window?.length ?? null;
  }

  private at(index: number): Item | undefined {
    return this.arrangedItems ? this.arrangedItems[index] : this.segment.at(index);
  }

  private flowAt(index: number): Summary | undefined {
    const item = this.at(index);
    return isGroup(item) ? undefined : item;
  }

  private indexOf(id: string): number {
    if (!this.arrangedItems) return this.segment.indexOf(id);
    return this.arrangedItems.findIndex((item) => !isGroup(item) && item.id === id);
  }

  private groupOf(flow: Summary): { key: string; label: string } {
    const host = flow.authority.replace(/:\d+$/, '');
    if (this.arrangement.group === 'host') return { key: host, label: host };
    if (this.arrangement.group === 'process') {
      const details = rowDetails.known.get(flow.id);
      const name = programOf(details) || (flow.user ?? flow.client?.replace(/:\d+$/, '') ?? '');
      return { key: name, label: name || 'unknown' };
    }
    const call = models.calls.get(flow.id);
    if (!call) return { key: '', label: 'no conversation' };
    return { key: call.conversation, label: [call.agent, call.model].filter(Boolean).join(' · ') || 'conversation' };
  }

  /** Sorts or groups the newest flows; null for both goes back to the whole list. */
  arrange(arrangement: Arrangement): void {
    this.arrangement = arrangement;
    this.closed.clear();
    void this.reload();
  }

  toggleGroup(key: string): void {
    if (!this.closed.delete(key)) this.closed.add(key);
    this.offset = clampOffset(this.offset, this.total, this.row, this.view);
  }

  setRow(height: number): void {
    if (height === this.row) return;
    const first = this.offset / this.row;
    this.row = height;
    this.scrollTo(first * height);
  }

  start(query: string): void {
    shown = this;
    this.query = query;
    this.events.start(query);
    void this.reload();
  }

  stop(): void {
    if (shown === this) shown = null;
    this.events.stop();
    clearTimeout(this.countTimer);
    clearTimeout(this.arrivalTimer);
    this.generation += 1;
  }

  /** Switches to another query. */
  ask(query: string): void {
    if (query === this.query) return;
    this.query = query;
    this.selection.clear();
    this.offset = 0;
    this.events.subscribe(query);
    void this.reload();
  }

  /** Reloads the list from the top. */
  async reload(): Promise<void> {
    const generation = ++this.generation;
    this.loading = true;
    this.fetching = true;
    this.bufferedUpdates.clear();
    this.unseenIds.clear();
    this.stale = false;
    try {
      const { sort, group } = this.arrangement;
      if (sort || group) {
        const flows = await this.loadWindow(sort?.key === 'time' && !sort.descending ? 'oldest' : 'newest');
        if (generation !== this.generation) return;
        this.window = flows;
        this.segment.reset([], 0, flows.length);
        [this.unseenCount, this.offset, this.failure, this.queryError] = [0, 0, '', null];
        if (flows.length === WINDOW) void this.count();
        return;
      }
      const page = await get('/flows', { query: this.query, limit: FIRST });
      if (generation !== this.generation) return;
      this.window = null;
      const whole = page.flows.length < FIRST;
      this.segment.reset(page.flows, 0, whole ? page.flows.length : Math.max(this.total, page.flows.length));
      this.oldest = null;
      this.unseenCount = 0;
      this.offset = 0;
      this.failure = '';
      this.queryError = null;
      if (!whole) void this.count();
    } catch (error) {
      if (generation !== this.generation) return;
      if (error instanceof ApiError && error.body.kind === 'bad_query') this.queryError = error.body;
      else this.failure = errorMessage(error);
    } finally {
      if (generation === this.generation) {
        this.loading = false;
        this.fetching = false;
        this.release();
        this.changed();
      }
    }
  }

  private async loadWindow(order: 'newest' | 'oldest'): Promise<Summary[]> {
    const flows: Summary[] = [];
    while (flows.length < WINDOW) {
      const page = await get('/flows', { query: this.query, limit: WINDOW_PAGE, order, after: flows.at(-1)?.id });
      flows.push(...page.flows);
      if (page.flows.length < WINDOW_PAGE) break;
    }
    const ids = flows.map((f) => f.id);
    const { sort, group } = this.arrangement;
    if (group === 'process' || sort?.key === 'process' || sort?.key === 'comment') await rowDetails.load(ids);
    if (group === 'conversation') await models.load(flows);
    return flows;
  }

  private changed(): void {
    if (hidden.size > 0) this.dropHidden();
    this.matching = this.window ? Math.max(this.segment.total, this.window.length) : this.segment.total;
    this.offset = clampOffset(this.offset, this.total, this.row, this.view);
    this.version += 1;
    const at = this.selected ? this.indexOf(this.selected) : -1;
    if (at >= 0) this.lastIndex = at;
    this.fill();
  }

  private async count(): Promise<void> {
    const generation = this.generation;
    this.counted = Date.now();
    try {
      const { count } = await get('/flows/count', { query: this.query });
      if (generation !== this.generation) return;
      this.segment.total = Math.max(count, this.segment.end);
      this.changed();
    } catch {
      // The estimate stays; the next count may succeed.
    }
  }

  private countSoon(): void {
    if (this.countTimer !== undefined) return;
    const wait = Math.max(0, this.counted + RECOUNT - Date.now());
    this.countTimer = setTimeout(() => {
      this.countTimer = undefined;
      void this.count();
    }, wait);
  }

  scrollTo(offset: number): void {
    this.offset = clampOffset(offset, this.total, this.row, this.view);
    if (this.atTop && !this.window && !this.paused) {
      this.unseenCount = 0;
      this.release();
    }
    this.fill();
  }

  get atTop(): boolean {
    return this.offset < this.row / 2;
  }

  /** Requests the rows that the view needs or will need soon. */
  private fill(): void {
    if (this.fetching || this.total === 0 || this.window) return;
    const { first, end } = visible(this.offset, this.view, this.row, this.total);
    const segment = this.segment;
    if (end <= segment.base - PAGE || first >= segment.end + PAGE || segment.rows.length === 0) {
      void this.fetch(() => this.jump(first));
    } else if (first < segment.base + MARGIN && segment.base > 0) {
      void this.fetch(() => this.newer());
    } else if (end > segment.end - MARGIN && segment.end < segment.total) {
      void this.fetch(() => this.older());
    }
  }

  private async fetch(work: () => Promise<(() => void) | undefined>): Promise<void> {
    const generation = this.generation;
    this.fetching = true;
    try {
      const use = await work();
      if (generation !== this.generation) return;
      this.failure = '';
      this.fetching = false;
      use?.();
      this.changed();
    } catch (error) {
      if (generation !== this.generation) return;
      this.failure = errorMessage(error);
      // Delays the retry; scrolling triggers it.
      setTimeout(() => (this.fetching = false), 1000);
    }
  }

  private async newer(): Promise<() => void> {
    const before = this.segment.rows[0]?.id;
    const page = await get('/flows', { query: this.query, limit: PAGE, before });
    return () => {
      const moved = this.segment.prepend(page.flows, page.flows.length < PAGE);
      this.offset += moved * this.row;
    };
  }

  private async older(): Promise<() => void> {
    const after = this.segment.rows.at(-1)?.id;
    const page = await get('/flows', { query: this.query, limit: PAGE, after });
    return () => this.segment.append(page.flows, page.flows.length < PAGE);
  }

  /** Jumps to a distant row. Pages are requested by id, so its time is estimated. */
  private async jump(first: number): Promise<(() => void) | undefined> {
    const total = this.segment.total;
    if (first < PAGE) {
      const page = await get('/flows', { query: this.query, limit: PAGE });
      return () => this.segment.reset(page.flows, 0, total);
    }
    if (first > total - PAGE) return this.bottom();
    const known = [...this.landmarks(), { index: total - 1, millis: await this.oldestMillis() }];
    const start = Math.max(0, first - MARGIN);
    const after = firstIdAt(estimate(start, known) + 1);
    const page = await get('/flows', { query: this.query, limit: PAGE, after });
    if (page.flows.length < PAGE) return this.bottom();
    return () => this.segment.reset(page.flows, start, total);
  }

  private async bottom(): Promise<() => void> {
    const page = await get('/flows', { query: this.query, limit: PAGE, order: 'oldest' });
    return () => {
      const base = Math.max(0, this.segment.total - page.flows.length);
      this.segment.reset(page.flows.reverse(), base, this.segment.total);
    };
  }

  private landmarks(): { index: number; millis: number }[] {
    const { rows, base } = this.segment;
    const marks = [{ index: 0, millis: Date.now() }];
    const [first, last] = [rows[0], rows.at(-1)];
    if (first && last) {
      marks.push({ index: base, millis: millisOf(first.id) });
      marks.push({ index: base + rows.length - 1, millis: millisOf(last.id) });
    }
    return marks;
  }

  private async oldestMillis(): Promise<number> {
    if (this.oldest === null) {
      const page = await get('/flows', { query: this.query, limit: 1, order: 'oldest' });
      this.oldest = page.flows[0] ? millisOf(page.flows[0].id) : Date.now();
    }
    return this.oldest;
  }

  private take(flows: Summary[]): void {
    this.onUpdates?.(flows);
    for (const flow of flows) if (flow.state !== 'open') rowDetails.forget(flow.id);
    if (this.loading || this.paused) {
      let unknown = 0;
      for (const flow of flows) {
        if (!this.bufferedUpdates.has(flow.id) && this.indexOf(flow.id) < 0) unknown += 1;
        this.bufferedUpdates.set(flow.id, flow);
      }
      if (this.paused) this.unseenCount += unknown;
      if (this.bufferedUpdates.size > MAX_BUFFERED_UPDATES) {
        this.bufferedUpdates.clear();
        this.stale = true;
      }
      return;
    }
    this.merge(flows);
  }

  /** Replaces known flows of the window; new ones would move the rows, so that they are only counted. */
  private mergeWindow(window: Summary[], flows: Summary[]): void {
    const news = new Map(flows.map((f) => [f.id, f]));
    this.window = window.map((f) => {
      const found = news.get(f.id);
      news.delete(f.id);
      return found ?? f;
    });
    this.unseen([...news.values()].flatMap((f) => (f.state === 'open' ? [] : [f.id])));
    this.changed();
  }

  /** Marks a flow that arrives alone: under load, rows would only flicker. */
  private announce(id: string | null): void {
    const quiet = Date.now() - this.lastArrival > ALONE;
    this.lastArrival = Date.now();
    clearTimeout(this.arrivalTimer);
    this.arrived = quiet ? id : null;
    if (this.arrived) this.arrivalTimer = setTimeout(() => (this.arrived = null), ARRIVAL);
  }

  private unseen(ids: string[]): void {
    for (const id of ids) if (this.unseenIds.size < MAX_BUFFERED_UPDATES) this.unseenIds.add(id);
    this.unseenCount = this.unseenIds.size;
  }

  private merge(flows: Summary[]): void {
    if (this.window) return this.mergeWindow(this.window, flows);
    const atTop = this.atTop;
    const anchor = this.segment.at(Math.floor(this.offset / this.row))?.id;
    const { added, above } = this.segment.merge(flows, anchor);
    if (added > 0) this.announce(atTop && added === 1 ? (this.segment.at(0)?.id ?? null) : null);
    if (!atTop) {
      // Keeps the visible rows in place.
      this.matching = this.segment.total;
      this.offset += (anchor === undefined ? added : above) * this.row;
      this.unseenCount += above;
    }
    if (added > 0 && this.segment.total > FIRST) this.countSoon();
    this.changed();
  }

  private release(): void {
    if (this.paused || this.loading) return;
    if (this.stale) {
      this.stale = false;
      void this.reload();
      return;
    }
    const flows = [...this.bufferedUpdates.values()];
    this.bufferedUpdates.clear();
    if (flows.length > 0) this.merge(flows);
  }

  private lagged(): void {
    // How many were missed is not known.
    if (this.window && !this.paused) this.unseen(['']);
    else if (this.atTop && !this.paused) void this.reload();
    else {
      this.stale = true;
      if (!this.paused) this.countSoon();
    }
  }

  pause(paused: boolean): void {
    this.paused = paused;
    if (!paused) {
      this.unseenCount = 0;
      this.release();
    }
  }

  /** Scrolls to the newest flow and applies buffered updates. */
  toNewest(): void {
    if (this.paused) this.pause(false);
    if (this.window && this.unseenCount > 0) void this.reload();
    this.scrollTo(0);
  }

  summary(id: string): Summary | undefined {
    if (this.window) return this.window.find((f) => f.id === id);
    return this.segment.at(this.segment.indexOf(id));
  }

  /** Index of the selected flow, or its last known index. */
  get index(): number {
    const at = this.selected ? this.indexOf(this.selected) : -1;
    return at >= 0 ? at : this.lastIndex;
  }

  isSelectedHeld(): boolean {
    return this.selected !== null && this.indexOf(this.selected) >= 0;
  }

  /** Selects the row at an index, if loaded, and scrolls it into view. */
  selectAt(index: number): void {
    let wanted = Math.max(0, Math.min(index, this.total - 1));
    // Headings of groups are passed over, in the direction of the move.
    const by = wanted < this.index ? -1 : 1;
    while (isGroup(this.at(wanted)) && wanted + by >= 0 && wanted + by < this.total) wanted += by;
    const flow = this.flowAt(wanted);
    this.scrollTo(reveal(wanted, this.offset, this.view, this.row));
    if (!flow) return;
    this.selected = flow.id;
    this.lastIndex = wanted;
  }

  /** Moves the selection by a number of rows. */
  step(by: number): void {
    this.selectAt(this.isSelectedHeld() ? this.index + by : Math.floor(this.offset / this.row));
  }

  /** Selects the newest flow and applies buffered updates. */
  async toStart(): Promise<void> {
    this.toNewest();
    await this.held(() => 0);
    this.selectAt(0);
  }

  async toEnd(): Promise<void> {
    if (!this.window && this.total >= FIRST) await this.count();
    this.scrollTo(Infinity);
    await this.held(() => this.total - 1);
    this.selectAt(this.total - 1);
  }

  /** Waits until a row is loaded, for at most four seconds. */
  private async held(index: () => number): Promise<void> {
    for (let i = 0; i < 100 && !this.at(index()); i += 1) {
      await new Promise((done) => setTimeout(done, 40));
      this.fill();
    }
  }

  /** Adds the rows from the current one to this index to the selection. */
  extendSelection(index: number): void {
    const from = this.index;
    for (let i = Math.min(from, index); i <= Math.max(from, index); i += 1) {
      const flow = this.flowAt(i);
      if (flow) this.selection.add(flow.id);
    }
  }

  /** Selects all loaded flows. */
  selectLoaded(): void {
    for (const flow of this.window ?? this.segment.rows) this.selection.add(flow.id);
  }

  /** Hides deleted flows; if the current one is among them, its successor becomes current. */
  hide(ids: string[]): void {
    const index = this.index;
    ids.forEach((id) => { hidden.add(id); this.selection.delete(id); });
    const selectedGone = this.selected !== null && hidden.has(this.selected);
    if (selectedGone) this.selected = null;
    this.changed();
    if (selectedGone && this.total > 0) this.selectAt(Math.min(index, this.total - 1));
  }

  /** Shows hidden flows again, in the table that is shown by now. */
  static restore(ids: string[]): void {
    ids.forEach((id) => hidden.delete(id));
    void shown?.reload();
  }

  /** Forgets hidden flows once they are deleted. */
  static deleted(ids: string[]): void {
    ids.forEach((id) => hidden.delete(id));
    shown?.countSoon();
  }

  private dropHidden(): void {
    this.segment.remove(hidden);
    if (!this.window) return;
    const before = this.window.length;
    this.window = this.window.filter((f) => !hidden.has(f.id));
    this.segment.total -= before - this.window.length;
  }

  /** Replaces the summary of a loaded flow. */
  put(flow: Summary): void {
    if (this.indexOf(flow.id) >= 0) this.merge([flow]);
  }
}
