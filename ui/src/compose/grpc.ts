// The parts of a gRPC call: its address, its messages as JSON, and its status.
import { text as textOf } from '../lib/format';
import type { Flow } from '../lib/types';
import { encodeByNumber, ProtoCodec } from './protoJson';
import type { Schema } from './protoSchema';
import { bytesOfHex, hexOf } from './wire';

/** A URL as the address of the server and the path of the method: `/package.Service/Method`. */
export function partsOfCall(url: string): { base: string; path: string } {
  const found = /^((?:[a-z][a-z0-9+.-]*:\/\/)?[^/]*)(\/.*)?$/i.exec(url.trim());
  const path = found?.[2] ?? '';
  const [, prefix = '', method = ''] = /^(.*?)(\/[^/]+\/[^/]+)$/.exec(path.replace(/\/$/, '')) ?? [];
  return { base: `${found?.[1] ?? ''}${method ? prefix : path.replace(/\/$/, '')}`, path: method };
}

/** The messages that a text stands for: an object is one, an array several, `0x…` and the texts in an array are bytes. */
export function messagesOf(text: string, schema: Schema, path: string): Uint8Array[] {
  const written = text.trim();
  if (written.startsWith('0x')) return [bytesOfHex(written)];
  const value = JSON.parse(written || '{}') as unknown;
  const method = schema.method(path);
  const codec = new ProtoCodec(schema);
  const list = (Array.isArray(value) ? value : [value]) as never[];
  return list.map((message: never, i) => {
    const where = Array.isArray(value) ? `[${i}]` : '';
    if (typeof message === 'string') return bytesOfHex(message);
    return method ? codec.encode(method.input, message, where) : encodeByNumber(message, where);
  });
}

/** The text that stands for recorded messages. */
export function textOfMessages(messages: Uint8Array[]): string {
  const texts = messages.map((bytes) => `0x${hexOf(bytes)}`);
  return texts.length === 1 ? texts[0]! : JSON.stringify(texts, null, 2);
}

/** Names of gRPC's status codes, by number. */
export const CODES = [
  'OK', 'CANCELLED', 'UNKNOWN', 'INVALID_ARGUMENT', 'DEADLINE_EXCEEDED', 'NOT_FOUND', 'ALREADY_EXISTS', 'PERMISSION_DENIED', 'RESOURCE_EXHAUSTED',
  'FAILED_PRECONDITION', 'ABORTED', 'OUT_OF_RANGE', 'UNIMPLEMENTED', 'INTERNAL', 'UNAVAILABLE', 'DATA_LOSS', 'UNAUTHENTICATED',
];

/** The status of a call, from the trailers or, if there is nothing else, from the header fields; null without one. */
export function statusOf(flow: Flow): { code: number; message: string } | null {
  const fields = [...(flow.response?.trailers ?? []), ...(flow.response?.headers ?? [])];
  const value = (name: string) => fields.find(([n]) => textOf(n).toLowerCase() === name);
  const code = value('grpc-status');
  if (!code) return null;
  const said = textOf(value('grpc-message')?.[1] ?? '');
  let message = said;
  try {
    message = decodeURIComponent(said);
  } catch {
    // Not encoded: as it came.
  }
  return { code: Number(textOf(code[1])), message };
}
