//! Tests of the translation: what the matrix over the real binary (`interflow/tests/llm/translation.rs`) does not show.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::event_stream::{EventReader, StreamFraming};

const FORMATS: [WireFormat; 7] = [
    WireFormat::Anthropic,
    WireFormat::OpenAiChat,
    WireFormat::OpenAiResponses,
    WireFormat::Gemini,
    WireFormat::Bedrock,
    WireFormat::Cohere,
    WireFormat::Ollama,
];
const CLIENTS: [WireFormat; 3] = [WireFormat::Anthropic, WireFormat::OpenAiChat, WireFormat::OpenAiResponses];

pub(super) fn target(format: WireFormat, model: &str) -> Target<'_> {
    let provider = format.provider();
    let upstream = "test";
    Target { format, provider, upstream, model, max_tokens: 8_192, is_openai: false, assistant_after_tools: false }
}

pub(super) fn written(client: WireFormat, target: &Target<'_>, body: Value) -> (Value, String) {
    let (body, losses) = ChatRequest::parse(client, body).unwrap().write(target);
    (body, losses.to_string())
}

pub(super) fn parsed_reply(format: WireFormat, body: &[u8]) -> ModelReply {
    parse_reply(format, format, body).0
}

/// What a client does not get of a reply.
pub(super) fn lost_in_reply(format: WireFormat, client: WireFormat, body: &[u8]) -> String {
    parse_reply(format, client, body).1.to_string()
}

pub(super) fn head() -> ReplyHead {
    ReplyHead {
        id: "flow".into(),
        model: "asked".into(),
        created: interflow_types::Timestamp::from_secs(1_700_000_000),
        grows: false,
        stream_usage: true,
        custom_tools: vec!["patch".into()],
        upstream: WireFormat::OpenAiChat,
    }
}

/// The stream of a client for the stream of an upstream.
pub(super) fn streamed(client: WireFormat, upstream: WireFormat, framing: StreamFraming, raw: &[u8]) -> String {
    let mut writer = ReplyWriter::new(client, head());
    let mut out = Vec::new();
    chat_events(upstream, framing, raw).into_iter().for_each(|event| writer.write(event, &mut out));
    String::from_utf8(out).unwrap()
}

pub(super) fn chat_events(upstream: WireFormat, framing: StreamFraming, raw: &[u8]) -> Vec<ChatEvent> {
    let (mut events, mut translator) = (EventReader::new(framing, 16 << 20), EventTranslator::new(upstream));
    let mut all = Vec::new();
    for piece in raw.chunks(7) {
        events.push(piece);
        loop {
            match events.next_event() {
                Ok(Some(event)) => all.extend(translator.read(&event)),
                Ok(None) => break,
                Err(e) => {
                    all.extend(translator.fail_stream(&e.to_string()));
                    return all;
                }
            }
        }
    }
    all.extend(translator.finish(events.finish().as_ref()));
    all
}

