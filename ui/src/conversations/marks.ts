// Marks where a text occurs in what is rendered, without elements of its own.
import { findAll } from '../bodies/find';

/** Texts longer than this are not marked, and no more places than these. */
const MAX_TEXT = 1_000_000;
const MAX_MARKS = 5000;

/** Marks every occurrence below `root`; `current` is marked more strongly. Without support in the browser it does nothing. */
export function mark(root: Element | null, wanted: string, current: Element | null): void {
  if (!('highlights' in CSS)) return;
  CSS.highlights.delete('found');
  CSS.highlights.delete('found-current');
  if (!root || !wanted.trim()) return;
  const [others, here]: [Range[], Range[]] = [[], []];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.nodeValue ?? '';
    if (text.length > MAX_TEXT) continue;
    const { starts, length } = findAll(text, wanted.trim());
    for (const start of starts) {
      const range = new Range();
      range.setStart(node, start);
      range.setEnd(node, start + length);
      (current?.contains(node) ? here : others).push(range);
    }
    if (others.length + here.length > MAX_MARKS) break;
  }
  if (others.length > 0) CSS.highlights.set('found', new Highlight(...others));
  if (here.length > 0) CSS.highlights.set('found-current', new Highlight(...here));
}
