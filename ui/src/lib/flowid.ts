// Ids of flows: they begin with the time, so that an id can be made up for a moment.

const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

/** Milliseconds since the Unix epoch at which the flow began. */
export function millisOf(id: string): number {
  let millis = 0;
  for (const c of id.slice(0, 10)) millis = millis * 32 + ALPHABET.indexOf(c);
  return millis;
}

/** The first id of a millisecond. */
export function firstIdAt(millis: number): string {
  let rest = Math.max(0, Math.floor(millis));
  let text = '';
  for (let i = 0; i < 10; i += 1) {
    text = ALPHABET.charAt(rest % 32) + text;
    rest = Math.floor(rest / 32);
  }
  return text.padEnd(26, '0');
}
