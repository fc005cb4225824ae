// Prefilled forms for rules: what they match, what they do, and the rule they make.
import { quote, term } from '../lib/query';
import { text } from '../lib/format';
import type { Field, Summary } from '../lib/types';
import { fieldsOf } from '../traffic/edits';
import type { Rule, RuleValue } from './ruleText';

export type RuleKind = 'hold' | 'answer' | 'map_local' | 'map_remote' | 'block' | 'throttle' | 'header' | 'tag';

export const KINDS: { kind: RuleKind; label: string; about: string }[] = [
  { kind: 'hold', label: 'Break here', about: 'Holds matching flows until you continue, edit or respond to them.' },
  { kind: 'answer', label: 'Mock this response', about: 'Responds in place of the origin, which is not contacted.' },
  { kind: 'map_local', label: 'Map local', about: 'Responds with a file or a folder of the machine that runs Interflow.' },
  { kind: 'map_remote', label: 'Map remote', about: 'Sends the requests to another server.' },
  { kind: 'block', label: 'Block', about: 'Rejects the requests.' },
  { kind: 'throttle', label: 'Throttle', about: 'Makes the network slow, or cuts it off.' },
  { kind: 'header', label: 'Rewrite a header', about: 'Sets or removes a header field.' },
  { kind: 'tag', label: 'Tag', about: 'Tags matching flows, so that they can be found.' },
];

/** Latency and rate of each direction; `null` cuts the connection. */
export const NETWORKS: { name: string; delay: string; rate: string }[] = [
  { name: 'slow 3G', delay: '400ms', rate: '50KB' },
  { name: '3G', delay: '300ms', rate: '90KB' },
  { name: '4G', delay: '60ms', rate: '1.1MB' },
  { name: 'DSL', delay: '25ms', rate: '250KB' },
  { name: 'slow server', delay: '2s', rate: '' },
  { name: 'offline', delay: '', rate: '' },
];

export interface RuleForm {
  kind: RuleKind;
  name: string;
  host: string;
  port: string;
  path: string;
  method: string;
  /** Matches on the response, for those that act on it. */
  status: string;
  holdAt: 'request' | 'response';
  note: string;
  answerStatus: string;
  type: string;
  /** Header fields of the mocked response, as lines. */
  headers: string;
  body: string;
  file: string;
  fallThrough: boolean;
  remote: string;
  keepHost: boolean;
  blockStatus: string;
  message: string;
  network: string;
  delay: string;
  rate: string;
  side: 'request' | 'response';
  header: string;
  /** Empty removes the field. */
  value: string;
  tag: string;
}

export const EMPTY: Omit<RuleForm, 'kind'> = {
  name: '', host: '', port: '', path: '', method: '', status: '', holdAt: 'request', note: '', answerStatus: '200',
  type: 'application/json', headers: '', body: '', file: '', fallThrough: false, remote: 'http://127.0.0.1:3000', keepHost: false,
  blockStatus: '403', message: '', network: '3G', delay: '300ms', rate: '90KB', side: 'request', header: '', value: '',
  tag: 'seen',
};

/** A form for the flows like this one. */
export function formFor(kind: RuleKind, flow: Summary | null): RuleForm {
  if (!flow) return { ...EMPTY, kind };
  const port = /:(\d+)$/.exec(flow.authority)?.[1] ?? '';
  const implied = flow.scheme === 'https' ? '443' : '80';
  return {
    ...EMPTY,
    kind,
    host: flow.authority.replace(/:\d+$/, '').replace(/[[\]]/g, ''),
    port: port === implied ? '' : port,
    path: flow.path?.split('?')[0] ?? '',
    method: flow.method ?? '',
    answerStatus: String(flow.status ?? 200),
    type: flow.response_type ?? EMPTY.type,
  };
}

/** The path as a term: with a `*` it is a pattern, otherwise exactly this path. */
function pathTerm(path: string): string {
  return path.includes('*') ? `path:${/^[\w./*-]+$/.test(path) && !path.includes('..') ? path : quote(path)}` : term('path', path, true);
}

/** The condition as a query. */
export function whenOf(form: RuleForm): string {
  const words: string[] = [];
  if (form.host.trim()) words.push(/^[\w.*-]+$/.test(form.host.trim()) ? `host:${form.host.trim()}` : term('host', form.host.trim()));
  if (form.port.trim()) words.push(`port:${form.port.trim()}`);
  if (form.path.trim()) words.push(pathTerm(form.path.trim()));
  if (form.method.trim()) words.push(`method:${form.method.trim().toUpperCase()}`);
  if (form.status.trim()) words.push(`status:${form.status.trim()}`);
  return words.join(' ');
}

/** Texts in rules may contain `${…}`; a recorded one is meant literally. */
function literal(text: string): string {
  return text.replaceAll('${', () => '$${');
}

/** Fields that belong to the recorded connection or body, not to a mock of the response. */
const NOT_COPIED = /^(connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|content-length|content-encoding|content-type|content-md5|content-digest|repr-digest|digest|etag|age|date|via|alt-svc)$/i;
const MASKED = /\*\*\* \(\d+ bytes\)/;

