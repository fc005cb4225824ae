//! The wire format of Bedrock's Converse: JSON, and AWS event streams.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::llm::knobs::{THOUGHT, Turn};

pub(super) fn whole(turn: &Turn) -> Value {
    let mut content = Vec::new();
    if turn.thinking {
        let thought = json!({ "text": THOUGHT, "signature": "c2lnbmVk" });
        content.push(json!({ "reasoningContent": { "reasoningText": thought } }));
    }
    content.push(json!({ "text": turn.text }));
    for (i, tool) in turn.tools.iter().enumerate() {
        let input: Value = serde_json::from_str(&turn.arguments).unwrap_or_default();
        content.push(json!({ "toolUse": { "toolUseId": tool_id(turn, i), "name": tool, "input": input } }));
    }
    json!({
        "output": { "message": { "role": "assistant", "content": content } },
        "stopReason": stop_reason(turn),
        "usage": usage(turn),
        "metrics": { "latencyMs": 1 },
    })
}

pub(super) fn events(turn: &Turn) -> Vec<Bytes> {
    let mut out = vec![event("messageStart", json!({ "role": "assistant" }))];
    let mut index = 0;
    if turn.thinking {
        let delta = |delta: Value| json!({ "contentBlockIndex": 0, "delta": { "reasoningContent": delta } });
        out.push(event("contentBlockDelta", delta(json!({ "text": THOUGHT }))));
        out.push(event("contentBlockDelta", delta(json!({ "signature": "c2lnbmVk" }))));
        out.push(event("contentBlockStop", json!({ "contentBlockIndex": 0 })));
        index = 1;
    }
    let said = |p: &String| event("contentBlockDelta", json!({ "contentBlockIndex": index, "delta": { "text": p } }));
    out.extend(turn.pieces.iter().map(said));
    out.push(event("contentBlockStop", json!({ "contentBlockIndex": index })));
    for (i, tool) in turn.tools.iter().enumerate() {
        let index = index + 1 + i;
        let start = json!({ "toolUse": { "toolUseId": tool_id(turn, i), "name": tool } });
        out.push(event("contentBlockStart", json!({ "contentBlockIndex": index, "start": start })));
        for half in [&turn.arguments[..10], &turn.arguments[10..]] {
            let delta = json!({ "toolUse": { "input": half } });
            out.push(event("contentBlockDelta", json!({ "contentBlockIndex": index, "delta": delta })));
        }
        out.push(event("contentBlockStop", json!({ "contentBlockIndex": index })));
    }
    out.push(event("messageStop", json!({ "stopReason": stop_reason(turn) })));
    out.push(event("metadata", json!({ "usage": usage(turn), "metrics": { "latencyMs": 1 } })));
    out
}

/// A message of an event stream: two lengths and their checksum, string headers, the payload, and a checksum of all.
fn event(kind: &str, data: Value) -> Bytes {
    let mut headers = Vec::new();
    for (name, value) in [(":message-type", "event"), (":event-type", kind), (":content-type", "application/json")] {
        headers.push(name.len() as u8);
        headers.extend_from_slice(name.as_bytes());
        // Type 7: a string.
        headers.push(7);
        headers.extend_from_slice(&(value.len() as u16).to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let payload = data.to_string();
    let mut out = ((headers.len() + payload.len() + 16) as u32).to_be_bytes().to_vec();
    out.extend_from_slice(&(headers.len() as u32).to_be_bytes());
    out.extend_from_slice(&crc32(&out).to_be_bytes());
    out.extend_from_slice(&headers);
    out.extend_from_slice(payload.as_bytes());
    out.extend_from_slice(&crc32(&out).to_be_bytes());
    out.into()
}

/// CRC-32 of IEEE 802.3, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

fn tool_id(turn: &Turn, index: usize) -> String {
    format!("tooluse_{}{}", turn.id, turn.suffix(index))
}

fn stop_reason(turn: &Turn) -> &'static str {
    if turn.tools.is_empty() { "end_turn" } else { "tool_use" }
}

fn usage(turn: &Turn) -> Value {
    json!({
        "inputTokens": turn.input_tokens,
        "outputTokens": turn.output_tokens,
        "totalTokens": turn.input_tokens + turn.output_tokens,
    })
}
