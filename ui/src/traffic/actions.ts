// Actions on flows: copy, export, replay, delete, annotate.
import { ask, send, url, getAs, sendAs } from '../lib/api';
import type { AnnotationPatch, ReplayInput } from '../lib/api.gen';
import { app, copy, download } from '../lib/app.svelte';
import { count } from '../lib/format';
import type { Flow, Replayed, Summary } from '../lib/types';
import { EXPORTS, type ExportFormat } from './exports';

export interface Copy {
  format: string;
  label: string;
}

/** The generators of `interflow-archive`, which also show composed requests. */
export const CODE: Copy[] = [
  { format: 'curl', label: 'curl' },
  { format: 'httpie', label: 'HTTPie' },
  { format: 'fetch', label: 'JavaScript, fetch' },
  { format: 'python', label: 'Python, requests' },
  { format: 'go', label: 'Go' },
  { format: 'java', label: 'Java' },
  { format: 'csharp', label: 'C#' },
  { format: 'php', label: 'PHP' },
  { format: 'powershell', label: 'PowerShell' },
  { format: 'rust', label: 'Rust' },
];

export const COPIES: Copy[] = [...CODE, { format: 'har', label: 'HAR' }, { format: 'raw', label: 'raw HTTP' }];

/** Files that one flow can be saved as. */
export const FILES: Copy[] = [
  { format: 'html', label: 'HTML page to share' },
  { format: 'har', label: 'HAR' },
  { format: 'jsonl', label: 'Session file' },
  { format: 'raw', label: 'raw HTTP' },
];

/** Downloads one flow as a file. An error leaves the page as it is. */
export async function saveFile(id: string, format: string): Promise<void> {
  const response = await ask(url(`/flows/${id}/export`, { format, originals: format === 'jsonl' ? 'true' : undefined }));
  const named = /filename="([^"]+)"/.exec(response.headers.get('content-disposition') ?? '')?.[1];
  download(await response.blob(), named ?? `${id}.${EXPORTS.find((e) => e.format === format)?.extension ?? 'txt'}`);
}

export async function copyAs(id: string, format: string): Promise<void> {
  const response = await ask(url(`/flows/${id}/export`, { format }));
  const text = await response.text();
  await copy(text);
  const masked = [...text.slice(0, 4000).matchAll(/was masked in the recording: fill in (\$\w+)/g)].map(([, name]) => name);
  const left = masked.length > 0 ? `; fill in ${masked.join(', ')}, masked in the recording` : '';
  app.notify(`Copied as ${COPIES.find((c) => c.format === format)?.label ?? format}${left}`);
}

/** Downloads the selected flows as one file. */
export async function saveChosen(ids: string[], format: ExportFormat): Promise<void> {
  const response = await ask(url('/export'), {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ids, format, originals: format === 'jsonl' }),
  });
  download(await response.blob(), `flows.${EXPORTS.find((e) => e.format === format)?.extension ?? format}`);
}

/**
 * Downloads all flows that match a query. The browser writes them to the disk as they arrive, since they may not fit into memory;
 * a first request, stopped at its head, finds out whether there is an error, which the download could not show.
 */
export async function saveMatching(query: string, format: ExportFormat): Promise<void> {
  const address = url('/export', { query, format, originals: format === 'jsonl' ? 'true' : undefined });
  const check = new AbortController();
  await ask(address, { signal: check.signal });
  check.abort();
  const link = document.createElement('a');
  link.href = address;
  // Without it, an error that occurs now would replace the page.
  link.download = `flows.${EXPORTS.find((e) => e.format === format)?.extension ?? format}`;
  link.click();
}

/** Deletes what a query selects, or everything, except for flows that are still open. */
export async function clearMatching(query: string): Promise<void> {
  const { pruned } = await send('POST', '/flows/prune', query ? { query } : { all: true });
  app.notify(`${count(pruned)} deleted`);
}

export async function replay(id: string, edited: ReplayInput, open: (id: string) => void): Promise<Replayed> {
  const done = await sendAs<Replayed>('POST', `/flows/${id}/replay`, edited);
  const action = { label: 'Show', run: () => open(done.id) };
  const left = done.omitted.length > 0 ? `; without ${done.omitted.join(', ')} (values not recorded)` : '';
  if (done.response) app.notify(`Replayed: ${done.response.status}${left}`, action);
  else app.notify(`Replay failed: ${done.error?.message ?? 'no response'}${left}`, action, true);
  return done;
}

/** Fails if flows remain. */
export async function erase(ids: string[]): Promise<void> {
  const { deleted } = await send('POST', '/flows/delete', { ids });
  const still = ids.length - deleted;
  if (still > 0) throw new Error(`${count(deleted)} deleted; ${still} are still open or no longer exist`);
}

export async function annotate(id: string, annotation: AnnotationPatch): Promise<Flow> {
  return sendAs<Flow>('PATCH', `/flows/${id}`, annotation);
}

/** Updates a summary from a full flow. */
export function summaryOf(flow: Flow, known: Summary): Summary {
  return { ...known, state: flow.state, tags: flow.tags ?? [] };
}

export async function flowOf(id: string): Promise<Flow> {
  return getAs<Flow>(`/flows/${id}`);
}
