// What the palette offers on the page of flows, beside the actions that have a key.
import { caller } from '../lib/me.svelte';
import type { Traffic } from '../lib/traffic.svelte';
import type { Summary } from '../lib/types';
import { KINDS, type RuleKind } from '../rules/fromFlow';
import { columnOf } from './columns';
import { EXPORTS, type ExportFormat } from './exports';

export interface TableActions {
  save: (format: ExportFormat) => void;
  clear: () => void;
  rule: (kind: RuleKind, flow: Summary) => void;
}

export interface Command {
  label: string;
  hint?: string;
  run: () => void;
}

export function tableCommands(traffic: Traffic, act: TableActions): Command[] {
  const flow = traffic.selected ? traffic.summary(traffic.selected) : undefined;
  const sorts = (['dur', 'size', 'status', 'host'] as const).map((key) => ({
    label: `Sort by ${columnOf(key).label.toLowerCase()}`,
    run: () => traffic.arrange({ ...traffic.arrangement, sort: { key, descending: key !== 'host' } }),
  }));
  const groups = (['host', 'process', 'conversation'] as const).map((group) => ({
    label: `Group by ${group === 'process' ? 'program' : group}`,
    run: () => traffic.arrange({ ...traffic.arrangement, group }),
  }));
  return [
    ...(caller.can('read_bodies') ? EXPORTS.map((e) => ({ label: `Export ${e.label}`, hint: traffic.selection.size > 0 ? 'selected' : 'all matching', run: () => act.save(e.format) })) : []),
    ...(caller.can('administer') ? [{ label: 'Clear: delete all matching flows', run: act.clear }] : []),
    ...sorts,
    ...groups,
    { label: 'Sort by time, without groups', run: () => traffic.arrange({ sort: null, group: null }) },
    ...(flow?.method && caller.can('operate', 'read_bodies') ? KINDS.map((k) => ({ label: `New rule for this flow: ${k.label.toLowerCase()}${k.kind === 'hold' ? ' (breakpoint)' : ''}`, run: () => act.rule(k.kind, flow) })) : []),
  ];
}
