//! Exchanges with language models, put together into conversations.
//!
//! An [`Assembler`] is shown each exchange once, in the order in which they ended. It knows the histories it has seen by
//! rolling hashes, so an exchange costs what it takes to read it and no more, however long the conversation is. What it
//! learns comes out as rows to keep, and a session it has forgotten is given back to it as such rows: put together live,
//! anew, or after a crash, a conversation is the same.

mod agent;
mod assembler;
mod atom;
pub mod compare;
mod facts;
mod purpose;
mod recorded;
mod scaffold;
mod session;
pub mod view;

#[cfg(test)]
mod tests;

pub use agent::{Agent, agent};
pub use assembler::{Assembler, Found, Kept};
pub use atom::Body;
pub use facts::{
    Begins, Conversation, ConversationFacts, Exchange, ExchangeFacts, Key, Link, Node, NodeFacts, OpenCall,
};
pub use purpose::Purpose;
pub use recorded::{Recorded, Seen};
