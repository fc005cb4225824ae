//! The most frequent events of a stream, which add a text and say nothing else, read without a tree.

use std::borrow::Cow;

use serde::Deserialize;

/// An event of Anthropic's API, or a chunk of Chat Completions.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", default)]
    kind: &'a str,
    #[serde(borrow)]
    delta: Option<TextDelta<'a>>,
    choices: Option<[Choice<'a>; 1]>,
    /// Null: one that reports more has to be read whole.
    #[serde(rename = "usage")]
    _usage: Option<()>,
    #[serde(rename = "error")]
    _error: Option<()>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    delta: TextDelta<'a>,
    finish_reason: Option<()>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextDelta<'a> {
    #[serde(rename = "type", alias = "role", default)]
    kind: &'a str,
    #[serde(alias = "content")]
    text: Cow<'a, str>,
}

/// The text that an event adds to a reply, if it does nothing else: one of Anthropic's API or of Chat Completions.
pub fn text_of(event: &[u8]) -> Option<Cow<'_, str>> {
    match serde_json::from_slice(event).ok()? {
        Event { choices: Some([Choice { index: 0, delta, finish_reason: None }]), .. } => Some(delta.text),
        Event { kind: "content_block_delta", delta: Some(TextDelta { kind: "text_delta", text }), .. } => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_stream::{EventReader, StreamFraming};
    use crate::translate::{ChatEvent, EventTranslator, WireFormat};

    /// What is read of an event of a reply that has begun.
    fn read(format: WireFormat, event: &str) -> Vec<ChatEvent> {
        let begin = match format {
            WireFormat::Anthropic => r#"{"type":"message_start","message":{"id":"i","model":"m"}}"#,
            _ => r#"{"id":"i","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
        };
        let (mut events, mut translator) =
            (EventReader::new(StreamFraming::Sse, 1 << 20), EventTranslator::new(format));
        events.push(format!("data: {begin}\n\ndata: {event}\n\n").as_bytes());
        translator.read(&events.next_event().unwrap().unwrap());
        translator.read(&events.next_event().unwrap().unwrap())
    }

    #[test]
    fn what_is_read_without_a_tree_is_what_is_read_with_one() {
        let text = |text: &str| vec![ChatEvent::Text(text.to_owned())];
        let chat = |rest: &str, delta: &str, choice: &str| {
            format!(r#"{{"id":"i","model":"m"{rest},"choices":[{{"index":0,"delta":{{{delta}}}{choice}}}]}}"#)
        };
        let block = |delta: &str| format!(r#"{{"type":"content_block_delta","index":1,"delta":{{{delta}}}}}"#);
        let said = r#""content":"a \"b\" \u00e9 \n""#;
        for (format, event, is_quick, expected) in [
            (WireFormat::OpenAiChat, chat("", said, ""), true, text("a \"b\" é \n")),
            (
                WireFormat::OpenAiChat,
                chat(r#","usage":null"#, said, r#","finish_reason":null"#),
                true,
                text("a \"b\" é \n"),
            ),
            (WireFormat::OpenAiChat, chat(r#","x":1"#, said, r#","x":{}"#), true, text("a \"b\" é \n")),
            (WireFormat::OpenAiChat, chat("", r#""content":"a","x":1"#, ""), false, text("a")),
            (WireFormat::OpenAiChat, chat("", r#""content":"half \ud83e""#, ""), false, text("half \u{fffd}")),
            (WireFormat::OpenAiChat, chat("", r#""content":"""#, ""), true, vec![]),
            (WireFormat::OpenAiChat, chat("", said, "").replace(r#""index":0"#, r#""index":1"#), false, vec![]),
            (
                WireFormat::OpenAiChat,
                chat("", r#""content":null,"refusal":"no""#, ""),
                false,
                vec![ChatEvent::Refusal("no".into())],
            ),
            (WireFormat::Anthropic, block(r#""type":"text_delta","text":"a\tb""#), true, text("a\tb")),
            (WireFormat::Anthropic, block(r#""type":"text_delta","text":"a","x":1"#), false, text("a")),
            (
                WireFormat::Anthropic,
                block(r#""type":"thinking_delta","thinking":"a""#),
                false,
                vec![ChatEvent::Thinking("a".into())],
            ),
        ] {
            assert_eq!(text_of(event.as_bytes()).is_some(), is_quick, "{event}");
            assert_eq!(read(format, &event), expected, "{event}");
        }
        let usage = chat(r#","usage":{"prompt_tokens":1,"completion_tokens":2}"#, said, "");
        assert!(matches!(&read(WireFormat::OpenAiChat, &usage)[..], [ChatEvent::Usage(_), ChatEvent::Text(_)]));
    }
}
