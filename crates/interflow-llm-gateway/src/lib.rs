//! The gateway to LLM providers (routes, credentials, fallback), and the passes over LLM traffic: detection, redaction, usage
//! limits and virtual keys, telemetry and the audit log. [`stage`] has their order.
#![forbid(unsafe_code)]

pub(crate) mod credentials;
mod detector;
pub mod environment;
mod exchange;
pub mod gateway;
pub mod guardrails;
pub mod limits;
pub mod llm_telemetry;
pub mod redaction;
pub mod stage;