fn chunk(delta: Value, finish: Option<&str>) -> String {
    format!(
        "data: {}\n\n",
        json!({ "id": "c", "model": "m", "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
    )
}

#[test]
fn signed_thoughts_return_to_the_provider_that_made_them() {
    // Anthropic's thought through a Responses client and back.
    let reply = parsed_reply(
        WireFormat::Anthropic,
        json!({ "type": "message", "content": [
            { "type": "thinking", "thinking": "hm", "signature": "SIG" },
            { "type": "tool_use", "id": "t1", "name": "f", "input": {} },
        ], "stop_reason": "tool_use" })
        .to_string()
        .as_bytes(),
    );
    let whole = whole_reply(WireFormat::OpenAiResponses, &head(), &reply);
    let mut input = vec![json!({ "role": "user", "content": "q" })];
    input.extend(whole["output"].as_array().unwrap().iter().cloned());
    input.push(json!({ "type": "function_call_output", "call_id": "t1", "output": "r" }));
    let ask = json!({ "model": "m", "reasoning": { "effort": "low" }, "input": input });
    let claude = target(WireFormat::Anthropic, "claude-sonnet-4-5");
    let (body, losses) = written(WireFormat::OpenAiResponses, &claude, ask);
    let thought = json!({ "type": "thinking", "thinking": "hm", "signature": "SIG" });
    assert_eq!((&body["messages"][1]["content"][0], losses.as_str()), (&thought, ""));
    assert_eq!(body["thinking"]["budget_tokens"], 2_048);

    // OpenAI's reasoning through an Anthropic client and back.
    let item = json!({ "type": "reasoning", "id": "rs_1", "encrypted_content": "SEALED", "summary": [] });
    let raw = format!(
        "data: {}\n\ndata: {}\n\n",
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        json!({ "type": "response.completed", "response": {} })
    );
    let out = streamed(WireFormat::Anthropic, WireFormat::OpenAiResponses, StreamFraming::Sse, raw.as_bytes());
    assert!(out.contains(r#""signature":"openai:rs_1:SEALED""#), "{out}");
    let said = json!([
        { "role": "user", "content": "q" },
        { "role": "assistant", "content": [{ "type": "thinking", "thinking": "", "signature": "openai:rs_1:SEALED" }] },
        { "role": "user", "content": "more" },
    ]);
    let ask = json!({ "model": "m", "max_tokens": 99, "messages": said });
    let (body, losses) = written(WireFormat::Anthropic, &target(WireFormat::OpenAiResponses, "gpt-5"), ask.clone());
    assert_eq!((&body["input"][1]["encrypted_content"], losses.as_str()), (&"SEALED".into(), ""));
    // No other provider could verify it.
    assert_eq!(written(WireFormat::Anthropic, &target(WireFormat::Gemini, "gemini-2.5-pro"), ask).1, "thinking");
}

#[test]
fn a_turn_whose_thoughts_were_lost_goes_on_without_thinking() {
    let ask = json!({ "model": "m", "reasoning_effort": "high", "tools": [], "messages": [
        { "role": "user", "content": "q" },
        { "role": "assistant", "tool_calls": [{ "id": "a", "function": { "name": "f", "arguments": "{}" } }] },
        { "role": "tool", "tool_call_id": "a", "content": "r" },
    ] });
    let (body, losses) = written(WireFormat::OpenAiChat, &target(WireFormat::Anthropic, "claude-sonnet-4-5"), ask);
    assert_eq!((body.get("thinking"), losses.as_str()), (None, "reasoning"));
}

#[test]
fn reasoning_takes_the_form_of_the_model() {
    let ask = |effort: &str| json!({ "model": "m", "reasoning_effort": effort, "messages": [{ "role": "user", "content": "q" }] });
    for (format, model, effort, pointer, expected) in [
        (WireFormat::Anthropic, "claude-sonnet-4-20250514", "medium", "/thinking/budget_tokens", json!(8_192)),
        (WireFormat::Anthropic, "claude-sonnet-4-20250514", "medium", "/max_tokens", json!(16_384)),
        (WireFormat::Anthropic, "claude-opus-4-6", "medium", "/output_config/effort", json!("medium")),
        (WireFormat::Anthropic, "claude-opus-4-6", "none", "/thinking", Value::Null),
        (WireFormat::Anthropic, "claude-opus-4-6", "max", "/output_config/effort", json!("max")),
        (WireFormat::Anthropic, "claude-opus-4-6", "xhigh", "/output_config/effort", json!("high")),
        (WireFormat::Anthropic, "claude-opus-5-5", "xhigh", "/output_config/effort", json!("xhigh")),
        (WireFormat::Anthropic, "claude-opus-5-5", "none", "/output_config/effort", json!("low")),
        (WireFormat::Anthropic, "claude-sonnet-5-5", "none", "/thinking/type", json!("between_tools")),
        (WireFormat::Anthropic, "claude-haiku-5-5", "none", "/thinking/type", json!("disabled")),
        (WireFormat::Bedrock, "us.anthropic.claude-opus-5-5", "max", "/outputConfig/effort", json!("max")),
        (WireFormat::OpenAiResponses, "gpt-4o", "medium", "/reasoning", Value::Null),
        (WireFormat::OpenAiResponses, "gpt-6.2-astra", "max", "/reasoning/effort", json!("max")),
        (WireFormat::OpenAiResponses, "gpt-6.2-astra", "none", "/reasoning/effort", json!("low")),
        (WireFormat::OpenAiResponses, "gpt-6-sol", "none", "/reasoning/effort", json!("none")),
        (WireFormat::OpenAiChat, "gpt-5-mini", "minimal", "/reasoning_effort", json!("minimal")),
        (WireFormat::OpenAiChat, "gpt-5.6-sol", "minimal", "/reasoning_effort", json!("low")),
        (
            WireFormat::Gemini,
            "gemini-4-argon",
            "medium",
            "/generationConfig/thinkingConfig/thinkingLevel",
            json!("medium"),
        ),
        (WireFormat::Gemini, "gemini-4-argon", "none", "/generationConfig/thinkingConfig/thinkingLevel", json!("low")),
        (
            WireFormat::Gemini,
            "gemini-2.5-flash",
            "low",
            "/generationConfig/thinkingConfig/thinkingBudget",
            json!(2_048),
        ),
        (WireFormat::Gemini, "gemini-3-pro", "low", "/generationConfig/thinkingConfig/thinkingLevel", json!("low")),
        (WireFormat::Ollama, "gpt-oss:20b", "high", "/think", json!("high")),
    ] {
        let (body, _) = written(WireFormat::OpenAiChat, &target(format, model), ask(effort));
        assert_eq!(body.pointer(pointer).cloned().unwrap_or_default(), expected, "{model} {pointer}: {body}");
    }
}

#[test]
fn what_a_model_refuses_is_left_out_or_moved_and_named() {
    let ask = json!({
        "model": "m", "temperature": 0.3, "top_p": 0.9, "stop": ["x"], "presence_penalty": 1, "tool_choice": "required",
        "tools": [{ "type": "function", "function": { "name": "f" } }],
        "messages": [{ "role": "user", "content": "q" }, { "role": "assistant", "content": "Well" }],
    });
    for (format, model, lost) in [
        (WireFormat::Anthropic, "claude-sonnet-4-5", "presence_penalty, top_p"),
        (WireFormat::Anthropic, "claude-haiku-5-5", "messages.prefill, presence_penalty, temperature, top_p"),
        (
            WireFormat::Anthropic,
            "claude-opus-5-5",
            "messages.prefill, presence_penalty, temperature, tool_choice, top_p",
        ),
        (
            WireFormat::Bedrock,
            "anthropic.claude-opus-5-5",
            "messages.prefill, presence_penalty, temperature, tool_choice, top_p",
        ),
        (WireFormat::OpenAiChat, "gpt-5.4", ""),
        (WireFormat::OpenAiChat, "gpt-6.2-astra", "presence_penalty, stop, temperature, top_p"),
        (WireFormat::OpenAiResponses, "gpt-6.2-astra", "presence_penalty, stop, temperature, top_p"),
        (WireFormat::Gemini, "gemini-4-argon", "temperature, top_p"),
        (WireFormat::OpenAiChat, "a-model-of-ours", ""),
    ] {
        let (body, losses) = written(WireFormat::OpenAiChat, &target(format, model), ask.clone());
        assert_eq!(losses, lost, "{model}: {body}");
        assert_eq!(body.to_string().contains("0.3"), !lost.contains("temperature"), "{model}: {body}");
        assert_eq!(body.to_string().contains("Continue."), lost.contains("prefill"), "{model}: {body}");
        let is_forced = ["\"required\"", "\"any\"", "\"ANY\""].iter().any(|any| body.to_string().contains(any));
        assert_eq!(is_forced, !lost.contains("tool_choice"), "{model}: {body}");
    }
}

#[test]
fn ways_to_reason_that_only_openai_has_are_named() {
    let ask =
        json!({ "model": "m", "input": "q", "reasoning": { "effort": "low", "mode": "pro", "context": "all_turns" } });
    let (_, losses) = written(WireFormat::OpenAiResponses, &target(WireFormat::Gemini, "gemini-4-argon"), ask);
    assert_eq!(losses, "reasoning.context, reasoning.mode");
}

#[test]
fn tools_with_reasoning_belong_to_the_responses_api_where_chat_completions_refuse_them() {
    let function = json!([{ "type": "function", "function": { "name": "f" } }]);
    let custom = json!([{ "type": "custom", "custom": { "name": "f" } }]);
    for (model, tools, effort, needs) in [
        ("gpt-6.2-sol", &function, Value::Null, true),
        ("gpt-6.2-sol", &function, json!("none"), true),
        ("gpt-6.2-sol", &custom, Value::Null, false),
        ("gpt-6.2-sol", &json!([]), json!("high"), false),
        ("gpt-6-sol", &function, json!("none"), false),
        ("gpt-5.6-sol", &function, Value::Null, true),
        ("gpt-5.4", &function, Value::Null, false),
        ("gpt-5.4", &function, json!("low"), true),
        ("gpt-5.1", &function, json!("low"), false),
        ("gpt-5.5-pro", &json!([]), Value::Null, true),
        ("gpt-4o", &function, Value::Null, false),
        ("a-model-of-ours", &function, json!("high"), false),
    ] {
        let ask = json!({ "model": "m", "tools": tools, "reasoning_effort": effort, "messages": [{ "role": "user", "content": "q" }] });
        let chat = ChatRequest::parse(WireFormat::OpenAiChat, ask).unwrap();
        assert_eq!(chat.needs_responses("openai", model), needs, "{model} {tools} {effort}");
    }
}

#[test]
fn ids_of_calls_fit_every_api_and_stay_the_same_for_call_and_result() {
    let long = "x".repeat(100);
    let ask = json!({ "model": "m", "max_tokens": 9, "messages": [
        { "role": "user", "content": "q" },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": long, "name": "f", "input": {} }] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": long, "content": "r" }] },
    ] });
    for (provider, exact) in [(Provider::OpenAi, None), (Provider::Mistral, Some(9))] {
        let target = Target { provider, ..target(WireFormat::OpenAiChat, "m") };
        let (body, _) = written(WireFormat::Anthropic, &target, ask.clone());
        let id = body["messages"][1]["tool_calls"][0]["id"].as_str().unwrap();
        assert_eq!(body["messages"][2]["tool_call_id"], id);
        assert!(id.len() <= 64 && exact.is_none_or(|n| id.len() == n), "{id}");
    }
}

#[test]
fn images_of_tool_results_follow_as_the_users() {
    let ask = json!({ "model": "m", "max_tokens": 9, "messages": [
        { "role": "user", "content": "q" },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "t", "name": "f", "input": {} }] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t", "is_error": true, "content": [
            { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "aGk=" } },
        ] }] },
    ] });
    let (body, losses) = written(WireFormat::Anthropic, &target(WireFormat::OpenAiChat, "m"), ask);
    let roles: Vec<&str> = body["messages"].as_array().unwrap().iter().filter_map(|m| m["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user"]);
    assert_eq!(body["messages"][3]["content"][0]["image_url"]["url"], "data:image/png;base64,aGk=");
    assert_eq!(losses, "tool_result.is_error");
}

