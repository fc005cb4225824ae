// Composed WebSockets, which the instance opens; their messages are in the recording.
import { ApiError, ask, remove, sendAs, url as addressOf } from '../lib/api';
import type { ComposeResult } from '../lib/api.gen';
import { toBase64 } from '../lib/base64';
import type { Flow } from '../lib/types';
import { flowOf } from '../traffic/actions';
import { expandAll, type ComposedRequest, type Variable } from './http';
import { bytesOfHex } from './wire';

/** Whether messages can be sent. */
export const isOpen = (flow: Flow) => flow.kind === 'websocket' && flow.state === 'open' && flow.response?.status === 101;

/** Opens a WebSocket; returns its flow, which may have another response. */
export async function openSocket(sent: { url: string; headers: [string, string][] }, saved: ComposedRequest, signal: AbortSignal): Promise<{ flow: Flow; error: string }> {
  const done = await sendAs<ComposeResult>('POST', '/compose/websocket', { url: sent.url, headers: sent.headers, saved }, {}, signal);
  return { flow: await flowOf(done.id), error: done.error?.message ?? '' };
}

/** Sends a message, with its variables replaced. */
export async function sendMessage(id: string, text: string, isBinary: boolean, variables: Variable[]): Promise<void> {
  const written = expandAll(variables, (value) => value(text));
  const message = isBinary ? { base64: toBase64(bytesOfHex(written)) } : written;
  await ask(addressOf(`/compose/websocket/${id}`), { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ message }) });
}

/** Closes a WebSocket, unless it has ended meanwhile. */
export async function closeSocket(id: string): Promise<void> {
  try {
    await remove(`/compose/websocket/${id}`);
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 404)) throw error;
  }
}
