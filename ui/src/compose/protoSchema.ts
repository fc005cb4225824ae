// Schemas of Protocol Buffers, read from descriptors (google/protobuf/descriptor.proto).
import { readFields, WIRE } from './wire';

/** `FieldDescriptorProto.Type`. */
export const TYPE = {
  double: 1, float: 2, int64: 3, uint64: 4, int32: 5, fixed64: 6, fixed32: 7, bool: 8, string: 9, group: 10, message: 11, bytes: 12, uint32: 13,
  enum: 14, sfixed32: 15, sfixed64: 16, sint32: 17, sint64: 18,
} as const;

export interface FieldType {
  name: string;
  jsonName: string;
  number: number;
  type: number;
  /** The full name of its message or enum. */
  typeName: string;
  isRepeated: boolean;
  /** Index of the group of fields of which one can be set. */
  oneof: number | null;
}

export interface MessageType {
  name: string;
  fields: FieldType[];
  /** Whether it is an entry of a map: `key` is 1, `value` is 2. */
  isMapEntry: boolean;
}

export interface Method {
  /** `/package.Service/Method` */
  path: string;
  service: string;
  name: string;
  input: string;
  output: string;
  clientStreams: boolean;
  serverStreams: boolean;
}

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
const camel = (name: string) => name.replace(/_(.)/g, (_, c: string) => c.toUpperCase());
const plain = (typeName: string) => typeName.replace(/^\./, '');

export class Schema {
  readonly messages = new Map<string, MessageType>();
  readonly enums = new Map<string, Map<string, number>>();
  readonly methods: Method[] = [];
  /** Names of the files that were read, and of those that they import. */
  readonly files = new Set<string>();
  readonly imports = new Set<string>();

  /** Adds the files of a `FileDescriptorSet`. */
  addSet(bytes: Uint8Array): void {
    for (const { number, bytes: file } of readFields(bytes)) if (number === 1) this.addFile(file);
  }

  /** Adds a `FileDescriptorProto`; a file of the same name stays. */
  addFile(bytes: Uint8Array): void {
    const fields = readFields(bytes);
    const one = (n: number) => text(fields.find((f) => f.number === n)?.bytes ?? new Uint8Array());
    const name = one(1);
    if (this.files.has(name)) return;
    this.files.add(name);
    const scope = one(2);
    for (const { number, bytes: part } of fields) {
      if (number === 3) this.imports.add(text(part));
      else if (number === 4) this.addMessage(scope, part);
      else if (number === 5) this.addEnum(scope, part);
      else if (number === 6) this.addService(scope, part);
    }
  }

  /** Files that are imported and were not read. */
  get missing(): string[] {
    return [...this.imports].filter((name) => !this.files.has(name));
  }

  method(path: string): Method | undefined {
    return this.methods.find((m) => m.path === path);
  }

  private addMessage(scope: string, bytes: Uint8Array): void {
    const parts = readFields(bytes);
    const name = [scope, text(parts.find((p) => p.number === 1)?.bytes ?? new Uint8Array())].filter(Boolean).join('.');
    const message: MessageType = { name, fields: [], isMapEntry: false };
    this.messages.set(name, message);
    for (const { number, bytes: part } of parts) {
      if (number === 2) message.fields.push(fieldOf(part));
      else if (number === 3) this.addMessage(name, part);
      else if (number === 4) this.addEnum(name, part);
      else if (number === 7) message.isMapEntry = readFields(part).some((o) => o.number === 7 && o.value === 1n);
    }
  }

  private addEnum(scope: string, bytes: Uint8Array): void {
    let name = scope;
    const values = new Map<string, number>();
    for (const { number, bytes: part } of readFields(bytes)) {
      if (number === 1) name = [scope, text(part)].filter(Boolean).join('.');
      if (number !== 2) continue;
      const value = readFields(part);
      values.set(text(value.find((v) => v.number === 1)?.bytes ?? new Uint8Array()), Number(BigInt.asIntN(64, value.find((v) => v.number === 2)?.value ?? 0n)));
    }
    this.enums.set(name, values);
  }

  private addService(scope: string, bytes: Uint8Array): void {
    const parts = readFields(bytes);
    const service = [scope, text(parts.find((p) => p.number === 1)?.bytes ?? new Uint8Array())].filter(Boolean).join('.');
    for (const { number, bytes: part } of parts) {
      if (number !== 2) continue;
      const about = readFields(part);
      const one = (n: number) => text(about.find((f) => f.number === n)?.bytes ?? new Uint8Array());
      const isSet = (n: number) => about.some((f) => f.number === n && f.value === 1n);
      const name = one(1);
      this.methods.push({
        path: `/${service}/${name}`, service, name, input: plain(one(2)), output: plain(one(3)), clientStreams: isSet(5), serverStreams: isSet(6),
      });
    }
  }
}

function fieldOf(bytes: Uint8Array): FieldType {
  const found: FieldType = { name: '', jsonName: '', number: 0, type: 0, typeName: '', isRepeated: false, oneof: null };
  for (const { number, wire, value, bytes: part } of readFields(bytes)) {
    if (number === 1) found.name = text(part);
    else if (number === 3) found.number = Number(value);
    else if (number === 4) found.isRepeated = value === 3n;
    else if (number === 5) found.type = Number(value);
    else if (number === 6) found.typeName = plain(text(part));
    else if (number === 9 && wire === WIRE.varint) found.oneof = Number(value);
    else if (number === 10) found.jsonName = text(part);
  }
  found.jsonName ||= camel(found.name);
  return found;
}