/** The fields of a recorded response that its mock needs, as lines, and the names of those whose values were masked. */
export function mockFields(fields: Field[]): { headers: string; masked: string[] } {
  const lines: string[] = [];
  const masked = new Set<string>();
  const named = fields.filter(([n]) => text(n).toLowerCase() === 'connection').flatMap(([, v]) => text(v).toLowerCase().split(/[\s,]+/));
  for (const [n, v] of fields) {
    const [name, value] = [text(n), text(v)];
    if (NOT_COPIED.test(name) || named.includes(name.toLowerCase())) continue;
    if (MASKED.test(value)) masked.add(name);
    else lines.push(`${name}: ${value}`);
  }
  return { headers: lines.join('\n'), masked: [...masked] };
}

/** The name in other capitals: a repeated field is another key of the same mapping, and the case of names does not matter in HTTP. */
function variant(name: string, n: number): string {
  return [...name].map((c, i) => ((n >> i) & 1 ? (c === c.toLowerCase() ? c.toUpperCase() : c.toLowerCase()) : c)).join('');
}

function headerPairs(lines: string): { [key: string]: RuleValue } {
  const pairs: { [key: string]: RuleValue } = {};
  let fields: [string, string][];
  try {
    fields = fieldsOf(lines);
  } catch {
    return pairs;
  }
  for (const [name, value] of fields) {
    let n = 0;
    while (variant(name, n) in pairs && n < 1 << Math.min(name.length, 10)) n += 1;
    pairs[variant(name, n)] = literal(value);
  }
  return pairs;
}

/** What is wrong with lines of header fields; empty if nothing is. */
function fieldProblem(lines: string): string {
  try {
    fieldsOf(lines);
    return '';
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function actionOf(form: RuleForm): RuleValue {
  switch (form.kind) {
    case 'hold': return form.note.trim() ? [{ hold: { note: form.note.trim() } }] : 'hold';
    case 'answer': {
      const answer: { [key: string]: RuleValue } = { status: Number(form.answerStatus) || 200 };
      if (form.type.trim()) answer['content_type'] = form.type.trim();
      const headers = headerPairs(form.headers);
      if (Object.keys(headers).length > 0) answer['headers'] = headers;
      if (form.body) answer['body'] = literal(form.body);
      return [{ answer }];
    }
    case 'map_local': return [{ map_local: form.fallThrough ? { path: form.file.trim(), fall_through: true } : form.file.trim() }];
    case 'map_remote': return [{ map_remote: form.keepHost ? { to: form.remote.trim(), keep_host: true } : form.remote.trim() }];
    case 'block': {
      const block: { [key: string]: RuleValue } = {};
      if (form.blockStatus.trim() && form.blockStatus.trim() !== '403') block['status'] = Number(form.blockStatus);
      if (form.message.trim()) block['message'] = literal(form.message.trim());
      return Object.keys(block).length > 0 ? [{ block }] : 'block';
    }
    case 'throttle': {
      if (form.network === 'offline') return 'abort';
      const slow: RuleValue[] = [];
      if (form.delay.trim()) slow.push({ delay: form.delay.trim() });
      if (form.rate.trim()) slow.push({ throttle: form.rate.trim() });
      return slow;
    }
    case 'header': {
      const name = form.header.trim();
      const action = form.value === '' ? `remove_${form.side}_header` : `set_${form.side}_header`;
      return [{ [action]: form.value === '' ? name : { [name]: form.value } }];
    }
    case 'tag': return [{ tag: form.tag.trim() }];
  }
}

/** What is missing before the form makes a rule; empty if nothing is. */
export function missingIn(form: RuleForm): string {
  const need: Partial<Record<RuleKind, [boolean, string]>> = {
    map_local: [form.file.trim() !== '', 'Name a file or a folder.'],
    map_remote: [form.remote.trim() !== '', 'Name the other server.'],
    header: [form.header.trim() !== '', 'Name the header field.'],
    tag: [form.tag.trim() !== '', 'Name the tag.'],
    answer: [fieldProblem(form.headers) === '', fieldProblem(form.headers)],
    throttle: [form.network === 'offline' || form.delay.trim() !== '' || form.rate.trim() !== '', 'Give a delay or a rate.'],
  };
  const [ok, words] = need[form.kind] ?? [true, ''];
  return ok ? '' : words;
}

/** The name of a rule whose form has none: one that no other rule has. */
export function defaultName(form: RuleForm, taken: ReadonlySet<string> = new Set()): string {
  const verb: Record<RuleKind, string> = {
    hold: 'hold', answer: 'mock', map_local: 'local', map_remote: 'remote', block: 'block', header: 'header', tag: 'tag',
    throttle: form.network === 'custom' ? 'slow' : form.network,
  };
  const where = [form.method, `${form.host || 'any host'}${form.path}`].filter(Boolean).join(' ');
  const name = `${verb[form.kind]} ${where}`.slice(0, 80);
  let n = 1;
  while (taken.has(n === 1 ? name : `${name} (${n})`)) n += 1;
  return n === 1 ? name : `${name} (${n})`;
}

export function ruleOf(form: RuleForm, taken?: ReadonlySet<string>): Rule {
  const when = whenOf(form);
  const holdsResponse = form.kind === 'hold' && form.holdAt === 'response';
  return {
    name: form.name.trim() || defaultName(form, taken),
    ...(holdsResponse ? { phase: 'response_body' } : {}),
    ...(when ? { when } : {}),
    then: actionOf(form),
  };
}
