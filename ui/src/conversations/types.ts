// The API's types of conversations; they are generated from docs/reference/openapi.json.
export type {
  Attachment as Reference, BranchReason, CallView as Exchange, ContentBlock as Block, ConversationNote as Note,
  ConversationTotal as Total, ConversationView, FoundConversation, ListedConversation as ConversationSummary,
  RequestDiff as Changes, TextExcerpt, ThreadItem as Item, ThreadTurn as Turn, TokenUsage as Used,
} from '../lib/api.gen';
