//! The stages of LLM traffic: redaction, usage limits and virtual keys, telemetry and the audit log.
#![forbid(unsafe_code)]

pub mod limits;
pub mod llm_telemetry;
pub mod redaction;
