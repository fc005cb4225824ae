//! An upstream's error response in the format of a client, with the upstream's status, type and message.

use serde_json::{Value, json};

use super::WireFormat;
use crate::error_body::ErrorNames;
use crate::message::{ContentBlock, error_block};

/// An error that the client of another API understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranslatedError {
    pub status: u16,
    /// The upstream's type or code: `overloaded_error`, `ThrottlingException`.
    pub kind: String,
    pub message: String,
}

/// Longest message that is passed on, in characters: an error may be a proxy's page.
const MAX_MESSAGE: usize = 2_000;

impl TranslatedError {
    /// Reads an error response; `header` is Bedrock's `x-amzn-errortype`.
    pub fn parse(status: u16, header: Option<&str>, body: &[u8]) -> Self {
        let value: Value = interflow_codec::json::parse(body).unwrap_or_default();
        // Gemini without `alt=sse` wraps its error in a list.
        let inner = value.as_array().and_then(|list| list.first()).unwrap_or(&value);
        let (kind, message) = match error_block(inner) {
            Some(ContentBlock::Error { kind, message }) => (kind, message),
            _ => (String::new(), String::from_utf8_lossy(body).trim().to_owned()),
        };
        let named = header.map(|h| h.split(':').next().unwrap_or_default().to_owned());
        let kind = Some(kind).filter(|k| !k.is_empty()).or(named).unwrap_or_default();
        let message = if message.is_empty() { format!("the upstream answered with status {status}") } else { message };
        Self { status, kind, message: message.chars().take(MAX_MESSAGE).collect() }
    }

    /// The status for a client: Anthropic alone has 529, for an overload.
    pub const fn status_for(&self, client: WireFormat) -> u16 {
        match (client, self.status) {
            (WireFormat::Anthropic, 503) => 529,
            (client, 529) if !matches!(client, WireFormat::Anthropic) => 503,
            (_, status) => status,
        }
    }

    /// The body for a client.
    pub fn body(&self, client: WireFormat, request_id: &str) -> Value {
        match client {
            WireFormat::Anthropic => json!({ "type": "error", "error": self.anthropic(), "request_id": request_id }),
            WireFormat::Gemini | WireFormat::Interactions => json!({
                "error": { "code": self.status_for(client), "message": self.message, "status": ErrorNames::of(self.status).google },
            }),
            WireFormat::Bedrock => json!({ "__type": ErrorNames::of(self.status).aws, "message": self.message }),
            _ => json!({ "error": self.openai() }),
        }
    }

    /// The last event of a stream for a client of Anthropic, OpenAI or Interactions.
    pub fn event(&self, client: WireFormat, sequence: u64) -> String {
        match client {
            WireFormat::Anthropic => {
                format!("event: error\ndata: {}\n\n", json!({ "type": "error", "error": self.anthropic() }))
            }
            WireFormat::OpenAiResponses => {
                let event = json!({
                    "type": "error", "code": self.code(), "message": self.message, "param": null,
                    "sequence_number": sequence,
                });
                format!("event: error\ndata: {event}\n\n")
            }
            WireFormat::Interactions => {
                let error = json!({ "code": ErrorNames::of(self.status).google, "message": self.message });
                format!("event: error\ndata: {}\n\n", json!({ "event_type": "error", "error": error }))
            }
            _ => format!("data: {}\n\n", json!({ "error": self.openai() })),
        }
    }

    fn code(&self) -> Value {
        if self.kind.is_empty() { Value::Null } else { self.kind.as_str().into() }
    }

    fn anthropic(&self) -> Value {
        json!({ "type": ErrorNames::of(self.status).anthropic, "message": self.message })
    }

    fn openai(&self) -> Value {
        let kind = ErrorNames::of(self.status).openai;
        json!({ "message": self.message, "type": kind, "param": null, "code": self.code() })
    }
}
