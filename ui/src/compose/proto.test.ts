import { describe, expect, it } from 'vitest';
import { fromBase64, toBase64 } from '../lib/base64';
import { CODES, messagesOf, partsOfCall, statusOf, textOfMessages } from './grpc';
import { encodeByNumber, ProtoCodec } from './protoJson';
import { Schema, TYPE } from './protoSchema';
import { field, framed, joined, readFields, unframed, varintBytes, WIRE } from './wire';

const utf8 = (text: string) => new TextEncoder().encode(text);
const bytes = (number: number, content: Uint8Array | string) => field(number, WIRE.bytes, typeof content === 'string' ? utf8(content) : content);
const number = (n: number, value: number) => field(n, WIRE.varint, varintBytes(BigInt(value)));

/** A `FieldDescriptorProto`. */
function fieldDescriptor(name: string, n: number, type: number, { repeated = false, typeName = '', oneof = -1 } = {}) {
  return joined([
    bytes(1, name), number(3, n), number(4, repeated ? 3 : 1), number(5, type),
    ...(typeName ? [bytes(6, typeName)] : []), ...(oneof >= 0 ? [number(9, oneof)] : []),
  ]);
}
const message = (name: string, fields: Uint8Array[], nested: Uint8Array[] = [], isMap = false) =>
  joined([bytes(1, name), ...fields.map((f) => bytes(2, f)), ...nested.map((m) => bytes(3, m)), ...(isMap ? [bytes(7, number(7, 1))] : [])]);

const timestamp = joined([bytes(1, 'google/protobuf/timestamp.proto'), bytes(2, 'google.protobuf'), bytes(4, message('Timestamp', [
  fieldDescriptor('seconds', 1, TYPE.int64), fieldDescriptor('nanos', 2, TYPE.int32),
]))]);
const shop = joined([
  bytes(1, 'shop.proto'), bytes(2, 'shop.v1'), bytes(3, 'google/protobuf/timestamp.proto'),
  bytes(4, message('Order', [
    fieldDescriptor('order_id', 1, TYPE.string),
    fieldDescriptor('items', 2, TYPE.message, { repeated: true, typeName: '.shop.v1.Order.Item' }),
    fieldDescriptor('state', 3, TYPE.enum, { typeName: '.shop.v1.State' }),
    fieldDescriptor('placed_at', 4, TYPE.message, { typeName: '.google.protobuf.Timestamp' }),
    fieldDescriptor('tags', 5, TYPE.message, { repeated: true, typeName: '.shop.v1.Order.TagsEntry' }),
    fieldDescriptor('big', 6, TYPE.uint64),
    fieldDescriptor('deltas', 7, TYPE.sint32, { repeated: true }),
    fieldDescriptor('weight', 8, TYPE.double),
    fieldDescriptor('picture', 9, TYPE.bytes, { oneof: 0 }),
    fieldDescriptor('picture_url', 10, TYPE.string, { oneof: 0 }),
    fieldDescriptor('parent', 11, TYPE.message, { typeName: '.shop.v1.Order' }),
    fieldDescriptor('paid', 12, TYPE.bool),
  ], [
    message('Item', [fieldDescriptor('name', 1, TYPE.string), fieldDescriptor('count', 2, TYPE.int32)]),
    message('TagsEntry', [fieldDescriptor('key', 1, TYPE.string), fieldDescriptor('value', 2, TYPE.int32)], [], true),
  ])),
  bytes(5, joined([bytes(1, 'State'), bytes(2, joined([bytes(1, 'UNKNOWN'), number(2, 0)])), bytes(2, joined([bytes(1, 'PAID'), number(2, 1)]))])),
  bytes(6, joined([bytes(1, 'Shop'), bytes(2, joined([bytes(1, 'Buy'), bytes(2, '.shop.v1.Order'), bytes(3, '.shop.v1.Order.Item'), number(6, 1)]))])),
]);

function schema(): Schema {
  const made = new Schema();
  made.addSet(joined([bytes(1, shop), bytes(1, timestamp)]));
  return made;
}

