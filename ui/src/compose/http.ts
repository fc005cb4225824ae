// Composed requests: variables, `.http` files, and assertions on the response.
import { indented, parse } from '../lib/json';
import { fieldsOf } from '../traffic/edits';

export interface Assertion {
  kind: 'status' | 'header' | 'json';
  /** The field's name or the path; nothing for the status. */
  at: string;
  expected: string;
}

export interface ComposedRequest {
  name: string;
  method: string;
  url: string;
  headers: [string, string][];
  body: string;
  assertions: Assertion[];
}

export interface Variable {
  name: string;
  value: string;
}

/** A named set of variables, which replace those of the collection. */
export interface Environment {
  name: string;
  variables: Variable[];
}

export interface Collection {
  variables: Variable[];
  environments?: Environment[];
  requests: ComposedRequest[];
}

/** What is sent. In a file and in the history, the two others are methods, as other programs have them in `.http` files. */
export type RequestKind = 'http' | 'websocket' | 'grpc';
export const KIND_METHODS: Record<RequestKind, string> = { http: 'GET', websocket: 'WEBSOCKET', grpc: 'GRPC' };

export function kindOf(method: string): RequestKind {
  const written = method.trim().toUpperCase();
  return written === KIND_METHODS.websocket || written === 'WS' ? 'websocket' : written === KIND_METHODS.grpc ? 'grpc' : 'http';
}

export const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'];

export const blank = (): ComposedRequest => ({ name: '', method: 'GET', url: '', headers: [['Accept', '*/*']], body: '', assertions: [] });

/** How deep the value of a variable may name others. */
const MAX_DEPTH = 8;
const VARIABLE = /\{\{\s*(\$?[\w.-]+)\s*\}\}/g;

/** Values made anew for each use. */
const MADE: Record<string, () => string> = {
  $guid: () => crypto.randomUUID(),
  $uuid: () => crypto.randomUUID(),
  $timestamp: () => String(Math.floor(Date.now() / 1000)),
  $datetime: () => new Date().toISOString(),
};

/** Replaces `{{name}}`; names without a value are added to `missing`. */
export function expand(text: string, variables: Variable[], missing = new Set<string>(), depth = 0): string {
  return text.replace(VARIABLE, (whole, name: string) => {
    const own = MADE[name];
    if (own && Object.hasOwn(MADE, name)) return own();
    // The last one counts, as in an `.http` file.
    const found = variables.findLast((v) => v.name === name);
    if (!found || depth >= MAX_DEPTH) {
      missing.add(name);
      return whole;
    }
    return expand(found.value, variables, missing, depth + 1);
  });
}

/** What `write` makes of texts with their variables replaced. Throws if one has no value. */
export function expandAll<T>(variables: Variable[], write: (value: (text: string) => string) => T): T {
  const missing = new Set<string>();
  const written = write((text) => expand(text, variables, missing));
  if (missing.size > 0) throw new Error(`no value for ${[...missing].map((n) => `{{${n}}}`).join(', ')}: add it to the variables`);
  return written;
}

/** What is sent: the request with its variables replaced. Throws if one has no value. */
export function expanded(request: ComposedRequest, variables: Variable[]) {
  const sent = expandAll(variables, (value) => ({
    method: value(request.method).trim() || 'GET',
    url: value(request.url).trim(),
    headers: request.headers.map(([n, v]): [string, string] => [value(n), value(v)]),
    body: value(request.body),
  }));
  if (!sent.url) throw new Error('write a URL');
  // What people write first.
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(sent.url)) sent.url = `${kindOf(sent.method) === 'websocket' ? 'ws' : 'http'}://${sent.url}`;
  if (kindOf(sent.method) === 'grpc') sent.url = sent.url.replace(/^grpc(s?):/i, 'http$1:');
  return sent;
}

/** `name = value` lines. */
export function variablesOf(text: string): Variable[] {
  const list: Variable[] = [];
  for (const line of text.split('\n')) {
    if (line.trim() === '' || line.trim().startsWith('#')) continue;
    const at = line.indexOf('=');
    const name = line.slice(0, at).trim();
    if (at < 1 || !/^[\w.-]+$/.test(name)) throw new Error(`“${line.trim()}” is not a variable: write name = value`);
    list.push({ name, value: line.slice(at + 1).trim() });
  }
  return list;
}

