// Actions on flows: copy, export, replay, delete, annotate.
import { ask, send, url, getAs, sendAs } from '../lib/api';
import type { AnnotationPatch, ImportResult, ReplayInput } from '../lib/api.gen';
import { app, copy, download } from '../lib/app.svelte';
import { count } from '../lib/format';
import type { Flow, Replayed, Summary } from '../lib/types';
import { EXPORTS, type ExportFormat } from './exports';

export interface Copy {
  format: string;
  label: string;
}

export const COPIES: Copy[] = [
  { format: 'curl', label: 'curl' },
  { format: 'fetch', label: 'fetch (JavaScript)' },
  { format: 'python', label: 'Python requests' },
  { format: 'httpie', label: 'HTTPie' },
  { format: 'har', label: 'HAR' },
  { format: 'raw', label: 'raw HTTP' },
];

export async function copyAs(id: string, format: string): Promise<void> {
  const response = await ask(url(`/flows/${id}/export`, { format }));
  await copy(await response.text());
  app.notify(`Copied as ${COPIES.find((c) => c.format === format)?.label ?? format}`);
}

/** Downloads the selected flows as one file. */
export async function saveChosen(ids: string[], format: ExportFormat): Promise<void> {
  const response = await ask(url('/export'), {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ids, format }),
  });
  download(await response.blob(), `flows.${EXPORTS.find((e) => e.format === format)?.extension ?? format}`);
}

/** Export URL of all flows that match a query. */
export function archiveOf(query: string, format: ExportFormat): string {
  return url('/export', { query, format });
}

/** Deletes what a query selects, or everything, except for flows that are still open. */
export async function clearMatching(query: string): Promise<void> {
  const { pruned } = await send('POST', '/flows/prune', query ? { query } : { all: true });
  app.notify(`${count(pruned)} deleted`);
}

/** Imports a file in any format that can be read, which the server recognises by its content. */
export async function importFile(file: File): Promise<void> {
  const response = await ask(url('/import'), { method: 'POST', headers: { 'content-type': 'application/octet-stream' }, body: file });
  const { imported, present, skipped, reasons } = (await response.json()) as ImportResult;
  const rest = [...(present > 0 ? [`${count(present)} were recorded already`] : []), ...(skipped > 0 ? [`${count(skipped)} could not be read${reasons[0] ? ` (${reasons[0]})` : ''}`] : [])];
  app.notify([`${count(imported)} flows imported from ${file.name}`, ...rest].join('; '), undefined, skipped > 0);
}

export async function replay(id: string, edited: ReplayInput, open: (id: string) => void): Promise<Replayed> {
  const done = await sendAs<Replayed>('POST', `/flows/${id}/replay`, edited);
  const action = { label: 'Show', run: () => open(done.id) };
  const left = done.omitted.length > 0 ? `; without ${done.omitted.join(', ')} (values not recorded)` : '';
  if (done.response) app.notify(`Sent again: ${done.response.status}${left}`, action);
  else app.notify(`Sent again, but failed: ${done.error?.message ?? 'no response'}${left}`, action, true);
  return done;
}

export async function erase(ids: string[]): Promise<void> {
  const { deleted } = await send('POST', '/flows/delete', { ids });
  const still = ids.length - deleted;
  app.notify(`${count(deleted)} deleted${still > 0 ? `; ${still} are still open or no longer exist` : ''}`);
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
