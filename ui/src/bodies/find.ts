// Finds a text in a long one.

export interface Found {
  /** Where each match begins. */
  starts: number[];
  /** The length of each match. */
  length: number;
  /** Whether there are more matches than were counted. */
  more: boolean;
}

/** Matches counted; more are not told apart by anybody. */
export const MAX_MATCHES = 50_000;

/** All matches, without overlaps, whatever the case. */
export function findAll(text: string, wanted: string): Found {
  const found: Found = { starts: [], length: wanted.length, more: false };
  if (wanted === '') return found;
  // A letter whose lower case has another length would shift the places; then the case counts.
  const lower = text.toLowerCase();
  const [haystack, needle] = lower.length === text.length ? [lower, wanted.toLowerCase()] : [text, wanted];
  for (let at = haystack.indexOf(needle); at >= 0; at = haystack.indexOf(needle, at + needle.length)) {
    if (found.starts.length === MAX_MATCHES) {
      found.more = true;
      break;
    }
    found.starts.push(at);
  }
  return found;
}

/** Index of the last number that is at most `wanted`, in a sorted list that begins at most there. */
export function lastAtMost(sorted: number[], wanted: number): number {
  let [low, high] = [0, sorted.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (sorted[middle]! <= wanted) low = middle;
    else high = middle - 1;
  }
  return low;
}
