//! OpenTelemetry's JSON encoding (OTLP/HTTP): attributes, GenAI semantic conventions, and the export request for
//! spans.

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