describe('schemas', () => {
  it('have the methods of the services, and the files that are missing', () => {
    const half = new Schema();
    half.addFile(shop);
    expect(half.missing).toEqual(['google/protobuf/timestamp.proto']);
    const whole = schema();
    expect(whole.missing).toEqual([]);
    expect(whole.method('/shop.v1.Shop/Buy')).toMatchObject({ input: 'shop.v1.Order', output: 'shop.v1.Order.Item', serverStreams: true, clientStreams: false });
  });
});

describe('JSON by a schema', () => {
  const codec = new ProtoCodec(schema());
  const order = {
    orderId: 'o1', items: [{ name: 'nut', count: -3 }], state: 'PAID', placedAt: '2026-01-31T12:00:00.500Z', tags: { a: 1, b: 2 }, big: '18446744073709551615',
    deltas: [-1, 300], weight: 1.5, picture: 'AP8=', paid: true,
  };

  it('comes back as it was written', () => {
    expect(codec.decode('shop.v1.Order', codec.encode('shop.v1.Order', order))).toEqual(order);
  });

  it('is written in the order of its names, a negative int32 in ten bytes', () => {
    // order_id "o1", items { name "nut" count -3 }, state PAID.
    const expected = [0x0a, 2, 0x6f, 0x31, 0x12, 16, 0x0a, 3, 0x6e, 0x75, 0x74, 0x10, 0xfd, ...Array<number>(8).fill(0xff), 1, 0x18, 1];
    expect([...codec.encode('shop.v1.Order', { order_id: 'o1', items: [{ name: 'nut', count: -3 }], state: 1 })]).toEqual(expected);
  });

  it('has packed numbers, unknown fields and unknown values of enums', () => {
    const packed = joined([bytes(7, Uint8Array.of(1, 0xd8, 4)), number(3, 7), number(99, 5)]);
    expect(codec.decode('shop.v1.Order', packed)).toEqual({ deltas: [-1, 300], state: 7, 99: '5' });
  });

  it('that does not fit names the place and what would', () => {
    const wrong = (value: unknown) => () => codec.encode('shop.v1.Order', value as never);
    expect(wrong({ nope: 1 })).toThrow('nope: shop.v1.Order has no such field; it has orderId, items');
    expect(wrong({ items: [{ count: 'x' }] })).toThrow('items[0].count: "x" is not an integer');
    expect(wrong({ state: 'LOST' })).toThrow('LOST is not a value of shop.v1.State: UNKNOWN, PAID');
    expect(wrong({ big: 2 ** 60 })).toThrow('write this number as a text');
    expect(wrong({ placedAt: 'soon' })).toThrow('is not a time');
    expect(wrong({ tags: [] })).toThrow('tags: a map is an object');
    expect(wrong([])).toThrow('is not an object');
  });

  it('has a template without endless messages, with one of those that exclude each other', () => {
    expect(codec.template('shop.v1.Order')).toEqual({
      orderId: '', items: [{ name: '', count: 0 }], state: 'UNKNOWN', placedAt: '2026-01-31T12:00:00Z', tags: {}, big: '0', deltas: [0], weight: 0, picture: '', paid: false,
    });
  });
});

