//! Tests of what a translation makes of answers in JSON, custom tools, refusals and failures, and of what it names as lost.

use serde_json::{Value, json};

use super::tests::{head, lost_in_reply, parsed_reply, streamed, target, written};
use super::*;
use crate::event_stream::StreamFraming;

fn user(text: &str) -> Value {
    json!([{ "role": "user", "content": text }])
}

fn parsed(format: WireFormat, body: &Value) -> ModelReply {
    parsed_reply(format, body.to_string().as_bytes())
}

#[test]
fn an_answer_in_json_is_demanded_as_the_model_can_be_made_to_give_it() {
    let closed = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    let ask = |format: Value| json!({ "model": "m", "response_format": format, "messages": user("q") });
    let by_schema =
        |schema: &Value| ask(json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } }));
    let any = ask(json!({ "type": "json_object" }));
    let open = json!({ "type": "object", "properties": { "a": { "type": "integer", "minimum": 1 } } });
    let claude = "anthropic.claude-sonnet-4-5-v1:0";
    for (format, model, body, pointer, expected) in [
        (
            WireFormat::Anthropic,
            "claude-sonnet-4-5",
            by_schema(&closed),
            "/output_config/format/schema",
            closed.clone(),
        ),
        (WireFormat::Anthropic, "claude-sonnet-4-5", by_schema(&open), "/tools/0/input_schema", open.clone()),
        (
            WireFormat::Anthropic,
            "claude-sonnet-4-20250514",
            by_schema(&closed),
            "/tools/0/input_schema",
            closed.clone(),
        ),
        (WireFormat::Anthropic, "claude-3-5-haiku-latest", by_schema(&closed), "/tools/0/input_schema", closed.clone()),
        (
            WireFormat::Anthropic,
            "claude-sonnet-4-5",
            any.clone(),
            "/tool_choice",
            json!({ "type": "tool", "name": "interflow_json_answer", "disable_parallel_tool_use": true }),
        ),
        (
            WireFormat::Bedrock,
            claude,
            by_schema(&closed),
            "/outputConfig/textFormat",
            json!({ "type": "json_schema", "structure": { "jsonSchema": { "name": "n", "schema": closed.to_string() } } }),
        ),
        (
            WireFormat::Bedrock,
            claude,
            any.clone(),
            "/toolConfig/toolChoice",
            json!({ "tool": { "name": "interflow_json_answer" } }),
        ),
        (
            WireFormat::Bedrock,
            "amazon.nova-pro-v1:0",
            by_schema(&closed),
            "/toolConfig/tools/0/toolSpec/inputSchema/json",
            closed.clone(),
        ),
        (
            WireFormat::Gemini,
            "gemini-2.5-pro",
            any.clone(),
            "/generationConfig/responseMimeType",
            json!("application/json"),
        ),
    ] {
        let (written, losses) = written(WireFormat::OpenAiChat, &target(format, model), body);
        assert_eq!((written.pointer(pointer), losses.as_str()), (Some(&expected), ""), "{model}: {written}");
    }
    // A model cannot be forced to call a tool while it thinks, nor can one of which nothing is known.
    let thinks = json!({ "model": "m", "reasoning_effort": "low", "response_format": { "type": "json_object" }, "messages": user("q") });
    for (format, model, body) in
        [(WireFormat::Anthropic, "claude-sonnet-4-5", thinks), (WireFormat::Bedrock, "meta.llama3", any)]
    {
        let (body, losses) = written(WireFormat::OpenAiChat, &target(format, model), body);
        assert_eq!(losses, "response_format", "{body}");
        assert!(!body.to_string().contains("interflow_json_answer"));
    }
    // The client's own tools stay callable.
    let mut with_tool = ask(json!({ "type": "json_object" }));
    with_tool["tools"] = json!([{ "type": "function", "function": { "name": "f" } }]);
    let (body, _) = written(WireFormat::OpenAiChat, &target(WireFormat::Anthropic, "claude-sonnet-4-5"), with_tool);
    assert_eq!((body["tools"].as_array().map(Vec::len), &body["tool_choice"]), (Some(2), &json!({ "type": "any" })));
}

