// State shared by all pages: current page, theme, notices and recent statistics.
import { get, errorMessage } from './api';
import type { Action } from './keys';
import { loadPref, savePref } from './prefs';
import type { Stats } from './types';

export { loadPref, savePref };

export type Page = 'traffic' | 'conversations' | 'approvals' | 'rules' | 'privacy' | 'media' | 'overview' | 'settings' | 'compose' | 'intercept' | 'keys';
export type Theme = 'system' | 'light' | 'dark';

/** Pages in the order of the navigation. */
export const PAGES: Page[] = ['traffic', 'intercept', 'compose', 'conversations', 'approvals', 'rules', 'privacy', 'keys', 'media', 'overview', 'settings'];

const PATHS: Record<Page, string> = {
  traffic: '/', conversations: '/conversations', approvals: '/approvals', rules: '/rules', privacy: '/privacy',
  media: '/media', overview: '/overview', settings: '/settings', compose: '/compose', intercept: '/intercept',
  keys: '/keys',
};
const TITLES: Record<Page, string> = {
  traffic: 'Traffic', conversations: 'Conversations', approvals: 'Approvals', rules: 'Rules', privacy: 'Privacy',
  media: 'Media', overview: 'Overview', settings: 'Settings', compose: 'Compose', intercept: 'Intercept',
  keys: 'Keys & budgets',
};

export interface Notice {
  id: number;
  text: string;
  bad: boolean;
  action?: { label: string; run: () => void };
  /** Called when it goes, and when the page is left. */
  onend?: () => Promise<void>;
}

/** Rates per second between two polls. */
export interface Sample {
  at: number;
  requests: number;
  errors: number;
  bytes: number;
  open: number;
}

/** Poll interval of the statistics, in milliseconds. */
const POLL_MS = 2000;
/** Five minutes of samples. */
const SAMPLES = 150;

function pageOf(path: string): Page {
  const found = (Object.keys(PATHS) as Page[]).find((p) => PATHS[p] === path);
  return found ?? 'traffic';
}

class AppState {
  page = $state<Page>(pageOf(location.pathname));
  theme = $state<Theme>((loadPref('theme') as Theme | null) ?? 'system');
  notices = $state<Notice[]>([]);
  /** Whether a notice has the focus or the pointer. */
  isReading = false;
  help = $state(false);
  palette = $state(false);
  /** Runs an action of the current page; null if the page has none. */
  pageActions = $state.raw<((action: Action) => void) | null>(null);
  /** Commands of the current page for the palette, beside those that have a key. */
  commands = $state.raw<{ label: string; hint?: string; run: () => void }[]>([]);
  stats = $state.raw<Stats | null>(null);
  samples = $state.raw<Sample[]>([]);
  unreachable = $state('');
  private notice = 0;
  /** What notices that are gone still carry out. */
  private readonly endings = new Set<Promise<void>>();
  private last: { at: number; stats: Stats } | null = null;

  constructor() {
    addEventListener('popstate', () => (this.page = pageOf(location.pathname)));
    void this.pollStats();
    setInterval(() => {
      if (!document.hidden) void this.pollStats();
    }, POLL_MS);
  }

  navigate(page: Page, search = ''): void {
    if (page === this.page && !search) return;
    history.pushState(null, '', PATHS[page] + search);
    // The current page rereads its URL, as it does on browser back.
    if (page === this.page) dispatchEvent(new PopStateEvent('popstate'));
    this.page = page;
  }

  /** Follows a link to a page here, unless the browser is to open it elsewhere. */
  follow(event: MouseEvent, page: Page, search = ''): void {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    this.navigate(page, search);
  }

  path(page: Page): string {
    return PATHS[page];
  }

  title(page: Page): string {
    return TITLES[page];
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    savePref('theme', theme === 'system' ? null : theme);
    if (theme === 'system') delete document.documentElement.dataset['theme'];
    else document.documentElement.dataset['theme'] = theme;
  }

  nextTheme(): void {
    const next: Record<Theme, Theme> = { system: 'light', light: 'dark', dark: 'system' };
    this.setTheme(next[this.theme]);
    this.notify(`Theme: ${this.theme === 'system' ? 'system' : this.theme}`);
  }