#[test]
fn pieces_of_parallel_calls_may_alternate() {
    let call = |index: u64, id: &str, name: &str, arguments: &str| {
        let mut call = json!({ "index": index, "function": { "arguments": arguments } });
        if !id.is_empty() {
            call["id"] = id.into();
            call["function"]["name"] = name.into();
        }
        chunk(json!({ "tool_calls": [call] }), None)
    };
    let raw = [
        call(0, "a", "f", "{\"x\""),
        call(1, "b", "g", "{\"y\""),
        call(0, "", "", ":1}"),
        call(1, "", "", ":2}"),
        chunk(json!({}), Some("tool_calls")),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    for (client, expected) in [
        (
            WireFormat::Anthropic,
            [
                r#""index":0,"delta":{"type":"input_json_delta","partial_json":":1}"}"#,
                r#""index":1,"delta":{"type":"input_json_delta","partial_json":":2}"}"#,
            ],
        ),
        (WireFormat::OpenAiResponses, [r#""arguments":"{\"x\":1}""#, r#""arguments":"{\"y\":2}""#]),
    ] {
        let out = streamed(client, WireFormat::OpenAiChat, StreamFraming::Sse, raw.as_bytes());
        assert!(expected.iter().all(|e| out.contains(e)), "{client:?}: {out}");
    }
}

#[test]
fn parallel_calls_are_told_apart_by_their_ids_where_their_indices_do_not() {
    let fragment = |index: Option<u64>, id: &str, name: &str, arguments: &str| {
        let mut call = json!({ "function": { "arguments": arguments } });
        for (value, pointer) in [(id, "id"), (name, "name")] {
            match pointer {
                _ if value.is_empty() => {}
                "id" => call["id"] = id.into(),
                _ => call["function"]["name"] = name.into(),
            }
        }
        if let Some(index) = index {
            call["index"] = index.into();
        }
        chunk(json!({ "tool_calls": [call] }), None)
    };
    let end = chunk(json!({}), Some("tool_calls")) + "data: [DONE]\n\n";
    let two = ["{\"x\":1}", "{\"y\":2}"];
    for (what, fragments, expected) in [
        (
            "index 0 for each",
            vec![
                fragment(Some(0), "a", "f", two[0]),
                fragment(Some(0), "b", "g", "{\"y\""),
                fragment(Some(0), "", "", ":2}"),
            ],
            vec![("a", "f", two[0]), ("b", "g", two[1])],
        ),
        (
            "no index",
            vec![fragment(None, "a", "f", "{\"x\""), fragment(None, "a", "", ":1}"), fragment(None, "b", "g", two[1])],
            vec![("a", "f", two[0]), ("b", "g", two[1])],
        ),
        (
            "neither index nor id",
            vec![fragment(None, "", "f", two[0]), fragment(None, "", "g", "{\"y\""), fragment(None, "", "", ":2}")],
            vec![("", "f", two[0]), ("", "g", two[1])],
        ),
        (
            "id and name in every fragment",
            vec![fragment(Some(0), "a", "f", "{\"x\""), fragment(Some(0), "a", "f", ":1}")],
            vec![("a", "f", two[0])],
        ),
        (
            "another id in every fragment",
            vec![fragment(Some(0), "a", "f", "{\"x\""), fragment(Some(0), "made-up", "", ":1}")],
            vec![("a", "f", two[0])],
        ),
    ] {
        let raw = fragments.concat() + &end;
        let reply = parse::reply(ApiFormat::Chat, "text/event-stream", 200, raw.as_bytes());
        let calls: Vec<ContentBlock> = expected
            .iter()
            .map(|(id, name, input)| ContentBlock::ToolUse {
                id: (*id).into(),
                name: (*name).into(),
                input: serde_json::from_str(input).unwrap(),
            })
            .collect();
        assert_eq!(reply.blocks, calls, "{what}");
        let out = streamed(WireFormat::OpenAiResponses, WireFormat::OpenAiChat, StreamFraming::Sse, raw.as_bytes());
        let last = out.split("event: response.completed\ndata: ").nth(1).unwrap();
        let last: Value = serde_json::from_str(last.trim()).unwrap();
        let items = last["response"]["output"].as_array().unwrap();
        let said: Vec<_> =
            items.iter().map(|i| (i["name"].as_str().unwrap(), i["arguments"].as_str().unwrap())).collect();
        assert_eq!(said, expected.iter().map(|(_, name, input)| (*name, *input)).collect::<Vec<_>>(), "{what}");
    }
}

#[test]
fn a_thought_under_two_names_is_one_thought() {
    let both = json!({ "reasoning_content": "hm", "reasoning": "hm" });
    let one = json!({ "reasoning_content": "", "reasoning": " yes" });
    let raw = [chunk(both, None), chunk(one, Some("stop")), "data: [DONE]\n\n".to_owned()].concat();
    let reply = parse::reply(ApiFormat::Chat, "text/event-stream", 200, raw.as_bytes());
    assert_eq!(reply.blocks, [ContentBlock::thinking("hm yes")]);
    let out = streamed(WireFormat::Anthropic, WireFormat::OpenAiChat, StreamFraming::Sse, raw.as_bytes());
    assert_eq!(
        (out.matches(r#""thinking":"hm""#).count(), out.matches(r#""thinking":" yes""#).count()),
        (1, 1),
        "{out}"
    );
}

#[test]
fn text_files_are_decoded_and_written_as_each_api_has_them() {
    let file = |data: &str| {
        json!({ "model": "m", "messages": [{ "role": "user", "content": [
            { "type": "text", "text": "read" },
            { "type": "file", "file": { "filename": "a b.txt", "file_data": data } },
        ] }] })
    };
    for data in [
        "data:text/plain;base64,R3LDvMOfZQ==",
        "data:text/plain;charset=utf-8;base64,R3LDvMOfZQ==",
        "data:text/plain,Gr%C3%BC%C3%9Fe",
        "data:application/json;base64,R3LDvMOfZQ==",
    ] {
        for (format, pointer, expected) in [
            (
                WireFormat::Anthropic,
                "/messages/0/content/1/source",
                json!({ "type": "text", "media_type": "text/plain", "data": "Grüße" }),
            ),
            (
                WireFormat::Bedrock,
                "/messages/0/content/1/document",
                json!({ "format": "txt", "name": "a-b-txt", "source": { "bytes": "R3LDvMOfZQ==" } }),
            ),
            (WireFormat::Gemini, "/contents/0/parts/1/text", json!("Grüße")),
            (WireFormat::OpenAiResponses, "/input/0/content/1", json!({ "type": "input_text", "text": "Grüße" })),
            (WireFormat::Cohere, "/messages/0/content/1", json!({ "type": "text", "text": "Grüße" })),
            (WireFormat::Ollama, "/messages/0/content", json!("read\n\nGrüße")),
        ] {
            let (body, losses) = written(WireFormat::OpenAiChat, &target(format, "m"), file(data));
            assert_eq!((body.pointer(pointer), losses.as_str()), (Some(&expected), ""), "{data}: {body}");
        }
    }
    let ask = json!({ "model": "m", "max_tokens": 9, "messages": [{ "role": "user", "content": [
        { "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": "R3LDvMOfZQ==" } },
    ] }] });
    let (body, _) = written(WireFormat::Anthropic, &target(WireFormat::OpenAiChat, "m"), ask);
    assert_eq!(body["messages"][0]["content"], "R3LDvMOfZQ==", "a text that looks like base64 stays as it is");
}

#[test]
fn a_history_that_begins_with_the_assistant_gets_a_turn_of_the_users_where_an_api_demands_it() {
    let ask = json!({ "model": "m", "messages": [
        { "role": "assistant", "content": "Welcome!" }, { "role": "user", "content": "Hello" },
    ] });
    for (format, lost, first) in [
        (WireFormat::Anthropic, "messages.assistant_first", "user"),
        (WireFormat::Bedrock, "messages.assistant_first", "user"),
        (WireFormat::Ollama, "", "assistant"),
    ] {
        let (body, losses) = written(WireFormat::OpenAiChat, &target(format, "m"), ask.clone());
        assert_eq!((body["messages"][0]["role"].as_str(), losses.as_str()), (Some(first), lost), "{body}");
        assert!(body.to_string().contains("Welcome!"));
    }
}

#[test]
fn the_assistant_speaks_between_results_and_the_user_where_an_upstream_demands_it() {
    let ask = json!({ "model": "m", "max_tokens": 9, "messages": [
        { "role": "user", "content": "q" },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "t", "name": "f", "input": {} }] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "t", "content": "r" }, { "type": "text", "text": "And?" },
        ] },
    ] });
    for (assistant_after_tools, expected) in [
        (true, &["user", "assistant", "tool", "assistant", "user"][..]),
        (false, &["user", "assistant", "tool", "user"]),
    ] {
        let target = Target { assistant_after_tools, ..target(WireFormat::OpenAiChat, "m") };
        let (body, _) = written(WireFormat::Anthropic, &target, ask.clone());
        let roles: Vec<&str> = body["messages"].as_array().unwrap().iter().filter_map(|m| m["role"].as_str()).collect();
        assert_eq!(roles, expected);
    }
}