describe('integers', () => {
  // Type, smallest and largest value.
  const types: [number, bigint, bigint][] = [
    [TYPE.int32, -(2n ** 31n), 2n ** 31n - 1n], [TYPE.sint32, -(2n ** 31n), 2n ** 31n - 1n], [TYPE.sfixed32, -(2n ** 31n), 2n ** 31n - 1n],
    [TYPE.uint32, 0n, 2n ** 32n - 1n], [TYPE.fixed32, 0n, 2n ** 32n - 1n], [TYPE.uint64, 0n, 2n ** 64n - 1n], [TYPE.fixed64, 0n, 2n ** 64n - 1n],
    [TYPE.int64, -(2n ** 63n), 2n ** 63n - 1n], [TYPE.sint64, -(2n ** 63n), 2n ** 63n - 1n], [TYPE.sfixed64, -(2n ** 63n), 2n ** 63n - 1n],
  ];
  const made = new Schema();
  made.addFile(joined([bytes(1, 'numbers.proto'), bytes(2, 'n'), bytes(4, message('All', types.map(([type], i) => fieldDescriptor(`f${type}`, i + 1, type))))]));
  const codec = new ProtoCodec(made);

  it.each(types)('of type %i have both ends of its range, and nothing beyond', (type, least, most) => {
    for (const value of [least, most]) expect(String((codec.decode('n.All', codec.encode('n.All', { [`f${type}`]: String(value) })) as Record<string, unknown>)[`f${type}`])).toBe(String(value));
    for (const value of [least - 1n, most + 1n]) {
      expect(() => codec.encode('n.All', { [`f${type}`]: String(value) })).toThrow(`f${type}: ${value} is out of range:`);
    }
  });

  it('say what the type has', () => {
    expect(() => encodeByNumber({ '1:fixed32': 2 ** 33 })).toThrow('1:fixed32: 8589934592 is out of range: fixed32 has 0 to 4294967295');
    expect(() => encodeByNumber({ '1:uint32': -1 })).toThrow('1:uint32: -1 is out of range: uint32 has 0 to 4294967295');
    expect(() => new ProtoCodec(schema()).encode('shop.v1.Order', { state: 2 ** 31 })).toThrow('state: 2147483648 is out of range: enum has -2147483648 to 2147483647');
  });
});

describe('values of any kind', () => {
  const made = new Schema();
  made.addFile(joined([bytes(1, 'google/protobuf/struct.proto'), bytes(2, 'google.protobuf'),
    bytes(4, message('Struct', [fieldDescriptor('fields', 1, TYPE.message, { repeated: true, typeName: '.google.protobuf.Struct.FieldsEntry' })], [
      message('FieldsEntry', [fieldDescriptor('key', 1, TYPE.string), fieldDescriptor('value', 2, TYPE.message, { typeName: '.google.protobuf.Value' })], [], true),
    ])),
    bytes(4, message('Value', [
      fieldDescriptor('number_value', 2, TYPE.double, { oneof: 0 }), fieldDescriptor('struct_value', 5, TYPE.message, { typeName: '.google.protobuf.Struct', oneof: 0 }),
      fieldDescriptor('list_value', 6, TYPE.message, { typeName: '.google.protobuf.ListValue', oneof: 0 }),
    ])),
    bytes(4, message('ListValue', [fieldDescriptor('values', 1, TYPE.message, { repeated: true, typeName: '.google.protobuf.Value' })])),
  ]));
  const codec = new ProtoCodec(made);
  const lists = (depth: number): never => (depth === 0 ? 1 : [lists(depth - 1)]) as never;
  const objects = (depth: number): never => (depth === 0 ? 1 : { a: objects(depth - 1) }) as never;

  it('come back, up to a depth', () => {
    for (const value of [{ a: [1, { b: 2 }] }, lists(20), objects(20)] as never[]) expect(codec.decode('google.protobuf.Value', codec.encode('google.protobuf.Value', value))).toEqual(value);
    for (const value of [lists(500), objects(500)]) expect(() => codec.encode('google.protobuf.Value', value)).toThrow('nested too deep');
  });
});

describe('JSON by number', () => {
  it('takes the types of its values, or those that are named', () => {
    const fields = readFields(encodeByNumber({ 1: 'a', 2: -1, 3: 1.5, 4: true, 5: { 1: 'b' }, '6:float': 2, 7: [1, 2], '8:bytes': '/w==' }));
    expect(fields.map((f) => [f.number, f.wire])).toEqual([[1, 2], [2, 0], [3, 1], [4, 0], [5, 2], [7, 0], [7, 0], [6, 5], [8, 2]]);
    expect(fields[1]!.value).toBe(2n ** 64n - 1n);
    expect([...fields.at(-1)!.bytes]).toEqual([255]);
  });

  it('refuses names, types and values that it cannot write', () => {
    expect(() => encodeByNumber({ name: 'a' })).toThrow('a field has its number as its name');
    expect(() => encodeByNumber({ '1:word': 1 })).toThrow('word is not a type');
    expect(() => encodeByNumber({ 1: null })).toThrow('1: null cannot be sent');
    expect(() => encodeByNumber([])).toThrow('write an object');
  });
});

