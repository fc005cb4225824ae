// The wire format of Protocol Buffers, and the frames of gRPC.

/** Wire types. Groups (3 and 4) are read over, not written. */
export const WIRE = { varint: 0, fixed64: 1, bytes: 2, fixed32: 5 } as const;

export interface WireField {
  number: number;
  wire: number;
  /** Of a varint. */
  value: bigint;
  /** Of everything else; of a group, its fields. */
  bytes: Uint8Array;
}

export class WireError extends Error {}

/** Reads the fields of a message. */
export function readFields(bytes: Uint8Array): WireField[] {
  const fields: WireField[] = [];
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = bytes[at];
      if (byte === undefined) throw new WireError(`the message ends in the middle of a number, at byte ${at}`);
      at += 1;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asUintN(64, value);
    }
    throw new WireError(`byte ${at}: a number is too long`);
  };
  const take = (length: number): Uint8Array => {
    if (length > bytes.length - at) throw new WireError(`the message ends in the middle of a field, at byte ${bytes.length}`);
    at += length;
    return bytes.subarray(at - length, at);
  };
  /** The fields up to the end of a group, whose nested groups are counted rather than called. */
  const group = (number: number): Uint8Array => {
    const from = at;
    const open = [number];
    for (;;) {
      const before = at;
      const tag = Number(varint());
      const inner = tag >>> 3;
      if ((tag & 7) === 3) open.push(inner);
      else if ((tag & 7) === 4) {
        if (open.pop() !== inner) throw new WireError(`byte ${before}: the end of another group`);
        if (open.length === 0) return bytes.subarray(from, before);
      } else skip(tag & 7);
    }
  };
  const skip = (wire: number): void => {
    if (wire === WIRE.varint) varint();
    else if (wire === WIRE.bytes) take(Number(varint()));
    else if (wire === WIRE.fixed64) take(8);
    else if (wire === WIRE.fixed32) take(4);
    else throw new WireError(`byte ${at}: wire type ${wire} does not exist`);
  };
  while (at < bytes.length) {
    const tag = varint();
    const [number, wire] = [Number(tag >> 3n), Number(tag & 7n)];
    if (number === 0 || number > 0x1fff_ffff) throw new WireError(`byte ${at}: ${number} is not a field number`);
    if (wire === WIRE.varint) fields.push({ number, wire, value: varint(), bytes: bytes.subarray(at, at) });
    else if (wire === 3) fields.push({ number, wire, value: 0n, bytes: group(number) });
    else {
      const length = wire === WIRE.bytes ? Number(varint()) : wire === WIRE.fixed64 ? 8 : wire === WIRE.fixed32 ? 4 : -1;
      if (length < 0) throw new WireError(`byte ${at}: wire type ${wire} does not exist`);
      fields.push({ number, wire, value: 0n, bytes: take(length) });
    }
  }
  return fields;
}

export function varintBytes(value: bigint): Uint8Array {
  const out: number[] = [];
  let rest = BigInt.asUintN(64, value);
  do {
    out.push(Number(rest & 0x7fn) | (rest > 0x7fn ? 0x80 : 0));
    rest >>= 7n;
  } while (rest > 0n);
  return Uint8Array.from(out);
}

export function joined(parts: Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((sum, p) => sum + p.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** A field with its tag; the payload of `WIRE.bytes` gets its length. */
export function field(number: number, wire: number, payload: Uint8Array): Uint8Array {
  const tag = varintBytes((BigInt(number) << 3n) | BigInt(wire));
  return wire === WIRE.bytes ? joined([tag, varintBytes(BigInt(payload.length)), payload]) : joined([tag, payload]);
}

/** Little-endian numbers of four and eight bytes. */
export function fixed(length: 4 | 8, write: (view: DataView) => void): Uint8Array {
  const out = new Uint8Array(length);
  write(new DataView(out.buffer));
  return out;
}

export const viewOf = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** The bytes of `00 ff` or `0x00ff`; throws if it is not hex. */
export function bytesOfHex(text: string): Uint8Array {
  const digits = text.replace(/^\s*0x|[\s,]/gi, '');
  if (!/^([0-9a-f]{2})*$/i.test(digits)) throw new Error('These are not bytes in hex: write two digits for each, such as 00 ff');
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

export const hexOf = (bytes: Uint8Array) => [...bytes].map((b) => b.toString(16).padStart(2, '0')).join('');

/** Messages in the frames of gRPC, uncompressed. */
export function framed(messages: Uint8Array[]): Uint8Array {
  return joined(messages.flatMap((message) => [fixedHead(message.length), message]));
}

function fixedHead(length: number): Uint8Array {
  const head = new Uint8Array(5);
  viewOf(head).setUint32(1, length);
  return head;
}

/** The messages of a gRPC body; null if one is compressed, or it is not framed. An incomplete last one is left out. */
export function unframed(body: Uint8Array): Uint8Array[] | null {
  const messages: Uint8Array[] = [];
  for (let at = 0; body.length - at >= 5;) {
    if (body[at] !== 0) return null;
    const length = viewOf(body).getUint32(at + 1);
    if (length > body.length - at - 5) break;
    messages.push(body.subarray(at + 5, at + 5 + length));
    at += 5 + length;
  }
  return messages;
}
