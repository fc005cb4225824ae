//! LLM APIs: detection of providers and operations, the location of text in request and response bodies, token usage,
//! and a canonical message model.
#![forbid(unsafe_code)]

mod cache_config;
mod config;
mod error_body;
pub mod error_codes;
pub mod error_response;
pub mod event_stream;
mod guardrail_config;
mod llm_call;
pub mod message;
pub mod otlp;
pub mod parsed_event;
pub mod provider;
pub mod realtime;
mod reply_error;
mod route_config;
pub mod spans;
mod text_delta;
pub mod translate;
pub mod usage;

pub use cache_config::{CacheScope, CacheStoreKind, ResponseCacheConfig, SemanticCacheConfig};
pub use config::{CredentialsMode, LlmConfig, LlmUpstreamConfig, TelemetryRule};
pub use error_body::LlmRefusal;
pub use guardrail_config::{
    GuardrailAction, GuardrailConfig, GuardrailDirection, GuardrailFailure, GuardrailKind, GuardrailMessages,
    GuardrailProtocol,
};
pub use llm_call::{CountedOutput, LlmCall, ModelUsage, ResponseProgress, ResponseSummary, SERVICE_TIER_HEADER};
pub use provider::{DetectedCall, Operation, Provider, detect_call, model_in_path};
pub use reply_error::{error_status, reply_error};
pub use route_config::{
    DeploymentConfig, ExperimentConfig, ExperimentUnit, LlmRouteConfig, RouteStrategy, ShadowConfig, Stickiness,
};

/// What a file of `data/` has.
fn built_in<T: serde::Deserialize<'static>>(json: &'static str) -> T {
    serde_json::from_str(json).expect("the built-in file is of this form")
}
