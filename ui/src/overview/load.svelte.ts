// The state of the overview: what it shows, kept in the URL, and its figures, refreshed at intervals.
import { get, errorMessage } from '../lib/api';
import type { Overview, SpendReport } from '../lib/api.gen';
import { app } from '../lib/app.svelte';
import { DAY, namesRange, presetFor, readRange, sameRange, spanOf, widened, writeRange, zoomed, type Range, type Span } from './range';

/** Interval of the refresh, in milliseconds. */
const AGAIN = 10_000;
/** A refresh moves the bars: none while one of them is being chosen, and this long after, in milliseconds. */
const HELD_FOR = 5000;

export class OverviewState {
  range = $state.raw<Range>({ preset: '24h' });
  /** The condition that all figures are restricted to. */
  query = $state('');
  live = $state(true);
  found = $state.raw<Overview | null>(null);
  /** Spending by virtual key on the days of the span: of ranges of a day or more, without a filter. */
  spending = $state.raw<SpendReport | null>(null);
  failure = $state('');
  loading = $state(false);
  /** Ranges to return to, the widest first. */
  private wider = $state.raw<Range[]>([]);
  private oldest: number | null = null;
  /** No range was chosen yet: the age of the recording decides. */
  private isRangeOpen = false;
  private turn = 0;
  private heldUntil = 0;
  private refreshed = 0;
  private aborted = new AbortController();

  readonly span = $derived<Span | null>(this.found && { from: this.found.from, to: this.found.to, step: this.found.step });
  /** Whether the range ends now, so that a refresh changes it. */
  readonly isMoving = $derived('preset' in this.range);
  readonly isZoomed = $derived('from' in this.range || this.wider.length > 0);

  start(): () => void {
    const back = () => {
      this.read();
      void this.refresh();
    };
    this.read();
    void this.refresh();
    addEventListener('popstate', back);
    const timer = setInterval(() => {
      const isDue = Date.now() >= Math.max(this.heldUntil, this.refreshed + AGAIN);
      if (isDue && !document.hidden && this.live && this.isMoving && !this.loading) void this.refresh();
    }, 1000);
    return () => {
      removeEventListener('popstate', back);
      clearInterval(timer);
      this.turn += 1;
      this.aborted.abort();
    };
  }

  private read() {
    const search = new URLSearchParams(location.search);
    this.range = readRange(search);
    this.isRangeOpen = !namesRange(search);
    this.query = search.get('q') ?? '';
    this.wider = [];
  }

  private write() {
    const search = new URLSearchParams();
    writeRange(search, this.range);
    if (this.query) search.set('q', this.query);
    const text = search.toString();
    history.pushState(null, '', app.path('overview') + (text ? `?${text}` : ''));
  }

  pick(range: Range) {
    this.wider = [];
    this.go(range);
  }

  filter(query: string) {
    if (query === this.query) return;
    this.query = query;
    this.oldest = null;
    this.write();
    void this.refresh();
  }

  zoom(first: number, last: number) {
    const next = this.span && zoomed(this.span, first, last);
    if (!next || sameRange(next, this.range)) return;
    this.wider = [...this.wider, this.range];
    this.go(next);
  }

  zoomOut() {
    const before = this.wider.at(-1);
    if (before) this.wider = this.wider.slice(0, -1);
    if (before) this.go(before);
    else if ('from' in this.range && this.span) this.go(widened(this.span, Date.now() * 1000));
  }

  private go(range: Range) {
    this.isRangeOpen = false;
    if (sameRange(range, this.range)) return;
    this.range = range;
    this.write();
    void this.refresh();
  }

  private async loadSpending({ from, to }: Overview, signal: AbortSignal): Promise<void> {
    const [since, until] = [from, to].map((at) => new Date(at / 1000).toISOString().slice(0, 10)) as [string, string];
    const isWanted = to - from >= DAY && !this.query;
    const report = isWanted ? await get('/spend', { by: 'key', since, until }, signal).catch(() => null) : null;
    if (!signal.aborted) this.spending = report;
  }

  /** A bar is being chosen: the bars stay where they are for now. */
  hold(): void {
    this.heldUntil = Date.now() + HELD_FOR;
  }

  async refresh(): Promise<void> {
    this.refreshed = Date.now();
    const mine = (this.turn += 1);
    this.aborted.abort();
    const { signal } = (this.aborted = new AbortController());
    this.loading = true;
    try {
      const query = this.query || undefined;
      if (this.isRangeOpen) {
        const { from } = await get('/overview', { buckets: 1 }, signal);
        if (mine !== this.turn) return;
        [this.range, this.isRangeOpen] = [{ preset: presetFor(Date.now() * 1000 - from) }, false];
      }
      const isAll = 'preset' in this.range && this.range.preset === 'all';
      // Where the recording begins decides into what buckets all of it is divided.
      if (isAll) this.oldest ??= (await get('/overview', { buckets: 1, query }, signal)).from;
      const now = Date.now() * 1000;
      const { from, to, step } = spanOf(this.range, now, this.oldest ?? now);
      const found = await get('/overview', { from, to: Math.ceil(to), step, query, compare: isAll ? undefined : 'true' }, signal);
      if (mine !== this.turn) return;
      [this.found, this.failure] = [found, ''];
      void this.loadSpending(found, signal);
      this.loading = false;
      // Each call summarises another part of the flows that were recorded before there were figures.
      if (found.indexing) {
        this.oldest = null;
        setTimeout(() => { if (mine === this.turn) void this.refresh(); }, 50);
      }
    } catch (error) {
      if (mine !== this.turn || signal.aborted) return;
      [this.failure, this.loading] = [errorMessage(error), false];
    }
  }
}
