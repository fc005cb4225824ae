// Image types by magic bytes, and which media types can be pretty-printed. SVG is excluded, because it
// can contain scripts.

const SIGNS: [string, number, number[]][] = [
  ['image/png', 0, [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]],
  ['image/jpeg', 0, [0xff, 0xd8, 0xff]],
  ['image/gif', 0, [0x47, 0x49, 0x46, 0x38]],
  ['image/webp', 8, [0x57, 0x45, 0x42, 0x50]],
  ['image/avif', 4, [0x66, 0x74, 0x79, 0x70, 0x61, 0x76, 0x69]],
  ['image/bmp', 0, [0x42, 0x4d]],
  ['image/x-icon', 0, [0x00, 0x00, 0x01, 0x00]],
];

/** The media type by magic bytes; null if it is not a supported image. */
export function imageType(bytes: Uint8Array): string | null {
  const found = SIGNS.find(([, at, sign]) => sign.every((b, i) => bytes[at + i] === b));
  return found?.[0] ?? null;
}

/** Whether messages of JSON are in frames, which the server removes in its view as text. */
export function hasJsonFrames(media: string): boolean {
  return /^application\/(grpc|grpc-web|connect)\+json$/.test(media);
}

/** Whether the server writes this stream as server-sent events in its view as text: Bedrock's. */
export function isEventStream(media: string): boolean {
  return media === 'application/vnd.amazon.eventstream';
}

/** Whether the server pretty-prints this media type: markup, forms, multipart, GraphQL, playlists, gRPC, Protocol Buffers,
 * MessagePack, CBOR. JSON in frames is a tree first. */
export function isPretty(media: string): boolean {
  return !hasJsonFrames(media) && /^(multipart\/.*|text\/(html|xml)|application\/(xhtml\+xml|xml|x-www-form-urlencoded|graphql|(x-)?msgpack|(x-)?protobuf|proto|cbor(-seq)?|grpc.*)|.*\+(xml|msgpack|cbor(-seq)?|proto(buf)?)|.*mpegurl)$/.test(media);
}
