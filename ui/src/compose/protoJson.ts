// Messages of Protocol Buffers as JSON: by a schema as ProtoJSON has them, or by the numbers of their fields.
import { fromBase64, toBase64 } from '../lib/base64';
import { TYPE, type FieldType, type MessageType, type Schema } from './protoSchema';
import { field, fixed, hexOf, joined, readFields, varintBytes, viewOf, WIRE, type WireField } from './wire';

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
type Fields = { [name: string]: Json };

/** How deep messages may be nested. */
const MAX_DEPTH = 64;

const utf8 = (text: string) => new TextEncoder().encode(text);
const isObject = (value: Json | undefined): value is Fields => typeof value === 'object' && value !== null && !Array.isArray(value);
const WRAPPERS = /^google\.protobuf\.(Double|Float|U?Int(32|64)|Bool|String|Bytes)Value$/;

/** Types of 32 bits, and those without a sign. */
const SHORT: number[] = [TYPE.int32, TYPE.uint32, TYPE.sint32, TYPE.fixed32, TYPE.sfixed32, TYPE.enum];
const UNSIGNED: number[] = [TYPE.uint32, TYPE.uint64, TYPE.fixed32, TYPE.fixed64];

/** An integer of a type; in JSON, large ones are texts. */
function integer(type: number, value: Json, where: string): bigint {
  const number = integerOf(value, where);
  const bits = SHORT.includes(type) ? 32 : 64;
  const isUnsigned = UNSIGNED.includes(type);
  if ((isUnsigned ? BigInt.asUintN(bits, number) : BigInt.asIntN(bits, number)) === number) return number;
  const end = 2n ** BigInt(isUnsigned ? bits : bits - 1);
  const name = Object.entries(TYPE).find(([, t]) => t === type)?.[0] ?? '';
  throw new Error(`${where}: ${number} is out of range: ${name} has ${isUnsigned ? 0n : -end} to ${end - 1n}`);
}

function integerOf(value: Json, where: string): bigint {
  if (typeof value === 'number' && Number.isSafeInteger(value)) return BigInt(value);
  if (typeof value === 'string' && /^-?\d{1,20}$/.test(value)) return BigInt(value);
  throw new Error(typeof value === 'number' && Number.isInteger(value) ? `${where}: write this number as a text, "${value}": JSON rounds it` : `${where}: ${JSON.stringify(value)} is not an integer`);
}

function float(value: Json, where: string): number {
  const number = typeof value === 'string' && /^(NaN|-?Infinity)$/.test(value) ? Number(value) : value;
  if (typeof number !== 'number') throw new Error(`${where}: ${JSON.stringify(value)} is not a number`);
  return number;
}

/** The wire type and the payload of a scalar value. */
function scalar(type: number, value: Json, where: string): [number, Uint8Array] {
  const zigzag = (n: bigint) => (n << 1n) ^ (n >> 63n);
  switch (type) {
    case TYPE.double: return [WIRE.fixed64, fixed(8, (v) => v.setFloat64(0, float(value, where), true))];
    case TYPE.float: return [WIRE.fixed32, fixed(4, (v) => v.setFloat32(0, float(value, where), true))];
    case TYPE.int32: case TYPE.int64: case TYPE.uint32: case TYPE.uint64: return [WIRE.varint, varintBytes(integer(type, value, where))];
    case TYPE.sint32: case TYPE.sint64: return [WIRE.varint, varintBytes(zigzag(integer(type, value, where)))];
    case TYPE.fixed64: case TYPE.sfixed64: return [WIRE.fixed64, fixed(8, (v) => v.setBigInt64(0, BigInt.asIntN(64, integer(type, value, where)), true))];
    case TYPE.fixed32: case TYPE.sfixed32: return [WIRE.fixed32, fixed(4, (v) => v.setInt32(0, Number(BigInt.asIntN(32, integer(type, value, where))), true))];
    case TYPE.bool:
      if (typeof value !== 'boolean') throw new Error(`${where}: ${JSON.stringify(value)} is neither true nor false`);
      return [WIRE.varint, varintBytes(value ? 1n : 0n)];
    case TYPE.bytes:
      if (typeof value !== 'string') throw new Error(`${where}: bytes are written as base64`);
      try {
        return [WIRE.bytes, fromBase64(value)];
      } catch {
        throw new Error(`${where}: ${JSON.stringify(value)} is not base64`);
      }
    case TYPE.string:
      if (typeof value !== 'string') throw new Error(`${where}: ${JSON.stringify(value)} is not a text`);
      return [WIRE.bytes, utf8(value)];
    default: throw new Error(`${where}: fields of this type cannot be written`);
  }
}

