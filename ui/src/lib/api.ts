// Client of the admin API: JSON requests, with errors as `ApiError`.
import type { ApiCalls } from './api.gen';
import type { ApiErrorBody } from './types';

const ROOT = '/api/v1';

/** An error response, or a network failure (status 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly body: ApiErrorBody,
  ) {
    super(body.message);
  }

  /** The server refused the text itself, for its size or its nesting: an error of the text without a position. */
  get refusesText(): boolean {
    return this.status === 413 || this.status === 422;
  }

  /** Message and remedy in one sentence. */
  get words(): string {
    return this.body.remedy ? `${this.body.message}: ${this.body.remedy}` : this.body.message;
  }
}

/** The message of anything that was thrown. */
export function errorMessage(error: unknown): string {
  if (error instanceof ApiError) return error.words;
  return error instanceof Error ? error.message : String(error);
}

/** The URL of an API path; undefined parameters are omitted. */
export function url(path: string, params: Record<string, string | number | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined) search.set(name, String(value));
  }
  const text = search.toString();
  return ROOT + path + (text ? `?${text}` : '');
}

async function failure(response: Response): Promise<ApiError> {
  try {
    const body = (await response.json()) as { error: ApiErrorBody };
    if (typeof body.error.message === 'string') return new ApiError(response.status, body.error);
  } catch {
    // Not JSON: only the status is known.
  }
  return new ApiError(response.status, { kind: 'http', message: `the server answered ${response.status}` });
}

/** Sends a request; error responses throw `ApiError`. */
export async function ask(address: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(address, { ...init, keepalive: isLeaving });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(0, { kind: 'offline', message: 'Interflow cannot be reached' });
  }
  if (!response.ok) {
    const error = await failure(response);
    // The session has expired: the server now serves its login page.
    if (error.body.kind === 'no_token') location.reload();
    throw error;
  }
  return response;
}

/** Whether the page is being left: what is sent now outlives it. */
let isLeaving = false;
globalThis.addEventListener?.('pagehide', () => (isLeaving = true));
globalThis.addEventListener?.('pageshow', () => (isLeaving = false));

type Params = Record<string, string | number | undefined>;
type Method = 'POST' | 'PUT' | 'PATCH';
/** The paths without parameters that a method exists for. */
type PathOf<M extends string, Call = keyof ApiCalls> = Call extends `${M} ${infer Path}` ? Path : never;
type CallOf<M extends string, Path extends string> = ApiCalls[`${M} ${Path}` & keyof ApiCalls];

/** Requests JSON; the type of the response follows from the path. */
export function get<P extends PathOf<'GET'>>(path: P, params?: Params, signal?: AbortSignal): Promise<CallOf<'GET', P>['response']> {
  return getAs(path, params, signal);
}

/** Requests JSON from a path with parameters in it. */
export async function getAs<T>(path: string, params: Params = {}, signal?: AbortSignal): Promise<T> {
  const response = await ask(url(path, params), signal ? { signal } : {});
  return (await response.json()) as T;
}

/** Sends JSON; the types of both bodies follow from the path. */
export function send<M extends Method, P extends PathOf<M>>(
  method: M, path: P, body: CallOf<M, P>['request'], params?: Params,
): Promise<CallOf<M, P>['response']> {
  return sendAs(method, path, body, params);
}

/** Sends JSON to a path with parameters in it. */
export async function sendAs<T>(method: Method, path: string, body: unknown, params: Params = {}, signal?: AbortSignal): Promise<T> {
  const headers = { 'content-type': 'application/json' };
  const response = await ask(url(path, params), { method, headers, body: JSON.stringify(body), ...(signal ? { signal } : {}) });
  return (await response.json()) as T;
}

export async function remove(path: string): Promise<void> {
  await ask(url(path), { method: 'DELETE' });
}
