//! LLM APIs: detection of providers and operations, the location of text in request and response bodies, token usage,
//! the gateway to upstreams, and a canonical message model with conversation assembly.
#![forbid(unsafe_code)]

mod config;
pub mod conversation;
mod error_body;
mod error_response;
pub mod event_stream;
pub mod gateway;
mod llm_call;
pub mod message;
pub mod otlp;
mod provider;
pub mod realtime;
pub mod spans;
mod stage;
pub mod usage;

pub use config::{CredentialsMode, LlmConfig, LlmUpstreamConfig, TelemetryRule};
pub use error_body::LlmRefusal;
pub use llm_call::{LlmCall, ResponseSummary};
pub use provider::{DetectedCall, Operation, Provider, detect_call, model_in_path};
pub use stage::ProviderDetector;
pub use usage::CallUsage;
