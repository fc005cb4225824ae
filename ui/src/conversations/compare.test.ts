// The comparison of two conversations.
import { describe, expect, it } from 'vitest';
import { alignTurns, change, diffLines, figuresOf, promptOf, toolUse } from './compare';
import type { ConversationView, Item, Turn } from './types';

const said = (text: string, role: 'user' | 'assistant' = 'user'): Item => ({ kind: 'text', text, key: text, at: 0, role });
const tool = (name: string, failed = false): Item => ({ kind: 'tool', id: '', name, summary: '', input: null, key: name, at: 0, role: 'assistant', result: { at: 0, content: [], is_error: failed } });
const turn = (number: number, ...items: Item[]): Turn => ({ number, exchanges: [], items });

describe('turns', () => {
  it('with similar prompts stand beside each other', () => {
    const a = [turn(1, said('Write a test for the login page')), turn(2, said('Now delete the old files')), turn(3, said('Commit it'))];
    const b = [turn(1, said('Please write a test for the login form')), turn(2, said('Commit it all'))];
    expect(alignTurns(a, b).map((p) => [p.a?.number, p.b?.number])).toEqual([[1, 1], [2, undefined], [3, 2]]);
    expect(alignTurns([], b).map((p) => [p.a, p.b?.number])).toEqual([[null, 1], [null, 2]]);
  });

  it('of long conversations are aligned by their numbers', () => {
    const long = Array.from({ length: 500 }, (_, i) => turn(i, said(`prompt ${i}`)));
    expect(alignTurns(long, long.slice(0, 3)).length).toBe(500);
  });

  it('have the texts of the user as their prompt', () => {
    expect(promptOf(turn(1, said(' a '), said('x', 'assistant'), said('b')))).toBe('a\n\nb');
  });
});

describe('differences', () => {
  it('are of lines', () => {
    expect(diffLines('a\nb\nc\nd', 'a\nx\nc\nd').map((l) => `${l.side[0]}${l.text}`)).toEqual(['sa', 'bb', 'ax', 'sc', 'sd']);
    expect(diffLines('', 'x').map((l) => l.side)).toEqual(['before', 'after']);
    const many = Array.from({ length: 3000 }, (_, i) => `${i}`).join('\n');
    expect(diffLines(many, many.replaceAll('7', 'x')).length).toBeGreaterThan(3000);
  });

  it('of figures and tools are those of the two', () => {
    const view = (items: Item[], cost: number) => ({ thread: { turns: [turn(1, ...items)], exchanges: [{ duration: 5, error: cost > 1 ? 'x' : undefined }] }, used: { exchanges: 1, input: 1, output: 2, cache_read: 0, cost }, started: 0, updated: 9 }) as unknown as ConversationView;
    const [a, b] = [view([tool('Bash'), tool('Bash', true)], 1), view([tool('Bash'), tool('Read')], 2)];
    expect(toolUse(a, b)).toEqual([{ name: 'Bash', a: 2, b: 1, failedA: 1, failedB: 0 }, { name: 'Read', a: 0, b: 1, failedA: 0, failedB: 0 }]);
    const figures = Object.fromEntries(figuresOf(a, b).map((f) => [f.label, [f.a, f.b]]));
    expect([figures['Cost'], figures['Tool calls'], figures['Errors'], figures['Model time']]).toEqual([[1, 2], [2, 2], [0, 1], [5, 5]]);
    expect([change(1, 2), change(4, 3), change(0, 3), change(2, 2)]).toEqual([100, -25, null, null]);
  });
});
