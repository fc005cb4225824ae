// Flow ids (ULIDs) start with a timestamp, so that an id can be constructed for a time.

const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

/** Start of a flow, milliseconds since the Unix epoch. */
export function millisOf(id: string): number {
  let millis = 0;
  for (const c of id.slice(0, 10)) millis = millis * 32 + ALPHABET.indexOf(c);
  return millis;
}

/** The smallest id of a millisecond. */
export function firstIdAt(millis: number): string {
  let rest = Math.max(0, Math.floor(millis));
  let text = '';
  for (let i = 0; i < 10; i += 1) {
    text = ALPHABET.charAt(rest % 32) + text;
    rest = Math.floor(rest / 32);
  }
  return text.padEnd(26, '0');
}
