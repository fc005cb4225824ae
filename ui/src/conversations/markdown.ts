// Markdown of a message as a tree for the page: never as HTML text, so that nothing in it can become markup.
import { Lexer, type Token } from 'marked';
import { MAX_MARKDOWN } from './longText';

/** Depth at which nested blocks are no longer rendered but shown as their source. */
const MAX_DEPTH = 16;

export type Align = 'left' | 'center' | 'right' | null;

/** A node of the tree. HTML of the message is text here, and links and images carry only what is safe to show. */
export type Node =
  | { kind: 'text'; text: string }
  | { kind: 'codespan'; text: string }
  | { kind: 'break' | 'rule' }
  | { kind: 'paragraph' | 'inline' | 'quote' | 'strong' | 'em' | 'del'; children: Node[] }
  | { kind: 'heading'; level: number; children: Node[] }
  | { kind: 'code'; text: string; language: string }
  | { kind: 'list'; ordered: boolean; start: number; items: { checked: boolean | null; children: Node[] }[] }
  | { kind: 'table'; align: Align[]; head: Node[][]; rows: Node[][][] }
  | { kind: 'link'; href: string | null; target: string; children: Node[] }
  | { kind: 'image'; href: string | null; target: string; alt: string };

/** Most emphasis marks and brackets of a paragraph, and nested blocks of a line: the parser's time grows with their square. */
const MAX_MARKS = 1500;
const MAX_NESTED = 40;

/** Whether parsing might block the page: no text of a person or a model comes near these bounds. */
export function isHeavy(text: string): boolean {
  let [marks, fence] = [0, false];
  for (const line of text.split('\n')) {
    if (/^ {0,3}(```|~~~)/.test(line)) fence = !fence;
    if (fence) continue;
    // A row of a table is parsed by itself.
    if (line.trim() === '' || line.startsWith('|')) marks = 0;
    for (let i = 0; i < line.length; i += 1) {
      if ('*_[]~<'.includes(line[i]!)) marks += 1;
    }
    if (marks > MAX_MARKS) return true;
    const nested = /^(?:\s*(?:>|[-*+](?=\s)|\d{1,9}[.)](?=\s)))+/.exec(line)?.[0] ?? '';
    if (nested.replace(/[^>*+.)-]/g, '').length > MAX_NESTED) return true;
  }
  return false;
}

/** The tree of a text; null if it is too long, or cannot be parsed. */
export function parseMarkdown(text: string): Node[] | null {
  if (text.length > MAX_MARKDOWN || isHeavy(text)) return null;
  try {
    return nodes(new Lexer({ gfm: true, breaks: true }).lex(text), 0);
  } catch {
    // A pathological nesting exhausts the parser's stack.
    return null;
  }
}

/** The target of a link if it may be opened: the web or mail; null for scripts, data and everything else. */
export function safeTarget(href: string): string | null {
  try {
    const url = new URL(href);
    return /^(https?|mailto):$/.test(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function nodes(tokens: Token[], depth: number): Node[] {
  return tokens.flatMap((token) => node(token, depth));
}

function node(token: Token, depth: number): Node[] {
  if (depth > MAX_DEPTH) return [{ kind: 'text', text: token.raw }];
  const inside = () => ('tokens' in token && token.tokens ? nodes(token.tokens, depth + 1) : [text(token)]);
  switch (token.type) {
    case 'space':
    case 'def':
      return [];
    case 'heading':
      return [{ kind: 'heading', level: token.depth as number, children: inside() }];
    case 'paragraph':
      return [{ kind: 'paragraph', children: inside() }];
    case 'text':
      return 'tokens' in token && token.tokens ? [{ kind: 'inline', children: inside() }] : [text(token)];
    case 'code':
      return [{ kind: 'code', text: token.text as string, language: languageOf((token.lang as string | undefined) ?? '') }];
    case 'blockquote':
      return [{ kind: 'quote', children: inside() }];
    case 'list': {
      const items = (token.items as { task: boolean; checked?: boolean; tokens: Token[] }[]).map((item) => ({
        checked: item.task ? item.checked === true : null,
        children: nodes(item.tokens.filter((t) => t.type !== 'checkbox'), depth + 1),
      }));
      return [{ kind: 'list', ordered: token.ordered as boolean, start: Number(token.start) || 1, items }];
    }
    case 'table': {
      const cells = (row: { tokens: Token[] }[]) => row.map((cell) => nodes(cell.tokens, depth + 1));
      return [{
        kind: 'table', align: token.align as Align[], head: cells(token.header as { tokens: Token[] }[]),
        rows: (token.rows as { tokens: Token[] }[][]).map(cells),
      }];
    }
    case 'hr':
      return [{ kind: 'rule' }];
    case 'br':
      return [{ kind: 'break' }];
    case 'strong':
    case 'em':
    case 'del':
      return [{ kind: token.type, children: inside() }];
    case 'codespan':
      return [{ kind: 'codespan', text: token.text as string }];
    case 'escape':
      return [{ kind: 'text', text: token.text as string }];
    case 'link':
      return [{ kind: 'link', href: safeTarget(token.href as string), target: token.href as string, children: inside() }];
    case 'image':
      return [{ kind: 'image', href: safeTarget(token.href as string), target: token.href as string, alt: token.text as string }];
    default:
      // HTML and whatever a later parser adds: its source.
      return [{ kind: 'text', text: token.raw }];
  }
}

function text(token: Token): Node {
  return { kind: 'text', text: decoded('text' in token ? (token.text as string) : token.raw) };
}

/** The first word after the fence, without braces: `{.rust}` and `rust,ignore` are rust. */
function languageOf(info: string): string {
  return /[a-z0-9+#-]+/i.exec(info)?.[0].toLowerCase() ?? '';
}

const ENTITIES: Record<string, string> = {
  amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', copy: '©', reg: '®', hellip: '…', mdash: '—', ndash: '–',
  rarr: '→', larr: '←', times: '×', middot: '·', bull: '•', check: '✓', deg: '°', euro: '€',
};

/** A text without its character references; unknown ones are kept. */
export function decoded(source: string): string {
  return source.replace(/&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|([a-z]{2,8}));/gi, (whole, decimal?: string, hex?: string, name?: string) => {
    if (name) return ENTITIES[name] ?? whole;
    const code = decimal ? Number(decimal) : Number.parseInt(hex!, 16);
    return code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff) ? String.fromCodePoint(code) : '\ufffd';
  });
}
