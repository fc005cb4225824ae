// The API's types of conversations; they are generated from docs/reference/openapi.json.
import type { ThreadItem } from '../lib/api.gen';

export type {
  Attachment as Reference, BranchReason, CallView as Exchange, ContentBlock as Block, ConversationNote as Note, ConversationPage,
  ConversationTotal as Total, ConversationView, FoundConversation, ListedConversation as ConversationSummary,
  RequestDiff as Changes, TextExcerpt, TextSearchPage, ThreadItem as Item, ThreadTurn as Turn, TokenUsage as Used, Totals,
} from '../lib/api.gen';

export type Tool = Extract<ThreadItem, { kind: 'tool' }>;
