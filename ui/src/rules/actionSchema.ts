// What the schema of rule files says about actions, for forms: their names, descriptions and parameters.
import type { RuleValue } from './ruleText';
import type { Schema } from './schema';

/** One parameter of an action. */
export interface ActionField {
  name: string;
  about: string;
  kind: 'text' | 'lines' | 'number' | 'flag' | 'choice' | 'pairs' | 'value';
  choices: string[];
  isRequired: boolean;
}

export interface ActionForm {
  name: string;
  about: string;
  /** `none` has no parameters, `text` one value, `names` a list of texts, `pairs` values by name, `fields` named parameters. */
  kind: 'none' | 'text' | 'names' | 'pairs' | 'fields';
  fields: ActionField[];
  /** The parameter that can be written alone, in place of all of them. */
  short: string | null;
}

/** Offered first. */
export const COMMON = [
  'answer', 'block', 'redirect', 'map_remote', 'map_local', 'set_request_header', 'remove_request_header', 'set_response_header', 'remove_response_header',
  'set_status', 'edit_request_body', 'edit_response_body', 'delay', 'throttle', 'hold', 'tag', 'comment', 'log', 'anticache', 'abort',
];

/** Parameters that are texts of several lines. */
const LONG = /^(body|set|text|html|script|code|content)$/;

/** A schema with its references and alternatives. */
function all(root: Schema, schema: Schema | undefined, depth = 0): Schema[] {
  if (!schema || depth > 8) return [];
  const referred = schema.$ref ? root.$defs?.[schema.$ref.replace('#/$defs/', '')] : undefined;
  return [schema, ...all(root, referred, depth + 1), ...[...(schema.anyOf ?? []), ...(schema.oneOf ?? [])].flatMap((s) => all(root, s, depth + 1))];
}

const hasType = (schemas: Schema[], ...types: string[]) => schemas.some((s) => [s.type ?? []].flat().some((t) => types.includes(t)));

function fieldOf(root: Schema, name: string, schema: Schema, isRequired: boolean): ActionField {
  const schemas = all(root, schema);
  const choices = schemas.flatMap((s) => [...(s.enum ?? []), ...(s.const === undefined ? [] : [s.const])]).filter((v): v is string => typeof v === 'string');
  const about = schema.description ?? schemas.find((s) => s.description)?.description ?? '';
  const isText = hasType(schemas, 'string') && !schemas.some((s) => s.properties);
  const kind = schemas.some((s) => s.type === 'object' && typeof s.additionalProperties === 'object' && !s.properties) ? 'pairs'
    : choices.length > 0 ? 'choice'
    : isText ? (LONG.test(name) ? 'lines' : 'text')
    : hasType(schemas, 'boolean') ? 'flag'
    : hasType(schemas, 'integer', 'number') ? 'number'
    : 'value';
  return { name, about, kind, choices, isRequired };
}

function formOf(root: Schema, name: string, about: string, params: Schema | undefined): ActionForm {
  const schemas = all(root, params);
  const table = schemas.find((s) => s.properties && Object.keys(s.properties).length > 0);
  const plain = { name, about, fields: [], short: null };
  if (table) {
    const required = new Set(table.required ?? []);
    const fields = Object.entries(table.properties ?? {}).map(([key, s]) => fieldOf(root, key, s, required.has(key)));
    const short = schemas.flatMap((s) => (hasType([s], 'string') ? [/^`(\w+)`$/.exec(s.description ?? '')?.[1]] : [])).find((s) => s !== undefined) ?? null;
    return { ...plain, kind: 'fields', fields, short };
  }
  if (schemas.some((s) => s.type === 'object' && typeof s.additionalProperties === 'object')) return { ...plain, kind: 'pairs' };
  if (hasType(schemas, 'array')) return { ...plain, kind: 'names' };
  return { ...plain, kind: hasType(schemas, 'string', 'integer', 'number') ? 'text' : 'none' };
}

/** The forms of all actions, by name. */
export function actionForms(root: Schema): Map<string, ActionForm> {
  const found = new Map<string, ActionForm>();
  for (const schema of root.$defs?.['Action']?.anyOf ?? []) {
    const [name] = schema.required ?? [];
    if (name) found.set(name, formOf(root, name, schema.description ?? '', schema.properties?.[name]));
  }
  return found;
}

/** The name of an action, and its parameters; undefined if it has none. */
export function splitAction(action: RuleValue): { name: string; params: RuleValue | undefined } {
  if (typeof action === 'object' && !Array.isArray(action)) {
    const [name = '', params] = Object.entries(action)[0] ?? [];
    return { name, params };
  }
  return { name: String(action), params: undefined };
}

/** An action with these parameters, in its shortest form. */
export function joinAction(form: ActionForm, params: RuleValue | undefined): RuleValue {
  if (params === undefined) return form.name;
  if (form.kind === 'fields' && typeof params === 'object' && !Array.isArray(params)) {
    const keys = Object.keys(params);
    if (keys.length === 0) return form.name;
    const [only] = keys;
    if (keys.length === 1 && only === form.short && typeof params[only!] !== 'object') return { [form.name]: params[only!]! };
  }
  return { [form.name]: params };
}

/** The parameters of an action with fields, by name. */
export function fieldValues(form: ActionForm, params: RuleValue | undefined): { [key: string]: RuleValue } {
  if (params === undefined || params === true) return {};
  if (typeof params === 'object' && !Array.isArray(params)) return params;
  return form.short ? { [form.short]: params } : {};
}

/** What a new action needs before it can be valid; empty texts, so that the form shows them. */
export function emptyAction(form: ActionForm): RuleValue {
  if (form.kind === 'none') return form.name;
  if (form.kind === 'text') return { [form.name]: '' };
  if (form.kind === 'names') return { [form.name]: [] };
  if (form.kind === 'pairs') return { [form.name]: {} };
  const required = form.fields.filter((f) => f.isRequired).map((f) => [f.name, f.kind === 'flag' ? false : f.kind === 'pairs' ? {} : '']);
  return joinAction(form, Object.fromEntries(required) as RuleValue);
}
