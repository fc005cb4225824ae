// API types of approvals, rules, sessions and secrets.

import { countdown, left, type Micros, type UnixMicros } from '../lib/time';

export type Verdict = 'allow' | 'deny';
export type Mode = 'observe' | 'ask' | 'enforce';

export interface Question {
  id: number;
  user: string | null;
  process: string | null;
  container: string | null;
  client: string;
  sessions: string[];
  host: string;
  port: number;
  method: string | null;
  path: string | null;
  since: UnixMicros;
  until: UnixMicros;
}

export interface Approvals {
  version: number;
  mode: Mode;
  mode_until: UnixMicros | null;
  mode_is_configured: boolean;
  timeout: Micros;
}

export interface Answered extends Question {
  action: Verdict | null;
  by: string;
  at: UnixMicros;
}

export interface NewRule {
  action: Verdict;
  hosts?: string[];
  ports?: string[];
  methods?: string[];
  paths?: string[];
  users?: string[];
  agents?: string[];
  processes?: string[];
  sessions?: string[];
  until?: string;
  note?: string;
}

export interface Rule extends NewRule {
  id: string;
  layer: 'builtin' | 'session' | 'global';
  removable: boolean;
  used: number;
}

export interface Suggestion {
  flows: number;
  paths_seen: string[];
  rule: NewRule;
}

export interface Secret {
  label: string;
  placeholder: string;
  hosts: string[];
  plain_http: boolean;
  used: number;
  session: string | null;
}

export interface Session {
  id: string;
  agent?: string | null;
  user?: string | null;
  client?: string | null;
  process?: string | null;
  began: UnixMicros;
  until: UnixMicros;
  rules: number;
  secrets: Secret[];
}

/** The conditions of a rule in one line. */
export function describeRule(rule: NewRule): string {
  const part = (name: string, list: string[] | undefined) => (list && list.length > 0 ? [`${name} ${list.join(', ')}`] : []);
  const parts = [
    ...part('to', rule.hosts), ...part('port', rule.ports), ...part('method', rule.methods), ...part('path', rule.paths),
    ...part('by', rule.users), ...part('agent', rule.agents), ...part('process', rule.processes),
    ...part('session', rule.sessions),
  ];
  return parts.join(' · ') || 'everything';
}

/** The client in one line. */
export function whoOf(client: { address: string; user: string | null; process: string | null; sessions: string[] }): string {
  const parts = [client.process, client.user, ...client.sessions].filter((p): p is string => !!p);
  return parts.length > 0 ? `${parts.join(', ')} (${client.address})` : client.address;
}

/** Remaining time of a temporary mode. */
export function leftOfMode(state: Pick<Approvals, 'mode_until' | 'mode_is_configured'>, now: number): string {
  if (state.mode_is_configured) return '';
  return state.mode_until === null ? 'until Interflow stops' : `for ${countdown(left(state.mode_until, now))} more`;
}

/** How a request was decided. */
export function endOf(answer: Answered, rules: Rule[]): string {
  const rule = rules.find((r) => r.id === answer.by);
  const words: Record<string, string> = { once: 'decided once', timeout: 'timed out', gone: 'client disconnected', mode: 'by the mode' };
  return words[answer.by] ?? (rule ? `by the rule “${describeRule(rule)}”` : 'by a rule');
}
