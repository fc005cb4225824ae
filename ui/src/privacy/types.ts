// API types of redaction, limits and keys.

export interface Privacy {
  requests: number;
  refused: number;
  /** Findings by kind. */
  found: Record<string, number>;
}

export interface Span {
  type: string;
  start: number;
  end: number;
  replacement?: string;
}

export interface Tried {
  output: string;
  spans: Span[];
  /** The tested text. */
  sample: string;
}

export interface PolicyFile {
  file: string;
  /** Whether the file exists; otherwise the built-in policy is used. */
  written: boolean;
  name: string;
  routes: string[];
}

export interface Policies {
  policies: PolicyFile[];
  routes: {
    name: string;
    mode: string | null;
    outbound: string | null;
    file: string;
    exception: Record<string, unknown> | null;
  }[];
}

export interface Counter {
  rule: string;
  who: string;
  counter: string;
  used: number;
  limit: number;
}

export interface Usage {
  key: string | null;
  user: string | null;
  provider: string;
  model: string | null;
  requests: number;
  refused: number;
  input_tokens: number;
  output_tokens: number;
  dollars: number;
  unpriced: number;
}

export interface Limits {
  rules: unknown[];
  counters: Counter[];
  usage: Usage[];
  refused: number;
  problem: string | null;
  prices_as_of: { built_in: string; own?: string };
}

export interface Key {
  id: string;
  owner?: string;
  note?: string;
  expires?: string;
  state: 'active' | 'expired' | 'revoked';
  providers?: string[];
  models?: string[];
  paths?: string[];
  limits?: Record<string, unknown>;
}
