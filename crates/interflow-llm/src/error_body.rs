//! Error responses in the format of a provider's API.

use std::time::Duration;

use interflow_codec::aws_event_stream::{self, HeaderValue};
use interflow_types::{ByteStr, Flow, FlowId, RequestId, Response, StatusCode, data_file};
use serde_json::{Value, json};

use crate::event_stream::StreamFraming;
use crate::translate::{TranslatedError, WireFormat};
use crate::{Provider, error_codes};

/// A request that was not sent to its provider, or a response that was not sent to its client, with the reason that
/// the client gets in the format of the provider's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LlmRefusal {
    pub status: StatusCode,
    /// The error type: `unauthorized`, `forbidden`, `rate_limit_error`, … Where a provider defines its own types,
    /// that of the status is sent instead.
    pub kind: &'static str,
    /// The machine-readable cause: `invalid_api_key`, `daily_quota_exceeded`, …
    pub code: &'static str,
    /// The message for people; must not contain what a policy redacts, nor a secret.
    pub message: String,
    /// `Retry-After`. If `None`, clients are told not to retry.
    pub retry_after: Option<Duration>,
}

impl LlmRefusal {
    /// A refusal that should not be retried; see `retry_after` for one that should.
    pub fn new(status: StatusCode, kind: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, code, message: message.into(), retry_after: None }
    }

    /// The last event of a stream that is aborted. Empty for a body that is not a stream, which has an error response
    /// instead.
    pub fn to_event(&self, provider: Provider, framing: StreamFraming, flow: FlowId) -> Vec<u8> {
        let body = self.body(provider, &flow.to_string());
        match framing {
            // Anthropic's SDKs read the event's name, all others only its data.
            StreamFraming::Sse if provider == Provider::Anthropic => {
                format!("event: error\ndata: {body}\n\n").into_bytes()
            }
            StreamFraming::Sse => format!("data: {body}\n\n").into_bytes(),
            StreamFraming::Lines => format!("{body}\n").into_bytes(),
            // Closes the array as well, so that what the client received is valid JSON.
            StreamFraming::Array => format!(",{body}]").into_bytes(),
            StreamFraming::EventStream => exception_event(&self.message),
            StreamFraming::Messages if matches!(provider, Provider::OpenAi | Provider::Azure) => {
                let error = json!({ "type": self.kind, "code": self.code, "message": self.message, "param": null });
                let status = self.status.as_u16();
                json!({ "type": "error", "event_id": flow.to_string(), "status": status, "error": error })
                    .to_string()
                    .into_bytes()
            }
            StreamFraming::Messages => body.to_string().into_bytes(),
            StreamFraming::Whole => Vec::new(),
        }
    }

    /// As [`to_event`](Self::to_event), for a stream of OpenAI's Responses API or Google's Interactions.
    pub fn to_responses_event(&self, provider: Provider, sequence: u64) -> Vec<u8> {
        let (status, kind, message) = (self.status.as_u16(), self.code.to_owned(), self.message.clone());
        let client = match provider {
            Provider::Gemini | Provider::Vertex => WireFormat::Interactions,
            _ => WireFormat::OpenAiResponses,
        };
        TranslatedError { status, kind, message }.event(client, sequence).into_bytes()
    }

    /// The response in the provider's error format, with the ids of the flow. It must not be cached.
    pub fn to_response(&self, provider: Provider, flow: &Flow) -> Response {
        self.answer_with(provider, flow.id, &RequestId::of(flow))
    }

    /// Like [`to_response`](Self::to_response) with explicit ids instead of those of a flow.
    pub fn answer_with(&self, provider: Provider, flow: FlowId, id: &str) -> Response {
        debug_assert!(error_codes::is_listed(self.code, self.status.as_u16()), "{self:?} is not in error_codes.rs");
        let body = self.body(provider, id).to_string();
        let mut response = Response::full(self.status, "application/json", body);
        let headers = &mut response.head.headers;
        headers.append_unchecked(b"X-Request-Id", id.as_bytes());
        headers.append_unchecked(b"X-Interflow-Flow", flow.to_string().as_bytes());
        headers.append_unchecked(b"X-Interflow-Error", self.code.as_bytes());
        headers.append_unchecked(b"Cache-Control", b"no-store");
        match self.retry_after {
            Some(wait) => {
                // Rounded up: a client that retries too early would be rejected again.
                let seconds = wait.as_millis().div_ceil(1_000).clamp(1, 31 * 86_400);
                headers.append_unchecked(b"Retry-After", seconds.to_string().as_bytes());
            }
            // A field that OpenAI's and Anthropic's SDKs respect; both retry several statuses by default.
            None => headers.append_unchecked(b"X-Should-Retry", b"false"),
        }
        if provider == Provider::Bedrock {
            // AWS SDKs take the exception's name from this field.
            headers.append_unchecked(b"X-Amzn-ErrorType", ErrorNames::of(self.status.as_u16()).aws.as_bytes());
        }
        response
    }

    fn body(&self, provider: Provider, id: &str) -> Value {
        let Self { status, kind, code, message, .. } = self;
        match provider {
            Provider::Anthropic => json!({
                "type": "error",
                "error": { "type": ErrorNames::of(status.as_u16()).anthropic, "message": message, "code": code },
                "request_id": id
            }),
            Provider::Gemini | Provider::Vertex => json!({
                "error": {
                    "code": status.as_u16(),
                    "message": message,
                    "status": ErrorNames::of(status.as_u16()).google,
                    "details": [{
                        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                        "reason": code,
                        "domain": "interflow",
                        "metadata": { "request_id": id }
                    }]
                }
            }),
            Provider::Bedrock => json!({ "message": message, "code": code, "request_id": id }),
            Provider::Ollama => json!({ "error": message, "code": code, "request_id": id }),
            Provider::Cohere => json!({ "message": message, "id": id, "code": code }),
            Provider::OpenAi | Provider::Azure | Provider::Mistral | Provider::Unknown => json!({
                "error": { "message": message, "type": kind, "param": null, "code": code, "request_id": id }
            }),
        }
    }
}

