//! Errors that a provider reports in a response whose status is success: as the first event of a stream, or in place of
//! a whole reply.

use interflow_types::data_file;
use memchr::memmem;
use serde_json::Value;

use crate::message::{ContentBlock, error_block};

/// Words of which any such error has one.
const MARKS: [&[u8]; 6] = [b"error", b"failed", b"\"ERROR\"", b"\"TIMEOUT\"", b"xception", b"MALFORMED_FUNCTION_CALL"];

/// The error that an event, or a whole reply, consists of; `None` for any other. `name` is the event's.
///
/// What it says is the provider's text, and may be long.
pub fn reply_error(name: Option<&str>, data: &[u8]) -> Option<String> {
    let name = name.unwrap_or_default();
    let is_exception = name.ends_with("xception");
    // Nearly all have none, and need not be parsed for it.
    if !is_exception && MARKS.iter().all(|mark| memmem::find(data, mark).is_none()) {
        return None;
    }
    let parsed: Value = interflow_codec::json::parse(data).ok()?;
    // A growing array that came as a whole.
    let body = parsed.as_array().and_then(|list| list.first()).unwrap_or(&parsed);
    let of = |value: &Value| match error_block(value) {
        Some(ContentBlock::Error { kind, message }) if kind.is_empty() => Some(message),
        Some(ContentBlock::Error { kind, message }) => Some(format!("{kind}: {message}")),
        _ => None,
    };
    if is_exception {
        return Some(format!("{name}: {}", body["message"].as_str().unwrap_or_default()));
    }
    let has_error = |value: &Value| match &value["error"] {
        Value::String(text) => !text.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => false,
    };
    if has_error(body) || body["type"] == "error" {
        return of(body);
    }
    // Responses, Interactions: a failed one, alone or in its event.
    for response in [body, &body["response"], &body["interaction"]] {
        if response["status"] == "failed" && has_error(response) {
            return of(response);
        }
    }
    // OpenRouter: an error of the only choice.
    let choice = &body["choices"][0];
    if has_error(choice) || choice["finish_reason"] == "error" {
        return Some(of(choice).unwrap_or_else(|| "the reply ended with an error".to_owned()));
    }
    // Cohere, in its last event or beside a message; Gemini.
    let ends = [&body["finish_reason"], &body["delta"]["finish_reason"], &body["candidates"][0]["finishReason"]];
    let reason = ends.into_iter().filter_map(Value::as_str).find(|reason| crate::translate::is_failure(reason))?;
    let why = [&body["delta"]["error"], &body["message"]].into_iter().find_map(Value::as_str).unwrap_or_default();
    Some(format!("{reason}: {why}").trim_end_matches(": ").to_owned())
}

/// The status that says the same as an error of [`reply_error`], if another attempt may succeed: by its kind, or the number
/// in its place.
pub fn error_status(error: &str) -> Option<u16> {
    let kind = error.split(':').next().unwrap_or_default();
    if let Ok(status) = kind.parse() {
        return Some(status).filter(|status| matches!(status, 429 | 500..=599));
    }
    let mut statuses = data_file::records(include_str!("../data/error_statuses.txt"));
    statuses.find(|[_, kinds]| data_file::has_word(kinds, &kind.to_ascii_lowercase()))?[0].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_that_pass_have_the_status_of_their_kind() {
        for (error, status) in [
            ("overloaded_error: Overloaded", Some(529)),
            ("503: busy", Some(503)),
            ("UNAVAILABLE: m", Some(503)),
            ("throttlingException: slow down", Some(429)),
            ("server_error: m", Some(500)),
            ("TIMEOUT", Some(504)),
            ("400: m", None),
            ("invalid_request_error: m", None),
            ("model not loaded", None),
        ] {
            assert_eq!(error_status(error), status, "{error}");
        }
    }

    #[test]
    fn errors_in_a_successful_response_are_told_from_replies_that_speak_of_errors() {
        let of =
            |name: &str, data: Value| reply_error(Some(name).filter(|n| !n.is_empty()), data.to_string().as_bytes());
        for (name, data, says) in [
            (
                "error",
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
                "overloaded_error: Overloaded",
            ),
            ("", json!({"error": {"message": "busy", "code": 503}}), "503: busy"),
            ("", json!({"error": "model not loaded"}), "model not loaded"),
            ("error", json!({"type": "error", "code": "server_error", "message": "m"}), "server_error: m"),
            (
                "response.failed",
                json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "c", "message": "m"}}}),
                "c: m",
            ),
            (
                "",
                json!({"object": "response", "status": "failed", "error": {"code": "c", "message": "m"}, "output": []}),
                "c: m",
            ),
            ("throttlingException", json!({"message": "slow down"}), "throttlingException: slow down"),
            ("", json!({"choices": [{"finish_reason": "error", "error": {"code": 502, "message": "m"}}]}), "502: m"),
            (
                "message-end",
                json!({"type": "message-end", "delta": {"finish_reason": "ERROR", "error": "m"}}),
                "ERROR: m",
            ),
            ("", json!({"finish_reason": "TIMEOUT", "message": {"content": []}}), "TIMEOUT"),
            ("", json!([{"error": {"status": "UNAVAILABLE", "message": "m"}}]), "UNAVAILABLE: m"),
            ("", json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}), "MALFORMED_FUNCTION_CALL"),
        ] {
            assert_eq!(of(name, data.clone()).as_deref(), Some(says), "{data}");
        }
        for data in [
            json!({"choices": [{"delta": {"content": "an error: failed"}}], "error": null}),
            json!({"object": "response", "status": "completed", "error": null, "output": [{"type": "error"}]}),
            json!({"content": [{"type": "text", "text": "{\"error\": \"x\"}"}]}),
            json!({"error": {}}),
            json!("error"),
        ] {
            assert_eq!(of("", data.clone()), None, "{data}");
        }
    }
}
