//! Provider wire shapes: which provider and operation a request is for, where the text stands in its body and in the
//! answer, what was used up, the gateway that leads requests to providers; and what is said, in one model of messages.
#![forbid(unsafe_code)]

mod config;
pub mod conversation;
mod error_response;
pub mod events;
mod exchange;
pub mod gateway;
pub mod live;
pub mod message;
pub mod otlp;
mod provider;
mod refusal;
pub mod spans;
mod stage;
pub mod usage;

pub use config::{CredentialsMode, LlmConfig, TelemetryRule, UpstreamConfig};
pub use exchange::{Exchange, Settled};
pub use provider::{Call, Operation, Provider, model_in_path, recognise};
pub use refusal::Refusal;
pub use stage::Recogniser;
pub use usage::Usage;
