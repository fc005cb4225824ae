// The API's types by the names that the pages use; they are generated from docs/reference/openapi.json.
import type { Bytes } from './api.gen';

export type {
  Attempt, BodyDiff, Body, BypassedClient, Bytes, CaView as Ca, Completion, ErrorDetails as ApiErrorBody,
  FlowChange as Change, FlowComparison as Diff, FlowDetail as Flow, FlowState as State, FlowSummary as Summary,
  Direction as Side, Message, MessagePage, Original, ReplayResult as Replayed, Request as RequestHead,
  Response as ResponseHead, Stats, Timings,
} from './api.gen';

/** A header field. */
export type Field = [Bytes, Bytes];
