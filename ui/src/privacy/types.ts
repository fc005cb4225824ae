// The API's types of redaction, limits and keys; they are generated from docs/reference/openapi.json.
import type { RedactionTrial } from '../lib/api.gen';

export type {
  CounterSnapshot as Counter, LimitsView as Limits, Policies, PolicyFileView as PolicyFile, RedactionCounts as Privacy,
  Replacement as Span, VirtualKeyView as Key,
} from '../lib/api.gen';

/** A trial with the tested text. */
export type Tried = RedactionTrial & { sample: string };
