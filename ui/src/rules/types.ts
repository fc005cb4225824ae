// API types of rules and held flows.

import type { UnixMicros } from '../lib/time';

/** An error at a position in a text. */
export interface Mistake {
  line: number;
  column: number;
  message: string;
}

export interface Problem extends Mistake {
  file: string;
  rule: string | null;
}

export interface Rule {
  name: string;
  file: string;
  line: number;
  when: string;
  actions: { name: string; phase: string }[];
  enabled: boolean;
  matches: number;
}

export interface Rules {
  rules: Rule[];
  files: string[];
  notes: Problem[];
}

export interface Checked {
  ok: boolean;
  problems: Problem[];
  rules: Rules | null;
}

export interface Explained {
  rule: string;
  place: string;
  matches: boolean;
  phases: { phase: string; outcome: 'matched' | 'no' | 'open'; why: string; actions: string[] }[];
}

export interface HeldFlow {
  id: number;
  flow: string;
  rule: string;
  phase: string;
  what: 'request' | 'response' | 'message';
  note: string | null;
  since: UnixMicros;
  until: UnixMicros;
  pass: boolean;
  method: string | null;
  url: string;
  status: number | null;
  headers: [string, string][];
  body: string | null;
}
