// The actions of one rule: read from its text and written back. Forms that this does not read are left to the text.
import { isToml, thenText, type RuleValue } from './ruleText';
import { keyLine } from './ruleFile';

/** The text is YAML or TOML, but in a form that is not read here. */
class Unread extends Error {}

const MAX_DEPTH = 16;

/** Reads values written on one line: YAML's flow style, or TOML. */
class Inline {
  at = 0;
  constructor(private readonly text: string, private readonly toml: boolean) {}

  private space(): void {
    while (/\s/.test(this.text[this.at] ?? '')) this.at += 1;
    if (this.text[this.at] === '#') throw new Unread('a comment');
  }

  value(depth = 0): RuleValue {
    if (depth > MAX_DEPTH) throw new Unread('too deep');
    this.space();
    const first = this.text[this.at];
    if (first === '[') return this.list(depth);
    if (first === '{') return this.table(depth);
    return this.scalar(depth > 0);
  }

  private list(depth: number): RuleValue[] {
    const items: RuleValue[] = [];
    this.at += 1;
    for (;;) {
      this.space();
      if (this.text[this.at] === ']') break;
      items.push(this.value(depth + 1));
      this.separator(']');
    }
    this.at += 1;
    return items;
  }

  private table(depth: number): { [key: string]: RuleValue } {
    const found: { [key: string]: RuleValue } = {};
    this.at += 1;
    for (;;) {
      this.space();
      if (this.text[this.at] === '}') break;
      const key = this.key();
      if (key in found) throw new Unread('a repeated key');
      found[key] = this.value(depth + 1);
      this.separator('}');
    }
    this.at += 1;
    return found;
  }

  private separator(end: string): void {
    this.space();
    if (this.text[this.at] === ',') this.at += 1;
    else if (this.text[this.at] !== end) throw new Unread('neither a comma nor the end');
  }

  private key(): string {
    const mark = this.toml ? '=' : ':';
    const first = this.text[this.at] ?? '';
    let key: string;
    if (first === '"' || first === "'") key = this.quoted(first);
    else {
      const plain = (this.toml ? /^[\w-]+/ : /^[\w.*$/-]+/).exec(this.text.slice(this.at))?.[0];
      if (!plain) throw new Unread('not a key');
      this.at += plain.length;
      key = plain;
    }
    this.space();
    if (this.text[this.at] !== mark || key === '__proto__') throw new Unread('not a key');
    this.at += 1;
    return key;
  }

