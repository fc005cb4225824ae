//! Requests and replies of every API format, as documented by the providers.

use serde_json::{Value, json};

use super::*;
use interflow_types::CallUsage;

fn request(path: &str, body: Value) -> (ApiFormat, ModelRequest) {
    let shape = ApiFormat::detect(path, &body).expect("it is a question to a model");
    (shape, parse::request(shape, path, body))
}

fn use_of(id: &str, name: &str, input: Value) -> ContentBlock {
    ContentBlock::ToolUse { id: id.into(), name: name.into(), input }
}

fn thinking(text: &str) -> ContentBlock {
    ContentBlock::thinking(text)
}

#[test]
fn equal_histories_parse_equally_in_every_format() {
    let cases = [
        (
            "/v1/messages",
            json!({"model": "m", "system": "be kind", "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ls", "input": {"p": "."}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a b"}]}]}),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "m", "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "ls", "arguments": "{\"p\":\".\"}"}}]},
            {"role": "tool", "tool_call_id": "t1", "content": "a b"}]}),
        ),
        (
            "/v1/responses",
            json!({"model": "m", "instructions": "be kind", "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "t1", "name": "ls", "arguments": "{\"p\":\".\"}"},
            {"type": "function_call_output", "call_id": "t1", "output": "a b"}]}),
        ),
        (
            "/v1beta/models/m:generateContent",
            json!({"systemInstruction": {"parts": [{"text": "be kind"}]}, "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "t1", "name": "ls", "args": {"p": "."}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "t1", "name": "", "response": {"output": "a b"}}}]}]}),
        ),
        (
            "/v1beta/interactions",
            json!({"model": "m", "system_instruction": "be kind", "input": [
            {"type": "user_input", "content": [{"type": "text", "text": "hi"}]},
            {"type": "function_call", "id": "t1", "name": "ls", "arguments": {"p": "."}},
            {"type": "function_result", "call_id": "t1", "result": "a b"}]}),
        ),
        (
            "/model/m/converse",
            json!({"system": [{"text": "be kind"}], "messages": [
            {"role": "user", "content": [{"text": "hi"}]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "ls", "input": {"p": "."}}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "a b"}]}}]}]}),
        ),
        (
            "/api/chat",
            json!({"model": "m", "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "t1", "function": {"name": "ls", "arguments": {"p": "."}}}]},
            {"role": "tool", "tool_call_id": "t1", "content": "a b"}]}),
        ),
    ];
    for (path, body) in cases {
        let (_, request) = request(path, body);
        assert_eq!(request.model, "m", "{path}");
        assert_eq!(request.system, ["be kind"], "{path}");
        let result = ContentBlock::ToolResult {
            id: "t1".into(),
            name: String::new(),
            content: vec![ContentBlock::text("a b")],
            is_error: false,
        };
        let expected = [
            ChatMessage::text(MessageRole::User, "hi"),
            ChatMessage { role: MessageRole::Assistant, blocks: vec![use_of("t1", "ls", json!({"p": "."}))] },
            ChatMessage { role: MessageRole::User, blocks: vec![result] },
        ];
        assert_eq!(request.messages, expected, "{path}");
    }
}

#[test]
fn api_formats_are_detected_by_path_or_body() {
    let talk = json!([{"role": "user", "content": "x"}]);
    for (path, body, shape) in [
        ("/v1/messages?beta=true", json!({"messages": talk}), Some(ApiFormat::Anthropic)),
        ("/openai/deployments/gpt/chat/completions?api-version=1", json!({"messages": talk}), Some(ApiFormat::Chat)),
        ("/backend-api/codex/responses", json!({"model": "m", "input": []}), Some(ApiFormat::Responses)),
        ("/v1internal:streamGenerateContent", json!({"request": {"contents": []}}), Some(ApiFormat::Gemini)),
        ("/x", json!({"model": "m", "messages": talk}), Some(ApiFormat::Chat)),
        ("/x", json!({"model": "m", "system": "s", "messages": talk}), Some(ApiFormat::Anthropic)),
        ("/x", json!({"anthropic_version": "v", "messages": talk}), Some(ApiFormat::Anthropic)),
        ("/x", json!({"model": "m", "input": [{"role": "user", "content": "x"}]}), Some(ApiFormat::Responses)),
        ("/x", json!({"contents": [{"parts": [{"text": "x"}]}]}), Some(ApiFormat::Gemini)),
        ("/x", json!({"messages": [{"role": "user", "content": [{"text": "x"}]}]}), Some(ApiFormat::Converse)),
        ("/v1/embeddings", json!({"model": "m", "input": "x"}), None),
        ("/v1/messages", json!({"text": "a mail server's own"}), None),
        ("/x", json!({"messages": "none"}), None),
        ("/x", json!([1, 2]), None),
    ] {
        assert_eq!(ApiFormat::detect(path, &body), shape, "{path} {body}");
    }
}