#[test]
fn a_finish_reason_without_a_word_ends_nothing() {
    let text = |text: &str, finish: Option<&str>| chunk(json!({ "content": text }), finish);
    let cut = text("a", Some("")) + &text("b", Some(""));
    let events = chat_events(WireFormat::OpenAiChat, StreamFraming::Sse, cut.as_bytes());
    assert!(matches!(events.last(), Some(ChatEvent::Error { .. })), "{events:?}");
    let whole = cut + &text("c", Some("length"));
    let events = chat_events(WireFormat::OpenAiChat, StreamFraming::Sse, whole.as_bytes());
    assert!(events.ends_with(&[ChatEvent::Stop(StopReason::MaxTokens), ChatEvent::Done]), "{events:?}");
    let gemini = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]},\"finishReason\":\"\"}]}\n\n";
    let events = chat_events(WireFormat::Gemini, StreamFraming::Sse, gemini.as_bytes());
    assert!(matches!(events.last(), Some(ChatEvent::Error { .. })), "{events:?}");
}

#[test]
fn a_stream_that_breaks_off_ends_with_an_error_and_not_as_if_complete() {
    let raw = chunk(json!({ "content": "so far" }), None);
    for (client, error, end) in [
        (WireFormat::Anthropic, "event: error\n", "message_stop"),
        (WireFormat::OpenAiResponses, "event: error\n", "response.completed"),
    ] {
        for raw in [
            raw.clone(),
            format!("{raw}data: [DONE]\n\n"),
            format!("{raw}data: {{\"error\":{{\"message\":\"x\"}}}}\n\n"),
        ] {
            let out = streamed(client, WireFormat::OpenAiChat, StreamFraming::Sse, raw.as_bytes());
            assert!(out.contains("so far") && out.contains(error) && !out.contains(end), "{out}");
        }
    }
    let raw = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"c\"}}\n\n";
    let out = streamed(WireFormat::OpenAiChat, WireFormat::Anthropic, StreamFraming::Sse, raw.as_bytes());
    assert!(out.contains("\"error\"") && !out.contains("[DONE]"), "{out}");
}

