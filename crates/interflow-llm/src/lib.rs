//! Provider wire shapes: which provider and operation a request is for, where the text stands in its body and in the
//! answer, what was used up, and the gateway that leads requests to providers.
#![forbid(unsafe_code)]

pub mod events;
mod exchange;
mod json;
mod provider;
pub mod usage;

pub use exchange::{Exchange, Settled};
pub use json::{JsonError, MAX_DEPTH, Reader, Token};
pub use provider::{Call, Operation, Provider, recognise};
pub use usage::Usage;