#[test]
fn models_are_read_from_the_path_of_some_formats() {
    for (path, model) in [
        ("/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", "gemini-2.5-pro"),
        ("/model/anthropic.claude-3%3A0/invoke", "anthropic.claude-3:0"),
        ("/model/us.anthropic.claude-3:0/converse", "us.anthropic.claude-3:0"),
        ("/openai/deployments/gpt-5/chat/completions", "gpt-5"),
        ("/openai/deployments/my%20gpt%2f5/chat/completions", "my gpt/5"),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/claude@1:streamRawPredict", "claude@1"),
    ] {
        assert_eq!(parse::request(ApiFormat::Anthropic, path, json!({})).model, model, "{path}");
    }
}

fn sse(events: &[Value]) -> Vec<u8> {
    events.iter().flat_map(|e| format!("data: {e}\n\n").into_bytes()).collect()
}

#[test]
fn anthropic_stream_is_assembled_into_its_message() {
    let events = [
        json!({"type": "message_start", "message": {"id": "msg_1", "model": "claude", "usage":
            {"input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hel"}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "lo"}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "t", "name": "ls", "input": {}}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\"a\":"}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "1}"}}),
        json!({"type": "content_block_stop", "index": 2}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 30}}),
        json!({"type": "message_stop"}),
    ];
    let reply = parse::reply(ApiFormat::Anthropic, "text/event-stream", 200, &sse(&events));
    assert_eq!(reply.blocks, [thinking("hm"), ContentBlock::text("Hello"), use_of("t", "ls", json!({"a": 1}))]);
    assert_eq!((reply.stop.as_deref(), reply.complete), (Some("tool_use"), true));
    let usage = CallUsage { input: 105, output: 30, cache_read: 90, cache_write: 5, ..CallUsage::default() };
    assert_eq!(reply.usage, Some(usage));
    let cut = parse::reply(ApiFormat::Anthropic, "text/event-stream", 200, &sse(&events[..10]));
    assert_eq!(cut.blocks[2], use_of("t", "ls", json!("{\"a\":")));
    assert!(!cut.complete);
}

#[test]
fn chat_stream_is_assembled_into_its_message() {
    let mut body = sse(&[
        json!({"id": "c1", "model": "gpt", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}),
        json!({"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]}),
        json!({"choices": [{"index": 0, "delta": {"content": "Hel"}}, {"index": 1, "delta": {"content": "other"}}]}),
        json!({"choices": [{"index": 0, "delta": {"content": "lo", "tool_calls": [{"index": 0, "id": "t", "function": {"name": "ls", "arguments": "{\"a\""}}]}}]}),
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.5,
            "prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens_details": {"reasoning_tokens": 2}}}),
    ]);
    body.extend_from_slice(b"data: [DONE]\n\n");
    let reply = parse::reply(ApiFormat::Chat, "text/event-stream", 200, &body);
    assert_eq!(reply.blocks, [thinking("hm"), ContentBlock::text("Hello"), use_of("t", "ls", json!({"a": 1}))]);
    assert_eq!(
        reply.usage,
        Some(CallUsage { input: 10, output: 5, cache_read: 8, reasoning: 2, ..CallUsage::default() })
    );
    assert_eq!((reply.cost, reply.complete), (Some(0.5), true));
}

