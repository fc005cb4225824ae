// Images of a conversation, extracted from the recorded request body (they are not stored with the conversation).
import { ask, url } from '../lib/api';
import { fromBase64 } from '../lib/base64';
import { imageType } from '../lib/imageType';

/** Largest body that is searched, in bytes. */
const MAX_BODY_BYTES = 32 << 20;

/** Finds the base64 string of exactly `size` characters anywhere in a request; providers put images in different fields. */
export function encoded(value: unknown, size: number): string | null {
  const lists: unknown[] = [value];
  while (lists.length > 0) {
    const one = lists.pop();
    if (typeof one === 'string') {
      const text = one.startsWith('data:') ? one.slice(one.indexOf(',') + 1) : one;
      if (text.length === size && /^[A-Za-z0-9+/_-]{16,}={0,2}$/.test(text.slice(0, 64)) && text.length >= 16) return text;
    } else if (one !== null && typeof one === 'object') {
      lists.push(...Object.values(one));
    }
  }
  return null;
}

/** An object URL of the image with `size` base64 characters in a flow's request; null if it is not a supported image. */
export async function imageIn(flow: string, size: number): Promise<string | null> {
  const response = await ask(url(`/flows/${flow}/request/body`, { view: 'decoded', limit: MAX_BODY_BYTES }));
  const text = encoded(JSON.parse(await response.text()), size);
  if (!text) return null;
  const bytes = fromBase64(text);
  const type = imageType(bytes);
  return type ? URL.createObjectURL(new Blob([bytes], { type })) : null;
}
