//! The wire format of OpenAI's Responses API.

use serde_json::{Value, json};

use crate::llm::knobs::{THOUGHT, Turn};
use crate::llm::sse;

/// Reasoning that only this provider reads.
pub(super) const SEALED: &str = "c2VhbGVk";

pub(super) fn whole(turn: &Turn) -> Value {
    let mut output = Vec::new();
    if turn.thinking {
        output.push(reasoning(turn));
    }
    output.push(message(turn, "completed", json!([part(&turn.text)])));
    let calls = turn.tools.iter().enumerate();
    output.extend(calls.map(|(i, tool)| call(turn, i, tool, "completed", &turn.arguments)));
    envelope(turn, "completed", output.into())
}

pub(super) fn events(turn: &Turn) -> Vec<String> {
    let mut log = Log { next: 0 };
    let mut index = 0;
    let started = envelope(turn, "in_progress", json!([]));
    let mut open = log.event("response.created", json!({ "response": started }));
    open += &log.event("response.in_progress", json!({ "response": started }));
    if turn.thinking {
        open += &log.event("response.output_item.added", json!({ "output_index": index, "item": reasoning(turn) }));
        let part = json!({ "item_id": format!("rs_{}", turn.id), "output_index": index, "summary_index": 0, "delta": THOUGHT });
        open += &log.event("response.reasoning_summary_text.delta", part);
        open += &log.event("response.output_item.done", json!({ "output_index": index, "item": reasoning(turn) }));
        index += 1;
    }
    let item = message(turn, "in_progress", json!([]));
    open += &log.event("response.output_item.added", json!({ "output_index": index, "item": item }));
    let place = |more: Value| {
        let mut at = json!({ "item_id": format!("msg_{}", turn.id), "output_index": index, "content_index": 0 });
        if let (Value::Object(at), Value::Object(more)) = (&mut at, more) {
            at.extend(more);
        }
        at
    };
    open += &log.event("response.content_part.added", place(json!({ "part": part("") })));
    let mut out = vec![open];
    for piece in &turn.pieces {
        out.push(log.event("response.output_text.delta", place(json!({ "delta": piece, "logprobs": [] }))));
    }
    let text = turn.pieces.concat();
    let mut close = log.event("response.output_text.done", place(json!({ "text": text, "logprobs": [] })));
    close += &log.event("response.content_part.done", place(json!({ "part": part(&text) })));
    let item = message(turn, "completed", json!([part(&text)]));
    close += &log.event("response.output_item.done", json!({ "output_index": index, "item": item }));
    for (i, tool) in turn.tools.iter().enumerate() {
        close += &tool_call(turn, i, tool, index + 1 + i, &mut log);
    }
    close += &log.event("response.completed", json!({ "response": whole(turn) }));
    if let Some(last) = out.last_mut() {
        last.push_str(&close);
    }
    out
}

struct Log {
    next: u64,
}

impl Log {
    fn event(&mut self, kind: &str, mut data: Value) -> String {
        data["type"] = kind.into();
        data["sequence_number"] = self.next.into();
        self.next += 1;
        sse(Some(kind), &data)
    }
}

fn tool_call(turn: &Turn, nth: usize, tool: &str, index: usize, log: &mut Log) -> String {
    let item = call(turn, nth, tool, "in_progress", "");
    let id = item["id"].clone();
    let mut out = log.event("response.output_item.added", json!({ "output_index": index, "item": item }));
    for half in [&turn.arguments[..10], &turn.arguments[10..]] {
        let data = json!({ "item_id": id, "output_index": index, "delta": half });
        out += &log.event("response.function_call_arguments.delta", data);
    }
    let data = json!({ "item_id": id, "output_index": index, "arguments": turn.arguments });
    out += &log.event("response.function_call_arguments.done", data);
    let item = call(turn, nth, tool, "completed", &turn.arguments);
    out + &log.event("response.output_item.done", json!({ "output_index": index, "item": item }))
}

fn envelope(turn: &Turn, status: &str, output: Value) -> Value {
    let usage = json!({
        "input_tokens": turn.input_tokens,
        "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": turn.output_tokens,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": turn.input_tokens + turn.output_tokens,
    });
    json!({
        "id": format!("resp_{}", turn.id),
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "model": turn.model,
        "output": output,
        "usage": if status == "completed" { usage } else { Value::Null },
    })
}

fn message(turn: &Turn, status: &str, content: Value) -> Value {
    let id = format!("msg_{}", turn.id);
    json!({ "id": id, "type": "message", "status": status, "role": "assistant", "content": content })
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [] })
}

fn reasoning(turn: &Turn) -> Value {
    let summary = json!([{ "type": "summary_text", "text": THOUGHT }]);
    json!({ "id": format!("rs_{}", turn.id), "type": "reasoning", "summary": summary, "encrypted_content": SEALED })
}

fn call(turn: &Turn, index: usize, tool: &str, status: &str, arguments: &str) -> Value {
    json!({
        "id": format!("fc_{}{}", turn.id, turn.suffix(index)),
        "type": "function_call",
        "status": status,
        "call_id": format!("call_{}{}", turn.id, turn.suffix(index)),
        "name": tool,
        "arguments": arguments,
    })
}
