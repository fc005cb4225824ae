//! Exchanges with language models, put together into conversations.
//!
//! An [`ConversationAssembler`] is shown each exchange once, in the order in which they ended. It knows the histories it has seen by
//! rolling hashes, so an exchange costs what it takes to read it and no more, however long the conversation is. What it
//! learns comes out as rows to keep, and a session it has forgotten is given back to it as such rows: put together live,
//! anew, or after a crash, a conversation is the same.

mod assembler;
mod call_purpose;
mod client_agent;
mod content_part;
pub mod diff;
mod injected_context;
mod recorded_call;
mod records;
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
