//! Why a response is cut off, and what its client is told.

use interflow_llm::LlmRefusal;
use interflow_types::StatusCode;

/// Why a stream is cut off. `code` goes to the client, the audit log and the metrics.
#[derive(Debug)]
pub(crate) struct StreamAbort {
    pub code: &'static str,
    pub message: String,
}

impl StreamAbort {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// What was found in a text cannot be replaced in it.
    pub fn not_written() -> Self {
        Self::new("response_unreadable", "a text of the response is not UTF-8, so that nothing in it can be replaced")
    }

    /// The stream cannot be decoded or divided into events.
    pub fn broken(why: impl std::fmt::Display) -> Self {
        Self::new("response_unreadable", why.to_string())
    }

    pub fn unreadable(why: &dyn std::fmt::Display) -> Self {
        Self::new("response_unreadable", format!("the response cannot be inspected: {why}"))
    }

    /// Whether the operator configured it: then it is a proper end of the stream, after which nothing follows.
    pub fn is_by_policy(&self) -> bool {
        matches!(self.code, "outbound_blocked" | "guardrail_blocked")
    }

    /// Blocked by policy is the operator's decision (403); everything else is a fault of the response (502).
    pub fn refusal(&self) -> LlmRefusal {
        let (status, class) = match self.code {
            "outbound_blocked" => (StatusCode::FORBIDDEN, "pii_blocked"),
            "guardrail_blocked" => (StatusCode::BAD_REQUEST, "invalid_request_error"),
            _ => (StatusCode::BAD_GATEWAY, "provider_error"),
        };
        LlmRefusal::new(status, class, self.code, self.message.clone())
    }
}
