//! LLM APIs over WebSockets: OpenAI's Responses and Realtime, Gemini's Live. Each message is one JSON event.

use std::borrow::Cow;
use std::ops::Range;

use interflow_codec::json::{JsonReader, JsonToken};
use interflow_types::RequestHead;

use crate::Provider;

/// Client events of OpenAI's Realtime and Responses whose text locations are known.
const OPENAI_EVENTS: [&[u8]; 15] = [
    b"conversation.item.create",
    b"conversation.item.delete",
    b"conversation.item.retrieve",
    b"conversation.item.truncate",
    b"input_audio_buffer.append",
    b"input_audio_buffer.clear",
    b"input_audio_buffer.commit",
    b"output_audio_buffer.clear",
    b"ping",
    b"response.cancel",
    b"response.create",
    b"session.close",
    b"session.input_audio_buffer.append",
    b"session.update",
    b"transcription_session.update",
];

/// Members that identify a message of Gemini's Live, in both accepted spellings.
const GEMINI_EVENTS: [&[u8]; 7] = [
    b"setup",
    b"clientContent",
    b"client_content",
    b"realtimeInput",
    b"realtime_input",
    b"toolResponse",
    b"tool_response",
];

/// Whether the request opens a WebSocket, by upgrade or by extended CONNECT (RFC 8441).
pub fn is_websocket(head: &RequestHead) -> bool {
    head.protocol.as_ref().is_some_and(|p| p.eq_ignore_ascii_case("websocket"))
}

/// Whether the WebSocket events at this path have known text locations. Others are rejected where prompts must be
/// redacted.
pub fn is_supported(provider: Provider, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    match provider {
        Provider::Gemini | Provider::Vertex => path.ends_with("BidiGenerateContent"),
        _ => path.ends_with("/responses") || path.ends_with("/realtime"),
    }
}

/// Whether a client's event has a type with known text locations. False for anything but a JSON object. Reads tokens
/// without building a tree, because every message is checked.
pub fn is_known_event(provider: Provider, event: &[u8]) -> bool {
    let google = matches!(provider, Provider::Gemini | Provider::Vertex);
    let mut reader = JsonReader::new(event);
    let (mut depth, mut name) = (0_usize, Cow::Borrowed(&b""[..]));
    let (mut known, mut types) = (false, 0);
    while let Ok(Some(token)) = reader.next_token() {
        match token {
            JsonToken::Object(_) | JsonToken::Array(_) => depth += 1,
            JsonToken::End(_) => depth = depth.saturating_sub(1),
            JsonToken::Name(range) if depth == 1 => {
                name = unescaped(event, &range);
                known |= google && GEMINI_EVENTS.contains(&&*name);
            }
            JsonToken::Text(range) if depth == 1 && *name == *b"type" => {
                types += 1;
                known |= !google && OPENAI_EVENTS.contains(&&*unescaped(event, &range));
            }
            JsonToken::Name(_) | JsonToken::Text(_) | JsonToken::Scalar(_) => {}
        }
    }
    // With duplicate `type` members, the upstream's parser might use the other one.
    known && types < 2
}

/// A name or a word of a JSON text as it reads: some encoders write letters as escapes.
pub(crate) fn unescaped<'j>(json: &'j [u8], range: &Range<usize>) -> Cow<'j, [u8]> {
    let raw = json.get(range.clone()).unwrap_or_default();
    if memchr::memchr(b'\\', raw).is_none() {
        return Cow::Borrowed(raw);
    }
    let quoted = json.get(range.start.saturating_sub(1)..range.end + 1).unwrap_or_default();
    serde_json::from_slice::<String>(quoted).map_or(Cow::Borrowed(raw), |text| Cow::Owned(text.into_bytes()))
}

/// The value of a query parameter, still percent-encoded; the first of several.
pub fn query_parameter<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    let (_, query) = path.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn realtime_paths_are_recognised() {
        for (provider, path, spoken) in [
            (Provider::OpenAi, "/v1/responses", true),
            (Provider::OpenAi, "/v1/realtime?model=m", true),
            (Provider::Azure, "/openai/v1/realtime/?api-version=1", true),
            (Provider::OpenAi, "/v1/files", false),
            (
                Provider::Gemini,
                "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent?key=k",
                true,
            ),
            (Provider::Gemini, "/v1/realtime", false),
        ] {
            assert_eq!(is_supported(provider, path), spoken, "{path}");
        }
        assert_eq!(query_parameter("/v1/realtime?a=b&model=m", "model"), Some("m"));
    }

    #[test]
    fn realtime_events_are_identified_by_type_or_gemini_member() {
        for (provider, event, known) in [
            (Provider::OpenAi, r#"{"type":"response.create","response":{"type":"x"}}"#, true),
            (Provider::OpenAi, r#"{"response":{"type":"response.create"},"type":"new.thing"}"#, false),
            (Provider::OpenAi, r#"{"type":"new.thing","type":"response.create"}"#, false),
            (Provider::OpenAi, r#"{"type":"response.create","type":"response.cancel"}"#, false),
            (Provider::OpenAi, r#"["response.create"]"#, false),
            (Provider::OpenAi, r#"{"\u0074ype":"response\u002ecreate"}"#, true),
            (Provider::OpenAi, r#"{"\u0074ype":"response.cancel","type":"response.create"}"#, false),
            (Provider::Gemini, r#"{"client\u0043ontent":{"turns":[]}}"#, true),
            (Provider::OpenAi, "junk", false),
            (Provider::Gemini, r#"{"clientContent":{"turns":[]}}"#, true),
            (Provider::Gemini, r#"{"type":"response.create"}"#, false),
        ] {
            assert_eq!(is_known_event(provider, event.as_bytes()), known, "{event}");
        }
    }
}
