//! Tests of calls without arguments, which every API has in another form: they are an empty object to every client and
//! to every upstream.

use serde_json::{Value, json};

use super::tests::{head, parsed_reply, streamed, target, written};
use super::*;
use crate::event_stream::StreamFraming;

const CLIENTS: [WireFormat; 3] = [WireFormat::Anthropic, WireFormat::OpenAiChat, WireFormat::OpenAiResponses];

fn sse(events: &[Value]) -> Vec<u8> {
    events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>().into_bytes()
}

/// Streams and whole replies in which each upstream calls `f` without arguments, in all forms that it has for it.
fn replies() -> Vec<(WireFormat, StreamFraming, Vec<u8>)> {
    let mut all = Vec::new();
    let mut add = |format, framing, raw: Vec<u8>| all.push((format, framing, raw));
    let start = json!({ "type": "message_start", "message": { "id": "m", "model": "m" } });
    let block = json!({ "type": "content_block_start", "index": 0,
        "content_block": { "type": "tool_use", "id": "t", "name": "f", "input": {} } });
    let delta = json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "input_json_delta", "partial_json": "" } });
    let stop = json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } });
    add(
        WireFormat::Anthropic,
        StreamFraming::Sse,
        sse(&[start, block, delta, stop, json!({ "type": "message_stop" })]),
    );
    for arguments in [json!(""), json!(" "), Value::Null] {
        let call = json!({ "index": 0, "id": "t", "function": { "name": "f", "arguments": arguments } });
        let chunk = |delta: Value, finish: Value| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
        let mut raw =
            sse(&[chunk(json!({ "tool_calls": [call] }), Value::Null), chunk(json!({}), json!("tool_calls"))]);
        raw.extend_from_slice(b"data: [DONE]\n\n");
        for format in [WireFormat::OpenAiChat, WireFormat::Mistral] {
            add(format, StreamFraming::Sse, raw.clone());
        }
        let message = json!({ "tool_calls": [{ "id": "t", "type": "function", "function": { "name": "f", "arguments": arguments } }] });
        let whole = json!({ "id": "c", "choices": [{ "message": message, "finish_reason": "tool_calls" }] });
        add(WireFormat::OpenAiChat, StreamFraming::Whole, whole.to_string().into_bytes());
        let item = json!({ "type": "function_call", "call_id": "t", "name": "f", "arguments": arguments });
        add(
            WireFormat::OpenAiResponses,
            StreamFraming::Sse,
            sse(&[
                json!({ "type": "response.output_item.added", "output_index": 0, "item": item }),
                json!({ "type": "response.function_call_arguments.done", "output_index": 0, "arguments": arguments }),
                json!({ "type": "response.completed", "response": {} }),
            ]),
        );
        let whole = json!({ "id": "r", "status": "completed", "output": [item] });
        add(WireFormat::OpenAiResponses, StreamFraming::Whole, whole.to_string().into_bytes());
        let message = json!({ "tool_calls": [{ "function": { "name": "f", "arguments": arguments } }] });
        let line = json!({ "model": "m", "message": message, "done": true, "done_reason": "stop" });
        if arguments.is_null() {
            add(WireFormat::Ollama, StreamFraming::Lines, format!("{line}\n").into_bytes());
            add(WireFormat::Ollama, StreamFraming::Whole, line.to_string().into_bytes());
        }
        let call = json!({ "id": "t", "function": { "name": "f", "arguments": arguments } });
        let start = json!({ "type": "tool-call-start", "index": 0, "delta": { "message": { "tool_calls": call } } });
        let end = json!({ "type": "message-end", "delta": { "finish_reason": "TOOL_CALL" } });
        add(WireFormat::Cohere, StreamFraming::Sse, sse(&[start, end]));
        let whole = json!({ "id": "c", "finish_reason": "TOOL_CALL", "message": { "tool_calls": [call] } });
        add(WireFormat::Cohere, StreamFraming::Whole, whole.to_string().into_bytes());
    }
    let content = json!([{ "type": "tool_use", "id": "t", "name": "f" }]);
    let whole = json!({ "type": "message", "content": content, "stop_reason": "tool_use" });
    add(WireFormat::Anthropic, StreamFraming::Whole, whole.to_string().into_bytes());
    let part = json!({ "functionCall": { "name": "f" } });
    let chunk = json!({ "candidates": [{ "content": { "parts": [part] }, "finishReason": "STOP" }] });
    add(WireFormat::Gemini, StreamFraming::Sse, sse(std::slice::from_ref(&chunk)));
    add(WireFormat::Gemini, StreamFraming::Whole, chunk.to_string().into_bytes());
    let call = json!({ "toolUse": { "toolUseId": "t", "name": "f" } });
    let whole = json!({ "output": { "message": { "content": [call] } }, "stopReason": "tool_use" });
    add(WireFormat::Bedrock, StreamFraming::Whole, whole.to_string().into_bytes());
    all
}

