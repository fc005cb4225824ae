// A gRPC server over HTTP/2 without TLS, which describes its service by reflection; and the echo of a WebSocket.
import { createServer, type Http2Server, type ServerHttp2Stream } from 'node:http2';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { TYPE } from '../src/compose/protoSchema';
import { field, framed, joined, readFields, unframed, varintBytes, WIRE } from '../src/compose/wire';

const text = (number: number, content: string | Uint8Array) => field(number, WIRE.bytes, typeof content === 'string' ? new TextEncoder().encode(content) : content);
const count = (number: number, value: number) => field(number, WIRE.varint, varintBytes(BigInt(value)));
const member = (name: string, number: number, type: number, typeName = '') =>
  text(2, joined([text(1, name), count(3, number), count(4, 1), count(5, type), ...(typeName ? [text(6, typeName)] : [])]));

/** `service Shop { rpc Buy(Order) returns (Receipt); rpc Watch(Order) returns (stream Receipt); rpc Trade(stream Order) returns (stream Receipt); }` */
const SHOP = joined([
  text(1, 'shop.proto'), text(2, 'shop.v1'),
  text(4, joined([text(1, 'Order'), member('order_id', 1, TYPE.string), member('state', 2, TYPE.enum, '.shop.v1.State')])),
  text(4, joined([text(1, 'Receipt'), member('order_id', 1, TYPE.string), member('total', 2, TYPE.int64)])),
  text(5, joined([text(1, 'State'), text(2, joined([text(1, 'OPEN'), count(2, 0)])), text(2, joined([text(1, 'PAID'), count(2, 1)]))])),
  text(6, joined([
    text(1, 'Shop'),
    text(2, joined([text(1, 'Buy'), text(2, '.shop.v1.Order'), text(3, '.shop.v1.Receipt')])),
    text(2, joined([text(1, 'Watch'), text(2, '.shop.v1.Order'), text(3, '.shop.v1.Receipt'), count(6, 1)])),
    text(2, joined([text(1, 'Trade'), text(2, '.shop.v1.Order'), text(3, '.shop.v1.Receipt'), count(5, 1), count(6, 1)])),
  ])),
]);

/** Only the older version of reflection is served, as many servers do. */
function reflection(requests: Uint8Array[]): Uint8Array[] {
  return requests.map((request) => {
    const asks = (number: number) => readFields(request).some((f) => f.number === number);
    return asks(7) ? text(6, text(1, text(1, 'shop.v1.Shop'))) : text(4, text(1, SHOP));
  });
}

const receipt = (order: Uint8Array, total: number) => joined([...readFields(order).filter((f) => f.number === 1).map((f) => text(1, f.bytes)), count(2, total)]);

function answer(stream: ServerHttp2Stream, path: string, messages: Uint8Array[]): void {
  const [order = new Uint8Array()] = messages;
  const id = new TextDecoder().decode(readFields(order).find((f) => f.number === 1)?.bytes);
  const replies: Record<string, () => Uint8Array[]> = {
    '/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo': () => reflection(messages),
    '/shop.v1.Shop/Buy': () => [receipt(order, 1250)],
    '/shop.v1.Shop/Watch': () => [receipt(order, 1), receipt(order, 2), receipt(order, 3)],
  };
  const found = id === 'missing' ? undefined : replies[path];
  const status = found ? { 'grpc-status': '0' } : id === 'missing' ? { 'grpc-status': '5', 'grpc-message': 'no%20such%20order' } : { 'grpc-status': '12' };
  stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
  stream.on('wantTrailers', () => stream.sendTrailers(status));
  stream.end(framed(found?.() ?? []));
}

/** Answers each message as it arrives, and begins its response with the first. */
function trade(stream: ServerHttp2Stream): void {
  let rest = Buffer.alloc(0);
  let orders = 0;
  stream.on('data', (part: Buffer) => {
    rest = Buffer.concat([rest, part]);
    while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
      const end = 5 + rest.readUInt32BE(1);
      if (orders === 0) {
        stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
        stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
      }
      stream.write(framed([receipt(new Uint8Array(rest.subarray(5, end)), (orders += 1))]));
      rest = rest.subarray(end);
    }
  });
  stream.on('end', () => stream.end());
}

export async function startRpc(): Promise<{ server: Http2Server; address: string }> {
  const server = createServer();
  server.on('stream', (stream, headers) => {
    stream.on('error', () => undefined);
    if (headers[':path'] === '/shop.v1.Shop/Trade') return trade(stream);
    const parts: Buffer[] = [];
    stream.on('data', (part: Buffer) => parts.push(part));
    stream.on('end', () => answer(stream, String(headers[':path']), unframed(new Uint8Array(Buffer.concat(parts))) ?? []));
  });
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
  return { server, address: `127.0.0.1:${(server.address() as AddressInfo).port}` };
}

/** Returns every short message of a WebSocket, unmasked, until one closes it. */
export function echo(socket: Duplex): void {
  let rest = Buffer.alloc(0);
  socket.on('data', (part: Buffer) => {
    rest = Buffer.concat([rest, part]);
    while (rest.length >= 6 && rest.length >= 6 + (rest[1]! & 0x7f)) {
      const length = rest[1]! & 0x7f;
      const payload = Buffer.from(rest.subarray(6, 6 + length).map((b, i) => b ^ rest[2 + (i % 4)]!));
      socket.write(Buffer.concat([Buffer.from([rest[0]!, length]), payload]));
      if ((rest[0]! & 0x0f) === 8) socket.end();
      rest = rest.subarray(6 + length);
    }
  });
  socket.on('error', () => undefined);
}