export const variablesText = (list: Variable[]) => list.map((v) => `${v.name} = ${v.value}`).join('\n');

/** Requests of an `.http` or `.rest` file, as editors have them. What cannot be kept is noted. */
export function parseHttpFile(text: string): Collection & { notes: string[] } {
  const out: Collection & { notes: string[] } = { variables: [], requests: [], notes: [] };
  let name = '';
  let block: string[] = [];
  const flush = () => {
    const request = requestOf(block, name, out);
    if (request) out.requests.push(request);
    block = [];
    name = '';
  };
  for (const line of text.replace(/^\ufeff/, '').split(/\r\n|\r|\n/)) {
    if (line.startsWith('###')) {
      flush();
      name = line.slice(3).trim();
    } else block.push(line);
  }
  flush();
  if (out.requests.length === 0) throw new Error('there is no request in this file: a line such as GET https://example.com/');
  return out;
}

function requestOf(lines: string[], title: string, out: Collection & { notes: string[] }): ComposedRequest | null {
  let name = title;
  let at = 0;
  const assertions: Assertion[] = [];
  for (; at < lines.length; at += 1) {
    const line = lines[at]!.trim();
    const variable = /^@([\w.-]+)\s*=\s*(.*)$/.exec(line);
    if (variable) out.variables.push({ name: variable[1]!, value: variable[2]! });
    else if (/^(#|\/\/)\s*@assert\s/.test(line)) assertions.push(...assertionOf(line));
    else if (/^(#|\/\/)/.test(line)) name = /^(?:#|\/\/)\s*@name[\s=]+(\S+)/.exec(line)?.[1] ?? name;
    else if (line !== '') break;
  }
  if (at === lines.length) return null;
  const first = /^(?:([A-Za-z]+)\s+)?(\S.*?)(?:\s+HTTP\/[\d.]+)?$/.exec(lines[at]!.trim());
  const request: ComposedRequest = { ...blank(), name, assertions, headers: [], method: (first?.[1] ?? 'GET').toUpperCase(), url: first?.[2] ?? '' };
  at += 1;
  // A query may continue on indented lines.
  for (; /^\s+[?&]/.test(lines[at] ?? ''); at += 1) request.url += lines[at]!.trim();
  const fields: string[] = [];
  for (; at < lines.length && lines[at]!.trim() !== ''; at += 1) {
    if (!/^\s*(#|\/\/)/.test(lines[at]!)) fields.push(lines[at]!);
  }
  request.headers = fieldsOf(fields.join('\n'));
  const body = lines.slice(at + 1);
  // Scripts and files of the editor that wrote this are not run and not read.
  const script = body.findIndex((line) => /^(>|<>)\s/.test(line));
  if (script >= 0) {
    out.notes.push(`${name || request.url}: a response handler was left out`);
    body.length = script;
  }
  // `< ./file`, `<@ ./file` with its variables replaced, `<@latin1 ./file`; XML begins without a space.
  const file = /^<(?:@[\w-]*)?\s+(\S.*)$/.exec(body[0] ?? '')?.[1];
  if (file) {
    out.notes.push(`${name || request.url}: the body is the file ${file.trim()}, which was not read`);
    body.length = 0;
  }
  request.body = body.join('\n').trim();
  return request;
}

/** An assertion in a comment: `# @assert json $.id == 5`. Other programs ignore it. */
function assertionOf(line: string): Assertion[] {
  const [, kind, rest = ''] = /@assert\s+(status|header|json)\s+(.*)$/.exec(line) ?? [];
  if (kind === 'status') return [{ kind, at: '', expected: rest.replace(/^==\s*/, '').trim() }];
  const at = rest.indexOf(' == ');
  return (kind === 'header' || kind === 'json') && at > 0 ? [{ kind, at: rest.slice(0, at).trim(), expected: rest.slice(at + 4).trim() }] : [];
}

const assertionText = ({ kind, at, expected }: Assertion) => `# @assert ${kind}${kind === 'status' ? '' : ` ${at}`} == ${expected}\n`;

/** The text of an `.http` file. */
export function httpFile({ variables, requests }: Collection): string {
  const parts = requests.map((r) => {
    const fields = r.headers.map(([n, v]) => `${n}: ${v}\n`).join('');
    return `### ${r.name}\n${r.assertions.map(assertionText).join('')}${r.method} ${r.url}\n${fields}${r.body ? `\n${r.body}\n` : ''}`;
  });
  return `${variables.map((v) => `@${v.name} = ${v.value}\n`).join('')}${variables.length > 0 ? '\n' : ''}${parts.join('\n')}`;
}

export interface Checked {
  ok: boolean;
  text: string;
}

export interface Answer {
  status: number;
  headers: [string, string][];
  body: string;
}

/** A value in JSON by a path such as `$.items[0].name`; undefined if there is none. */
export function jsonAt(value: unknown, path: string): unknown {
  let rest = path.trim().replace(/^\$/, '');
  let at = value;
  while (rest !== '') {
    const step = /^(?:\.([^.[\]]+)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|\['([^']*)'\]|^([^.[\]]+))/.exec(rest);
    if (!step) throw new Error(`“${path}” is not a path: write $.name[0].name`);
    rest = rest.slice(step[0].length);
    if (typeof at !== 'object' || at === null) return undefined;
    const key = step[1] ?? step[2] ?? step[3] ?? step[4] ?? step[5] ?? '';
    at = Object.hasOwn(at, key) ? (at as Record<string, unknown>)[key] : undefined;
  }
  return at;
}

/** Whether the response is as expected: a value, `*` for any; of a status also `2xx`. */
export function check({ kind, at, expected }: Assertion, answer: Answer): Checked {
  const wanted = expected.trim();
  const is = (found: string | undefined, what: string): Checked => {
    const ok = found !== undefined && (wanted === '*' || found === wanted);
    return { ok, text: ok ? `${what} is ${found}` : `${what} is ${found ?? 'missing'}, not ${wanted}` };
  };
  if (kind === 'status') {
    const status = String(answer.status);
    const ok = wanted === '*' || new RegExp(`^${wanted.replace(/[^0-9x]/gi, '').replace(/x/gi, '\\d') || '$.'}$`).test(status);
    return { ok, text: ok ? `status is ${status}` : `status is ${status}, not ${wanted}` };
  }
  if (kind === 'header') {
    const found = answer.headers.filter(([n]) => n.toLowerCase() === at.trim().toLowerCase()).map(([, v]) => v);
    return is(found.length > 0 ? found.join(', ') : undefined, at.trim());
  }
  try {
    const value = jsonAt(JSON.parse(answer.body), at);
    if (value === undefined) return is(undefined, at);
    const ok = wanted === '*' || wanted === value || wanted === JSON.stringify(value);
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    return { ok, text: ok ? `${at} is ${text}` : `${at} is ${text.slice(0, 200)}, not ${wanted}` };
  } catch (error) {
    return { ok: false, text: error instanceof SyntaxError ? 'the body is not JSON' : String(error instanceof Error ? error.message : error) };
  }
}

/** What is wrong with a body that should be JSON; null if it is right, or should not be JSON. Variables count as values. */
export function jsonProblem(body: string, headers: string): string | null {
  const says = /^content-type:\s*[^\s;]*json/im.test(headers);
  if (body.trim() === '' || !(says || /^\s*[[{]/.test(body)) || /^\s*\{\{[^}]*\}\}\s*$/.test(body)) return null;
  try {
    JSON.parse(body.replace(VARIABLE, '0'));
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** The body with new white space, its variables kept. */
export function formatted(body: string): string {
  const kept: string[] = [];
  const marked = body.replace(VARIABLE, (whole) => `9${String(kept.push(whole) - 1).padStart(4, '0')}7777777`);
  const text = indented(parse(marked));
  return text.replace(/9(\d{4})7777777/g, (whole, n: string) => kept[Number(n)] ?? whole);
}
