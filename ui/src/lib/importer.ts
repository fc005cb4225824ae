// Uploads archives of flows.
import { ApiError, errorMessage, url } from './api';
import type { ApiErrorBody } from './types';

export interface Imported {
  imported: number;
  present: number;
  skipped: number;
  reasons: string[];
}

/** The formats for people. */
export const IMPORTED = 'HAR, session files (JSONL), SAZ, Fluxzy and mitmproxy';

/** Whether a file may be an archive; files without an extension may be mitmproxy's. The server looks at the content. */
export function isArchive(name: string): boolean {
  return !name.includes('.') || /\.(z?har|jsonl|ndjson|saz|fxzy|fzy|fluxzy|mitm|flows?|dump|json|gz)$/i.test(name);
}

/** Whether a file has requests to compose. */
export const isHttpFile = (name: string) => /\.(http|rest)$/i.test(name);

/** Sends a file, reporting the bytes sent; `fetch` would not report them. */
export function upload(file: File, signal: AbortSignal, progress: (sent: number) => void): Promise<Imported> {
  return new Promise((done, fail) => {
    const request = new XMLHttpRequest();
    request.open('POST', url('/import'));
    request.responseType = 'json';
    request.upload.onprogress = (event) => progress(event.loaded);
    request.onload = () => {
      const answer = request.response as (Imported & { error?: ApiErrorBody }) | null;
      if (request.status === 200 && answer) done(answer);
      else fail(new ApiError(request.status, answer?.error ?? { kind: 'http', message: `the server answered ${request.status}` }));
    };
    request.onerror = () => fail(new ApiError(0, { kind: 'offline', message: 'the upload was interrupted' }));
    request.onabort = () => fail(new Error('Import stopped; the flows stored so far are kept'));
    signal.addEventListener('abort', () => request.abort());
    request.send(file);
  });
}

/** The message of a failed import, with what was stored before it. */
export function failureOf(error: unknown): string {
  const stored = error instanceof ApiError ? (error.body.imported ?? 0) : 0;
  return `Import failed: ${errorMessage(error)}${stored > 0 ? `. ${stored} flows before the error were imported` : ''}`;
}
