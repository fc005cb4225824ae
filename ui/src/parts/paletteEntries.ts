// What the command palette finds beside the actions of the page: topics of pages, and pages of the documentation.
import type { Page } from '../lib/app.svelte';

export interface Entry {
  label: string;
  hint: string;
  /** Other words by which it is found. */
  words?: string;
  run: () => void;
}

/** What people look for by another word than the title of its page: the page, its section, what is there, other words for it. */
export const TOPICS: { page: Page; at?: string; label: string; words: string }[] = [
  { page: 'traffic', label: 'Export, clear or import recorded flows', words: 'HAR JSONL SAZ save download delete' },
  { page: 'traffic', label: 'Search in bodies: write body:TEXT as the filter', words: 'find text content full' },
  { page: 'conversations', label: 'Search in the messages of conversations', words: 'find text prompts' },
  { page: 'conversations', at: '?view=totals', label: 'Tokens and cost of models and agents', words: 'spending price money usage dollars' },
  { page: 'compose', label: 'Compose a request, a WebSocket or a gRPC call', words: 'send new http websocket ws grpc protobuf reflection client postman curl' },
  { page: 'intercept', label: 'Install the CA certificate', words: 'trust https tls browser phone container docker system proxy android ios' },
  { page: 'rules', label: 'Breakpoints, mocks, throttling and map local or remote', words: 'block rewrite delay intercept header fake stub' },
  { page: 'approvals', label: 'Allow and deny rules of approvals', words: 'sandbox access policy pending' },
  { page: 'privacy', label: 'Redaction policy: what is replaced in prompts', words: 'pii mask secrets personal data' },
  { page: 'keys', label: 'Virtual keys, teams, limits and budgets', words: 'api token quota rate' },
  { page: 'keys', at: '#new-key', label: 'New virtual key', words: 'create add api token' },
  { page: 'keys', label: 'Spending and its forecast', words: 'cost price money bill dollars' },
  { page: 'media', label: 'Links of media, and active streams', words: 'video hls dash player' },
  { page: 'settings', at: '#settings-recording', label: 'Settings: recording and retention', words: 'record disk storage keep age' },
  { page: 'settings', at: '#settings-interception', label: 'Settings: interception', words: 'tls https mitm exclude' },
  { page: 'settings', at: '#settings-access', label: 'Settings: access tokens, sessions, log out', words: 'logout sign out login password users token' },
  { page: 'settings', at: '#settings-ca', label: 'Settings: certificate authority', words: 'root certificate download' },
  { page: 'settings', at: '#settings-doctor', label: 'Settings: doctor', words: 'check problems diagnose' },
  { page: 'settings', at: '#settings-about', label: 'Settings: version, addresses and API', words: 'about openapi metrics ports configuration' },
];

/** The entries in which every word of the text occurs; those whose label begins with it come first. */
export function matching(entries: Entry[], text: string): Entry[] {
  const wanted = text.trim().toLowerCase();
  const words = wanted.split(/\s+/).filter(Boolean);
  const found = entries.filter((e) => words.every((w) => `${e.label} ${e.hint} ${e.words ?? ''}`.toLowerCase().includes(w)));
  if (words.length === 0) return found;
  const rank = (e: Entry) => (e.label.toLowerCase().startsWith(wanted) ? 0 : words.every((w) => e.label.toLowerCase().includes(w)) ? 1 : 2);
  return found.map((e, i) => ({ e, i })).sort((a, b) => rank(a.e) - rank(b.e) || a.i - b.i).map(({ e }) => e);
}

export interface DocsPage {
  name: string;
  title: string;
}

let loaded: Promise<DocsPage[]> | undefined;

/** The pages of the documentation; none where it is not a part of the UI. */
export function docsPages(): Promise<DocsPage[]> {
  loaded ??= fetch('/docs/pages.json')
    .then(async (response) => (response.ok ? ((await response.json()) as DocsPage[]) : []))
    .catch(() => []);
  return loaded;
}