export class ProtoCodec {
  constructor(private readonly schema: Schema) {}

  /** A message of a type. */
  encode(type: string, value: Json, where = '', depth = 0): Uint8Array {
    const message = this.message(type);
    if (depth > MAX_DEPTH) throw new Error(`${where}: nested too deep`);
    const encoded = this.wellKnown(type, value, where, depth);
    if (encoded) return encoded;
    if (!isObject(value)) throw new Error(`${where || type}: ${JSON.stringify(value)} is not an object`);
    return joined(Object.entries(value).map(([name, content]) => {
      const descriptor = message.fields.find((f) => f.jsonName === name || f.name === name);
      const path = where ? `${where}.${name}` : name;
      if (!descriptor) throw new Error(`${path}: ${type} has no such field; it has ${message.fields.map((f) => f.jsonName).join(', ') || 'none'}`);
      return content === null && descriptor.typeName !== 'google.protobuf.Value' ? new Uint8Array() : this.encodeField(descriptor, content, path, depth);
    }));
  }

  private encodeField(descriptor: FieldType, content: Json, where: string, depth: number): Uint8Array {
    const entry = descriptor.type === TYPE.message ? this.schema.messages.get(descriptor.typeName) : undefined;
    if (entry?.isMapEntry) {
      if (!isObject(content)) throw new Error(`${where}: a map is an object`);
      return joined(Object.entries(content).map(([key, value]) => field(descriptor.number, WIRE.bytes, this.encodeEntry(entry, key, value, `${where}.${key}`, depth))));
    }
    if (!descriptor.isRepeated) return this.encodeOne(descriptor, content, where, depth);
    if (!Array.isArray(content)) throw new Error(`${where}: a repeated field is an array`);
    return joined(content.map((item, i) => this.encodeOne(descriptor, item, `${where}[${i}]`, depth)));
  }

  private encodeEntry(entry: MessageType, key: string, value: Json, where: string, depth: number): Uint8Array {
    const [first, second] = [entry.fields.find((f) => f.number === 1), entry.fields.find((f) => f.number === 2)];
    if (!first || !second) throw new Error(`${where}: ${entry.name} is not a map`);
    const typed = first.type === TYPE.bool ? key === 'true' : key;
    return joined([this.encodeOne(first, typed, where, depth), this.encodeOne(second, value, where, depth)]);
  }

  private encodeOne(descriptor: FieldType, value: Json, where: string, depth: number): Uint8Array {
    if (descriptor.type === TYPE.message) return field(descriptor.number, WIRE.bytes, this.encode(descriptor.typeName, value, where, depth + 1));
    if (descriptor.type === TYPE.enum) {
      const named = typeof value === 'string' ? this.schema.enums.get(descriptor.typeName)?.get(value) : undefined;
      if (typeof value === 'string' && named === undefined) {
        throw new Error(`${where}: ${value} is not a value of ${descriptor.typeName}: ${[...(this.schema.enums.get(descriptor.typeName)?.keys() ?? [])].join(', ')}`);
      }
      return field(descriptor.number, WIRE.varint, varintBytes(named === undefined ? integer(descriptor.type, value, where) : BigInt(named)));
    }
    return field(descriptor.number, ...scalar(descriptor.type, value, where));
  }

