// JSON parser that keeps every token as written: large numbers, escapes, repeated names.

export interface Node {
  kind: 'object' | 'array' | 'string' | 'number' | 'word';
  /** The member name as written, without quotes. */
  name?: string;
  /** The value as written; empty for objects and arrays. */
  raw: string;
  children: Node[];
}

/** Maximum nesting depth. */
const MAX_DEPTH = 500;

/** A syntax error. */
export class JsonError extends Error {}

const TOKEN = /\s*(?:([{}[\]:,])|("(?:[^"\\\u0000-\u001f]|\\.)*")|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null))/y;

/** Parses one value, or several (JSON lines). */
export function parse(text: string): Node[] {
  const scan = new RegExp(TOKEN);
  const next = (): string | null => {
    const from = scan.lastIndex;
    const found = scan.exec(text);
    if (found) return found[1] ?? found[2] ?? found[3] ?? found[4] ?? null;
    if (text.slice(from).trim() === '') return null;
    throw new JsonError(`not JSON at character ${from + 1}`);
  };
  const value = (token: string | null, depth: number): Node => {
    if (token === null) throw new JsonError('unexpected end');
    if (depth > MAX_DEPTH) throw new JsonError('nested too deeply');
    if (token === '{' || token === '[') return container(token, depth);
    if (/^[}\]:,]$/.test(token)) throw new JsonError(`value expected at character ${scan.lastIndex}`);
    const kind = token.startsWith('"') ? 'string' : /^[-\d]/.test(token) ? 'number' : 'word';
    return { kind, raw: token, children: [] };
  };
  const container = (open: string, depth: number): Node => {
    const isObject = open === '{';
    const close = isObject ? '}' : ']';
    const node: Node = { kind: isObject ? 'object' : 'array', raw: '', children: [] };
    let token = next();
    if (token === close) return node;
    for (;;) {
      let name: string | undefined;
      if (isObject) {
        if (token === null || !token.startsWith('"')) throw new JsonError(`name expected at character ${scan.lastIndex}`);
        name = token.slice(1, -1);
        if (next() !== ':') throw new JsonError(`colon expected at character ${scan.lastIndex}`);
        token = next();
      }
      const child = value(token, depth + 1);
      if (name !== undefined) child.name = name;
      node.children.push(child);
      const after = next();
      if (after === close) return node;
      if (after !== ',') throw new JsonError(`comma expected at character ${scan.lastIndex}`);
      token = next();
    }
  };
  const found: Node[] = [];
  for (let token = next(); token !== null; token = next()) found.push(value(token, 0));
  if (found.length === 0) throw new JsonError('the text is empty');
  return found;
}

/** JSON with new white space; numbers and escapes stay as written. */
export function indented(nodes: Node[]): string {
  return nodes.map((node) => indentedNode(node, '')).join('\n');
}

function indentedNode(node: Node, indent: string): string {
  if (node.kind !== 'object' && node.kind !== 'array') return node.raw;
  const [open, close] = node.kind === 'object' ? ['{', '}'] : ['[', ']'];
  if (node.children.length === 0) return open + close;
  const inner = `${indent}  `;
  const lines = node.children.map((child) => `${inner}${child.name === undefined ? '' : `"${child.name}": `}${indentedNode(child, inner)}`);
  return `${open}\n${lines.join(',\n')}\n${indent}${close}`;
}
