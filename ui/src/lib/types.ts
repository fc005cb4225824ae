// API types used by the pages.
import type { Micros } from './time';

/** Bytes: a string if they are UTF-8, else base64. */
export type Bytes = string | { base64: string };
export type Field = [Bytes, Bytes];
export type Side = 'request' | 'response';
export type State = 'open' | 'complete' | 'failed' | 'cut';

/** Summary of a flow, for the table. Times are microseconds. */
export interface Summary {
  id: string;
  state: State;
  kind: 'http' | 'websocket' | 'tunnel';
  started: number;
  duration: number;
  scheme: 'http' | 'https';
  authority: string;
  version: string;
  client: string | null;
  request_size: number;
  response_size: number;
  messages: number;
  method?: string;
  path?: string;
  status?: number;
  user?: string;
  request_type?: string;
  response_type?: string;
  error?: string;
  /** Why a tunnel was passed through without inspection. */
  passthrough?: string;
  tags?: string[];
  parent?: string;
}

export interface Page {
  flows: Summary[];
  next: string | null;
}

export interface Body {
  size: number;
  kept: number;
  missing?: 'capped' | 'dropped' | 'lost' | 'head' | 'decrypted';
  head_sha256?: string;
}

export interface Timings {
  request_head?: number;
  request_body?: number;
  blocked?: number;
  dns?: number;
  connect?: number;
  tls?: number;
  request_sent?: number;
  first_byte?: number;
  last_byte?: number;
  done?: number;
}

export interface ClientTls {
  sni?: string;
  version?: string;
  cipher?: string;
  alpn_offered?: string[];
  alpn?: string;
  ja3?: string;
  ja4?: string;
}

export interface UpstreamTls {
  version?: string;
  cipher?: string;
  alpn?: string;
  unverified: boolean;
  problem?: string;
  resumed: boolean;
  fingerprint?: string;
}

export interface RequestHead {
  method: string;
  path: string;
  version: string;
  protocol?: string;
  headers: Field[];
  trailers?: Field[];
  body: Body;
}

export interface ResponseHead {
  status: number;
  reason?: Bytes;
  version: string;
  headers: Field[];
  trailers?: Field[];
  body: Body;
}

/** The messages before they were edited. */
export interface Original {
  request?: RequestHead & { url: string; body_edited: boolean };
  response?: ResponseHead & { body_edited: boolean };
}

export interface Flow {
  id: string;
  state: State;
  kind: 'http' | 'websocket' | 'tunnel';
  started: number;
  transport: string;
  scheme: 'http' | 'https';
  authority: string;
  user?: string;
  client: {
    connection: number;
    peer: string | null;
    local: string | null;
    listener: string;
    accepted: number;
    tls?: ClientTls;
    http2?: string;
    ja4h?: string;
    process?: { pid: number; name: string };
  };
  upstream?: {
    peer: string | null;
    local: string | null;
    via?: string;
    version: string;
    connection: number;
    reused: boolean;
    tls?: UpstreamTls;
  };
  request?: RequestHead;
  interim?: { status: number; headers: Field[] }[];
  response?: ResponseHead;
  original?: Original;
  timings: Timings;
  error?: { kind: string; blame: string; message: string };
  tunnel?: { sent: number; received: number };
  passthrough?: string;
  messages: number;
  tags?: string[];
  comment?: string;
  parent?: string;
  imported: boolean;
  url: string;
  duration: number;
  masked: string[];
}

export interface Message {
  index: number;
  direction: Side;
  kind: 'text' | 'binary' | 'ping' | 'pong' | 'close' | 'event' | 'grpc';
  at: number;
  size: number;
  payload: Bytes;
  /** Decoded text of a gRPC message. */
  written?: string;
}

export interface MessagePage {
  messages: Message[];
  total: number;
  next: number | null;
}

export interface Completion {
  start: number;
  text: string;
  doc: string;
}

export interface ApiErrorBody {
  kind: string;
  message: string;
  remedy?: string;
  column?: number;
  start?: number;
  end?: number;
}

export interface Checked {
  ok: boolean;
  query?: string;
  all?: boolean;
  error?: ApiErrorBody;
}

export interface Change {
  at: string;
  before?: string;
  after?: string;
}

export type BodyDiff =
  | { kind: 'same' }
  | { kind: 'json'; changes: Change[] }
  | { kind: 'lines'; lines: { side: 'both' | 'before' | 'after' | 'gap'; text: string }[] }
  | { kind: 'binary'; before: number; after: number };

export interface Diff {
  a: string;
  b: string;
  equal: boolean;
  head: Change[];
  request_headers: Change[];
  request_body: BodyDiff;
  response_headers: Change[];
  response_body: BodyDiff;
}

export interface Replayed {
  id: string;
  parent: string;
  left_out: string[];
  response?: { status: number; version: string; size: number; complete: boolean };
  error?: { kind: string; message: string; blame: string };
}

export interface Stats {
  version: string;
  /** Pending flows: of approvals, and held by rules. */
  held: { approvals: number; rules: number };
  uptime: Micros;
  draining: boolean;
  addresses: { proxy: string[]; gateway: string[]; admin: string };
  engine: {
    connections: number;
    connections_refused: number;
    connections_open: number;
    requests: number;
    active: number;
    responses: number[];
    tunnels: number;
    intercepted: number;
    leaf_refused: number;
    bytes_sent: number;
    bytes_received: number;
    messages: number;
    errors: [string, number][];
    latency: number[];
    latency_sum: number;
  };
  latency_bounds: number[];
  store: null | {
    flows: number;
    open_flows: number;
    segments: number;
    segment_bytes: number;
    database_bytes: number;
    queue_bytes: number;
    queue_flows: number;
    recorded_flows: number;
    dropped_flows: number;
    lost_flows: number;
    dropped_bytes: number;
    waits: number;
    expired_flows: number;
    damaged_flows: number;
    suspended: string | null;
  };
  event_clients: number;
}

export interface Ca {
  name: string;
  fingerprint_sha256: string;
  not_after: number;
  pem: string;
  leaves_signed: number;
  leaves_cached: number;
}

export interface BypassedClient {
  client: string;
  ja4: string;
  process?: string;
  host: string;
  seconds_left: number;
}
