// Which items of a thread are rendered, and where a text is found.
import { describe, expect, it } from 'vitest';
import { earlier, findItems, itemOf, ITEMS, lastRange, parts, reveal, textsOf, TURNS } from './thread';
import type { Item, Turn } from './types';

const said = (text: string, key = text): Item => ({ kind: 'text', text, key, at: 0, role: 'user' });
const turn = (number: number, count: number): Turn => ({ number, exchanges: [], items: Array.from({ length: count }, (_, i) => said(`${number}.${i}`)) });

describe('the rendered range', () => {
  it('is bounded by turns and by items', () => {
    const many = Array.from({ length: 200 }, (_, i) => turn(i + 1, 2));
    expect(lastRange(many)).toEqual({ from: (200 - TURNS) * 2, to: 400 });
    expect(parts(many, lastRange(many)).length).toBe(TURNS);
    const long = [turn(1, 10), turn(2, 5000)];
    expect(lastRange(long)).toEqual({ from: 5010 - ITEMS, to: 5010 });
    const [part] = parts(long, lastRange(long));
    expect([part!.offset, part!.items.length, part!.items[0]!.key]).toEqual([5000 - ITEMS, ITEMS, `2.${5000 - ITEMS}`]);
    expect(lastRange([])).toEqual({ from: 0, to: 0 });
  });

  it('grows at the front and moves to an item', () => {
    const turns = [turn(1, 5000)];
    const range = earlier(turns, lastRange(turns));
    expect(range).toEqual({ from: 5000 - 2 * ITEMS, to: 5000 });
    expect(reveal(turns, range, 4990)).toBe(range);
    const moved = reveal(turns, range, 100);
    expect(100 >= moved.from && 100 < moved.to && moved.to - moved.from === ITEMS).toBe(true);
    expect(parts(turns, moved)[0]!.at).toBe(moved.from);
  });

  it('shows turns without items', () => {
    expect(parts([turn(1, 1), turn(2, 0), turn(3, 1)], { from: 0, to: 2 }).map((p) => p.turn.number)).toEqual([1, 2, 3]);
  });
});

it('a text is found in everything that an item shows', () => {
  const tool: Item = {
    kind: 'tool', id: 't', name: 'Bash', summary: 'list', input: { command: ['ls "x"\n', 42] }, key: 't', at: 0, role: 'assistant',
    result: { at: 1, is_error: false, content: [{ type: 'text', text: 'No such FILE' }] },
  };
  const turns: Turn[] = [{ number: 1, exchanges: [], items: [said('Hello'), tool] }, { number: 2, exchanges: [], items: [said('hello again')] }];
  expect(findItems(turns, 'HELLO')).toEqual([0, 2]);
  for (const text of ['such file', 'ls "x"\n', '42', 'command', 'bash']) expect(findItems(turns, text), text).toEqual([1]);
  expect([findItems(turns, '  '), findItems(turns, 'nowhere')]).toEqual([[], []]);
  expect([itemOf(turns, 'hello again'), itemOf(turns, 'x')]).toEqual([2, -1]);
  let deep: unknown = 'end';
  for (let i = 0; i < 50_000; i += 1) deep = [deep];
  expect(textsOf({ ...tool, input: deep } as Item)).toContain('end');
});