#[test]
fn stop_reasons_and_usage_have_the_clients_names() {
    let raw = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]},\"finishReason\":\"MAX_TOKENS\"}],\
        \"usageMetadata\":{\"promptTokenCount\":10,\"candidatesTokenCount\":1,\"thoughtsTokenCount\":3,\"cachedContentTokenCount\":6}}\n\n";
    for (client, expected) in [
        (
            WireFormat::Anthropic,
            vec![
                r#""stop_reason":"max_tokens""#,
                r#""input_tokens":4,"#,
                r#""cache_read_input_tokens":6"#,
                r#""output_tokens":4"#,
            ],
        ),
        (
            WireFormat::OpenAiChat,
            vec![
                r#""finish_reason":"length""#,
                r#""prompt_tokens":10"#,
                r#""cached_tokens":6"#,
                r#""reasoning_tokens":3"#,
            ],
        ),
        (
            WireFormat::OpenAiResponses,
            vec!["event: response.incomplete", r#""reason":"max_output_tokens""#, r#""total_tokens":14"#],
        ),
    ] {
        let out = streamed(client, WireFormat::Gemini, StreamFraming::Sse, raw.as_bytes());
        assert!(expected.iter().all(|e| out.contains(e)), "{expected:?}: {out}");
    }
}

#[test]
fn names_of_losses_fit_a_header_field() {
    let mut losses = Losses::default();
    (0..100).for_each(|n| losses.add(&format!("b\r\nInjected: {n} {}", "x".repeat(200))));
    let text = losses.to_string();
    assert!(text.len() < 32 * 70 && !text.contains(['\r', '\n', ':']), "{text}");
}

