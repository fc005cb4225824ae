//! The wire format of Anthropic's Messages API.

use serde_json::{Value, json};

use crate::llm::knobs::Turn;
use crate::llm::sse;

pub(super) fn whole(turn: &Turn) -> Value {
    let mut content = Vec::new();
    if turn.thinking {
        content.push(json!({ "type": "thinking", "thinking": turn.thought, "signature": turn.signature }));
    }
    content.push(json!({ "type": "text", "text": turn.text }));
    for (i, tool) in turn.tools.iter().enumerate() {
        let input: Value = serde_json::from_str(&turn.arguments).unwrap_or_default();
        content.push(json!({ "type": "tool_use", "id": tool_id(turn, i), "name": tool, "input": input }));
    }
    let mut message = envelope(turn);
    message["content"] = content.into();
    message["stop_reason"] = stop_reason(turn).into();
    message["usage"]["output_tokens"] = turn.output_tokens.into();
    message
}

/// The events of the stream: the opening ones, one per fragment of text, and with the last one the closing ones.
pub(super) fn events(turn: &Turn) -> Vec<String> {
    let mut index = 0;
    let mut open = event(json!({ "type": "message_start", "message": envelope(turn) }));
    if turn.thinking {
        open += &start(index, json!({ "type": "thinking", "thinking": "", "signature": "" }));
        if !turn.thought.is_empty() {
            open += &delta(index, json!({ "type": "thinking_delta", "thinking": turn.thought }));
        }
        open += &delta(index, json!({ "type": "signature_delta", "signature": turn.signature }));
        open += &stop(index);
        index += 1;
    }
    open += &start(index, json!({ "type": "text", "text": "" }));
    open += &event(json!({ "type": "ping" }));
    let mut out = vec![open];
    out.extend(turn.pieces.iter().map(|p| delta(index, json!({ "type": "text_delta", "text": p }))));
    let mut close = stop(index);
    for (i, tool) in turn.tools.iter().enumerate() {
        index += 1;
        close += &start(index, json!({ "type": "tool_use", "id": tool_id(turn, i), "name": tool, "input": {} }));
        // In two parts, so that a reader has to join them.
        for half in [&turn.arguments[..10], &turn.arguments[10..]] {
            close += &delta(index, json!({ "type": "input_json_delta", "partial_json": half }));
        }
        close += &stop(index);
    }
    close += &event(json!({
        "type": "message_delta",
        "delta": { "stop_reason": stop_reason(turn), "stop_sequence": null },
        "usage": { "output_tokens": turn.output_tokens },
    }));
    close += &event(json!({ "type": "message_stop" }));
    // What belongs to no piece of text is sent with the last one, so that a gap follows text only.
    if let Some(last) = out.last_mut() {
        last.push_str(&close);
    }
    out
}

fn envelope(turn: &Turn) -> Value {
    json!({
        "id": format!("msg_{}", turn.id),
        "type": "message",
        "role": "assistant",
        "model": turn.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {
            "input_tokens": turn.input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 1,
        },
    })
}

fn stop_reason(turn: &Turn) -> &'static str {
    if !turn.tools.is_empty() { "tool_use" } else { "end_turn" }
}

fn tool_id(turn: &Turn, index: usize) -> String {
    format!("toolu_{}{}", turn.id, turn.suffix(index))
}

fn start(index: usize, block: Value) -> String {
    event(json!({ "type": "content_block_start", "index": index, "content_block": block }))
}

fn delta(index: usize, delta: Value) -> String {
    event(json!({ "type": "content_block_delta", "index": index, "delta": delta }))
}

fn stop(index: usize) -> String {
    event(json!({ "type": "content_block_stop", "index": index }))
}

fn event(data: Value) -> String {
    sse(data["type"].as_str(), &data)
}
