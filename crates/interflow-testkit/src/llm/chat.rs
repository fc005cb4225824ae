//! The wire format of OpenAI's Chat Completions API.

use serde_json::{Value, json};

use crate::llm::knobs::{THOUGHT, Turn};
use crate::llm::sse;

pub(super) fn whole(turn: &Turn) -> Value {
    let mut message = json!({ "role": "assistant", "content": turn.text, "refusal": null });
    // Not OpenAI's, but what servers of open models do.
    if turn.thinking && turn.mistral {
        message["content"] = json!([mistral_thought(), { "type": "text", "text": turn.text }]);
    } else if turn.thinking {
        message["reasoning_content"] = THOUGHT.into();
    }
    if !turn.tools.is_empty() {
        let calls = turn.tools.iter().enumerate().map(|(i, tool)| call(turn, i, tool, &turn.arguments));
        message["tool_calls"] = calls.collect::<Vec<_>>().into();
    }
    json!({
        "id": format!("chatcmpl-{}", turn.id),
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": turn.model,
        "choices": [{ "index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(turn) }],
        "usage": usage(turn),
    })
}

fn mistral_thought() -> Value {
    json!({ "type": "thinking", "thinking": [{ "type": "text", "text": THOUGHT }] })
}

pub(super) fn events(turn: &Turn) -> Vec<String> {
    let mut out = vec![chunk(turn, json!({ "role": "assistant", "content": "", "refusal": null }), None)];
    if turn.thinking {
        let thought = match turn.mistral {
            true => json!({ "content": [mistral_thought()] }),
            false => json!({ "reasoning_content": THOUGHT }),
        };
        out.push(chunk(turn, thought, None));
    }
    out.extend(turn.pieces.iter().map(|p| chunk(turn, json!({ "content": p }), None)));
    let mut close = String::new();
    for (i, tool) in turn.tools.iter().enumerate() {
        let mut first = call(turn, i, tool, "");
        first["index"] = i.into();
        close += &chunk(turn, json!({ "tool_calls": [first] }), None);
        for half in [&turn.arguments[..10], &turn.arguments[10..]] {
            let part = json!({ "index": i, "function": { "arguments": half } });
            close += &chunk(turn, json!({ "tool_calls": [part] }), None);
        }
    }
    close += &chunk(turn, json!({}), Some(finish_reason(turn)));
    // As `stream_options.include_usage` asks for: a last chunk without choices.
    if turn.stream_usage {
        let mut last = envelope(turn);
        last["choices"] = json!([]);
        last["usage"] = usage(turn);
        close += &sse(None, &last);
    }
    close += "data: [DONE]\n\n";
    if let Some(last) = out.last_mut() {
        last.push_str(&close);
    }
    out
}

fn chunk(turn: &Turn, delta: Value, finish_reason: Option<&str>) -> String {
    let mut data = envelope(turn);
    data["choices"] = json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason }]);
    sse(None, &data)
}

fn envelope(turn: &Turn) -> Value {
    json!({
        "id": format!("chatcmpl-{}", turn.id),
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": turn.model,
    })
}

fn call(turn: &Turn, index: usize, tool: &str, arguments: &str) -> Value {
    let function = json!({ "name": tool, "arguments": arguments });
    json!({ "id": format!("call_{}{}", turn.id, turn.suffix(index)), "type": "function", "function": function })
}

fn finish_reason(turn: &Turn) -> &'static str {
    if !turn.tools.is_empty() { "tool_calls" } else { "stop" }
}

fn usage(turn: &Turn) -> Value {
    json!({
        "prompt_tokens": turn.input_tokens,
        "completion_tokens": turn.output_tokens,
        "total_tokens": turn.input_tokens + turn.output_tokens,
    })
}
