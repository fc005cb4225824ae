// Colours source code with the modes of the rule editor's library; each is loaded with the first block that needs it.
import { StringStream, type StreamParser } from '@codemirror/language';

export interface Piece {
  text: string;
  /** CSS class, such as `keyword`; empty for plain text. */
  kind: string;
}

/** Longest code that is coloured, in characters. */
const MAX_CODE = 60_000;
/** Attempts to get a token without progress, as in CodeMirror. */
const TRIES = 10;

type Mode = StreamParser<unknown>;
/** Modes are written for their own states, which only they see. */
const mode = (found: unknown): Mode => found as Mode;

const LOADERS: Record<string, () => Promise<Mode>> = {
  javascript: async () => mode((await import('@codemirror/legacy-modes/mode/javascript')).javascript),
  typescript: async () => mode((await import('@codemirror/legacy-modes/mode/javascript')).typescript),
  json: async () => mode((await import('@codemirror/legacy-modes/mode/javascript')).json),
  python: async () => mode((await import('@codemirror/legacy-modes/mode/python')).python),
  rust: async () => mode((await import('@codemirror/legacy-modes/mode/rust')).rust),
  shell: async () => mode((await import('@codemirror/legacy-modes/mode/shell')).shell),
  diff: async () => mode((await import('@codemirror/legacy-modes/mode/diff')).diff),
  toml: async () => mode((await import('@codemirror/legacy-modes/mode/toml')).toml),
  yaml: async () => mode((await import('@codemirror/legacy-modes/mode/yaml')).yaml),
  go: async () => mode((await import('@codemirror/legacy-modes/mode/go')).go),
  xml: async () => mode((await import('@codemirror/legacy-modes/mode/xml')).html),
  css: async () => mode((await import('@codemirror/legacy-modes/mode/css')).css),
  sql: async () => mode((await import('@codemirror/legacy-modes/mode/sql')).standardSQL),
  c: async () => mode((await import('@codemirror/legacy-modes/mode/clike')).cpp),
  java: async () => mode((await import('@codemirror/legacy-modes/mode/clike')).java),
};

const NAMES: Record<string, string> = {
  js: 'javascript', jsx: 'javascript', mjs: 'javascript', ts: 'typescript', tsx: 'typescript', jsonc: 'json', jsonl: 'json',
  py: 'python', python3: 'python', rs: 'rust', sh: 'shell', bash: 'shell', zsh: 'shell', console: 'shell', patch: 'diff', yml: 'yaml',
  golang: 'go', html: 'xml', svg: 'xml', svelte: 'xml', vue: 'xml', scss: 'css', less: 'css', postgres: 'sql', mysql: 'sql',
  cpp: 'c', 'c++': 'c', h: 'c', hpp: 'c', cs: 'java', csharp: 'java', kotlin: 'java', scala: 'java',
};

/** The name under which a language is known here; empty if it is not. */
export function languageName(language: string): string {
  const name = NAMES[language] ?? language;
  return name in LOADERS ? name : '';
}

/** The pieces of each line; null if the language is unknown, or the code too long. */
export async function highlight(code: string, language: string): Promise<Piece[][] | null> {
  const load = LOADERS[languageName(language)];
  if (!load || code.length > MAX_CODE) return null;
  try {
    return pieces(code, await load());
  } catch {
    return null;
  }
}

function pieces(code: string, parser: Mode): Piece[][] {
  const state = parser.startState?.(2) ?? {};
  return code.split('\n').map((line) => {
    if (line === '') {
      parser.blankLine?.(state, 2);
      return [];
    }
    const stream = new StringStream(line, 4, 2);
    const found: Piece[] = [];
    while (!stream.eol()) {
      stream.start = stream.pos;
      let style = parser.token(stream, state);
      for (let tries = 1; stream.pos === stream.start; tries += 1) {
        if (tries > TRIES) throw new Error('the mode does not advance');
        style = parser.token(stream, state);
      }
      const kind = kindOf(style);
      const last = found.at(-1);
      if (last && last.kind === kind) last.text += stream.current();
      else found.push({ text: stream.current(), kind });
    }
    return found;
  });
}

const KINDS: Record<string, string> = {
  keyword: 'keyword', controlKeyword: 'keyword', modifier: 'keyword', atom: 'number', bool: 'number', null: 'number', number: 'number',
  string: 'string', 'string-2': 'string', regexp: 'string', quote: 'string', comment: 'comment', meta: 'comment', def: 'name',
  definition: 'name', tag: 'name', tagName: 'name', attribute: 'type', attributeName: 'type', attributeValue: 'string', property: 'type',
  propertyName: 'type', builtin: 'type', type: 'type', typeName: 'type', qualifier: 'type', header: 'name', heading: 'name',
  positive: 'added', inserted: 'added', negative: 'removed', deleted: 'removed',
};

function kindOf(style: string | null): string {
  for (const word of (style ?? '').split(/[ .]/)) {
    const kind = KINDS[word];
    if (kind) return kind;
  }
  return '';
}
