//! The wire format of Gemini's `generateContent`.

use serde_json::{Value, json};

use crate::llm::knobs::{THOUGHT, Turn};
use crate::llm::{CALL_SIGNATURE, sse};

pub(super) fn whole(turn: &Turn) -> Value {
    let mut parts = thoughts(turn);
    parts.push(json!({ "text": turn.text }));
    parts.extend(calls(turn));
    chunk(turn, parts, true)
}

pub(super) fn events(turn: &Turn) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    if turn.thinking {
        out.push(sse(None, &chunk(turn, thoughts(turn), false)));
    }
    out.extend(turn.pieces.iter().map(|p| sse(None, &chunk(turn, vec![json!({ "text": p })], false))));
    out.push(sse(None, &chunk(turn, calls(turn), true)));
    out
}

fn thoughts(turn: &Turn) -> Vec<Value> {
    turn.thinking.then(|| json!({ "text": THOUGHT, "thought": true })).into_iter().collect()
}

fn calls(turn: &Turn) -> Vec<Value> {
    let args: Value = serde_json::from_str(&turn.arguments).unwrap_or_default();
    let call = |(i, tool): (usize, &String)| {
        let mut part = json!({ "functionCall": { "name": tool, "args": args } });
        // The first of parallel calls has it.
        if turn.signed && i == 0 {
            part["thoughtSignature"] = CALL_SIGNATURE.into();
        }
        part
    };
    turn.tools.iter().enumerate().map(call).collect()
}

fn chunk(turn: &Turn, parts: Vec<Value>, last: bool) -> Value {
    let mut candidate = json!({ "content": { "role": "model", "parts": parts }, "index": 0 });
    if last {
        candidate["finishReason"] = "STOP".into();
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": turn.input_tokens,
            "candidatesTokenCount": turn.output_tokens,
            "totalTokenCount": turn.input_tokens + turn.output_tokens,
        },
        "modelVersion": turn.model,
        "responseId": turn.id,
    })
}