#[test]
fn responses_stream_is_assembled_from_its_final_event_or_deltas() {
    let item = json!({"type": "function_call", "call_id": "t", "name": "ls", "arguments": "{}"});
    let events = [
        json!({"type": "response.created", "response": {"id": "r1", "model": "gpt"}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}}),
        json!({"type": "response.output_text.delta", "output_index": 0, "delta": "Hello"}),
        json!({"type": "response.output_item.done", "output_index": 0, "item":
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": item}),
        json!({"type": "response.completed", "response": {"id": "r1", "status": "completed", "output": [],
            "usage": {"input_tokens": 3, "output_tokens": 4, "output_tokens_details": {"reasoning_tokens": 1}}}}),
    ];
    let reply = parse::reply(ApiFormat::Responses, "text/event-stream", 200, &sse(&events));
    assert_eq!(reply.blocks, [ContentBlock::text("Hello"), use_of("t", "ls", json!({}))]);
    assert_eq!((reply.id.as_deref(), reply.model.as_deref(), reply.complete), (Some("r1"), Some("gpt"), true));
    assert_eq!(reply.usage.unwrap().reasoning, 1);
    let cut = parse::reply(ApiFormat::Responses, "text/event-stream", 200, &sse(&events[..3]));
    assert_eq!((cut.blocks, cut.complete), (vec![ContentBlock::text("Hello")], false));
}

#[test]
fn gemini_chunks_are_assembled_from_events_or_an_array() {
    let chunks = [
        json!({"candidates": [{"content": {"parts": [{"text": "hm", "thought": true}]}}], "modelVersion": "g"}),
        json!({"candidates": [{"content": {"parts": [{"text": "Hel"}]}}]}),
        json!({"candidates": [{"content": {"parts": [{"text": "lo"}, {"functionCall": {"name": "ls", "args": {"a": 1}}}]},
            "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3, "thoughtsTokenCount": 2}}),
    ];
    let expected = [thinking("hm"), ContentBlock::text("Hello"), use_of("", "ls", json!({"a": 1}))];
    let list = serde_json::to_vec(&chunks).unwrap();
    for (media, body) in [("text/event-stream", sse(&chunks)), ("application/json", list)] {
        let reply = parse::reply(ApiFormat::Gemini, media, 200, &body);
        assert_eq!(reply.blocks, expected, "{media}");
        assert_eq!(reply.usage, Some(CallUsage { input: 9, output: 5, reasoning: 2, ..CallUsage::default() }));
        assert!(reply.complete);
    }
}

#[test]
fn bedrock_event_streams_are_read() {
    use interflow_codec::aws_event_stream::{HeaderValue, write_message};
    let frame = |name: &str, data: Value, out: &mut Vec<u8>| {
        let headers = [(":event-type".into(), HeaderValue::String(name.to_owned().into()))];
        write_message(out, &headers, data.to_string().as_bytes()).unwrap();
    };
    let mut body = Vec::new();
    frame("messageStart", json!({"role": "assistant"}), &mut body);
    frame("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"text": "Hello"}}), &mut body);
    frame("contentBlockStop", json!({"contentBlockIndex": 0}), &mut body);
    frame("contentBlockStart", json!({"start": {"toolUse": {"toolUseId": "t", "name": "ls"}}}), &mut body);
    frame("contentBlockDelta", json!({"delta": {"toolUse": {"input": "{\"a\":1}"}}}), &mut body);
    frame("contentBlockStop", json!({}), &mut body);
    frame("messageStop", json!({"stopReason": "tool_use"}), &mut body);
    frame("metadata", json!({"usage": {"inputTokens": 5, "outputTokens": 2, "cacheReadInputTokens": 4}}), &mut body);
    let reply = parse::reply(ApiFormat::Converse, "application/vnd.amazon.eventstream", 200, &body);
    assert_eq!(reply.blocks, [ContentBlock::text("Hello"), use_of("t", "ls", json!({"a": 1}))]);
    assert_eq!(reply.usage, Some(CallUsage { input: 9, output: 2, cache_read: 4, ..CallUsage::default() }));
    // InvokeModel wraps the model's own events in base64.
    let mut body = Vec::new();
    let inner = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}});
    let wrapped = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, inner.to_string());
    frame("chunk", json!({ "bytes": wrapped }), &mut body);
    let reply = parse::reply(ApiFormat::Anthropic, "application/vnd.amazon.eventstream", 200, &body);
    assert_eq!(reply.blocks, [ContentBlock::text("Hi")]);
}

#[test]
fn ollama_lines_are_assembled() {
    let body = b"{\"model\":\"l\",\"message\":{\"role\":\"assistant\",\"content\":\"Hel\"},\"done\":false}\n\
        {\"message\":{\"content\":\"lo\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":3,\"eval_count\":2}\n";
    for media in ["application/x-ndjson", "application/octet-stream"] {
        let reply = parse::reply(ApiFormat::Ollama, media, 200, body);
        assert_eq!((reply.blocks, reply.complete), (vec![ContentBlock::text("Hello")], true), "{media}");
    }
}

#[test]
fn errors_of_every_form_become_error_blocks() {
    for (shape, body, kind, message) in [
        (
            ApiFormat::Anthropic,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#,
            "overloaded_error",
            "busy",
        ),
        (
            ApiFormat::Chat,
            r#"{"error":{"message":"no","type":"invalid_request_error","code":null}}"#,
            "invalid_request_error",
            "no",
        ),
        (ApiFormat::Responses, r#"{"error":{"message":"no","code":"bad"}}"#, "bad", "no"),
        (
            ApiFormat::Gemini,
            r#"{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}"#,
            "RESOURCE_EXHAUSTED",
            "slow",
        ),
        (ApiFormat::Converse, r#"{"message":"denied"}"#, "429", "denied"),
        (ApiFormat::Ollama, r#"{"error":"model not found"}"#, "429", "model not found"),
        (ApiFormat::Chat, "<html>bad gateway</html>", "429", "<html>bad gateway</html>"),
    ] {
        let reply = parse::reply(shape, "application/json", 429, body.as_bytes());
        let expected = ContentBlock::Error { kind: kind.into(), message: message.into() };
        assert_eq!(reply.blocks, [expected], "{shape:?}");
    }
}

#[test]
fn a_session_is_found_in_each_form_of_anthropics_user_id() {
    let id = "0e8400-e29b";
    for user in [
        json!(format!("user_abc_account__session_{id}")),
        json!(format!("{{\"device_id\":\"d\",\"session_id\":\"{id}\"}}")),
        json!({"session_id": id}),
    ] {
        let body = json!({"model": "m", "messages": [], "metadata": {"user_id": user}});
        assert_eq!(request("/v1/messages", body).1.session.as_deref(), Some(id), "{user}");
    }
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let key = prop::sample::select(vec![
            "type",
            "content",
            "role",
            "messages",
            "text",
            "input",
            "parts",
            "id",
            "tool_calls",
            "function",
            "error",
            "delta",
            "index",
            "choices",
            "message",
            "output",
            "source",
            "usage",
            "item",
            "response",
            "contents",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            prop::sample::select(vec!["text", "tool_use", "assistant", "message", "image", "", "{", "session_"])
                .prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 60, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((key.clone(), inner), 0..6).prop_map(|kv| kv
                    .into_iter()
                    .map(|(k, v)| (k.to_owned(), v))
                    .collect::<serde_json::Map<_, _>>()
                    .into()),
            ]
        })
    }

    const SHAPES: [ApiFormat; 6] = [
        ApiFormat::Anthropic,
        ApiFormat::Chat,
        ApiFormat::Responses,
        ApiFormat::Gemini,
        ApiFormat::Converse,
        ApiFormat::Ollama,
    ];

    proptest! {
        #[test]
        fn arbitrary_json_never_panics(body in any_json(), events in prop::collection::vec(any_json(), 0..6)) {
            let _ = ApiFormat::detect("/v1/messages", &body);
            for shape in SHAPES {
                let _ = parse::request(shape, "/x", body.clone());
                let _ = parse::reply(shape, "application/json", 200, body.to_string().as_bytes());
                let _ = parse::reply(shape, "text/event-stream", 200, &sse(&events));
            }
        }

        #[test]
        fn arbitrary_response_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
            for shape in SHAPES {
                for media in ["application/json", "text/event-stream", "application/vnd.amazon.eventstream", ""] {
                    let _ = parse::reply(shape, media, 200, &body);
                }
            }
        }
    }
}

#[test]
fn repeated_gemini_text_parts_are_merged() {
    let said = |parts: serde_json::Value| serde_json::json!({"role": "model", "parts": parts});
    let call = serde_json::json!({"functionCall": {"name": "weather", "args": {}}});
    let whole = serde_json::json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}, said(serde_json::json!([{"text": "Let me look."}, call]))]});
    let pieces = serde_json::json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]},
        said(serde_json::json!([{"text": "Let "}, {"text": "me"}])), said(serde_json::json!([{"text": " look."}, call]))]});
    let read = |body| format!("{:?}", super::gemini::request(body).messages);
    assert_eq!(read(pieces), read(whole));
}

