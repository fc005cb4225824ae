// API types of conversations. Times are microseconds.

export interface Used {
  exchanges: number;
  input: number;
  output: number;
  cache_read: number;
  cache_write: number;
  reasoning: number;
  cost: number;
  /** Exchanges without a known price. */
  unpriced: number;
}

export interface ConversationSummary {
  id: string;
  session: string;
  parent?: string;
  started: number;
  updated: number;
  agent: string;
  model: string;
  provider: string;
  host: string;
  user?: string;
  title: string;
  turns: number;
  used: Used;
  live?: boolean;
}

export interface ConversationPage {
  conversations: ConversationSummary[];
  next: string | null;
}

export interface Usage {
  input: number;
  output: number;
  cache_read: number;
  cache_write: number;
  reasoning: number;
}

export interface Exchange {
  flow: string;
  part: number;
  started: number;
  model: string;
  usage: Usage | null;
  cost: number | null;
  speed: number | null;
  missed: boolean;
  purpose: 'step' | 'compact' | 'title' | 'probe' | 'utility';
  turn: number;
  status: number;
  duration: number;
  first_byte?: number;
  stop?: string;
  error?: string;
  complete: boolean;
  history: number;
  fresh: number;
  tools: number;
  note?: string;
}

export type BranchReason = 'edited' | 'retried' | 'compacted' | 'cleared';

export interface Reference {
  media_type?: string;
  url?: string;
  title?: string;
  size?: number;
}

export type Block =
  | { type: 'text' | 'thinking'; text: string }
  | { type: 'tool_use'; id?: string; name: string; input: unknown }
  | { type: 'tool_result'; id?: string; content: Block[]; is_error?: boolean }
  | ({ type: 'image' | 'document' } & Reference)
  | { type: 'error'; kind: string; message: string }
  | { type: 'other'; kind: string; value: unknown };

export interface Outcome {
  content: Block[];
  is_error: boolean;
  at: number;
}

interface ItemBase {
  key: string;
  at: number;
  role: 'user' | 'assistant';
  exchange?: number;
  begins?: BranchReason;
}

export type Tool = ItemBase & {
  kind: 'tool'; id: string; name: string; summary: string; input: unknown; result: Outcome | null; child?: string;
};

export type Item =
  | (ItemBase & { kind: 'text' | 'thinking' | 'context'; text: string })
  | Tool
  | (ItemBase & { kind: 'image' | 'document' } & Reference)
  | (ItemBase & { kind: 'error'; name: string; message: string })
  | (ItemBase & { kind: 'other'; name: string; value: unknown });

export interface Turn {
  number: number;
  begins?: BranchReason;
  items: Item[];
  exchanges: number[];
}

export interface Branch {
  leaf: string;
  begins: BranchReason;
  turn: number;
  at: number;
  text: string;
}

/** A conversation with its thread. */
export interface ConversationView extends ConversationSummary {
  version: string;
  link: { call: string; tool: string } | null;
  children: (ConversationSummary & { link: { call: string; tool: string } | null })[];
  thread: { leaf: string | null; turns: Turn[]; exchanges: Exchange[]; branches: Branch[] };
}

export interface ChangedMessage {
  index: number;
  role: 'user' | 'assistant';
  blocks: Block[];
}

export interface Changes {
  model?: [string, string];
  system?: { at: number; before: string; after: string };
  tools_added?: string[];
  tools_removed?: string[];
  tools_changed?: string[];
  tools_reordered: boolean;
  same: number;
  removed: ChangedMessage[];
  added: ChangedMessage[];
  cache: string;
}

export interface Total {
  from: number;
  agent: string;
  model: string;
  used: Used;
}

export interface Totals {
  since: number;
  span: number;
  totals: Total[];
}