/// The last message of an AWS event stream that failed.
pub(crate) fn exception_event(message: &str) -> Vec<u8> {
    let text = |t: &str| HeaderValue::String(ByteStr::from(t));
    let headers = [
        (ByteStr::from(":message-type"), text("exception")),
        (ByteStr::from(":exception-type"), text("modelStreamErrorException")),
        (ByteStr::from(":content-type"), text("application/json")),
    ];
    let mut out = Vec::new();
    // Fails only if names or values are too long for their fields.
    let payload = json!({ "message": message }).to_string();
    let _ = aws_event_stream::write_message(&mut out, &headers, payload.as_bytes());
    out
}

/// What providers call an error.
pub(crate) struct ErrorNames {
    /// Google's canonical code (`google.rpc.Code`).
    pub google: &'static str,
    /// The exception of Bedrock's runtime.
    pub aws: &'static str,
    /// Anthropic's error type (API reference, "Errors").
    pub anthropic: &'static str,
    /// The `type` in errors of OpenAI's APIs.
    pub openai: &'static str,
}

impl ErrorNames {
    pub fn of(status: u16) -> Self {
        let named = |status: &str| {
            let mut names = data_file::records(include_str!("../data/error_names.txt"));
            names.find(|[statuses, ..]: &[&str; 5]| data_file::has_word(statuses, status))
        };
        let others = || named(if status >= 500 { "500" } else { "400" });
        let [_, google, aws, anthropic, openai] = named(&status.to_string()).or_else(others).unwrap_or_default();
        Self { google, aws, anthropic, openai }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_types::Body;

    fn refusal(status: u16, retry_after: Option<Duration>) -> LlmRefusal {
        LlmRefusal {
            status: StatusCode::from_u16(status).unwrap(),
            kind: "rate_limit_error",
            code: "rate_limit_exceeded",
            message: "slow down".into(),
            retry_after,
        }
    }

    fn read(r: &Response) -> Value {
        match &r.body {
            Body::Full(b) => serde_json::from_slice(b).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn errors_have_each_providers_format() {
        for (provider, pointer, value) in [
            (Provider::OpenAi, "/error/code", "rate_limit_exceeded"),
            (Provider::Azure, "/error/type", "rate_limit_error"),
            (Provider::Unknown, "/error/message", "slow down"),
            (Provider::Anthropic, "/type", "error"),
            (Provider::Anthropic, "/error/type", "rate_limit_error"),
            (Provider::Gemini, "/error/status", "RESOURCE_EXHAUSTED"),
            (Provider::Vertex, "/error/message", "slow down"),
            (Provider::Bedrock, "/message", "slow down"),
            (Provider::Ollama, "/error", "slow down"),
            (Provider::Cohere, "/message", "slow down"),
        ] {
            let r = refusal(429, None).answer_with(provider, FlowId::from_u128(1), "req-1");
            assert_eq!(read(&r).pointer(pointer).and_then(Value::as_str), Some(value), "{provider:?}");
        }
        let r = refusal(429, None).answer_with(Provider::Bedrock, FlowId::from_u128(1), "req-1");
        assert_eq!(r.head.headers.get_str("x-amzn-errortype"), Some("ThrottlingException"));
    }

    #[test]
    fn stream_error_event_has_the_format_of_its_stream() {
        let event = |p, f| refusal(502, None).to_event(p, f, FlowId::from_u128(1));
        let text = |p, f| String::from_utf8_lossy(&event(p, f)).into_owned();
        assert!(text(Provider::Anthropic, StreamFraming::Sse).starts_with("event: error\ndata: {"));
        assert!(text(Provider::OpenAi, StreamFraming::Sse).starts_with("data: {\"error\""));
        assert!(text(Provider::Ollama, StreamFraming::Lines).ends_with("}\n"));
        assert!(text(Provider::Bedrock, StreamFraming::EventStream).contains("modelStreamErrorException"));
    }

    #[test]
    fn retry_after_is_sent_or_x_should_retry_is_false() {
        for (wait, seconds) in [(1, "1"), (1_000, "1"), (1_001, "2"), (90_000_000_000, "2678400")] {
            let r = refusal(429, Some(Duration::from_millis(wait))).answer_with(
                Provider::OpenAi,
                FlowId::from_u128(1),
                "req-1",
            );
            assert_eq!(r.head.headers.get_str("retry-after"), Some(seconds));
            assert!(!r.head.headers.contains("x-should-retry"));
        }
        let r = refusal(429, None).answer_with(Provider::OpenAi, FlowId::from_u128(1), "req-1");
        assert_eq!(r.head.headers.get_str("x-should-retry"), Some("false"));
    }
}
