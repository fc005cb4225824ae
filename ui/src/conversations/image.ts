// Pictures of a conversation: they are not kept beside it, but in the body of the request that carried them.
import { ask, url } from '../lib/api';
import { imageType } from '../lib/imageType';

/** The most of a body that is looked through, in bytes. */
const MAX_BODY_BYTES = 32 << 20;

/** The base 64 of so many characters within a request, wherever its provider puts pictures. */
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

/** The picture of so many characters in a flow's request, as an address to be drawn from; nothing when it is none. */
export async function imageIn(flow: string, size: number): Promise<string | null> {
  const response = await ask(url(`/flows/${flow}/request/body`, { view: 'decoded', limit: MAX_BODY_BYTES }));
  const text = encoded(JSON.parse(await response.text()), size);
  if (!text) return null;
  const bytes = Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0));
  const type = imageType(bytes);
  return type ? URL.createObjectURL(new Blob([bytes], { type })) : null;
}
