//! The wire format of Cohere's chat, version 2.

use serde_json::{Value, json};

use crate::llm::knobs::{THOUGHT, Turn};
use crate::llm::sse;

pub(super) fn whole(turn: &Turn) -> Value {
    let mut content = Vec::new();
    if turn.thinking {
        content.push(json!({ "type": "thinking", "thinking": THOUGHT }));
    }
    content.push(json!({ "type": "text", "text": turn.text }));
    let mut message = json!({ "role": "assistant", "content": content });
    if !turn.tools.is_empty() {
        let calls = turn.tools.iter().enumerate().map(|(i, tool)| call(turn, i, tool, &turn.arguments));
        message["tool_calls"] = calls.collect::<Vec<_>>().into();
    }
    json!({ "id": turn.id, "message": message, "finish_reason": finish_reason(turn), "usage": usage(turn) })
}

pub(super) fn events(turn: &Turn) -> Vec<String> {
    let start = json!({ "role": "assistant", "content": [], "tool_plan": "", "tool_calls": [] });
    let mut out = vec![event(json!({ "id": turn.id, "type": "message-start", "delta": { "message": start } }))];
    let mut index = 0;
    let mut content = |parts: Vec<Value>, kind: &str, out: &mut Vec<String>| {
        let at = |name: &str, content: Value| {
            event(json!({ "type": name, "index": index, "delta": { "message": { "content": content } } }))
        };
        out.push(at("content-start", json!({ "type": kind, kind: "" })));
        out.extend(parts.into_iter().map(|part| at("content-delta", part)));
        out.push(event(json!({ "type": "content-end", "index": index })));
        index += 1;
    };
    if turn.thinking {
        content(vec![json!({ "thinking": THOUGHT })], "thinking", &mut out);
    }
    content(turn.pieces.iter().map(|p| json!({ "text": p })).collect(), "text", &mut out);
    for (i, tool) in turn.tools.iter().enumerate() {
        let at = |name: &str, call: Value| {
            event(json!({ "type": name, "index": i, "delta": { "message": { "tool_calls": call } } }))
        };
        out.push(at("tool-call-start", call(turn, i, tool, "")));
        for half in [&turn.arguments[..10], &turn.arguments[10..]] {
            out.push(at("tool-call-delta", json!({ "function": { "arguments": half } })));
        }
        out.push(event(json!({ "type": "tool-call-end", "index": i })));
    }
    let delta = json!({ "finish_reason": finish_reason(turn), "usage": usage(turn) });
    out.push(event(json!({ "type": "message-end", "delta": delta })));
    out
}

fn event(data: Value) -> String {
    sse(data["type"].as_str(), &data)
}

fn call(turn: &Turn, index: usize, tool: &str, arguments: &str) -> Value {
    let function = json!({ "name": tool, "arguments": arguments });
    json!({ "id": format!("{tool}_{}{}", turn.id, turn.suffix(index)), "type": "function", "function": function })
}

fn finish_reason(turn: &Turn) -> &'static str {
    if turn.tools.is_empty() { "COMPLETE" } else { "TOOL_CALL" }
}

fn usage(turn: &Turn) -> Value {
    json!({
        "billed_units": { "input_tokens": 1, "output_tokens": 1 },
        "tokens": { "input_tokens": turn.input_tokens, "output_tokens": turn.output_tokens },
    })
}