  /** Returns the id of the notice. */
  notify(text: string, action?: Notice['action'], bad = false, onend?: () => Promise<void>): number {
    const id = (this.notice += 1);
    this.notices.slice(0, -3).forEach((n) => void this.dismiss(n.id));
    this.notices = [...this.notices, { id, text, bad, ...(action ? { action } : {}), ...(onend ? { onend } : {}) }];
    this.expire(id, bad || action ? 10_000 : 5000);
    return id;
  }

  /** A notice with the focus or the pointer stays, and so does one that a dialog covers. */
  private expire(id: number, after: number): void {
    const stays = () => this.isReading || document.querySelector('dialog[open]') !== null;
    setTimeout(() => (stays() ? this.expire(id, 1000) : void this.dismiss(id)), after);
  }

  /**
   * Deletes what is hidden already once its notice goes, unless that is undone before; `restore` shows it again.
   * Returns what does not wait for the notice: it ends when the deletion has been carried out, has failed or was undone.
   */
  deleteLater(text: string, erase: () => Promise<void>, restore: () => void): () => Promise<void> {
    let ending: Promise<void> | undefined;
    const carryOut = () => (ending ??= erase().catch((error: unknown) => { restore(); this.notifyError(error); }));
    const undo = () => (ending ??= Promise.resolve(restore()));
    const id = this.notify(text, { label: 'Undo', run: () => void undo() }, false, carryOut);
    return async () => {
      await this.dismiss(id);
      await ending;
    };
  }

  /** Undoes what the newest notice with this offer is about. */
  undo(): void {
    const notice = this.notices.findLast((n) => n.action?.label === 'Undo');
    notice?.action?.run();
    if (notice) void this.dismiss(notice.id);
  }

  /** Copies a text, and says so. */
  async copied(text: string, words = 'Copied'): Promise<void> {
    try {
      await copy(text);
      this.notify(words);
    } catch (error) {
      this.notifyError(error);
    }
  }

  notifyError(error: unknown): void {
    this.notify(errorMessage(error), undefined, true);
  }

  /** Ends when what waited for the notice to go has been carried out, or has failed. */
  dismiss(id: number): Promise<void> {
    const ending = this.notices.find((n) => n.id === id)?.onend?.() ?? Promise.resolve();
    this.endings.add(ending);
    void ending.finally(() => this.endings.delete(ending));
    this.notices = this.notices.filter((n) => n.id !== id);
    this.isReading = false;
    return ending;
  }

  /** Carries out what waits for its notice to go; ends when that, and what is under way already, has ended. */
  async dismissAll(): Promise<void> {
    this.notices.forEach((n) => void this.dismiss(n.id));
    await Promise.all(this.endings);
  }

  private async pollStats(): Promise<void> {
    try {
      const stats = await get('/stats');
      if (this.unreachable) this.notify('Connected again');
      this.unreachable = '';
      const at = performance.now();
      const before = this.last;
      this.last = { at, stats };
      this.stats = stats;
      // A restart resets the counters.
      if (!before || stats.uptime < before.stats.uptime) return;
      const seconds = (at - before.at) / 1000;
      const [a, b] = [before.stats.engine, stats.engine];
      const sum = (list: [string, number][]) => list.reduce((n, [, k]) => n + k, 0);
      const sample: Sample = {
        at: Date.now(),
        requests: (b.requests - a.requests) / seconds,
        errors: (sum(b.errors) - sum(a.errors)) / seconds,
        bytes: (b.bytes_sent + b.bytes_received - a.bytes_sent - a.bytes_received) / seconds,
        open: b.connections_open,
      };
      this.samples = [...this.samples.slice(1 - SAMPLES), sample];
    } catch (error) {
      this.unreachable = errorMessage(error);
    }
  }
}

export const app = new AppState();

/** Copies a text. The clipboard API needs a secure context; the fallback uses a hidden textarea. */
export async function copy(text: string): Promise<void> {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement('textarea');
  area.value = text;
  area.readOnly = true;
  area.className = 'offscreen';
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  if (!done) throw new Error('this browser does not allow copying from this page');
}

/** Downloads a file. */
export function download(blob: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