  /** The types whose JSON is not that of their fields. */
  private wellKnown(type: string, value: Json, where: string, depth: number): Uint8Array | null {
    if (!type.startsWith('google.protobuf.')) return null;
    const own = (fields: Fields) => joined(Object.entries(fields).map(([name, content]) => this.encodeField(this.message(type).fields.find((f) => f.name === name)!, content, where, depth)));
    if (WRAPPERS.test(type) && !isObject(value)) return own({ value });
    if (type.endsWith('.Timestamp') && typeof value === 'string') {
      const at = Date.parse(value);
      if (Number.isNaN(at)) throw new Error(`${where}: ${JSON.stringify(value)} is not a time: write 2026-01-31T12:00:00Z`);
      const fraction = /\.(\d{1,9})/.exec(value)?.[1] ?? '';
      return own({ seconds: String(Math.floor(at / 1000)), nanos: Number(fraction.padEnd(9, '0')) });
    }
    if (type.endsWith('.Duration') && typeof value === 'string') {
      const [, sign, seconds, fraction = ''] = /^(-?)(\d+)(?:\.(\d{1,9}))?s$/.exec(value) ?? [];
      if (seconds === undefined) throw new Error(`${where}: ${JSON.stringify(value)} is not a duration: write 1.5s`);
      return own({ seconds: `${sign}${seconds}`, nanos: Number(`${sign}${fraction.padEnd(9, '0')}`) });
    }
    if (type.endsWith('.FieldMask') && typeof value === 'string') return own({ paths: value.split(',').filter(Boolean) });
    if (type.endsWith('.Struct') && isObject(value)) return own({ fields: value });
    if (type.endsWith('.ListValue') && Array.isArray(value)) return own({ values: value });
    if (type.endsWith('.Value')) {
      const name = value === null ? 'null_value' : typeof value === 'number' ? 'number_value' : typeof value === 'string' ? 'string_value'
        : typeof value === 'boolean' ? 'bool_value' : Array.isArray(value) ? 'list_value' : 'struct_value';
      return own({ [name]: value ?? 0 });
    }
    return null;
  }

  private message(type: string): MessageType {
    const found = this.schema.messages.get(type);
    if (!found) throw new Error(`the schema has no message ${type}`);
    return found;
  }

  /** The JSON of a message. Fields that the schema does not have are shown by number. */
  decode(type: string, bytes: Uint8Array, depth = 0): Json {
    const message = this.message(type);
    if (depth > MAX_DEPTH) return `0x${hexOf(bytes)}`;
    const out: Fields = {};
    for (const item of readFields(bytes)) {
      const descriptor = message.fields.find((f) => f.number === item.number);
      if (!descriptor) {
        out[String(item.number)] = item.wire === WIRE.varint ? String(item.value) : `0x${hexOf(item.bytes)}`;
        continue;
      }
      const entry = descriptor.type === TYPE.message ? this.schema.messages.get(descriptor.typeName) : undefined;
      if (entry?.isMapEntry) {
        const pair = this.decode(descriptor.typeName, item.bytes, depth + 1) as Fields;
        const map = (out[descriptor.jsonName] ??= {}) as Fields;
        map[String(pair['key'] ?? '')] = pair['value'] ?? zero(entry.fields.find((f) => f.number === 2));
      } else if (descriptor.isRepeated) {
        ((out[descriptor.jsonName] ??= []) as Json[]).push(...this.values(descriptor, item, depth));
      } else out[descriptor.jsonName] = this.values(descriptor, item, depth).at(-1) ?? null;
    }
    return wellKnownJson(type, out);
  }

