// Colours of source code.
import { expect, it } from 'vitest';
import { highlight, languageName } from './highlight';

it.each([
  ['rust', 'fn main() { let s = "x"; } // c', 'keyword', 'fn'], ['ts', 'const a: string = `b`;', 'keyword', 'const'],
  ['json', '{"a": [1, true]}', 'number', '1'], ['py', 'def f():\n  return None # c', 'comment', '# c'], ['bash', 'echo "hi" # c', 'comment', '# c'],
  ['diff', '+a\n-b\n c', 'added', '+a'], ['yaml', 'a: 1 # c', 'comment', '# c'], ['toml', '[a]\nb = "c"', 'string', '"c"'],
  ['go', 'func main() {}', 'keyword', 'func'], ['html', '<p class="x">y</p>', 'string', '"x"'], ['sql', 'SELECT 1', 'number', '1'],
  ['c++', 'int x = 1; // y', 'comment', '// y'], ['css', 'a { color: red; }', 'name', 'a'],
])('colours %s without changing it', async (language, code, kind, text) => {
  const lines = await highlight(code, language);
  expect(lines!.map((line) => line.map((p) => p.text).join('')).join('\n')).toBe(code);
  expect(lines!.flat()).toContainEqual({ text, kind });
});

it('leaves unknown languages and long code as they are', async () => {
  expect([languageName('brainfuck'), languageName('constructor'), languageName('rs')]).toEqual(['', '', 'rust']);
  expect(await highlight('x', 'mystery')).toBeNull();
  expect(await highlight('x'.repeat(100_000), 'rust')).toBeNull();
});
