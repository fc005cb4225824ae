//! Refusals of requests that cannot be read.

use std::time::Duration;

use interflow_llm::LlmRefusal;
use interflow_types::{Error, StatusCode};

/// The process's memory budget is used up: 503, and worth a retry.
pub(crate) fn overloaded(e: &Error) -> LlmRefusal {
    let mut refusal = LlmRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "capacity", "overloaded", e.message());
    refusal.retry_after = Some(Duration::from_secs(1));
    refusal
}

pub(crate) fn bad_request(code: &'static str, message: impl Into<String>) -> LlmRefusal {
    LlmRefusal::new(StatusCode::BAD_REQUEST, "invalid_request", code, message)
}
