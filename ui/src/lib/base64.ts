// Base64, also in the alphabet of URLs and without padding.

/** The bytes; throws if it is not base64. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/').replace(/=+$/, '')), (c) => c.charCodeAt(0));
}

export function toBase64(bytes: Uint8Array): string {
  let text = '';
  // In pieces: an argument list has a limit.
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}