#[test]
fn names_of_gemini_have_two_spellings_and_a_result_has_media() {
    let media = |data: &str, kind: &str| json!([{data: {kind: "image/png", "data": "QUJD"}}]);
    let parts = |call: &str, result: &str, media: Value| {
        json!({"contents": [
            {"role": "model", "parts": [{call: {"id": "c", "name": "draw", "args": {"a": 1}}}]},
            {"role": "user", "parts": [{result: {"id": "c", "name": "draw", "response": {"output": "done"}, "parts": media}}]},
        ]})
    };
    let camel = parts("functionCall", "functionResponse", media("inlineData", "mimeType"));
    let snake = parts("function_call", "function_response", media("inline_data", "mime_type"));
    let read = super::gemini::request(camel).messages;
    assert_eq!(read, super::gemini::request(snake).messages);
    assert_eq!(read[0].blocks, [use_of("c", "draw", json!({"a": 1}))]);
    let ContentBlock::ToolResult { content, .. } = &read[1].blocks[0] else { panic!("{read:?}") };
    assert!(matches!(&content[..], [ContentBlock::Text { .. }, ContentBlock::Image(_)]), "{content:?}");
}

#[test]
fn interactions_have_the_same_reply_whole_and_streamed() {
    let steps = json!([
        {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "hm"}]},
        {"type": "model_output", "content": [{"type": "text", "text": "Four are free."}]},
        {"type": "function_call", "id": "t1", "name": "book", "arguments": {"room": "B2"}}]);
    let usage = json!({"total_input_tokens": 120, "total_output_tokens": 9, "total_thought_tokens": 61});
    let whole = json!({"id": "v1_a", "status": "requires_action", "model": "m", "steps": steps, "usage": usage});
    let event = |kind: &str, rest: Value| {
        let mut event = rest;
        event["event_type"] = kind.into();
        format!("event: {kind}\ndata: {event}\n\n")
    };
    let delta = |index: u64, delta: Value| event("step.delta", json!({"index": index, "delta": delta}));
    let stream = [
        event("interaction.created", json!({"interaction": {"id": "v1_a", "status": "in_progress", "model": "m"}})),
        event("step.start", json!({"index": 0, "step": {"type": "thought"}})),
        delta(0, json!({"type": "thought_summary", "content": {"type": "text", "text": "hm"}})),
        delta(0, json!({"type": "thought_signature", "signature": "c2ln"})),
        event("step.start", json!({"index": 1, "step": {"type": "model_output"}})),
        delta(1, json!({"type": "text", "text": "Four are "})),
        delta(1, json!({"type": "text", "text": "free."})),
        event("step.stop", json!({"index": 1, "usage": {"total_input_tokens": 120, "total_output_tokens": 4}})),
        event("step.start", json!({"index": 2, "step": {"type": "function_call", "id": "t1", "name": "book"}})),
        delta(2, json!({"type": "arguments_delta", "arguments": "{\"room\":"})),
        delta(2, json!({"type": "arguments_delta", "arguments": "\"B2\"}"})),
        event(
            "interaction.completed",
            json!({"interaction": {"id": "v1_a", "status": "requires_action", "usage": usage}}),
        ),
        "data: [DONE]\n\n".to_owned(),
    ];
    let blocks =
        vec![thinking("hm"), ContentBlock::text("Four are free."), use_of("t1", "book", json!({"room": "B2"}))];
    let usage = CallUsage { input: 120, output: 70, reasoning: 61, ..CallUsage::default() };
    for (media, body) in [("application/json", whole.to_string()), ("text/event-stream", stream.concat())] {
        let reply = parse::reply(ApiFormat::Interactions, media, 200, body.as_bytes());
        assert_eq!((&reply.blocks, reply.usage), (&blocks, Some(usage)), "{media}");
        assert_eq!((reply.id.as_deref(), reply.stop.as_deref()), (Some("v1_a"), Some("requires_action")), "{media}");
        assert!(reply.complete && reply.model.as_deref() == Some("m"), "{media}");
    }
    let cut = parse::reply(ApiFormat::Interactions, "text/event-stream", 200, stream[..6].concat().as_bytes());
    assert_eq!((cut.blocks.last(), cut.complete), (Some(&ContentBlock::text("Four are ")), false));
    let (_, continued) = request(
        "/v1beta/interactions",
        json!({"agent": "deep-research", "previous_interaction_id": "v1_a", "input": {"type": "text", "text": "and B3?"}}),
    );
    assert_eq!((continued.previous.as_deref(), &*continued.model), (Some("v1_a"), "deep-research"));
    assert_eq!(continued.messages, [ChatMessage::text(MessageRole::User, "and B3?")]);
}
