// What the API says of redaction, limits and keys.

export interface Privacy {
  requests: number;
  refused: number;
  /** Findings by their type's name. */
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
  counters: Counter[];
  usage: Usage[];
  refused: number;
  problem: string | null;
}

export interface Key {
  id: string;
  owner?: string;
  note?: string;
  expires?: string;
  expired?: boolean;
  revoked?: boolean;
}
