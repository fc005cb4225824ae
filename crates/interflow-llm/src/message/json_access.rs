//! Lenient access to untrusted JSON: missing values and values of another type read as empty.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use interflow_codec::json;
use interflow_types::{data_file::has_word, percent};
use serde_json::Value;

use super::{Attachment, Carried, ContentBlock, ModelReply};

/// Takes a string out of an object, leaving null; empty if it is not one.
pub fn take_string(value: &mut Value, key: &str) -> String {
    if let Some(Value::String(s)) = value.get_mut(key).map(Value::take) { s } else { String::new() }
}

/// Takes a string out of an object; `None` if it is absent or empty.
pub fn take_non_empty(value: &mut Value, key: &str) -> Option<String> {
    Some(take_string(value, key)).filter(|s| !s.is_empty())
}

/// Takes a list; a single object counts as a list of one, as some servers write it.
pub fn take_list(value: &mut Value, key: &str) -> Vec<Value> {
    match value.get_mut(key).map(Value::take) {
        Some(Value::Array(list)) => list,
        Some(one @ Value::Object(_)) => vec![one],
        _ => Vec::new(),
    }
}

/// Takes a member's value out of an object; null if it is absent. Taking avoids copies of large bodies.
pub fn take_value(value: &mut Value, key: &str) -> Value {
    value.get_mut(key).map_or(Value::Null, Value::take)
}

/// A number at a path of members; 0 if it is absent.
pub fn number(value: &Value, path: &[&str]) -> u64 {
    optional_number(value, path).unwrap_or_default()
}

/// A nested number. Some gateways write integers as `12.0`; negative numbers count as absent.
pub fn optional_number(value: &Value, path: &[&str]) -> Option<u64> {
    let member = path.iter().try_fold(value, |v, key| v.get(key))?;
    member.as_u64().or_else(|| member.as_f64().filter(|f| *f >= 0.0).map(|f| f as u64))
}

/// Arguments given as JSON in a string; the string itself if it is not JSON (a truncated stream). Absent arguments
/// are an empty object.
pub fn arguments(value: Value) -> Value {
    match value {
        Value::String(s) if s.trim().is_empty() => Value::Object(serde_json::Map::new()),
        Value::String(s) => json::parse(s.as_bytes()).unwrap_or(Value::String(s)),
        Value::Null => Value::Object(serde_json::Map::new()),
        other => other,
    }
}

/// A call of a tool whose id and input have these names.
pub fn tool_use(call: &mut Value, id: &str, input: &str) -> ContentBlock {
    ContentBlock::ToolUse { id: take_string(call, id), name: take_string(call, "name"), input: take_value(call, input) }
}

/// An attachment for base64 data, which is decoded if it is text.
pub fn base64_attachment(media_type: String, data: String) -> Attachment {
    let text = is_text_format(&media_type).then(|| STANDARD.decode(data.trim_ascii()).ok()).flatten();
    let text = text.map(|text| String::from_utf8_lossy(&text).into_owned());
    data_attachment(media_type, text.unwrap_or(data))
}

/// An attachment for its data as they are carried: its size and hash. The data is only carried along, so that
/// conversations stay small.
pub fn data_attachment(media_type: String, data: String) -> Attachment {
    let hash = blake3::hash(data.as_bytes()).to_hex();
    let size = data.len() as u64;
    Attachment { media_type, size, hash: hash[..16].to_owned(), data: Carried::new(data), ..Attachment::default() }
}

/// A reference to a URL, which may contain the data itself (`data:image/png;base64,…`).
pub fn url_attachment(url: String) -> Attachment {
    let Some((head, data)) = url.strip_prefix("data:").and_then(|rest| rest.split_once(',')) else {
        return Attachment { url, ..Attachment::default() };
    };
    let media_type = head.split(';').next().unwrap_or_default().to_owned();
    if head.split(';').skip(1).any(|parameter| parameter.trim().eq_ignore_ascii_case("base64")) {
        return base64_attachment(media_type, data.to_owned());
    }
    // RFC 2397: percent-encoded, and text unless it says otherwise.
    let media_type = if media_type.is_empty() { "text/plain".to_owned() } else { media_type };
    let bytes = percent::decoded_bytes(data.as_bytes());
    let text = is_text_format(&media_type).then(|| String::from_utf8_lossy(&bytes).into_owned());
    data_attachment(media_type, text.unwrap_or_else(|| STANDARD.encode(&bytes)))
}

/// Whether a file of this media type, or with this extension, is text, which models read as such.
pub fn is_text_format(media_type: &str) -> bool {
    const TEXTS: &str = "application/json application/xml application/yaml application/x-yaml application/toml \
        application/javascript application/x-javascript application/x-sh application/sql application/x-ndjson \
        application/jsonl jsonl txt md csv html json";
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media_type.starts_with("text/")
        || has_word(TEXTS, &media_type)
        || media_type.starts_with("application/") && (media_type.ends_with("+json") || media_type.ends_with("+xml"))
}

/// An attached file: an image by its media type, a document otherwise.
pub fn attachment_block(reference: Attachment) -> ContentBlock {
    if reference.media_type.starts_with("image/") {
        ContentBlock::Image(reference)
    } else {
        ContentBlock::Document(reference)
    }
}

/// A document with what the APIs of Anthropic and Amazon say of it; `chunks` are its texts, if it has several.
pub fn detailed_document(file: Attachment, block: &Value, chunks: &[String]) -> ContentBlock {
    let is_cited = block["citations"]["enabled"] == true;
    let mut details = serde_json::Map::new();
    let context = block["context"].as_str().filter(|context| !context.is_empty());
    details.extend(context.map(|context| ("context".to_owned(), context.into())));
    if is_cited {
        details.insert("citations".to_owned(), serde_json::json!({ "enabled": true }));
    }
    if is_cited && !chunks.is_empty() {
        details.insert("content".to_owned(), chunks.into());
    }
    let detail = if details.is_empty() { String::new() } else { Value::Object(details).to_string() };
    ContentBlock::Document(Attachment { detail: Carried::new(detail), ..file })
}

/// Keeps a block that has no canonical form under its API's name.
pub fn other_block(kind: &str, value: Value) -> ContentBlock {
    ContentBlock::Other { kind: kind.to_owned(), value }
}

/// A reply that is the error in a body.
pub fn error_reply(body: &Value) -> ModelReply {
    ModelReply { blocks: error_block(body).into_iter().collect(), complete: true, ..ModelReply::default() }
}

/// The error in a body, in the formats that providers use: `{"error": {"type", "message"}}`, `{"error": "…"}`,
/// `{"message": "…"}`, `{"detail": "…"}`.
pub fn error_block(value: &Value) -> Option<ContentBlock> {
    let (inner, plain) = match value.get("error") {
        Some(Value::String(s)) => (value, Some(s.clone())),
        Some(inner @ Value::Object(_)) => (inner, None),
        _ => (value, None),
    };
    let text = |key: &str| match inner.get(key) {
        Some(Value::String(s)) => Some(s.clone()),
        Some(Value::Number(n)) => Some(n.to_string()),
        _ => None,
    };
    let message = plain.or_else(|| text("message")).or_else(|| text("Message")).or_else(|| text("detail"))?;
    let named = ["type", "status", "code", "__type"].into_iter().filter_map(text);
    let kind = named.into_iter().find(|k| k != "error").unwrap_or_default();
    Some(ContentBlock::Error { kind, message })
}
