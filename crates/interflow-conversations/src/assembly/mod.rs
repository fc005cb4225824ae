//! Assembly of LLM calls into conversations.
//!
//! A [`ConversationAssembler`] receives each call once, in the order in which they ended. It identifies known histories
//! by rolling hashes, so the cost of a call does not grow with the conversation. Results are emitted as rows to store,
//! and evicted sessions are restored from these rows: a conversation is the same whether assembled live, rebuilt, or
//! after a crash.

mod assembler;
pub mod cache_report;
mod call_purpose;
mod client_agent;
mod content_part;
pub mod diff;
mod injected_context;
mod recorded_call;
mod records;
mod searched_text;
mod session;
pub mod view;

#[cfg(test)]
mod tests;

pub use assembler::{ConversationAssembler, SessionUpdate, StoredConversation};
pub use call_purpose::CallPurpose;
pub use client_agent::{ClientAgent, detect_agent};
pub use content_part::PartBody;
pub use recorded_call::{ParsedCall, RawCall};
pub use records::{
    BranchReason, CallFacts, CallRecord, Conversation, ConversationFacts, MessageHash, MessageNode, NodeFacts,
    PendingToolCall, SubagentLink,
};
