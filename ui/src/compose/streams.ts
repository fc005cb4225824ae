// Composed WebSockets and gRPC calls, which the instance opens; their messages are in the recording.
import { ApiError, ask, remove, sendAs, url as addressOf } from '../lib/api';
import type { ComposeResult } from '../lib/api.gen';
import { toBase64 } from '../lib/base64';
import { field, mediaType } from '../lib/format';
import type { Flow } from '../lib/types';
import { flowOf } from '../traffic/actions';
import { messagesOf } from './grpc';
import { expandAll, type ComposedRequest, type Variable } from './http';
import type { Schema } from './protoSchema';
import { bytesOfHex } from './wire';

export const isGrpc = (flow: Flow) => /^application\/grpc($|\+)/.test(mediaType(field(flow.request?.headers ?? [], 'content-type')));

/** Whether messages can still come. */
export const isOpen = (flow: Flow) => flow.state === 'open' && (flow.kind === 'websocket' ? flow.response?.status === 101 : isGrpc(flow));

const path = (flow: Flow) => `/compose/${flow.kind === 'websocket' ? 'websocket' : 'grpc'}/${flow.id}`;

/** Opens a WebSocket or gRPC call; returns its flow. */
export async function openStream(kind: 'websocket' | 'grpc', sent: { url: string; headers: [string, string][] }, saved: ComposedRequest, signal: AbortSignal): Promise<{ flow: Flow; error: string }> {
  const done = await sendAs<ComposeResult>('POST', `/compose/${kind}`, { url: sent.url, headers: sent.headers, saved }, {}, signal);
  return { flow: await flowOf(done.id), error: done.error?.message ?? '' };
}

const post = (flow: Flow, body: unknown) =>
  ask(addressOf(path(flow)), { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });

/** Sends a message over a WebSocket, with its variables replaced. */
export async function sendMessage(flow: Flow, text: string, isBinary: boolean, variables: Variable[]): Promise<void> {
  const written = expandAll(variables, (value) => value(text));
  await post(flow, { message: isBinary ? { base64: toBase64(bytesOfHex(written)) } : written });
}

/** Sends messages of a gRPC call; `end` says that no more follow. */
export async function sendMessages(flow: Flow, messages: Uint8Array[], end: boolean): Promise<void> {
  await post(flow, { messages: messages.map((bytes) => ({ base64: toBase64(bytes) })), end });
}

/** Sends what was written to a gRPC call, with its variables replaced. */
export async function sendWritten(flow: Flow, text: string, schema: Schema, method: string, variables: Variable[]): Promise<void> {
  await sendMessages(flow, messagesOf(expandAll(variables, (value) => value(text)), schema, method), false);
}

/** Closes a WebSocket or cancels a call, unless it has ended meanwhile. */
export async function closeStream(flow: Flow): Promise<void> {
  try {
    await remove(path(flow));
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 404)) throw error;
  }
}