#[test]
fn the_arguments_of_the_answers_tool_are_text_to_every_client() {
    let call = json!({ "type": "tool_use", "id": "t", "name": "interflow_json_answer", "input": { "a": 1 } });
    let body = json!({ "type": "message", "content": [call], "stop_reason": "tool_use" });
    let whole = whole_reply(WireFormat::OpenAiChat, &head(), &parsed(WireFormat::Anthropic, &body));
    let choice = &whole["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("{\"a\":1}"), &json!("stop")));
    assert!(choice["message"].get("tool_calls").is_none());
    let events = [
        json!({ "type": "message_start", "message": { "id": "m", "model": "c" } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "tool_use", "id": "t", "name": "interflow_json_answer", "input": {} } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "input_json_delta", "partial_json": "{\"a\"" } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "input_json_delta", "partial_json": ":1}" } }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } }),
        json!({ "type": "message_stop" }),
    ];
    let raw: String = events.iter().map(|e| format!("data: {e}\n\n")).collect();
    let out = streamed(WireFormat::OpenAiChat, WireFormat::Anthropic, StreamFraming::Sse, raw.as_bytes());
    let said: String = out
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(said, "{\"a\":1}");
    assert!(out.contains(r#""finish_reason":"stop""#) && !out.contains("tool_calls"), "{out}");
}

#[test]
fn a_custom_tool_is_carried_as_a_function_and_its_calls_are_custom_again() {
    let tool = json!({ "type": "custom", "name": "patch", "description": "Applies a patch.",
        "format": { "type": "grammar", "syntax": "lark", "definition": "start: LINE+" } });
    let ask = json!({ "model": "m", "tools": [tool], "tool_choice": { "type": "custom", "name": "patch" }, "input": [
        { "role": "user", "content": "fix" },
        { "type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** Begin" },
        { "type": "custom_tool_call_output", "call_id": "c1", "output": "done" },
    ] });
    let (body, losses) = written(WireFormat::OpenAiResponses, &target(WireFormat::Anthropic, "claude"), ask.clone());
    let described = body["tools"][0]["description"].as_str().unwrap();
    assert!(described.starts_with("Applies a patch.") && described.ends_with("(lark):\nstart: LINE+"), "{described}");
    assert_eq!(body["tools"][0]["input_schema"]["properties"]["input"]["type"], "string");
    assert_eq!(body["messages"][1]["content"][0]["input"], json!({ "input": "*** Begin" }));
    assert_eq!((&body["tool_choice"]["name"], losses.as_str()), (&json!("patch"), ""));
    let (chat, _) = written(WireFormat::OpenAiResponses, &target(WireFormat::OpenAiChat, "m"), ask);
    assert_eq!(chat["messages"][1]["tool_calls"][0]["function"]["arguments"], "{\"input\":\"*** Begin\"}");

    let call = json!({ "type": "tool_use", "id": "c2", "name": "patch", "input": { "input": "*** End\n" } });
    let reply =
        parsed(WireFormat::Anthropic, &json!({ "type": "message", "content": [call], "stop_reason": "tool_use" }));
    let item = &whole_reply(WireFormat::OpenAiResponses, &head(), &reply)["output"][0];
    assert_eq!(
        (&item["type"], &item["input"], &item["call_id"]),
        (&"custom_tool_call".into(), &"*** End\n".into(), &"c2".into())
    );
    let custom = &whole_reply(WireFormat::OpenAiChat, &head(), &reply)["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(
        (&custom["type"], &custom["custom"]),
        (&"custom".into(), &json!({ "name": "patch", "input": "*** End\n" }))
    );
    for (client, expected) in [
        (WireFormat::OpenAiResponses, r#""input":"*** End\n""#),
        (WireFormat::OpenAiChat, r#""custom":{"input":"*** End\n"}"#),
    ] {
        let (mut writer, mut out) = (ReplyWriter::new(client, head()), Vec::new());
        reply_events(&reply).into_iter().for_each(|event| writer.write(event, &mut out));
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains(expected) && !out.contains("function_call"), "{out}");
        let events = ["response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"];
        assert!(client == WireFormat::OpenAiChat || events.iter().all(|name| out.contains(name)), "{out}");
    }
}

#[test]
fn a_refusal_of_an_openai_model_is_one_to_every_client() {
    let chat = json!({ "choices": [{ "message": { "role": "assistant", "content": null, "refusal": "I cannot." }, "finish_reason": "stop" }] });
    let part = json!({ "type": "refusal", "refusal": "I cannot." });
    let responses =
        json!({ "status": "completed", "output": [{ "type": "message", "role": "assistant", "content": [part] }] });
    for (format, body) in [(WireFormat::OpenAiChat, chat), (WireFormat::OpenAiResponses, responses)] {
        let reply = parsed(format, &body);
        let whole = whole_reply(WireFormat::Anthropic, &head(), &reply);
        assert_eq!((&whole["stop_reason"], &whole["content"][0]["text"]), (&"refusal".into(), &"I cannot.".into()));
        let whole = whole_reply(WireFormat::OpenAiChat, &head(), &reply);
        let message = &whole["choices"][0]["message"];
        assert_eq!((&message["content"], &message["refusal"]), (&Value::Null, &"I cannot.".into()));
        assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    }
    let chunk = |delta: Value, reason: Option<&str>| {
        format!(
            "data: {}\n\n",
            json!({ "id": "c", "model": "m", "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }] })
        )
    };
    let raw =
        [chunk(json!({ "refusal": "I cannot." }), None), chunk(json!({}), Some("stop")), "data: [DONE]\n\n".into()]
            .concat();
    let out = streamed(WireFormat::Anthropic, WireFormat::OpenAiChat, StreamFraming::Sse, raw.as_bytes());
    assert!(out.contains(r#""stop_reason":"refusal""#) && out.contains("I cannot."), "{out}");
    let out = streamed(WireFormat::OpenAiResponses, WireFormat::OpenAiChat, StreamFraming::Sse, raw.as_bytes());
    for expected in [
        r#""part":{"type":"refusal","refusal":""}"#,
        "event: response.refusal.delta",
        r#""refusal":"I cannot.","type":"response.refusal.done""#,
        r#""content":[{"type":"refusal","refusal":"I cannot."}]"#,
    ] {
        assert!(out.contains(expected) && !out.contains("output_text"), "{expected}: {out}");
    }
    // What came as a whole although a stream was asked for.
    let raw = [
        json!({ "type": "response.refusal.delta", "delta": "I can" }),
        json!({ "type": "response.refusal.delta", "delta": "not." }),
        json!({ "type": "response.completed", "response": {} }),
    ];
    let raw: String = raw.iter().map(|event| format!("data: {event}\n\n")).collect();
    let streamed_refusal =
        streamed(WireFormat::OpenAiChat, WireFormat::OpenAiResponses, StreamFraming::Sse, raw.as_bytes());
    let mut writer = ReplyWriter::new(WireFormat::OpenAiChat, head());
    let mut whole_refusal = Vec::new();
    let reply = parsed(
        WireFormat::OpenAiChat,
        &json!({ "choices": [{ "message": { "refusal": "I cannot." }, "finish_reason": "stop" }] }),
    );
    reply_events(&reply).into_iter().for_each(|event| writer.write(event, &mut whole_refusal));
    for out in [streamed_refusal, String::from_utf8(whole_refusal).unwrap()] {
        let deltas = out.lines().filter_map(|l| serde_json::from_str::<Value>(l.strip_prefix("data: ")?).ok());
        let deltas: Vec<Value> = deltas.map(|chunk| chunk["choices"][0]["delta"].clone()).collect();
        let said: String = deltas.iter().filter_map(|delta| delta["refusal"].as_str()).collect();
        assert_eq!(said, "I cannot.");
        assert!(deltas.iter().all(|delta| delta["content"].as_str().is_none_or(str::is_empty)), "{out}");
        assert!(out.contains(r#""finish_reason":"stop""#), "{out}");
    }
    // An ordinary reply has the member, too.
    let plain = json!({ "choices": [{ "message": { "content": "ok", "refusal": null }, "finish_reason": "stop" }] });
    let whole = whole_reply(WireFormat::Anthropic, &head(), &parsed(WireFormat::OpenAiChat, &plain));
    assert_eq!(whole["stop_reason"], "end_turn");
}

#[test]
fn a_reply_that_failed_is_an_error_though_its_status_is_success() {
    let cohere = json!({ "id": "c", "finish_reason": "ERROR", "message": { "role": "assistant", "content": [{ "type": "text", "text": "half" }] } });
    let timeout = json!({ "finish_reason": "TIMEOUT" });
    let gemini = json!({ "candidates": [{ "content": { "parts": [] }, "finishReason": "MALFORMED_FUNCTION_CALL" }] });
    for (format, body, kind) in [
        (WireFormat::Cohere, cohere, "ERROR"),
        (WireFormat::Cohere, timeout, "TIMEOUT"),
        (WireFormat::Gemini, gemini.clone(), "MALFORMED_FUNCTION_CALL"),
    ] {
        let reply = parsed(format, &body);
        let found = reply.blocks.iter().find_map(|block| match block {
            ContentBlock::Error { kind, .. } => Some(kind.as_str()),
            _ => None,
        });
        assert_eq!(found, Some(kind), "{body}");
    }
    let out = streamed(
        WireFormat::OpenAiChat,
        WireFormat::Gemini,
        StreamFraming::Sse,
        format!("data: {gemini}\n\n").as_bytes(),
    );
    assert!(out.contains("MALFORMED_FUNCTION_CALL") && !out.contains("[DONE]"), "{out}");
}

#[test]
fn ids_with_a_signature_of_gemini_are_plain_again_for_cohere() {
    let ask = json!({ "model": "m", "messages": [
        { "role": "user", "content": "q" },
        { "role": "assistant", "tool_calls": [{ "id": "call_1__thought__QUJD", "type": "function", "function": { "name": "f", "arguments": "{}" } }] },
        { "role": "tool", "tool_call_id": "call_1__thought__QUJD", "content": "r" },
    ] });
    let (body, _) = written(WireFormat::OpenAiChat, &target(WireFormat::Cohere, "m"), ask);
    assert_eq!(
        (&body["messages"][1]["tool_calls"][0]["id"], &body["messages"][2]["tool_call_id"]),
        (&"call_1".into(), &"call_1".into())
    );
}

#[test]
fn what_no_other_api_has_is_named_and_the_detail_of_an_image_is_carried() {
    let image = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,aGk=", "detail": "high" } });
    let chat = json!({ "model": "m", "max_completion_tokens": 5,
        "tools": [{ "type": "function", "function": { "name": "f", "strict": true } }],
        "messages": [
            { "role": "system", "content": "s" },
            { "role": "user", "name": "anna", "content": [image] },
            { "role": "assistant", "content": "a", "audio": { "id": "audio_1" } },
            { "role": "system", "content": "and now briefly" },
            { "role": "user", "content": "q" },
        ] });
    let all = "messages.audio, messages.name, messages.system";
    let (body, losses) = written(WireFormat::OpenAiChat, &target(WireFormat::OpenAiResponses, "m"), chat.clone());
    assert_eq!(losses, format!("max_tokens, {all}"));
    assert_eq!(body["input"][0]["content"][0]["detail"], "high");
    let (_, losses) = written(WireFormat::OpenAiChat, &target(WireFormat::Gemini, "m"), chat);
    assert_eq!(losses, format!("image.detail, {all}, tools.strict"));

    let document = json!({ "type": "document", "context": "from the archive", "citations": { "enabled": true },
        "source": { "type": "text", "media_type": "text/plain", "data": "d" } });
    let ask = json!({ "model": "m", "max_tokens": 99, "messages": [{ "role": "user", "content": [document] }] });
    let (_, losses) = written(WireFormat::Anthropic, &target(WireFormat::OpenAiChat, "m"), ask);
    assert_eq!(losses, "document.citations, document.context");
    let image = json!({ "type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "low" });
    let ask = json!({ "model": "m", "input": [{ "role": "user", "content": [image] }] });
    let (body, losses) = written(WireFormat::OpenAiResponses, &target(WireFormat::OpenAiChat, "m"), ask);
    assert_eq!((&body["messages"][0]["content"][0]["image_url"]["detail"], losses.as_str()), (&"low".into(), ""));
}

#[test]
fn citations_in_a_reply_are_named() {
    for (format, body, name) in [
        (
            WireFormat::Anthropic,
            json!({ "content": [{ "type": "text", "text": "t", "citations": [{}] }] }),
            "citations",
        ),
        (WireFormat::Anthropic, json!({ "content": [{ "type": "text", "text": "t", "citations": null }] }), ""),
        (WireFormat::OpenAiChat, json!({ "choices": [{ "message": { "annotations": [{}] } }] }), "citations"),
        (WireFormat::OpenAiResponses, json!({ "output": [{ "content": [{ "annotations": [{}] }] }] }), "citations"),
        (WireFormat::OpenAiResponses, json!({ "output": [{ "content": [{ "annotations": [] }] }] }), ""),
        (WireFormat::Gemini, json!({ "candidates": [{ "groundingMetadata": { "a": 1 } }] }), "citations"),
        (WireFormat::Gemini, json!({ "usageMetadata": {} }), ""),
        (WireFormat::Cohere, json!({ "message": { "citations": [{}] } }), "citations"),
    ] {
        assert_eq!(lost_in_reply(format, WireFormat::Cohere, body.to_string().as_bytes()), name, "{body}");
    }
}

#[test]
fn citations_in_a_stream_are_named_once_in_a_comment() {
    let anthropic = |delta: Value| json!({ "type": "content_block_delta", "index": 0, "delta": delta });
    let cited =
        anthropic(json!({ "type": "citations_delta", "citation": { "type": "char_location", "cited_text": "x" } }));
    let chat = json!({ "choices": [{ "index": 0, "delta": { "annotations": [{ "type": "url_citation" }] } }] });
    let added = json!({ "type": "response.output_text.annotation.added", "annotation": { "type": "url_citation" } });
    let grounded = json!({ "candidates": [{ "groundingMetadata": { "webSearchQueries": ["x"] } }] });
    let reference =
        json!({ "choices": [{ "index": 0, "delta": { "content": [{ "type": "reference", "reference_ids": [1] }] } }] });
    for (format, event, name) in [
        (WireFormat::Anthropic, cited, "citations"),
        (WireFormat::OpenAiChat, chat, "citations"),
        (WireFormat::OpenAiResponses, added, "citations"),
        (WireFormat::Gemini, grounded, "citations"),
        (WireFormat::Cohere, json!({ "type": "citation-start", "index": 0 }), "citations"),
        (WireFormat::Mistral, reference, "citations"),
    ] {
        let raw = format!("data: {event}\n\n").repeat(2);
        for client in [WireFormat::Anthropic, WireFormat::OpenAiChat, WireFormat::OpenAiResponses] {
            let out = streamed(client, format, StreamFraming::Sse, raw.as_bytes());
            // Places in documents are those of Anthropic's clients, too.
            let losses = usize::from(format != client || format != WireFormat::Anthropic);
            assert_eq!(
                out.matches(&format!(": X-Interflow-Translation-Loss: {name}\n\n")).count(),
                losses,
                "{format:?}: {out}"
            );
        }
    }
}

#[test]
fn the_strictness_of_tools_is_kept_where_the_api_can_enforce_the_schema() {
    let closed = json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"], "additionalProperties": false });
    let mut optional = closed.clone();
    optional["required"] = json!([]);
    let mut limited = closed.clone();
    limited["properties"]["a"]["minLength"] = json!(2);
    let ask = |schema: &Value| {
        json!({
            "model": "m", "messages": [{ "role": "user", "content": "q" }],
            "tools": [{ "type": "function", "function": { "name": "f", "parameters": schema, "strict": true } }],
        })
    };
    for (model, schema, strict, lost) in [
        ("claude-sonnet-4-5", &closed, json!(true), ""),
        ("claude-sonnet-4-5", &optional, json!(true), ""),
        ("claude-sonnet-4-5", &limited, Value::Null, "tools.strict"),
        ("claude-sonnet-4-20250514", &closed, Value::Null, "tools.strict"),
    ] {
        let (body, losses) = written(WireFormat::OpenAiChat, &target(WireFormat::Anthropic, model), ask(schema));
        assert_eq!((body["tools"][0]["strict"].clone(), losses.as_str()), (strict, lost), "{model} {schema}");
    }
    let ask = |schema: &Value| {
        json!({
            "model": "m", "max_tokens": 99, "messages": [{ "role": "user", "content": "q" }],
            "tools": [{ "name": "f", "input_schema": schema, "strict": true }],
        })
    };
    for (format, is_openai, schema, strict, lost) in [
        (WireFormat::OpenAiChat, true, &closed, json!(true), ""),
        (WireFormat::OpenAiResponses, true, &closed, json!(true), ""),
        // OpenAI demands that all members are required.
        (WireFormat::OpenAiChat, true, &optional, Value::Null, "tools.strict"),
        (WireFormat::OpenAiResponses, true, &optional, json!(false), "tools.strict"),
        (WireFormat::OpenAiChat, false, &optional, json!(true), ""),
    ] {
        let target = Target { is_openai, ..target(format, "m") };
        let (body, losses) = written(WireFormat::Anthropic, &target, ask(schema));
        let tool = &body["tools"][0];
        let found = tool.get("strict").or_else(|| tool["function"].get("strict")).cloned().unwrap_or_default();
        assert_eq!((found, losses.as_str()), (strict, lost), "{format:?} {schema}");
    }
    // The API takes twenty such tools.
    let mut many = json!({ "model": "m", "messages": [{ "role": "user", "content": "q" }], "tools": [] });
    for i in 0..21 {
        let tool = json!({ "type": "function", "function": { "name": format!("f{i}"), "parameters": closed, "strict": true } });
        many["tools"].as_array_mut().unwrap().push(tool);
    }
    let (body, losses) = written(WireFormat::OpenAiChat, &target(WireFormat::Anthropic, "claude-opus-4-6"), many);
    let strict = body["tools"].as_array().unwrap().iter().filter(|tool| tool["strict"] == true).count();
    assert_eq!((strict, losses.as_str()), (20, "tools.strict"));
}

#[test]
fn a_ping_means_nothing_to_a_client_and_ends_with_the_stream() {
    for (client, expected) in
        [(WireFormat::Anthropic, "event: ping\ndata: {\"type\":\"ping\"}\n\n"), (WireFormat::OpenAiChat, ": ping\n\n")]
    {
        let (mut writer, mut out) = (ReplyWriter::new(client, head()), Vec::new());
        writer.ping(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), expected);
        writer.write(ChatEvent::Done, &mut out);
        let length = out.len();
        writer.ping(&mut out);
        assert_eq!(out.len(), length);
    }
}

#[test]
fn half_of_an_emoji_is_carried_and_an_event_that_cannot_be_read_fails_the_stream() {
    let said = |text: &str| {
        let words = format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#);
        let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
        let raw = format!(": hi\n\ndata: ping\n\ndata: {words}\n\ndata: {end}\n\ndata: [DONE]\n\n");
        streamed(WireFormat::Anthropic, WireFormat::OpenAiChat, StreamFraming::Sse, raw.as_bytes())
    };
    let cut = said(r"a \ud83e b");
    assert!(cut.contains("a \u{fffd} b") && cut.contains("message_stop"), "{cut}");
    for broken in [r"a \x b", "a \n b"] {
        let failed = said(broken);
        assert!(failed.contains("event: error") && failed.contains("an event is invalid JSON"), "{failed}");
        assert!(!failed.contains("message_stop"), "{failed}");
    }
    for (format, body) in [
        (
            WireFormat::OpenAiChat,
            r#"{"choices":[{"message":{"content":"a \ud83e","refusal":null}}],"usage":{"prompt_tokens":3}}"#,
        ),
        (
            WireFormat::Anthropic,
            r#"{"content":[{"type":"text","text":"a \ud83e","citations":[]}],"usage":{"input_tokens":3}}"#,
        ),
        (
            WireFormat::Gemini,
            r#"{"candidates":[{"content":{"parts":[{"text":"a \ud83e"}]}}],"usageMetadata":{"promptTokenCount":3}}"#,
        ),
        (
            WireFormat::Cohere,
            r#"{"message":{"content":[{"type":"text","text":"a \ud83e"}]},"usage":{"tokens":{"input_tokens":3}}}"#,
        ),
    ] {
        let reply = parsed_reply(format, body.as_bytes());
        assert_eq!(reply.blocks, [ContentBlock::text("a \u{fffd}")], "{body}");
        assert_eq!(reply.usage.map(|usage| usage.input), Some(3), "{body}");
    }
    let error = TranslatedError::parse(400, None, br#"{"error":{"type":"t","message":"no \ud83e"}}"#);
    assert_eq!(error.message, "no \u{fffd}");
}

#[test]
fn calls_that_a_provider_answered_itself_reach_no_client_whatever_their_ids() {
    let anthropic = json!([
        { "type": "server_tool_use", "id": "srv", "name": "web_search", "input": { "query": "lost" } },
        { "type": "web_search_tool_result", "tool_use_id": "srv", "content": [] },
        { "type": "tool_use", "id": "own", "name": "look", "input": {} },
    ]);
    let converse = json!([
        { "toolUse": { "toolUseId": "t1", "name": "grounding", "input": { "query": "lost" }, "type": "server_tool_use" } },
        { "toolResult": { "toolUseId": "t1", "content": [{ "text": "lost" }] } },
        { "toolUse": { "toolUseId": "own", "name": "look", "input": {} } },
    ]);
    for (format, body) in [
        (WireFormat::Anthropic, json!({ "content": anthropic })),
        (WireFormat::Bedrock, json!({ "output": { "message": { "content": converse } } })),
    ] {
        let blocks = parsed(format, &body).blocks;
        assert!(matches!(&blocks[..], [ContentBlock::ToolUse { id, .. }] if id == "own"), "{blocks:?}");
    }
    let history = json!({ "model": "m", "max_tokens": 9, "messages": [
        { "role": "user", "content": "q" },
        { "role": "assistant", "content": anthropic },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "own", "content": "seen" }] },
    ] });
    let (body, losses) = written(WireFormat::Anthropic, &target(WireFormat::OpenAiChat, "m"), history);
    let body = body.to_string();
    assert!(body.contains("look") && !body.contains("lost") && !body.contains("web_search"), "{body}");
    assert_eq!(losses, "provider_tool_calls");
    let started = |index: u8, call: Value| {
        let event = json!({ "contentBlockIndex": index, "start": { "toolUse": call } });
        format!("event: contentBlockStart\ndata: {event}\n\n")
    };
    let calls = started(0, converse[0]["toolUse"].clone()) + &started(1, converse[2]["toolUse"].clone());
    let chat = streamed(WireFormat::OpenAiChat, WireFormat::Bedrock, StreamFraming::Sse, calls.as_bytes());
    assert!(chat.contains("look") && !chat.contains("grounding"), "{chat}");
}
