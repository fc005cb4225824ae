//! OpenTelemetry's JSON encoding (OTLP/HTTP): attributes, GenAI semantic conventions, and the export request for
//! spans.

use interflow_types::{Headers, data_file};
use serde_json::{Value, json};

/// Attribute names of the GenAI conventions, which are still in development.
pub mod name {
    pub const OPERATION: &str = "gen_ai.operation.name";
    pub const PROVIDER: &str = "gen_ai.provider.name";
    pub const REQUEST_MODEL: &str = "gen_ai.request.model";
    pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
    pub const RESPONSE_ID: &str = "gen_ai.response.id";
    pub const MAX_TOKENS: &str = "gen_ai.request.max_tokens";
    pub const INPUT: &str = "gen_ai.usage.input_tokens";
    pub const OUTPUT: &str = "gen_ai.usage.output_tokens";
    pub const CACHE_READ: &str = "gen_ai.usage.cache_read.input_tokens";
    pub const CACHE_WRITE: &str = "gen_ai.usage.cache_write.input_tokens";
    /// What it was called until August 2026.
    pub const CACHE_CREATION: &str = "gen_ai.usage.cache_creation.input_tokens";
    pub const TEXT_INPUT: &str = "gen_ai.usage.text.input_tokens";
    pub const TEXT_CACHE_READ: &str = "gen_ai.usage.text.cache_read.input_tokens";
    pub const TEXT_OUTPUT: &str = "gen_ai.usage.text.output_tokens";
    pub const AUDIO_INPUT: &str = "gen_ai.usage.audio.input_tokens";
    pub const AUDIO_CACHE_READ: &str = "gen_ai.usage.audio.cache_read.input_tokens";
    pub const AUDIO_OUTPUT: &str = "gen_ai.usage.audio.output_tokens";
    pub const IMAGE_INPUT: &str = "gen_ai.usage.image.input_tokens";
    pub const IMAGE_CACHE_READ: &str = "gen_ai.usage.image.cache_read.input_tokens";
    pub const IMAGE_OUTPUT: &str = "gen_ai.usage.image.output_tokens";
    pub const PREVIOUS_RESPONSE: &str = "gen_ai.request.previous_response.id";
    pub const REASONING: &str = "gen_ai.usage.reasoning.output_tokens";
    pub const REASONING_LEVEL: &str = "gen_ai.request.reasoning.level";
    pub const STATUS: &str = "gen_ai.response.status";
    pub const CONVERSATION: &str = "gen_ai.conversation.id";
    pub const STREAM: &str = "gen_ai.request.stream";
    pub const FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
}

/// Header fields by which clients identify conversations: Claude Code, Codex, OpenCode, and conventions.
const SESSION_HEADERS: [&str; 6] =
    ["x-claude-code-session-id", "session_id", "session-id", "x-session-id", "x-session-affinity", "x-conversation-id"];

/// The client's own id of a conversation, from the first of these fields that is not empty: the value of
/// [`name::CONVERSATION`].
pub fn conversation_id(headers: &Headers) -> Option<&str> {
    SESSION_HEADERS.iter().filter_map(|name| headers.get_str(name)).find(|id| !id.is_empty())
}

/// The name of a provider by the conventions: the value of [`name::PROVIDER`].
pub fn provider_name(provider: &str) -> &str {
    let mut names = data_file::records(include_str!("../data/otlp_providers.txt"));
    names.find(|[own, _]| *own == provider).map_or(provider, |[_, name]| name)
}

/// An attribute, whose type is that of the value.
pub fn attribute(key: &str, value: impl Into<Value>) -> Value {
    json!({"key": key, "value": typed(value.into())})
}

fn typed(value: Value) -> Value {
    match value {
        Value::String(text) => json!({"stringValue": text}),
        Value::Bool(flag) => json!({"boolValue": flag}),
        // 64-bit integers are strings in OTLP's JSON, as the Protobuf JSON mapping demands.
        Value::Number(number) if number.is_u64() => json!({"intValue": number.to_string()}),
        Value::Array(values) => json!({"arrayValue": {"values": values.into_iter().map(typed).collect::<Value>()}}),
        number => json!({"doubleValue": number}),
    }
}

/// An export request for the spans of this scope; `resource` are the service's attributes.
pub fn request(resource: Vec<Value>, scope: &str, spans: Vec<Value>) -> Value {
    json!({
        "resourceSpans": [{
            "resource": {"attributes": resource},
            "scopeSpans": [{
                "scope": {"name": scope, "version": env!("CARGO_PKG_VERSION")},
                "spans": spans,
            }],
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_session_header_does_not_hide_another_one() {
        let headers = |fields: &[(&str, &str)]| fields.iter().copied().collect::<Headers>();
        for (fields, id) in [
            (&[("session_id", ""), ("X-Session-Affinity", "s1"), ("x-conversation-id", "s2")][..], Some("s1")),
            (&[("session-id", "s3")], Some("s3")),
            (&[("session-id", "")], None),
        ] {
            assert_eq!(conversation_id(&headers(fields)), id, "{fields:?}");
        }
    }
}
