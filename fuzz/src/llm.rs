//! Entries for the translation between LLM APIs: no request and no reply makes it panic, and what a client gets does not
//! depend on how the upstream's bytes are split.

use interflow_llm::event_stream::{EventReader, StreamFraming};
use interflow_llm::translate::{
    ChatRequest, EventTranslator, ReplyHead, ReplyWriter, Target, WireFormat, parse_reply, whole_reply,
};
use interflow_types::Timestamp;

/// One entry over the inputs of one target.
pub type Entry = fn(&[u8]);

/// Every entry with the name of its target.
pub const ENTRIES: [(&str, Entry); 2] = [("llm_request", llm_request), ("llm_stream", llm_stream)];

const CLIENTS: [WireFormat; 6] = [
    WireFormat::Anthropic,
    WireFormat::OpenAiChat,
    WireFormat::OpenAiResponses,
    WireFormat::Interactions,
    WireFormat::Gemini,
    WireFormat::Bedrock,
];
const UPSTREAMS: [WireFormat; 7] = [
    WireFormat::Anthropic,
    WireFormat::OpenAiChat,
    WireFormat::OpenAiResponses,
    WireFormat::Gemini,
    WireFormat::Bedrock,
    WireFormat::Cohere,
    WireFormat::Ollama,
];
const FRAMINGS: [StreamFraming; 4] =
    [StreamFraming::Sse, StreamFraming::Lines, StreamFraming::EventStream, StreamFraming::Array];

/// The body of a request, read as each client's and written for each upstream.
pub fn llm_request(data: &[u8]) {
    let Ok(body) = serde_json::from_slice::<serde_json::Value>(data) else { return };
    for client in CLIENTS {
        let Ok(chat) = ChatRequest::parse(client, body.clone()) else { continue };
        for format in UPSTREAMS {
            let target = Target {
                upstream: "fuzz",
                format,
                provider: format.provider(),
                model: "model",
                max_tokens: 8_192,
                is_openai: false,
                assistant_after_tools: false,
            };
            let (written, losses) = chat.write(&target);
            assert!(written.is_object());
            assert!(losses.to_string().bytes().all(|b| (b' '..=b'~').contains(&b)));
        }
    }
}

/// A reply: its upstream in the digit of the first byte, its framing in that of the second, then its bytes.
pub fn llm_stream(data: &[u8]) {
    let [upstream, framing, raw @ ..] = data else { return };
    let upstream = UPSTREAMS[usize::from(*upstream) % UPSTREAMS.len()];
    let framing = FRAMINGS[usize::from(*framing) % FRAMINGS.len()];
    for client in CLIENTS {
        let head = ReplyHead {
            id: "id".into(),
            model: "model".into(),
            // No time has passed since then, whenever it is asked.
            created: Timestamp::from_micros(u64::MAX),
            grows: framing == StreamFraming::Array,
            stream_usage: true,
            custom_tools: Vec::new(),
            upstream,
        };
        let translate = |step: usize| {
            let mut events = EventReader::new(framing, 16 << 20);
            let mut translator = EventTranslator::new(upstream);
            let mut writer = ReplyWriter::new(client, head.clone());
            let mut out = Vec::new();
            'stream: for piece in raw.chunks(step) {
                events.push(piece);
                loop {
                    let (chat, is_broken) = match events.next_event() {
                        Ok(Some(event)) => (translator.read(&event), false),
                        Ok(None) => break,
                        Err(e) => (translator.fail_stream(&e.to_string()), true),
                    };
                    chat.into_iter().for_each(|event| writer.write(event, &mut out));
                    if is_broken {
                        break 'stream;
                    }
                }
            }
            translator.finish(events.finish().as_ref()).into_iter().for_each(|event| writer.write(event, &mut out));
            assert!(writer.has_ended());
            out
        };
        assert_eq!(translate(raw.len().max(1)), translate(5));
        assert!(whole_reply(client, &head, &parse_reply(upstream, client, raw).0).is_object());
    }
}