  private quoted(quote: string): string {
    if (this.text.startsWith(quote.repeat(3), this.at) && this.toml) throw new Unread('a text of several lines');
    const rest = this.text.slice(this.at);
    const found = (quote === '"' ? /^"(?:[^"\\\n]|\\.)*"/ : this.toml ? /^'[^'\n]*'/ : /^'(?:[^'\n]|'')*'/).exec(rest)?.[0];
    if (found === undefined) throw new Unread('an open quote');
    this.at += found.length;
    if (quote === "'") return this.toml ? found.slice(1, -1) : found.slice(1, -1).replaceAll("''", "'");
    try {
      return JSON.parse(found) as string;
    } catch {
      throw new Unread('an escape');
    }
  }

  private scalar(inside: boolean): RuleValue {
    const first = this.text[this.at] ?? '';
    if (first === '"' || first === "'") return this.quoted(first);
    const plain = (inside || this.toml ? /^[^,[\]{}\n#]*/ : /^[^\n]*/).exec(this.text.slice(this.at))![0];
    this.at += plain.length;
    return plainScalar(plain.trim(), this.toml);
  }

  /** Whether nothing is left. */
  end(): boolean {
    this.space();
    return this.at >= this.text.length;
  }
}

function plainScalar(text: string, toml: boolean): RuleValue {
  if (text === 'true') return true;
  if (text === 'false') return false;
  if (/^-?\d/.test(text) && String(Number(text)) === text) return Number(text);
  // What YAML reads as something else than this text, and TOML not at all.
  if (toml || text === '' || /^(null|~|yes|no|on|off|-?\.inf|\.nan)$/i.test(text) || /^[-+.]?\d[\d_]*(\.\d*)?(e[-+]?\d+)?$|^0[xo]/i.test(text)) throw new Unread('not a text');
  if (/^[&*!|>%@`?#"'[\]{},-](\s|$)|^[&*!|>%@`"'[\]{},#]/.test(text) || / #|: |:$/.test(text)) throw new Unread('not a plain text');
  return text;
}

function inline(text: string, toml: boolean): RuleValue {
  const reader = new Inline(text, toml);
  const value = reader.value();
  if (!reader.end()) throw new Unread('more than a value');
  return value;
}

const indentOf = (line: string) => line.length - line.trimStart().length;

/** Reads YAML in block style: the lines of one value. */
function block(lines: string[], depth = 0): RuleValue {
  if (depth > MAX_DEPTH) throw new Unread('too deep');
  const first = lines[0];
  if (first === undefined) throw new Unread('no value');
  const indent = indentOf(first);
  const isList = /^\s*-(\s|$)/.test(first);
  const parts: string[][] = [];
  for (const line of lines) {
    if (line.trim() === '') parts.at(-1)?.push(line);
    else if (indentOf(line) === indent && (!isList || /^\s*-(\s|$)/.test(line)) && !(!isList && /^\s*-(\s|$)/.test(line))) parts.push([line]);
    else if (indentOf(line) > indent || /^\s*-(\s|$)/.test(line)) parts.at(-1)!.push(line);
    else throw new Unread('an indentation');
  }
  if (isList) {
    return parts.map(([head = '', ...rest]) => {
      const mark = /^\s*-\s*/.exec(head)![0];
      const inner = head.slice(mark.length);
      // The item as a block of its own: its first line moves to the column behind the dash.
      if (/^[\w"'.*$/-]+:(\s|$)/.test(inner)) return block([' '.repeat(mark.length) + inner, ...rest], depth + 1);
      return valueAfter(inner, rest, depth);
    });
  }
  const found: { [key: string]: RuleValue } = {};
  for (const [head = '', ...rest] of parts) {
    const match = /^\s*(?:([\w.*$/-]+)|("(?:[^"\\]|\\.)*"|'[^']*'))\s*:(?:\s+(.*))?$/.exec(head);
    const key = match?.[1] ?? (match?.[2] ? String(inline(match[2], false)) : undefined);
    if (!match || key === undefined || key in found || key === '__proto__') throw new Unread('not a key');
    found[key] = valueAfter(match[3] ?? '', rest, depth);
  }
  return found;
}

/** A value that begins behind a key or a dash, and goes on in the lines below. */
function valueAfter(head: string, rest: string[], depth: number): RuleValue {
  const text = head.trim();
  const literal = /^\|(-?)$/.exec(text);
  if (literal) {
    const indent = Math.min(...rest.filter((l) => l.trim()).map(indentOf));
    const whole = rest.map((l) => l.slice(indent)).join('\n').replace(/\n+$/, '');
    return literal[1] ? whole : `${whole}\n`;
  }
  const below = rest.filter((l) => l.trim() !== '');
  if (text === '') return block(below, depth + 1);
  if (below.length > 0) throw new Unread('a value of several lines');
  return inline(text, false);
}

interface Range {
  from: number;
  end: number;
}

/** The lines of a rule's actions. */
function thenLines(lines: string[], file: string): Range | null {
  const from = keyLine(lines, file, 'then');
  if (from < 0) return null;
  let end = from + 1;
  if (isToml(file)) {
    while (end < lines.length && !/^\s*[\w."'-]+\s*=|^\s*\[\[?[\w."' -]+\]\]?\s*(#.*)?$/.test(lines[end]!)) end += 1;
  } else {
    const column = lines[from]!.replace('-', ' ').search(/\S/);
    while (end < lines.length && (lines[end]!.trim() === '' || indentOf(lines[end]!) > column || (indentOf(lines[end]!) === column && /^\s*-(\s|$)/.test(lines[end]!)))) end += 1;
  }
  while (end > from + 1 && lines[end - 1]!.trim() === '') end -= 1;
  return { from, end };
}

/** The actions of a rule; undefined if they are written in a form that only the text can change, such as with comments. */
export function thenOf(rule: string, file: string): RuleValue[] | undefined {
  const lines = rule.split('\n');
  const range = thenLines(lines, file);
  if (!range) return isToml(file) && /^\s*\[+\s*rules\s*\.\s*then/m.test(rule) ? undefined : [];
  const [head = '', ...rest] = lines.slice(range.from, range.end);
  try {
    if (rest.some((l) => l.trim().startsWith('#'))) throw new Unread('a comment');
    const value = isToml(file)
      ? inline([head.slice(head.indexOf('=') + 1), ...rest].join('\n'), true)
      : valueAfter(head.slice(head.indexOf(':') + 1), rest, 0);
    return Array.isArray(value) ? value : [value];
  } catch (error) {
    if (error instanceof Unread) return undefined;
    throw error;
  }
}

/** The text of a rule with other actions; everything else stays as it was written. */
export function withThen(rule: string, file: string, actions: RuleValue[]): string {
  const lines = rule.replace(/\n+$/, '').split('\n');
  const range = thenLines(lines, file) ?? { from: lines.length, end: lines.length };
  const head = lines[range.from];
  const written = isToml(file) ? 0 : head !== undefined ? head.replace('-', ' ').search(/\S/) : indentOf(lines.find((l) => /^\s*-\s/.test(l)) ?? '') + 2;
  const added = thenText(actions, file, ' '.repeat(Math.max(written, 0)));
  // A key behind the dash of the item keeps the dash.
  if (head !== undefined && /^\s*-/.test(head)) added[0] = head.slice(0, written) + added[0]!.slice(written);
  lines.splice(range.from, range.end - range.from, ...added);
  return lines.join('\n');
}

/** Reads a value that was typed into a field: as YAML on one line, or the text itself. */
export function typedValue(text: string): RuleValue {
  try {
    return inline(text.trim(), false);
  } catch (error) {
    if (error instanceof Unread) return text;
    throw error;
  }
}
