// Edits rule files as text: everything that is not changed, comments included, stays as it was written.
import { isToml, yamlScalar } from './ruleText';

/** The lines of one rule, with the comments directly above it. Line numbers start at 0; `end` is exclusive. */
export interface RuleBlock {
  start: number;
  /** The line of its dash or table header. */
  head: number;
  end: number;
}

const isBlank = (line: string) => line.trim() === '';
const isComment = (line: string) => line.trim().startsWith('#');

/** Moves comments directly above each rule to that rule, and trailing blank lines out of it. */
function bounded(lines: string[], heads: number[], first: number, end: number): RuleBlock[] {
  const starts = heads.map((head) => {
    let start = head;
    while (start > first && isComment(lines[start - 1]!)) start -= 1;
    return start;
  });
  return heads.map((head, i) => {
    let last = starts[i + 1] ?? end;
    while (last > head + 1 && isBlank(lines[last - 1]!)) last -= 1;
    return { start: starts[i]!, head, end: last };
  });
}

/** The rules of a file; empty if they are written in another form, such as a flow sequence or Fluxzy's. */
export function ruleBlocks(text: string, file: string): RuleBlock[] {
  const lines = text.split('\n');
  if (isToml(file)) {
    const heads = lines.flatMap((l, i) => (/^\s*\[\[\s*rules\s*\]\]/.test(l) ? [i] : []));
    if (heads.length === 0) return [];
    const last = heads.at(-1)!;
    const after = lines.findIndex((l, i) => i > last && /^\s*\[/.test(l) && !/^\s*\[+\s*rules\s*\./.test(l));
    let end = after < 0 ? lines.length : after;
    while (after >= 0 && isComment(lines[end - 1]!)) end -= 1;
    return bounded(lines, heads, 0, end);
  }
  const at = lines.findIndex((l) => /^rules:\s*(#.*)?$/.test(l));
  if (at < 0) return [];
  let end = at + 1;
  while (end < lines.length && /^(\s|-|#|$)/.test(lines[end]!)) end += 1;
  const dash = lines.slice(at + 1, end).find((l) => /^\s*-(\s|$)/.test(l));
  if (dash === undefined) return [];
  const indent = dash.length - dash.trimStart().length;
  const heads: number[] = [];
  for (let i = at + 1; i < end; i += 1) if (new RegExp(`^ {${indent}}-(\\s|$)`).test(lines[i]!)) heads.push(i);
  // Comments at the margin below the last rule belong to what follows.
  while (end < lines.length && end > heads.at(-1)! + 1 && /^#/.test(lines[end - 1]!)) end -= 1;
  return bounded(lines, heads, at + 1, end);
}

/** The rule that contains a line (starting at 1, as the API counts); -1 if there is none. */
export function blockAt(blocks: RuleBlock[], line: number): number {
  return blocks.findIndex((b) => b.start < line && line <= b.end);
}

/** The text of one rule. */
export function blockText(text: string, block: RuleBlock): string {
  return text.split('\n').slice(block.start, block.end).join('\n');
}

/** Enables or disables a rule. Returns null if it is written in a form that cannot be edited safely. */
export function withEnabled(text: string, file: string, block: RuleBlock, enabled: boolean): string | null {
  const lines = text.split('\n');
  const own = lines.slice(block.head, block.end);
  const key = isToml(file) ? /^(\s*enabled\s*=\s*)(true|false)\b/ : /^(\s*(?:-\s+)?enabled:\s*)(true|false)\b/;
  const head = own[0]!;
  // Keys of the rule itself, not of a map inside it.
  const column = isToml(file) ? 0 : (/^\s*-\s+/.exec(head)?.[0].length ?? 0);
  const at = own.findIndex((l) => key.test(l) && (isToml(file) || l.replace('-', ' ').search(/\S/) === column));
  if (at >= 0) {
    lines[block.head + at] = own[at]!.replace(key, `$1${String(enabled)}`);
    return lines.join('\n');
  }
  if (enabled) return null;
  if (isToml(file)) lines.splice(block.head + 1, 0, 'enabled = false');
  else if (/^\s*-\s+\{/.test(head)) lines[block.head] = head.replace('{', '{ enabled: false,');
  else if (/^\s*-\s+[\w"']/.test(head)) lines.splice(block.head + 1, 0, `${' '.repeat(column)}enabled: false`);
  else return null;
  // A key whose value goes on in the next lines must not be torn from it.
  if (!isToml(file) && /^\s*-\s+[\w"']+:\s*([|>][+-]?)?\s*(#.*)?$/.test(head) && !head.includes('{')) {
    lines.splice(block.head + 1, 1);
    lines[block.head] = head.replace(/^(\s*-\s+)/, `$1enabled: false\n${' '.repeat(column)}`);
  }
  return lines.join('\n');
}

/** The text without a rule. */
export function withoutBlock(text: string, block: RuleBlock): string {
  const lines = text.split('\n');
  let end = block.end;
  while (end < lines.length && isBlank(lines[end]!) && (block.start === 0 || isBlank(lines[block.start - 1]!))) end += 1;
  lines.splice(block.start, end - block.start);
  return lines.join('\n');
}

/** The text with a rule moved to another position in the order. */
export function withMoved(text: string, file: string, from: number, to: number): string {
  const blocks = ruleBlocks(text, file);
  if (from === to || !blocks[from] || !blocks[to]) return text;
  const lines = text.split('\n');
  const parts = blocks.map((b) => lines.slice(b.start, b.end));
  const gaps = blocks.slice(0, -1).map((b, i) => lines.slice(b.end, blocks[i + 1]!.start));
  const [moved] = parts.splice(from, 1);
  parts.splice(to, 0, moved!);
  // What stands between the rules keeps its place.
  const body = parts.flatMap((part, i) => [...part, ...(gaps[i] ?? [])]);
  return [...lines.slice(0, blocks[0]!.start), ...body, ...lines.slice(blocks.at(-1)!.end)].join('\n');
}

/** The line of a key of the rule itself, relative to the lines of its text; -1 if it has none. */
export function keyLine(lines: string[], file: string, key: string): number {
  if (isToml(file)) return lines.findIndex((l) => new RegExp(`^\\s*${key}\\s*=`).test(l));
  const head = lines.findIndex((l) => /^\s*-\s/.test(l));
  const column = /^\s*-\s+/.exec(lines[head] ?? '')?.[0].length ?? 0;
  return lines.findIndex((l, i) => i >= head && new RegExp(`^\\s*(-\\s+)?${key}:`).test(l) && l.replace('-', ' ').search(/\S/) === column);
}

/** A text value on one line. Null if the rule has none, undefined if it is written in another form. */
export function scalarOf(rule: string, file: string, key: string): string | null | undefined {
  const lines = rule.split('\n');
  const line = lines[keyLine(lines, file, key)];
  if (line === undefined) return null;
  const value = line.slice(line.indexOf(isToml(file) ? '=' : ':') + 1).trim();
  try {
    if (/^"(?:[^"\\]|\\.)*"(\s+#.*)?$/.test(value)) return JSON.parse(value.replace(/\s+#[^"]*$/, '')) as string;
  } catch {
    return undefined;
  }
  const single = /^'((?:[^']|'')*)'(?:\s+#.*)?$/.exec(value);
  if (single) return single[1]!.replaceAll("''", "'");
  if (isToml(file)) return undefined;
  const plain = value.replace(/\s+#.*$/, '');
  return /^[\w/*.<>~=-]/.test(plain) && !/: |^-\s/.test(plain) ? plain : undefined;
}

/** The text of a rule with a value of its own set, in its place or below the first key. */
export function withScalar(rule: string, file: string, key: string, value: string): string {
  const lines = rule.split('\n');
  const at = keyLine(lines, file, key);
  const [mark, written] = isToml(file) ? [' = ', JSON.stringify(value)] : [': ', yamlScalar(value)];
  if (at >= 0) {
    const line = lines[at]!;
    const comment = /\s+#[^'"]*$/.exec(line)?.[0] ?? '';
    lines[at] = `${line.slice(0, line.indexOf(isToml(file) ? '=' : ':')).trimEnd()}${mark}${written}${comment}`;
    return lines.join('\n');
  }
  const head = lines.findIndex((l) => (isToml(file) ? /^\s*\[\[/ : /^\s*-\s/).test(l));
  if (isToml(file)) lines.splice(head + 1, 0, `${key}${mark}${written}`);
  else {
    const [, dash = '- ', rest = ''] = /^(\s*-\s+)(.*)$/.exec(lines[head] ?? '') ?? [];
    lines.splice(head, 1, `${dash}${key}${mark}${written}`, `${' '.repeat(dash.length)}${rest}`);
  }
  return lines.join('\n');
}
