// The keys of the configuration that have no field on this page: what the reference says of them, and their values.
import { isFound, shortText } from './form';

/** A table of the reference: the section of its keys, and its rows of key, type, default and meaning. */
export interface ReferenceTable {
  /** `[record]` or `[[quota.rule]]`; empty for keys outside of any section. */
  section: string;
  /** Where the reference describes it. */
  anchor: string;
  rows: string[][];
}

export interface ReferenceKey {
  /** `record.dir`, or `quota.rule[].name` in a list of tables. */
  key: string;
  type: string;
  fallback: string;
  meaning: string;
  anchor: string;
  /** The value that is active; of keys in lists, which may have several, undefined. */
  value?: string | undefined;
}

const PAGE = '/docs/reference/configuration.html';

/** Reads the tables of the reference page. */
export function tablesOf(page: Document): ReferenceTable[] {
  const text = (node: Element | null) => (node?.textContent ?? '').replace(/\s+/g, ' ').trim();
  const tables: ReferenceTable[] = [];
  let [section, anchor] = ['', ''];
  for (const node of page.querySelectorAll('main :is(h2, h3, table)')) {
    if (node.tagName !== 'TABLE') {
      [section, anchor] = [text(node), node.id];
    } else if (text(node.querySelector('th')) === 'key') {
      tables.push({ section, anchor, rows: [...node.querySelectorAll('tbody tr')].map((row) => [...row.querySelectorAll('td')].map(text)) });
    }
  }
  return tables;
}

/** The value at a path of the configuration. */
function valueAt(config: unknown, path: string): unknown {
  return path.split('.').reduce<unknown>((at, name) => (at as Record<string, unknown> | null | undefined)?.[name], config);
}

/** All keys of the reference but those that have a field, with the values of the effective configuration. */
export function referenceKeys(tables: ReferenceTable[], config: unknown, fields: string[]): ReferenceKey[] {
  const fieldKeys = new Set(fields);
  return tables.flatMap(({ section, anchor, rows }) => {
    const isList = section.startsWith('[[');
    const prefix = section.replace(/^\[+|\]+$/g, '') + (isList ? '[]' : '');
    return rows.flatMap(([name = '', type = '', fallback = '', meaning = '']) => {
      const key = prefix ? `${prefix}.${name}` : name;
      if (fieldKeys.has(key)) return [];
      const value = isList ? undefined : valueAt(config, key);
      const text = value === undefined || value === null ? undefined : typeof value === 'object' && !Array.isArray(value) ? JSON.stringify(value) : shortText(value);
      return [{ key, type, fallback, meaning, anchor, value: text }];
    });
  });
}

export function isKeyFound(search: string, key: ReferenceKey): boolean {
  return isFound(search, key.key, key.meaning, key.type, key.value ?? key.fallback);
}

export const linkOf = (key: ReferenceKey): string => PAGE + (key.anchor ? `#${key.anchor}` : '');

export async function loadTables(): Promise<ReferenceTable[]> {
  const response = await fetch(PAGE);
  if (!response.ok) throw new Error(`The configuration reference cannot be loaded (${response.status})`);
  return tablesOf(new DOMParser().parseFromString(await response.text(), 'text/html'));
}
