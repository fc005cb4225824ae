//! The wire format of Ollama's `/api/chat`.

use serde_json::{Value, json};

use crate::llm::knobs::{THOUGHT, Turn};

pub(super) fn whole(turn: &Turn) -> Value {
    let mut message = json!({ "role": "assistant", "content": turn.text });
    if turn.thinking {
        message["thinking"] = THOUGHT.into();
    }
    if !turn.tools.is_empty() {
        message["tool_calls"] = calls(turn);
    }
    line(turn, message, true)
}

pub(super) fn events(turn: &Turn) -> Vec<String> {
    let said = |message: Value, done: bool| format!("{}\n", line(turn, message, done));
    let mut out = Vec::new();
    if turn.thinking {
        out.push(said(json!({ "role": "assistant", "content": "", "thinking": THOUGHT }), false));
    }
    out.extend(turn.pieces.iter().map(|p| said(json!({ "role": "assistant", "content": p }), false)));
    if !turn.tools.is_empty() {
        out.push(said(json!({ "role": "assistant", "content": "", "tool_calls": calls(turn) }), false));
    }
    out.push(said(json!({ "role": "assistant", "content": "" }), true));
    out
}

fn calls(turn: &Turn) -> Value {
    let arguments: Value = serde_json::from_str(&turn.arguments).unwrap_or_default();
    turn.tools.iter().map(|tool| json!({ "function": { "name": tool, "arguments": arguments } })).collect()
}

fn line(turn: &Turn, message: Value, done: bool) -> Value {
    let mut line =
        json!({ "model": turn.model, "created_at": "2023-11-14T22:13:20Z", "message": message, "done": done });
    if done {
        line["done_reason"] = "stop".into();
        line["prompt_eval_count"] = turn.input_tokens.into();
        line["eval_count"] = turn.output_tokens.into();
    }
    line
}
