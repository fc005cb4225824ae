// Edited settings: which differ from the instance's, and texts for lists.
import type { Setting, SettingChange, SettingGroup, SettingSource } from '../lib/api.gen';

/** Edits by key; a key that is absent is as in the instance. */
export type Edits = Record<string, unknown>;

/** Marks a key that is to be removed from the file. */
export const UNSET = null;

export const GROUPS: [SettingGroup, string][] = [
  ['interception', 'Interception'], ['recording', 'Recording'], ['privacy', 'Privacy'], ['upstream', 'Upstream'],
  ['notifications', 'Notifications'], ['logging', 'Logging'],
];

export function same(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

/** The value that a field shows. */
export function valueOf(setting: Setting, edits: Edits): unknown {
  if (!(setting.key in edits)) return setting.value;
  return edits[setting.key] === UNSET ? setting.default : edits[setting.key];
}

/** The edits with this one; one that restores the instance's value is dropped. */
export function edited(setting: Setting, edits: Edits, value: unknown): Edits {
  const { [setting.key]: _, ...others } = edits;
  return same(value, setting.value) ? others : { ...others, [setting.key]: value };
}

/** The edits with the default for this key. */
export function reset(setting: Setting, edits: Edits): Edits {
  const { [setting.key]: _, ...others } = edits;
  return setting.source.kind === 'file' ? { ...others, [setting.key]: UNSET } : others;
}

/** What to send; empty entries of lists, which are being written, are left out. */
export function changesOf(settings: Setting[], edits: Edits): SettingChange[] {
  return settings
    .filter((s) => s.key in edits && !s.locked)
    .map((s) => ({ key: s.key, value: complete(edits[s.key]) }))
    .filter(({ key, value }) => value === UNSET || !same(value, settings.find((s) => s.key === key)?.value));
}

function complete(value: unknown): unknown {
  if (!Array.isArray(value)) return value;
  return value.filter((v) => v !== '' && !(isProxy(v) && v.hosts.length === 0 && v.via.length === 0));
}

export interface Proxy {
  hosts: string[];
  via: string[];
}

export function isProxy(value: unknown): value is Proxy {
  return typeof value === 'object' && value !== null && 'hosts' in value && 'via' in value;
}

/** Entries of a list that is written with commas, spaces or lines between them. */
export function entriesOf(text: string): string[] {
  return [...new Set(text.split(/[\s,]+/).filter(Boolean))];
}

export function sourceText(source: SettingSource): string {
  if (source.kind === 'file') return `File, line ${source.line}`;
  if (source.kind === 'environment' || source.kind === 'option') return source.name;
  return 'Default';
}

/** A value as a short text. */
export function shortText(value: unknown): string {
  if (value === null || value === undefined) return 'not set';
  if (typeof value === 'boolean') return value ? 'on' : 'off';
  if (Array.isArray(value)) return value.length === 0 ? 'none' : value.map((v) => (isProxy(v) ? `${v.hosts.join(', ')} → ${v.via.join(', ') || 'direct'}` : String(v))).join(', ');
  return String(value);
}

/** Whether all words of a search occur in these texts. */
export function isFound(search: string, ...texts: (string | undefined)[]): boolean {
  const text = texts.join(' ').toLowerCase();
  return search.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/** Whether a search finds a setting: by its name, its key, what it does, its value, its default or the values it can have. */
export function isSettingFound(search: string, setting: Setting, title: string): boolean {
  const choices = (setting.choices ?? []).map((c) => `${c.value} ${c.description ?? ''}`);
  return isFound(search, title, setting.label, setting.key, setting.description, shortText(setting.value), shortText(setting.default), ...choices);
}

/** Splits Markdown at its code spans: every second part is code. */
export function codeParts(markdown: string): string[] {
  return markdown.split('`');
}
