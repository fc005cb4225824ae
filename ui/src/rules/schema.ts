// Completion in rule files: finds the cursor's position in the document and looks up the JSON Schema there.

export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  type?: string | string[];
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  required?: string[];
  enum?: unknown[];
  const?: unknown;
  description?: string;
}

/** A cursor position in a rule file. */
export interface Place {
  /** Keys from the root to the position; list indices are omitted. */
  path: string[];
  /** Whether a key or a value is being typed. */
  kind: 'name' | 'value';
  /** The text typed so far. */
  written: string;
  /** Keys already present in the same table. */
  taken: string[];
  /** Inside a quoted value. */
  quoted?: boolean;
  /** Inside a TOML table header. */
  header?: boolean;
}

export interface Offer {
  label: string;
  doc: string;
}

const YAML_LINE = /^(\s*)((?:-\s+)*)(?:([\w.$-]+):(?:\s+(.*))?)?/;

/** The position at the end of a YAML text. */
export function yamlPlace(before: string, after = ''): Place | null {
  const lines = before.split('\n');
  const current = lines.at(-1) ?? '';
  const found = /^(\s*)((?:-\s+)*)(?:([\w-]*)|([\w.$-]+):\s+(.*))$/.exec(current);
  if (!found) return null;
  const [, indent = '', dashes = '', word, name, value] = found;
  const column = indent.length + dashes.length;
  const path = name === undefined ? [] : [name];
  const outer = outerNames(lines, dashes ? indent.length : column, dashes !== '');
  if (name !== undefined) return { path: [...outer, ...path], kind: 'value', written: value ?? '', taken: [] };
  const taken = [...(dashes ? [] : siblings(lines.slice(0, -1).reverse(), column, true)), ...siblings(after.split('\n').slice(1), column, false)];
  return { path: outer, kind: 'name', written: word ?? '', taken };
}

/** The keys that enclose a line at this column. */
function outerNames(lines: string[], column: number, isItem: boolean): string[] {
  const path: string[] = [];
  let limit = column;
  // YAML allows a list at the same column as its key.
  let inclusive = isItem;
  for (let i = lines.length - 2; i >= 0; i -= 1) {
    const line = lines[i]!;
    if (!line.trim() || line.trim().startsWith('#')) continue;
    const [, indent = '', dashes = '', name] = YAML_LINE.exec(line) ?? [];
    const at = indent.length + dashes.length;
    const isOuter = name !== undefined && (at < limit || (inclusive && !dashes && at === limit));
    if (isOuter) {
      path.unshift(name);
      [limit, inclusive] = [at, false];
    }
    if (dashes && indent.length < limit) [limit, inclusive] = [indent.length, true];
    if (limit === 0 && !inclusive) break;
  }
  return path;
}

/** Keys of the same mapping, from the lines above or below; a dash starts a mapping. */
function siblings(lines: string[], column: number, isAbove: boolean): string[] {
  const found: string[] = [];
  for (const line of lines) {
    if (!line.trim() || line.trim().startsWith('#')) continue;
    const [, indent = '', dashes = '', name] = YAML_LINE.exec(line) ?? [];
    const at = indent.length + dashes.length;
    if (at < column || (!isAbove && dashes && at === column)) break;
    if (at === column && name !== undefined) found.push(name);
    if (at === column && dashes) break;
  }
  return found;
}

/** A TOML value being typed, possibly the last of an array. */
const TOML_VALUE = /^\s*([\w.-]+)\s*=\s*(?:\[(?:\s*"[^"]*"\s*,)*\s*)?("?)([^"\]{}[]*)$/;
/** The last key or value of a TOML inline table. */
const TOML_INLINE = /^\s*([\w.-]+)\s*=\s*\{(?:[^{}]*,)?\s*(?:([\w-]+)\s*=\s*("?)([^"{}]*)|([\w-]*))$/;

/** The position at the end of a TOML text: below the last table header, or inside one. */
export function tomlPlace(before: string): Place | null {
  const lines = before.split('\n');
  const current = lines.at(-1) ?? '';
  const opened = /^\s*\[\[?((?:[\w-]+\.)*)([\w-]*)$/.exec(current);
  if (opened) return { path: opened[1]!.split('.').filter(Boolean), kind: 'name', written: opened[2] ?? '', taken: [], header: true };
  const above = lines.slice(0, -1).reverse();
  const at = above.findIndex((l) => /^\s*\[/.test(l) && !l.includes('='));
  const outer = (above[at]?.replace(/#.*|[[\]\s]/g, '') ?? '').split('.').filter(Boolean);
  const inline = TOML_INLINE.exec(current);
  if (inline) {
    const path = [...outer, ...inline[1]!.split('.')];
    if (inline[2] === undefined) return { path, kind: 'name', written: inline[5] ?? '', taken: [] };
    return { path: [...path, inline[2]], kind: 'value', written: inline[4] ?? '', taken: [], quoted: inline[3] !== '' };
  }
  const value = TOML_VALUE.exec(current);
  if (value) return { path: [...outer, ...value[1]!.split('.')], kind: 'value', written: value[3] ?? '', taken: [], quoted: value[2] !== '' };
  const name = /^\s*([\w-]*)$/.exec(current);
  const taken = above.slice(0, at < 0 ? above.length : at).flatMap((l) => /^\s*([\w-]+)\s*=/.exec(l)?.[1] ?? []);
  return name ? { path: outer, kind: 'name', written: name[1] ?? '', taken } : null;
}

/** A schema with its reference, alternatives and item schemas resolved. */
function choices(root: Schema, schema: Schema | undefined, depth = 0): Schema[] {
  if (!schema || depth > 12) return [];
  const referred = schema.$ref ? root.$defs?.[schema.$ref.replace('#/$defs/', '')] : undefined;
  return [
    schema,
    ...choices(root, referred, depth + 1),
    ...[...(schema.anyOf ?? []), ...(schema.oneOf ?? [])].flatMap((s) => choices(root, s, depth + 1)),
    ...(schema.items ? choices(root, schema.items, depth + 1) : []),
  ];
}

/** Completions for a position. */
export function offers(root: Schema, place: Pick<Place, 'path' | 'kind' | 'taken'>): Offer[] {
  let here: Schema[] = choices(root, root);
  for (const name of place.path) {
    here = here.flatMap((s) => {
      const more = typeof s.additionalProperties === 'object' ? s.additionalProperties : undefined;
      return choices(root, s.properties?.[name] ?? more);
    });
  }
  const found = new Map<string, string>();
  for (const schema of here) {
    if (place.kind === 'name') {
      for (const [name, s] of Object.entries(schema.properties ?? {})) {
        if (!place.taken.includes(name) && !found.get(name)) found.set(name, docOf(root, s));
      }
    } else {
      for (const value of schema.enum ?? []) if (typeof value === 'string') found.set(value, schema.description ?? '');
      if (schema.const !== undefined) found.set(String(schema.const), schema.description ?? '');
      if (schema.type === 'boolean') ['true', 'false'].forEach((v) => found.set(v, ''));
    }
  }
  return [...found].map(([label, doc]) => ({ label, doc }));
}

function docOf(root: Schema, schema: Schema): string {
  return schema.description ?? choices(root, schema).find((s) => s.description)?.description ?? '';
}
