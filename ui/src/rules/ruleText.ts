// Writes rules as YAML or TOML text.

export type RuleValue = string | number | boolean | RuleValue[] | { [key: string]: RuleValue };

export interface Rule {
  name: string;
  enabled?: boolean;
  phase?: string;
  when?: string;
  then: RuleValue;
}

const RESERVED = /^(true|false|null|yes|no|on|off|y|n|~)$/i;

/** A YAML scalar on one line; quoted unless it can be nothing but a plain text. */
export function yamlScalar(value: string | number | boolean): string {
  if (typeof value !== 'string') return String(value);
  const isPlain = /^[A-Za-z/][\w./*@+=:()<>-]*( [\w./*@+=:()<>-]+)*$/.test(value) && !/:( |$)/.test(value) && !RESERVED.test(value);
  if (isPlain) return value;
  // Single quotes need no escapes.
  return value.includes('"') && !/['\\\x00-\x1f\x7f-\x9f]/.test(value) ? `'${value}'` : JSON.stringify(value);
}

/** Whether a text can be a literal block, which keeps it readable. */
function isBlock(value: string): boolean {
  return value.trim().includes('\n') && !/^[ \t\n]/.test(value) && !value.endsWith('\n\n') && !/[^\n\t\x20-\x7e\u00a1-\ud7ff]/.test(value);
}

function yamlLines(value: RuleValue, indent: string): string[] {
  if (Array.isArray(value)) {
    return value.flatMap((item) => {
      const [first = '', ...rest] = yamlLines(item, `${indent}  `);
      return [`${indent}- ${first.trimStart()}`, ...rest];
    });
  }
  if (typeof value !== 'object') return [`${indent}${yamlScalar(value)}`];
  return Object.entries(value).flatMap(([key, inner]) => {
    const name = `${indent}${yamlScalar(key)}:`;
    if (typeof inner === 'string' && isBlock(inner)) {
      const kept = inner.endsWith('\n');
      const lines = (kept ? inner.slice(0, -1) : inner).split('\n');
      return [`${name} |${kept ? '' : '-'}`, ...lines.map((l) => (l ? `${indent}  ${l}` : ''))];
    }
    if (typeof inner === 'object' && Object.keys(inner).length === 0) return [`${name} ${Array.isArray(inner) ? '[]' : '{}'}`];
    return typeof inner === 'object' ? [name, ...yamlLines(inner, `${indent}  `)] : [`${name} ${yamlScalar(inner)}`];
  });
}

function tomlValue(value: RuleValue): string {
  if (Array.isArray(value)) return `[${value.map(tomlValue).join(', ')}]`;
  if (typeof value === 'string') return JSON.stringify(value).replace(/\x7f/g, '\\u007f');
  if (typeof value !== 'object') return String(value);
  const key = (name: string) => (/^[\w-]+$/.test(name) ? name : JSON.stringify(name));
  return `{ ${Object.entries(value).map(([k, v]) => `${key(k)} = ${tomlValue(v)}`).join(', ')} }`;
}

/** A value on one line, as YAML's flow style and JSON write it. */
export function inlineText(value: RuleValue): string {
  if (Array.isArray(value)) return `[${value.map(inlineText).join(', ')}]`;
  if (typeof value !== 'object') return typeof value === 'string' && /[,[\]{}]/.test(value) ? JSON.stringify(value) : yamlScalar(value);
  return `{ ${Object.entries(value).map(([k, v]) => `${yamlScalar(k)}: ${inlineText(v)}`).join(', ')} }`;
}

/** The lines of the key `then`: a single action without parameters is a text, everything else a list. */
export function thenText(actions: RuleValue[], file: string, indent: string): string[] {
  const then = actions.length === 1 && typeof actions[0] === 'string' ? actions[0] : actions;
  if (isToml(file)) return [`then = ${tomlValue(then)}`];
  return actions.length === 0 ? [`${indent}then: []`] : yamlLines({ then }, indent);
}

/** The keys in the order in which people write them. */
function ordered(rule: Rule): { [key: string]: RuleValue } {
  const { name, enabled, phase, when, then } = rule;
  return {
    name, ...(enabled === false ? { enabled } : {}), ...(phase ? { phase } : {}), ...(when ? { when } : {}), then,
  };
}

/** A rule as an item of a YAML list, indented by two spaces. */
export function yamlRule(rule: Rule): string {
  return `${yamlLines([ordered(rule)], '  ').join('\n')}\n`;
}

/** A rule as a TOML table. */
export function tomlRule(rule: Rule): string {
  return `[[rules]]\n${Object.entries(ordered(rule)).map(([k, v]) => `${k} = ${tomlValue(v)}`).join('\n')}\n`;
}

export function isToml(file: string): boolean {
  return file.endsWith('.toml');
}

/** The text of a rule in the format of a file. */
export function ruleText(rule: Rule, file: string): string {
  return isToml(file) ? tomlRule(rule) : yamlRule(rule);
}
