// The entries of the context menu of a flow, or of the selected flows.
import type { Right } from '../lib/api.gen';
import { KINDS, type RuleKind } from '../rules/fromFlow';
import { host, shortType } from '../lib/format';
import { term } from '../lib/query';
import type { Summary } from '../lib/types';
import type { MenuEntry } from '../parts/ContextMenu.svelte';
import { EXPORTS, type ExportFormat } from './exports';
import { STARRED } from './badges';

/** What the entries do. */
export interface FlowActions {
  open: (id: string) => void;
  copyText: (text: string, what: string) => void;
  copyAs: (id: string, format: string) => void;
  filter: (term: string, out: boolean) => void;
  replay: (id: string) => void;
  edit: (id: string) => void;
  rule: (kind: RuleKind, flow: Summary) => void;
  explain: (id: string) => void;
  select: (id: string) => void;
  compare: (a: string, b: string) => void;
  star: (ids: string[]) => void;
  annotate: (id: string) => void;
  export: (ids: string[], format: ExportFormat) => void;
  remove: (ids: string[]) => void;
}

export interface FlowContext {
  flow: Summary;
  /** The selected flows; the menu is theirs if this flow is one of several. */
  selection: ReadonlySet<string>;
  copies: { format: string; label: string }[];
  /** Model and agent of an LLM call. */
  call?: { model: string; agent: string; conversation: string } | undefined;
  process?: string | undefined;
  /** Why rights are missing; empty if they are not. */
  why?: (...rights: Right[]) => string;
}

/** Disables an entry with the reason, for who lacks rights. */
const gateOf = (why: FlowContext['why']) => (...rights: Right[]) => {
  const reason = why?.(...rights) ?? '';
  return reason ? { disabled: true, title: reason } : {};
};

export function urlOf(flow: Summary): string {
  return flow.kind === 'tunnel' ? flow.authority : `${flow.scheme}://${host(flow.authority, flow.scheme)}${flow.path ?? ''}`;
}

/** The terms by which a flow can be filtered, each with the text of its menu entry. */
export function filterTerms({ flow, call, process }: Pick<FlowContext, 'flow' | 'call' | 'process'>): { label: string; term: string }[] {
  const host = flow.authority.replace(/:\d+$/, '');
  const path = flow.path?.split('?')[0];
  const client = flow.client?.replace(/:\d+$/, '').replace(/[[\]]/g, '');
  return [
    { label: `Host ${host}`, term: term('host', host) },
    ...(path ? [{ label: `Path ${path}`, term: term('path', path, true) }] : []),
    ...(flow.method ? [{ label: `Method ${flow.method}`, term: term('method', flow.method) }] : []),
    ...(flow.status ? [{ label: `Status ${flow.status}`, term: `status:${flow.status}` }] : []),
    ...(flow.error ? [{ label: `Error ${flow.error}`, term: term('error', flow.error) }] : []),
    ...(flow.response_type ? [{ label: `Type ${shortType(flow.response_type)}`, term: term('resp.type', flow.response_type) }] : []),
    ...(call ? [{ label: `Model ${call.model}`, term: term('model', call.model) }] : []),
    ...(call?.agent ? [{ label: `Agent ${call.agent}`, term: term('agent', call.agent) }] : []),
    ...(process ? [{ label: `Program ${process}`, term: term('process', process) }] : []),
    ...(flow.user ? [{ label: `User ${flow.user}`, term: term('user', flow.user) }] : []),
    ...(client ? [{ label: `Client ${client}`, term: term('client', client) }] : []),
  ];
}

export function flowMenu(context: FlowContext, act: FlowActions): MenuEntry[] {
  const { flow, selection } = context;
  if (selection.size > 1 && selection.has(flow.id)) return selectionMenu([...selection], act, context.why);
  const gate = gateOf(context.why);
  const isHttp = flow.kind === 'http';
  const isStarred = flow.tags?.includes(STARRED) ?? false;
  const terms = filterTerms(context);
  const other = selection.size === 1 ? [...selection].find((id) => id !== flow.id) : undefined;
  return [
    { label: 'Open', hint: 'Enter', run: () => act.open(flow.id) },
    {
      label: 'Copy',
      items: [
        { label: 'URL', run: () => act.copyText(urlOf(flow), 'URL') },
        { label: 'Host', run: () => act.copyText(flow.authority.replace(/:\d+$/, ''), 'host') },
        ...(flow.kind === 'tunnel' ? [] : context.copies.map((c, i) => ({ label: c.label, section: i === 0, ...(c.format === 'curl' ? { hint: 'y' } : {}), run: () => act.copyAs(flow.id, c.format), ...gate('read_bodies') }))),
      ],
    },
    { label: 'Filter by', section: true, items: terms.map((t) => ({ label: t.label, title: t.term, run: () => act.filter(t.term, false) })) },
    { label: 'Filter out', items: terms.map((t) => ({ label: t.label, title: `-${t.term}`, run: () => act.filter(t.term, true) })) },
    {
      label: 'New rule',
      section: true,
      disabled: flow.kind === 'tunnel',
      items: KINDS.map((k) => ({ label: `${k.label}…`, title: k.about, run: () => act.rule(k.kind, flow) })),
      ...gate('operate', 'read_bodies'),
    },
    { label: 'Explain rules', disabled: flow.kind === 'tunnel', run: () => act.explain(flow.id), ...gate('read_bodies') },
    { label: 'Replay', hint: 'r', section: true, disabled: !isHttp, run: () => act.replay(flow.id), ...gate('operate', 'read_bodies') },
    { label: flow.kind === 'websocket' ? 'Open in Compose' : 'Edit and resend…', hint: 'e', disabled: flow.kind === 'tunnel', run: () => act.edit(flow.id), ...gate('operate', 'read_bodies') },
    { label: selection.has(flow.id) ? 'Deselect' : 'Select', hint: 'x', section: true, run: () => act.select(flow.id) },
    ...(other ? [{ label: 'Compare with the selected flow', hint: 'c', run: () => act.compare(other, flow.id), ...gate('read_bodies') }] : []),
    { label: isStarred ? 'Remove star' : 'Star', hint: 'm', run: () => act.star([flow.id]), ...gate('operate') },
    { label: 'Tags and comment…', hint: 't', run: () => act.annotate(flow.id), ...gate('operate') },
    {
      label: 'Export',
      items: EXPORTS.map((e) => ({ label: e.label, run: () => act.export([flow.id], e.format) })),
      ...gate('read_bodies'),
    },
    { label: 'Delete', hint: 'd', section: true, danger: true, run: () => act.remove([flow.id]), ...gate('administer') },
  ];
}

function selectionMenu(ids: string[], act: FlowActions, why: FlowContext['why']): MenuEntry[] {
  const gate = gateOf(why);
  const [a, b] = ids;
  return [
    ...(ids.length === 2 && a && b ? [{ label: 'Compare', hint: 'c', run: () => act.compare(a, b), ...gate('read_bodies') }] : []),
    { label: `Star ${ids.length} flows`, hint: 'm', run: () => act.star(ids), ...gate('operate') },
    { label: `Export ${ids.length} flows`, section: true, items: EXPORTS.map((e) => ({ label: e.label, run: () => act.export(ids, e.format) })), ...gate('read_bodies') },
    { label: `Delete ${ids.length} flows`, hint: 'd', section: true, danger: true, run: () => act.remove(ids), ...gate('administer') },
  ];
}
