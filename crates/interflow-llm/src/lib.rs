//! Provider wire shapes: which provider and operation a request is for, where the text stands in its body and in the
//! answer, what was used up, the gateway that leads requests to providers; and what is said, in one model of messages.
#![forbid(unsafe_code)]

pub mod conversation;
pub mod coding;
pub mod events;
mod exchange;
mod json;
pub mod message;
mod provider;
mod refusal;
pub mod spans;
pub mod usage;

pub use exchange::{Exchange, Settled};
pub use json::{JsonError, MAX_DEPTH, Reader, Token};
pub use provider::{Call, Operation, Provider, recognise};
pub use refusal::Refusal;
pub use usage::Usage;
