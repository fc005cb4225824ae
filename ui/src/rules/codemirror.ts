// The editor of rule and policy files. Loaded on demand, because it is larger than all pages together.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, type Completion, type CompletionContext, type CompletionResult } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { bracketMatching, HighlightStyle, indentOnInput, indentService, StreamLanguage, syntaxHighlighting, type StreamParser } from '@codemirror/language';
import { lintGutter, setDiagnostics, type Diagnostic } from '@codemirror/lint';
import { toml } from '@codemirror/legacy-modes/mode/toml';
import { yaml } from '@codemirror/legacy-modes/mode/yaml';
import { EditorState } from '@codemirror/state';
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { get } from '../lib/api';
import { completed } from '../lib/query';
import type { Completion as Suggested } from '../lib/types';
import { offers, tomlPlace, yamlPlace, type Place, type Schema } from './schema';
import type { Mistake } from './types';

export interface Options {
  /** In a shadow root, adopted style sheets work without `unsafe-inline` in the content security policy. */
  root: ShadowRoot;
  text: string;
  form: 'yaml' | 'toml';
  schema: Schema;
  /** Accessible name. */
  label: string;
  onchange: (text: string) => void;
  onsave: () => void;
}

export interface Editor {
  put(text: string): void;
  problems(list: Mistake[]): void;
  show(line: number, column: number): void;
  destroy(): void;
}

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.atom, tags.bool], color: 'var(--accent)' },
  { tag: tags.number, color: 'var(--warn)' },
  { tag: tags.string, color: 'var(--good)' },
  { tag: tags.comment, color: 'var(--soft)' },
  { tag: [tags.meta, tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--info)' },
]);

const editorTheme = EditorView.theme({
  '&': { backgroundColor: 'var(--raised)', color: 'var(--text)', border: '1px solid var(--line)', borderRadius: '6px', fontSize: '12px' },
  '&.cm-focused': { outline: '2px solid var(--accent)', outlineOffset: '0' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.55', minHeight: 'var(--editor-min, 260px)', maxHeight: 'var(--editor-max, 60vh)' },
  '.cm-gutters': { backgroundColor: 'var(--sunk)', color: 'var(--soft)', border: '0', borderRadius: '6px 0 0 6px' },
  '.cm-activeLine': { backgroundColor: 'color-mix(in srgb, var(--picked) 35%, transparent)' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'var(--picked)' },
  '.cm-tooltip': { backgroundColor: 'var(--raised)', color: 'var(--text)', border: '1px solid var(--line)', borderRadius: '6px' },
  '.cm-tooltip-autocomplete > ul > li[aria-selected]': { backgroundColor: 'var(--picked)', color: 'var(--text)' },
  '.cm-completionDetail': { color: 'var(--soft)', fontStyle: 'normal' },
  '.cm-completionInfo': { maxWidth: '340px', padding: '6px 10px' },
  // The default markers are data: images, which the content security policy blocks.
  '.cm-lintRange-error': { backgroundImage: 'none', textDecoration: 'underline wavy var(--bad)' },
  '.cm-lint-marker-error': { content: 'none', borderRadius: '50%', backgroundColor: 'var(--bad)', width: '8px', height: '8px', margin: '5px 2px 0' },
  '.cm-diagnostic-error': { borderLeftColor: 'var(--bad)' },
  '.cm-matchingBracket': { backgroundColor: 'var(--picked)' },
});

export function editor({ root, text, form, schema, label, onchange, onsave }: Options): Editor {
  const source = (context: CompletionContext) => complete(context, form, schema);
  const extensions = [
    lineNumbers(), history(), drawSelection(), indentOnInput(), bracketMatching(), closeBrackets(), highlightActiveLine(), lintGutter(),
    StreamLanguage.define((form === 'yaml' ? yaml : toml) as StreamParser<unknown>), syntaxHighlighting(colours), editorTheme,
    indentService.of((context, at) => indentOf(context.lineAt(at, -1).text)),
    autocompletion({ override: [source], icons: false }),
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({ 'aria-label': label, spellcheck: 'false' }),
    EditorView.updateListener.of((update) => {
      if (update.docChanged) onchange(update.state.doc.toString());
    }),
    keymap.of([
      { key: 'Mod-s', preventDefault: true, run: () => (onsave(), true) },
      ...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...defaultKeymap,
    ]),
  ];
  const view = new EditorView({ state: EditorState.create({ doc: text, extensions }), parent: root, root });
  const place = (line: number, column: number) => {
    const found = view.state.doc.line(Math.min(Math.max(line, 1), view.state.doc.lines));
    return Math.min(found.from + Math.max(column - 1, 0), found.to);
  };
  return {
    put: (wanted) => {
      if (wanted !== view.state.doc.toString()) view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: wanted } });
    },
    problems: (list) => {
      const found: Diagnostic[] = list.map((p) => {
        const from = place(p.line, p.column);
        return { from, to: Math.max(from, view.state.doc.lineAt(from).to), severity: 'error', message: p.message };
      });
      view.dispatch(setDiagnostics(view.state, found));
    },
    show: (line, column) => {
      const at = place(line, column);
      view.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: 'center' }) });
      view.focus();
    },
    destroy: () => view.destroy(),
  };
}

/** Indentation of the next line: deeper after a name without a value. */
export function indentOf(line: string): number {
  const [prefix = ''] = /^\s*(?:- +)*/.exec(line) ?? [];
  return prefix.length + (/:\s*$/.test(line) ? 2 : 0);
}

/** Keys whose value is a query. */
const QUERIES = ['when', 'query', 'not'];

async function complete(context: CompletionContext, form: 'yaml' | 'toml', schema: Schema): Promise<CompletionResult | null> {
  const before = context.state.doc.sliceString(0, context.pos);
  const place = form === 'yaml' ? yamlPlace(before, context.state.doc.sliceString(context.pos)) : tomlPlace(before);
  if (!place || (!context.explicit && place.written === '' && place.kind === 'name')) return null;
  if (place.kind === 'value' && QUERIES.includes(place.path.at(-1) ?? '')) return inQuery(context, place.written);
  const found = offers(schema, place);
  if (found.length === 0) return null;
  const options: Completion[] = found.map(({ label, doc }) => ({
    label, apply: written(label, form, place), type: 'property', ...(doc ? { info: doc } : {}),
  }));
  return { from: context.pos - place.written.length, options, validFor: /^[\w-]*$/ };
}

/** The text inserted for a completion: a name with its separator, or a quoted value. */
function written(label: string, form: 'yaml' | 'toml', place: Place): string {
  if (place.kind === 'name') return place.header ? label : label + (form === 'yaml' ? ': ' : ' = ');
  const bare = form === 'yaml' || place.quoted || /^(true|false|[\d.]+)$/.test(label);
  return bare ? label : `"${label}"`;
}

/** Completions of the query language, as in the filter of the traffic page. */
async function inQuery(context: CompletionContext, written: string): Promise<CompletionResult | null> {
  try {
    const { completions } = await get('/query/complete', { q: written });
    const from = context.pos - written.length;
    const options = completions.slice(0, 60).map((c) => {
      const done = completed(written, written.length, c);
      return { label: c.text, detail: c.doc, apply: done.text.trimEnd().slice(startOf(written, c)) };
    });
    const first = completions[0];
    return first ? { from: from + startOf(written, first), options } : null;
  } catch {
    return null;
  }
}

/** Offset in characters; the API counts bytes. */
function startOf(text: string, completion: Suggested): number {
  return new TextDecoder().decode(new TextEncoder().encode(text).subarray(0, completion.start)).length;
}