  /** One value, or several of a packed field. */
  private values(descriptor: FieldType, item: WireField, depth: number): Json[] {
    const isPackable = ![TYPE.string, TYPE.bytes, TYPE.message, TYPE.group].includes(descriptor.type as never);
    if (item.wire !== WIRE.bytes || !isPackable) return [this.valueOf(descriptor, item, depth)];
    const size = descriptor.type === TYPE.double || descriptor.type === TYPE.fixed64 || descriptor.type === TYPE.sfixed64 ? 8
      : descriptor.type === TYPE.float || descriptor.type === TYPE.fixed32 || descriptor.type === TYPE.sfixed32 ? 4 : 0;
    const values: Json[] = [];
    for (let at = 0; at < item.bytes.length;) {
      let end = at + size;
      if (size === 0) for (end = at + 1; end < item.bytes.length && item.bytes[end - 1]! >= 0x80;) end += 1;
      const part = item.bytes.subarray(at, end);
      const [one] = size === 0 ? readFields(joined([Uint8Array.of(8), part])) : [];
      values.push(this.valueOf(descriptor, { ...item, wire: size === 0 ? WIRE.varint : size === 8 ? WIRE.fixed64 : WIRE.fixed32, value: one?.value ?? 0n, bytes: part }, depth));
      at = end;
    }
    return values;
  }

  private valueOf(descriptor: FieldType, { value, bytes }: WireField, depth: number): Json {
    const view = viewOf(bytes);
    switch (descriptor.type) {
      case TYPE.double: return realNumber(view.getFloat64(0, true));
      case TYPE.float: return realNumber(Number(view.getFloat32(0, true).toPrecision(7)));
      case TYPE.int64: return String(BigInt.asIntN(64, value));
      case TYPE.uint64: return String(value);
      case TYPE.int32: return Number(BigInt.asIntN(32, value));
      case TYPE.uint32: return Number(BigInt.asUintN(32, value));
      case TYPE.sint32: return Number((value >> 1n) ^ -(value & 1n));
      case TYPE.sint64: return String((value >> 1n) ^ -(value & 1n));
      case TYPE.fixed64: return String(view.getBigUint64(0, true));
      case TYPE.sfixed64: return String(view.getBigInt64(0, true));
      case TYPE.fixed32: return view.getUint32(0, true);
      case TYPE.sfixed32: return view.getInt32(0, true);
      case TYPE.bool: return value !== 0n;
      case TYPE.string: return new TextDecoder().decode(bytes);
      case TYPE.enum: {
        const number = Number(BigInt.asIntN(32, value));
        return [...(this.schema.enums.get(descriptor.typeName) ?? [])].find(([, n]) => n === number)?.[0] ?? number;
      }
      case TYPE.message: case TYPE.group: return this.decode(descriptor.typeName, bytes, depth + 1);
      default: return toBase64(bytes);
    }
  }

  /** A message with every field, to be filled in. Of fields that exclude each other, the first. */
  template(type: string, above: string[] = []): Json {
    if (WRAPPERS.test(type)) return zero(this.message(type).fields[0]);
    if (type === 'google.protobuf.Timestamp') return '2026-01-31T12:00:00Z';
    if (type === 'google.protobuf.Duration') return '1s';
    if (type === 'google.protobuf.Value') return null;
    if (type === 'google.protobuf.ListValue') return [];
    if (type === 'google.protobuf.FieldMask') return '';
    if (type === 'google.protobuf.Struct') return {};
    const out: Fields = {};
    const chosen = new Set<number>();
    for (const f of this.message(type).fields) {
      if (f.oneof !== null && chosen.has(f.oneof)) continue;
      if (f.oneof !== null) chosen.add(f.oneof);
      const entry = f.type === TYPE.message ? this.schema.messages.get(f.typeName) : undefined;
      if (entry?.isMapEntry) out[f.jsonName] = {};
      else {
        // A type within itself ends, since its messages would not.
        const isEndless = f.type === TYPE.message && (above.includes(f.typeName) || f.typeName === type || above.length > 4);
        if (isEndless) continue;
        const one = f.type === TYPE.message ? this.template(f.typeName, [...above, type])
          : f.type === TYPE.enum ? ([...(this.schema.enums.get(f.typeName)?.keys() ?? [])][0] ?? 0) : zero(f);
        out[f.jsonName] = f.isRepeated ? [one] : one;
      }
    }
    return out;
  }
}