/// Values that look like the members of some format, so that readers get past their first checks.
fn value() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "type",
        "role",
        "content",
        "delta",
        "choices",
        "index",
        "tool_calls",
        "function",
        "arguments",
        "id",
        "name",
        "text",
        "message",
        "messages",
        "input",
        "parts",
        "candidates",
        "functionCall",
        "usage",
        "finish_reason",
        "stop",
        "user",
        "assistant",
        "tool",
        "tool_use",
        "tool_result",
        "thinking",
        "signature",
        "content_block_start",
        "content_block_delta",
        "response.output_item.added",
        "response.completed",
        "message_stop",
        "item",
        "tools",
        "image",
        "source",
        "system",
        "output",
        "call_id",
        "function_call",
        "reasoning",
        "encrypted_content",
        "done",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6)
                .prop_map(|members| members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Value>()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_request_makes_a_translation_panic(body in value(), messages in prop::collection::vec(value(), 0..4)) {
        let mut body = if body.is_object() { body } else { json!({}) };
        body["messages"] = messages.clone().into();
        body["input"] = messages.into();
        for client in CLIENTS {
            if let Ok(chat) = ChatRequest::parse(client, body.clone()) {
                for format in FORMATS {
                    let _ = chat.write(&target(format, "m"));
                }
            }
        }
    }

    #[test]
    fn no_stream_makes_a_translation_panic(events in prop::collection::vec(value(), 0..8), noise in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut raw: Vec<u8> = events.iter().flat_map(|e| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap_or("x")).into_bytes()).collect();
        raw.extend(&noise);
        for upstream in FORMATS {
            let _ = whole_reply(WireFormat::OpenAiChat, &head(), &parsed_reply(upstream, events.first().unwrap_or(&Value::Null).to_string().as_bytes()));
            for framing in [StreamFraming::Sse, StreamFraming::Lines, StreamFraming::EventStream, StreamFraming::Array] {
                let all = chat_events(upstream, framing, &raw);
                // It ends exactly once, whatever comes.
                let ends = all.iter().filter(|e| matches!(e, ChatEvent::Done | ChatEvent::Error { .. })).count();
                prop_assert_eq!(ends, 1);
                for client in CLIENTS {
                    let (mut writer, mut out) = (ReplyWriter::new(client, head()), Vec::new());
                    all.iter().cloned().for_each(|event| writer.write(event, &mut out));
                    prop_assert!(writer.has_ended() && String::from_utf8(out).is_ok());
                }
            }
        }
    }
}

#[test]
fn a_request_of_a_system_prompt_only_is_carried() {
    let ask = json!({ "model": "m", "max_tokens": 5, "system": "be nice", "messages": [] });
    let (body, losses) = written(WireFormat::Anthropic, &target(WireFormat::OpenAiChat, "m"), ask.clone());
    assert_eq!((&body["messages"], &*losses), (&json!([{ "role": "system", "content": "be nice" }]), ""));
    let (body, losses) = written(WireFormat::Anthropic, &target(WireFormat::Gemini, "m"), ask);
    assert_eq!(body["contents"][0]["parts"][0]["text"], "be nice");
    assert_eq!(losses, "messages.system");
    let ask = json!({ "model": "m", "instructions": "be nice" });
    let (body, _) = written(WireFormat::OpenAiResponses, &target(WireFormat::OpenAiChat, "m"), ask);
    assert_eq!(body["messages"], json!([{ "role": "system", "content": "be nice" }]));
    for nothing in [json!({ "model": "m", "messages": [] }), json!({ "system": "", "messages": [] }), json!({})] {
        assert!(ChatRequest::parse(WireFormat::Anthropic, nothing).is_err());
    }
}