describe('the wire format', () => {
  it('with damage says where', () => {
    expect(() => readFields(Uint8Array.of(8))).toThrow('the middle of a number, at byte 1');
    expect(() => readFields(Uint8Array.of(0x12, 5, 1))).toThrow('the middle of a field');
    expect(() => readFields(Uint8Array.of(0x0f, 1))).toThrow('wire type 7 does not exist');
    expect(() => readFields(Uint8Array.of(0x0b, 8))).toThrow('the middle of a number');
    expect(readFields(Uint8Array.of(0x0b, 8, 1, 0x0c, 8, 2)).map((f) => [f.number, f.bytes.length])).toEqual([[1, 2], [1, 0]]);
  });

  it('frames messages, and reads frames until one that is not complete', () => {
    const body = framed([Uint8Array.of(1, 2), new Uint8Array()]);
    expect([...body]).toEqual([0, 0, 0, 0, 2, 1, 2, 0, 0, 0, 0, 0]);
    expect(unframed(body)!.map((m) => [...m])).toEqual([[1, 2], []]);
    expect(unframed(body.subarray(0, 9))!.length).toBe(1);
    expect(unframed(Uint8Array.of(1, 0, 0, 0, 0))).toBe(null);
    const long = new Uint8Array(100_000).fill(7);
    expect(fromBase64(toBase64(long))).toEqual(long);
  });
});

describe('a call', () => {
  it('is an address and a method', () => {
    expect(partsOfCall('https://a.test/shop.v1.Shop/Buy')).toEqual({ base: 'https://a.test', path: '/shop.v1.Shop/Buy' });
    expect(partsOfCall('a.test:50051/prefix/shop.v1.Shop/Buy')).toEqual({ base: 'a.test:50051/prefix', path: '/shop.v1.Shop/Buy' });
    expect(partsOfCall('http://a.test/')).toEqual({ base: 'http://a.test', path: '' });
  });

  it('has one message for an object, several for an array, and bytes', () => {
    expect(messagesOf('[{"orderId":"a"},{}]', schema(), '/shop.v1.Shop/Buy').map((m) => m.length)).toEqual([3, 0]);
    expect(messagesOf('', schema(), '/shop.v1.Shop/Buy')).toEqual([new Uint8Array()]);
    expect([...messagesOf('0x08 01', new Schema(), '/a/b')[0]!]).toEqual([8, 1]);
    expect([...messagesOf('{"1":5}', new Schema(), '/a/b')[0]!]).toEqual([8, 5]);
    expect(() => messagesOf('[{}, {"x":1}]', schema(), '/shop.v1.Shop/Buy')).toThrow('[1].x');
  });

  it('of a recorded one has the same bytes', () => {
    const read = (bytes: Uint8Array[]) => messagesOf(textOfMessages(bytes), schema(), '/shop.v1.Shop/Buy').map((m) => [...m]);
    expect(read([Uint8Array.of(8, 255)])).toEqual([[8, 255]]);
    expect(read([Uint8Array.of(8, 1), new Uint8Array()])).toEqual([[8, 1], []]);
    expect(() => messagesOf('0x0', schema(), '/a/b')).toThrow('not bytes in hex');
  });

  it('has its status in trailers or in header fields', () => {
    const flow = (response: object) => ({ response }) as never;
    expect(statusOf(flow({ headers: [], trailers: [['grpc-status', '5'], ['grpc-message', 'no%20such%20order']] }))).toEqual({ code: 5, message: 'no such order' });
    expect(statusOf(flow({ headers: [['grpc-status', '12']] }))).toEqual({ code: 12, message: '' });
    expect(statusOf(flow({ headers: [] }))).toBe(null);
    expect(CODES[12]).toBe('UNIMPLEMENTED');
  });
});
