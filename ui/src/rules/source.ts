// Reads and writes rule files through the API.
import { ApiError, get, send } from '../lib/api';
import type { RulesView } from '../lib/api.gen';
import { withRule } from './presets';
import { isToml } from './ruleText';
import type { Problem } from './types';

/** A change of a rule file, which can be undone while nobody else has changed the file. */
export interface Edit {
  file: string;
  before: string;
  after: string;
}

/** The text of a file with the text of a rule appended, in the file's own line endings. */
export function withItemIn(text: string, item: string, file: string): string {
  const crlf = text.includes('\r\n');
  const plain = crlf ? text.replaceAll('\r\n', '\n') : text;
  const added = isToml(file) ? `${plain.trimEnd()}${plain.trim() ? '\n\n' : ''}${item}` : withRule(plain, item);
  return crlf ? added.replaceAll('\n', '\r\n') : added;
}

export async function sourceOf(file: string): Promise<string> {
  return (await get('/rules/source', { file })).text;
}

/** Saves a changed text, which is active at once; refused if the file is no longer `before`. */
export function saveEdit({ file, before, after }: Edit): Promise<RulesView> {
  return send('PUT', '/rules/source', { text: after, base: before }, { file });
}

export async function undoEdit(edit: Edit): Promise<RulesView> {
  return saveEdit({ file: edit.file, before: edit.after, after: edit.before });
}

/** What is wrong with a text, in words. */
export async function problemsOf(text: string, name: string): Promise<string[]> {
  try {
    const answer = await send('POST', '/rules/check', { text, name });
    return answer.problems.map((p: Problem) => p.message);
  } catch (error) {
    if (error instanceof ApiError && error.refusesText) return [error.words];
    throw error;
  }
}
