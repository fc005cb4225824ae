// Finds schemas of gRPC: by server reflection, in files or in the settings.
import { ask, get, send, sendAs, url as addressOf } from '../lib/api';
import type { ComposeResult } from '../lib/api.gen';
import { fromBase64, toBase64 } from '../lib/base64';
import type { Flow, Side } from '../lib/types';
import { flowOf } from '../traffic/actions';
import { CODES, statusOf } from './grpc';
import type { Schema } from './protoSchema';
import { field, framed, readFields, unframed, WIRE } from './wire';

/** Largest response that is decoded here, in bytes. */
const MAX_BODY = 8 << 20;
/** Times that files which are imported are asked for. */
const MAX_ROUNDS = 8;

/** Sends messages to a method; returns once the response has ended. */
async function call(target: string, headers: [string, string][], messages: Uint8Array[], signal?: AbortSignal): Promise<{ flow: Flow; error: string }> {
  const own = headers.filter(([n]) => !/^(content-type|te)$/i.test(n));
  const body = { base64: toBase64(framed(messages)) };
  const fields = [['Content-Type', 'application/grpc'], ['TE', 'trailers'], ...own];
  const done = await sendAs<ComposeResult>('POST', '/compose', { method: 'POST', url: target, headers: fields, body }, {}, signal);
  return { flow: await flowOf(done.id), error: done.error?.message ?? '' };
}

/** The messages of a recorded side; null if they cannot be read here. */
export async function recordedMessages(flow: Flow, side: Side = 'response'): Promise<Uint8Array[] | null> {
  const body = flow[side]?.body;
  if (!body || body.kept === 0) return [];
  if (body.kept > MAX_BODY) return null;
  const response = await ask(addressOf(`/flows/${flow.id}/${side}/body`, { view: 'raw' }));
  return unframed(new Uint8Array(await response.arrayBuffer()));
}

const REFLECTION = ['v1', 'v1alpha'].map((version) => `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`);
/** Fields of `ServerReflectionRequest`. */
const ASK = { file: 3, symbol: 4, services: 7 };

/** Adds what a server says of its services (gRPC server reflection) to a schema. */
export async function reflect(base: string, headers: [string, string][], schema: Schema, signal?: AbortSignal): Promise<void> {
  let failure = '';
  for (const path of REFLECTION) {
    const exchange = async (requests: [number, string][]): Promise<Uint8Array[]> => {
      const messages = requests.map(([number, name]) => field(number, WIRE.bytes, new TextEncoder().encode(name)));
      const { flow, error } = await call(base + path, headers, messages, signal);
      if (error) throw new Error(error);
      const status = statusOf(flow);
      const answers = await recordedMessages(flow);
      if (status?.code !== 0 || !answers) throw new Error(reasonOf(flow, status));
      return answers;
    };
    try {
      const names = (await exchange([[ASK.services, '*']])).flatMap(servicesIn).filter((name) => !name.startsWith('grpc.reflection.'));
      if (names.length > 0) addFiles(schema, await exchange(names.map((name): [number, string] => [ASK.symbol, name])));
      for (let round = 0; round < MAX_ROUNDS && schema.missing.length > 0; round += 1) {
        addFiles(schema, await exchange(schema.missing.map((name): [number, string] => [ASK.file, name])));
      }
      return;
    } catch (error) {
      if (signal?.aborted) throw error;
      failure ||= error instanceof Error ? error.message : String(error);
    }
  }
  throw new Error(`The server does not describe its services by reflection: ${failure}`);
}

function reasonOf(flow: Flow, status: ReturnType<typeof statusOf>): string {
  if (status) return `${CODES[status.code] ?? status.code}${status.message ? `, ${status.message}` : ''}`;
  return flow.response ? `it answered ${flow.response.status} without a gRPC status` : 'no response';
}

/** The services in a `ServerReflectionResponse`. */
function servicesIn(answer: Uint8Array): string[] {
  const list = readFields(answer).filter((f) => f.number === 6).flatMap((f) => readFields(f.bytes));
  return list.filter((f) => f.number === 1).map((f) => new TextDecoder().decode(readFields(f.bytes).find((n) => n.number === 1)?.bytes));
}

/** Adds the files in the `file_descriptor_response` of each answer. */
function addFiles(schema: Schema, answers: Uint8Array[]): void {
  for (const answer of answers) {
    for (const part of readFields(answer)) {
      if (part.number === 4) readFields(part.bytes).filter((f) => f.number === 1).forEach((f) => schema.addFile(f.bytes));
    }
  }
}

/** Adds the schemas of the settings (`record.schemas`). */
export async function addConfigured(schema: Schema): Promise<void> {
  const { descriptor_sets } = await get('/compose/schemas');
  descriptor_sets.forEach((set) => schema.addSet(fromBase64(set)));
}

/** Adds `.proto` files, which the instance compiles, and descriptor sets. */
export async function addFileList(schema: Schema, files: File[]): Promise<void> {
  const sources = files.filter((f) => f.name.endsWith('.proto'));
  if (sources.length > 0) {
    const texts = await Promise.all(sources.map(async (f): Promise<[string, string]> => [f.name, await f.text()]));
    const { descriptor_sets } = await send('POST', '/compose/schemas', { files: texts });
    descriptor_sets.forEach((set) => schema.addSet(fromBase64(set)));
  }
  for (const f of files.filter((other) => !sources.includes(other))) schema.addSet(new Uint8Array(await f.arrayBuffer()));
}
