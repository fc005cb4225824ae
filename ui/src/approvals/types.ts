// What the API says of approvals, rules of access, sessions and secrets.

export type Verdict = 'allow' | 'deny';
export type Mode = 'observe' | 'ask' | 'enforce';

export interface Question {
  id: number;
  user: string | null;
  process: string | null;
  client: string;
  sessions: string[];
  host: string;
  port: number;
  method: string | null;
  path: string | null;
  waiting: number;
  flows: string[];
  since: number;
  until: number;
}

export interface Approvals {
  version: number;
  mode: Mode;
  mode_until: number | null;
  mode_is_configured: boolean;
  timeout_seconds: number;
  held: Question[];
}

export interface Answered extends Question {
  action: Verdict | null;
  by: string;
  at: number;
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
  began: number;
  until: number;
  rules: number;
  secrets: Secret[];
}

/** What a rule is about, in a line. */
export function wordsOf(rule: NewRule): string {
  const part = (name: string, list: string[] | undefined) => (list && list.length > 0 ? [`${name} ${list.join(', ')}`] : []);
  const parts = [
    ...part('to', rule.hosts), ...part('port', rule.ports), ...part('method', rule.methods), ...part('path', rule.paths),
    ...part('by', rule.users), ...part('agent', rule.agents), ...part('process', rule.processes),
    ...part('session', rule.sessions),
  ];
  return parts.join(' · ') || 'everything';
}

/** Who asks, in a line. */
export function whoOf(question: Pick<Question, 'user' | 'process' | 'client' | 'sessions'>): string {
  const parts = [question.process, question.user, ...question.sessions].filter((p): p is string => !!p);
  return parts.length > 0 ? `${parts.join(', ')} (${question.client})` : question.client;
}