const realNumber = (n: number): Json => (Number.isFinite(n) ? n : String(n));

function zero(f: FieldType | undefined): Json {
  if (!f) return null;
  if (f.type === TYPE.bool) return false;
  if (f.type === TYPE.string || f.type === TYPE.bytes) return '';
  if (f.type === TYPE.message) return {};
  return [TYPE.int64, TYPE.uint64, TYPE.fixed64, TYPE.sfixed64, TYPE.sint64].includes(f.type as never) ? '0' : 0;
}

/** The JSON of well-known types. */
function wellKnownJson(type: string, out: Fields): Json {
  if (WRAPPERS.test(type)) return out['value'] ?? (/(String|Bytes)Value$/.test(type) ? '' : type.endsWith('BoolValue') ? false : /Int64/.test(type) ? '0' : 0);
  const nanos = Number(out['nanos'] ?? 0);
  const fraction = nanos === 0 ? '' : `.${String(Math.abs(nanos)).padStart(9, '0').replace(/(000)+$/, '')}`;
  if (type === 'google.protobuf.Timestamp') {
    const at = new Date(Number(out['seconds'] ?? 0) * 1000);
    return Number.isNaN(at.getTime()) ? out : at.toISOString().replace(/\.\d+Z$/, `${fraction}Z`);
  }
  if (type === 'google.protobuf.Duration') {
    const seconds = String(out['seconds'] ?? 0);
    return `${nanos < 0 && !seconds.startsWith('-') ? '-' : ''}${seconds}${fraction}s`;
  }
  if (type === 'google.protobuf.FieldMask') return ((out['paths'] ?? []) as string[]).join(',');
  if (type === 'google.protobuf.Struct') return out['fields'] ?? {};
  if (type === 'google.protobuf.ListValue') return out['values'] ?? [];
  if (type === 'google.protobuf.Value') return 'nullValue' in out ? null : (Object.values(out)[0] ?? null);
  return out;
}

/** Types that a field number can name: `"4:float": 1.5`. */
const NAMED: Record<string, number> = Object.fromEntries(Object.entries(TYPE).filter(([name]) => !['message', 'group', 'enum'].includes(name)));

/** A message without a schema: the names of its fields are their numbers, and their types follow from the values. */
export function encodeByNumber(value: Json, where = '', depth = 0): Uint8Array {
  if (!isObject(value)) throw new Error(`${where || 'the message'}: write an object whose names are field numbers, such as {"1": "text", "2": 5}`);
  if (depth > MAX_DEPTH) throw new Error(`${where}: nested too deep`);
  return joined(Object.entries(value).flatMap(([name, content]) => {
    const [, digits, type = ''] = /^(\d{1,9})(?::(\w+))?$/.exec(name) ?? [];
    const number = Number(digits ?? 0);
    const path = where ? `${where}.${name}` : name;
    if (number < 1 || number > 0x1fff_ffff) throw new Error(`${path}: without a schema, a field has its number as its name, such as "1"`);
    if (type && NAMED[type] === undefined) throw new Error(`${path}: ${type} is not a type; there are ${Object.keys(NAMED).join(', ')}`);
    return (Array.isArray(content) ? content : [content]).map((item) => field(number, ...byValue(item, type, path, depth)));
  }));
}

function byValue(value: Json, type: string, where: string, depth: number): [number, Uint8Array] {
  if (type) return scalar(NAMED[type]!, value, where);
  if (isObject(value)) return [WIRE.bytes, encodeByNumber(value, where, depth + 1)];
  if (typeof value === 'boolean') return scalar(TYPE.bool, value, where);
  if (typeof value === 'string') return scalar(TYPE.string, value, where);
  if (typeof value === 'number') return scalar(Number.isInteger(value) ? TYPE.int64 : TYPE.double, value, where);
  throw new Error(`${where}: ${JSON.stringify(value)} cannot be sent`);
}