/// The arguments of the only call in a client's reply.
fn arguments(client: WireFormat, reply: &Value) -> Value {
    let text = |value: &Value| serde_json::from_str(value.as_str().unwrap()).unwrap_or_else(|e| panic!("{e}: {value}"));
    match client {
        WireFormat::Anthropic => reply["content"][0]["input"].clone(),
        WireFormat::OpenAiChat => text(&reply["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]),
        _ => text(&reply["output"][0]["arguments"]),
    }
}

/// The pieces of the arguments in a client's stream.
fn streamed_arguments(client: WireFormat, stream: &str) -> String {
    let events = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = events.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let piece = |event: Value| {
        let at = match client {
            WireFormat::Anthropic => "/delta/partial_json",
            WireFormat::OpenAiChat => "/choices/0/delta/tool_calls/0/function/arguments",
            _ if event["type"] == "response.function_call_arguments.delta" => "/delta",
            _ => "/none",
        };
        event.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    events.map(piece).collect()
}

#[test]
fn a_call_without_arguments_is_an_empty_object_to_every_client() {
    for (format, framing, raw) in replies() {
        let shown = format!("{format:?} {framing:?} {}", String::from_utf8_lossy(&raw));
        for client in CLIENTS {
            let stream = if framing == StreamFraming::Whole {
                let reply = parsed_reply(format, &raw);
                assert_eq!(arguments(client, &whole_reply(client, &head(), &reply)), json!({}), "{client:?} {shown}");
                let (mut writer, mut out) = (ReplyWriter::new(client, head()), Vec::new());
                reply_events(&reply).into_iter().for_each(|event| writer.write(event, &mut out));
                String::from_utf8(out).unwrap()
            } else {
                streamed(client, format, framing, &raw)
            };
            assert_eq!(streamed_arguments(client, &stream).trim(), "{}", "{client:?} {shown}: {stream}");
        }
    }
}

#[test]
fn a_custom_tool_that_is_called_without_arguments_gets_an_empty_text() {
    let call = json!({ "index": 0, "id": "t", "function": { "name": "patch", "arguments": "" } });
    let raw = sse(&[
        json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] }, "finish_reason": "tool_calls" }] }),
    ]);
    for client in [WireFormat::OpenAiChat, WireFormat::OpenAiResponses] {
        let stream = streamed(client, WireFormat::OpenAiChat, StreamFraming::Sse, &raw);
        assert!(stream.contains(r#""input":"""#) && !stream.contains("{}}"), "{stream}");
    }
}

#[test]
fn a_call_without_arguments_in_the_history_is_an_empty_object_to_every_upstream() {
    let function = |arguments: Value| json!({ "name": "f", "arguments": arguments });
    let mut asks = vec![(
        WireFormat::Anthropic,
        json!({ "messages": [{ "role": "user", "content": "q" },
            { "role": "assistant", "content": [{ "type": "tool_use", "id": "t", "name": "f" }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t", "content": "r" }] }] }),
    )];
    for arguments in [json!(""), Value::Null, json!("{}")] {
        let call = json!({ "id": "t", "type": "function", "function": function(arguments.clone()) });
        asks.push((
            WireFormat::OpenAiChat,
            json!({ "messages": [{ "role": "user", "content": "q" }, { "role": "assistant", "tool_calls": [call] },
                { "role": "tool", "tool_call_id": "t", "content": "r" }] }),
        ));
        let call = json!({ "type": "function_call", "call_id": "t", "name": "f", "arguments": arguments });
        asks.push((
            WireFormat::OpenAiResponses,
            json!({ "input": [{ "role": "user", "content": "q" }, call,
                { "type": "function_call_output", "call_id": "t", "output": "r" }] }),
        ));
    }
    for (format, at) in [
        (WireFormat::Anthropic, "/messages/1/content/0/input"),
        (WireFormat::OpenAiChat, "/messages/1/tool_calls/0/function/arguments"),
        (WireFormat::Mistral, "/messages/1/tool_calls/0/function/arguments"),
        (WireFormat::OpenAiResponses, "/input/1/arguments"),
        (WireFormat::Gemini, "/contents/1/parts/0/functionCall/args"),
        (WireFormat::Bedrock, "/messages/1/content/0/toolUse/input"),
        (WireFormat::Cohere, "/messages/1/tool_calls/0/function/arguments"),
        (WireFormat::Ollama, "/messages/1/tool_calls/0/function/arguments"),
    ] {
        for (client, ask) in &asks {
            let (body, _) = written(*client, &target(format, "m"), ask.clone());
            let found = body.pointer(at).cloned().unwrap_or_default();
            let found = found.as_str().map_or(found.clone(), |text| serde_json::from_str(text).unwrap());
            assert_eq!(found, json!({}), "{client:?} {format:?} {ask}: {body}");
        }
    }
}
