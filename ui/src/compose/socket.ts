// Composed WebSockets, which the instance opens; their messages are in the recording.
import { ask, remove, sendAs, url as addressOf } from '../lib/api';
import type { Flow } from '../lib/types';
import { flowOf } from '../traffic/actions';
import { expand, type ComposedRequest, type Variable } from './http';
import { bytesOfHex, toBase64 } from './wire';

interface Sent {
  id: string;
  error?: { message: string };
}

/** Whether messages can be sent. */
export const isOpen = (flow: Flow) => flow.kind === 'websocket' && flow.state === 'open' && flow.response?.status === 101;

/** Opens a WebSocket; returns its flow, which may have another response. */
export async function openSocket(sent: { url: string; headers: [string, string][] }, saved: ComposedRequest, signal: AbortSignal): Promise<{ flow: Flow; error: string }> {
  const done = await sendAs<Sent>('POST', '/compose/websocket', { url: sent.url, headers: sent.headers, saved }, {}, signal);
  return { flow: await flowOf(done.id), error: done.error?.message ?? '' };
}

/** Sends a message, with its variables replaced. */
export async function sendMessage(id: string, text: string, isBinary: boolean, variables: Variable[]): Promise<void> {
  const missing = new Set<string>();
  const written = expand(text, variables, missing);
  if (missing.size > 0) throw new Error(`no value for ${[...missing].map((n) => `{{${n}}}`).join(', ')}: add it to the variables`);
  const message = isBinary ? { base64: toBase64(bytesOfHex(written)) } : written;
  await ask(addressOf(`/compose/websocket/${id}`), { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ message }) });
}

export const closeSocket = (id: string) => remove(`/compose/websocket/${id}`);
