//! LLM APIs over WebSockets: OpenAI's Responses, Realtime and Live, Gemini's Live and Interactions. Each message is one
//! JSON event.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use interflow_codec::json::{JsonReader, JsonToken};
use interflow_types::{ByteStr, RequestHead};
use serde::Deserialize;
use serde_json::Value;

use crate::Provider;

/// Client events whose text locations are known: the types of OpenAI's Realtime, Live and Responses, those of Google's
/// Interactions, and the members that tell messages of Google's Live API.
static CLIENT_EVENTS: LazyLock<BTreeMap<&'static str, Vec<&'static str>>> =
    LazyLock::new(|| crate::built_in(include_str!("../data/client_events.json")));

fn is_listed(list: &str, word: &[u8]) -> bool {
    CLIENT_EVENTS.get(list).is_some_and(|list| list.iter().any(|entry| entry.as_bytes() == word))
}

/// Whether the request opens a WebSocket, by upgrade or by extended CONNECT (RFC 8441).
pub fn is_websocket(head: &RequestHead) -> bool {
    head.protocol.as_ref().is_some_and(|p| p.eq_ignore_ascii_case("websocket"))
}

/// Whether the WebSocket events at this path have known text locations. Others are rejected where prompts must be
/// redacted.
pub fn is_supported(provider: Provider, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    let ends: &[&str] = match provider {
        // Tokens for one session use the constrained method.
        Provider::Gemini | Provider::Vertex => {
            &["BidiGenerateContent", "BidiGenerateContentConstrained", "/interactions/live"]
        }
        _ => &["/responses", "/realtime", "/realtime/translations", "/live/sessions", "/attach", "/fork"],
    };
    ends.iter().any(|end| path.ends_with(end))
        && (!path.ends_with("/attach") && !path.ends_with("/fork") || path.contains("/live/sessions/"))
}

/// Whether a client's event has a type with known text locations; of a batch of events, whether all have. False for
/// anything but a JSON object. Reads tokens without building a tree, because every message is checked.
pub fn is_known_event(provider: Provider, event: &[u8]) -> bool {
    let google = matches!(provider, Provider::Gemini | Provider::Vertex);
    let (types, type_name) = if google { ("google", &b"event_type"[..]) } else { ("openai", &b"type"[..]) };
    let mut reader = JsonReader::new(event);
    let (mut depth, mut name) = (0_usize, Cow::Borrowed(&b""[..]));
    let (mut verdict, mut types_at_root) = (None, 0);
    while let Ok(Some(token)) = reader.next_token() {
        match token {
            JsonToken::Object(_) | JsonToken::Array(_) => depth += 1,
            JsonToken::End(_) => depth = depth.saturating_sub(1),
            JsonToken::Name(range) => {
                name = unescaped(event, &range);
                if google && depth == 1 && is_listed("google_members", &name) {
                    verdict.get_or_insert(true);
                }
            }
            // Google's clients may send several events in one message: `{"events": [{…}]}`.
            JsonToken::Text(range) if *name == *type_name && (depth == 1 || google && depth == 3) => {
                types_at_root += usize::from(depth == 1);
                verdict = Some(verdict.unwrap_or(true) && is_listed(types, &unescaped(event, &range)));
            }
            JsonToken::Text(_) | JsonToken::Scalar(_) => {}
        }
    }
    // With duplicate `type` members, the upstream's parser might use the other one.
    verdict == Some(true) && types_at_root < 2
}

/// Whether a client's event may come before any that names a model: Google's Interactions have some that only manage the
/// connection.
pub fn may_lack_model(provider: Provider, event: &[u8]) -> bool {
    let is_google = matches!(provider, Provider::Gemini | Provider::Vertex);
    is_google && EventType::of(event).event_type.is_some_and(|kind| kind != "interaction.create")
}

/// What the members of an event say that tell its type. In its texts the same words say nothing.
#[derive(Default, Deserialize)]
#[serde(default)]
struct EventType {
    r#type: Option<String>,
    event_type: Option<String>,
}

impl EventType {
    fn of(event: &[u8]) -> Self {
        interflow_codec::json::parse(event).unwrap_or_default()
    }
}

/// The model that writes down what the client says, if an event has the settings of a Realtime session.
pub fn transcription_model(event: &[u8]) -> Option<ByteStr> {
    memchr::memmem::find(event, b"transcription\"")?;
    let event: Value = interflow_codec::json::parse(event).ok()?;
    let session = &event["session"];
    let of_session = [&session["audio"]["input"]["transcription"], &session["input_audio_transcription"]];
    of_session.into_iter().find_map(|settings| settings["model"].as_str()).map(ByteStr::from)
}

/// Whether a server's event has what the client said in a Realtime session, which is billed by itself.
pub fn is_transcription(event: &[u8]) -> bool {
    let is_kind = |kind: String| kind.starts_with("conversation.item.input_audio_transcription.");
    EventType::of(event).r#type.is_some_and(is_kind)
}

/// Whether a server's event reports the usage of a response that is not over: it repeats what was reported before.
pub fn is_interim_report(event: &[u8]) -> bool {
    EventType::of(event).event_type.is_some_and(|kind| kind == "step.stop" || kind == "interaction.status_update")
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
    fn the_words_of_an_event_type_in_a_text_are_not_its_type() {
        let interim = r#"{"event_type": "step.stop","usage":{}}"#;
        let quoted = r#"{"event_type":"interaction.completed","arguments":{"x":"step.stop"},"usage":{}}"#;
        assert!(is_interim_report(interim.as_bytes()) && !is_interim_report(quoted.as_bytes()));
        let kind = "conversation.item.input_audio_transcription.completed";
        let own = format!(r#"{{"event_id":"e","type" : "{kind}","usage":{{}}}}"#);
        let quoted = format!(r#"{{"type":"response.done","text":"\"{kind}\"","usage":{{}}}}"#);
        assert!(is_transcription(own.as_bytes()) && !is_transcription(quoted.as_bytes()));
        for (event, may_lack) in [
            (r#"{"event_type":"ping"}"#, true),
            (r#"{"event_type":"interaction.create"}"#, false),
            (r#"{"event_type":"interaction\u002ecreate"}"#, false),
            (r#"{"type":"ping"}"#, false),
        ] {
            assert_eq!(may_lack_model(Provider::Gemini, event.as_bytes()), may_lack, "{event}");
        }
    }

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
            (Provider::Gemini, "/v1beta/interactions/live", true),
            (Provider::OpenAi, "/v1/live/sessions", true),
            (Provider::OpenAi, "/v1/live/sessions/s_1/attach", true),
            (Provider::OpenAi, "/v1/files/attach", false),
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
            (Provider::OpenAi, r#"{"type":"response.steer","input":[]}"#, true),
            (Provider::OpenAi, r#"{"type":"session.commentary.append","text":"x"}"#, true),
            (Provider::Gemini, r#"{"event_type":"input","content":[{"type":"text","text":"x"}]}"#, true),
            (Provider::Gemini, r#"{"event_type":"new.thing"}"#, false),
            (Provider::Gemini, r#"{"events":[{"event_type":"input"},{"event_type":"interaction.complete"}]}"#, true),
            (Provider::Gemini, r#"{"events":[{"event_type":"input"},{"event_type":"new.thing"}]}"#, false),
            (Provider::Gemini, r#"{"event_type":"input","event_type":"interaction.create"}"#, false),
            (Provider::OpenAi, r#"{"events":[{"type":"response.create"}]}"#, false),
        ] {
            assert_eq!(is_known_event(provider, event.as_bytes()), known, "{event}");
        }
    }
}
