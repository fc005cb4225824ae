//! The cases of the corpus: each API, whole and streamed, with tools and reasoning, compressed, translated, and with errors.

use interflow_redact::RedactMode;
use serde_json::{Value, json};

use super::MAIL;
use super::corpus::{Case, Framing, PROMPT};

const ECHO: &str = "Write to $1$2 today.";

/// A message of Chat Completions with a tool's call and result before it.
fn chat(stream: bool) -> Value {
    json!({
        "model": "m", "stream": stream, "max_tokens": 50, "temperature": 0.5, "metadata": {"team": "a1"},
        "tools": [{"type": "function", "function": {"name": "mail", "description": "Sends a mail.",
            "parameters": {"type": "object", "properties": {"to": {"type": "string"}}}}}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": PROMPT}]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function",
                "function": {"name": "mail", "arguments": format!("{{\"to\":\"{MAIL}\"}}")}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": format!("sent to {MAIL}")},
            {"role": "user", "content": "Thanks."},
        ],
    })
}

fn chat_reply() -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "m",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": ECHO, "reasoning_content": "The address is $1$2.",
            "tool_calls": [{"id": "call_2", "type": "function",
                "function": {"name": "mail", "arguments": "{\"to\":\"$1$2\"}"}}]}}],
        "usage": {"prompt_tokens": 90, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 10}},
    })
}

fn chat_events() -> Framing {
    let delta = |delta: Value| json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta}]});
    let call = |part: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": part}}]});
    Framing::Sse(vec![
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"reasoning_content": "The address is $1"})),
        delta(json!({"reasoning_content": "$2."})),
        delta(json!({"content": "Write to $1"})),
        delta(json!({"content": "$2 today."})),
        delta(json!({"tool_calls": [{"index": 0, "id": "call_2", "type": "function",
            "function": {"name": "mail", "arguments": ""}}]})),
        delta(call("{\"to\":\"$1")),
        delta(call("$2\"}")),
        json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        json!({"id": "c", "model": "m", "choices": [], "usage": {"prompt_tokens": 90, "completion_tokens": 20}}),
    ])
}

fn responses(stream: bool) -> Value {
    json!({
        "model": "m", "stream": stream, "max_output_tokens": 50, "instructions": "Be brief.",
        "reasoning": {"effort": "low"},
        "tools": [{"type": "function", "name": "mail", "parameters": {"type": "object"}}],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": PROMPT}]},
            {"type": "function_call", "call_id": "call_1", "name": "mail", "arguments": format!("{{\"to\":\"{MAIL}\"}}")},
            {"type": "function_call_output", "call_id": "call_1", "output": format!("sent to {MAIL}")},
        ],
    })
}

fn response() -> Value {
    json!({
        "id": "resp_1", "object": "response", "created_at": 1_700_000_000, "status": "completed", "model": "m",
        "output": [
            {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "The address is $1$2."}]},
            {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": ECHO, "annotations": []}]},
        ],
        "usage": {"input_tokens": 90, "input_tokens_details": {"cached_tokens": 10}, "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 110},
    })
}

fn response_events() -> Framing {
    let delta = |text: &str| {
        json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0,
        "content_index": 0, "delta": text})
    };
    let item = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": []});
    Framing::NamedSse(vec![
        (
            "response.created",
            json!({"type": "response.created", "response": {"id": "resp_1", "model": "m", "output": []}}),
        ),
        ("response.output_item.added", json!({"type": "response.output_item.added", "output_index": 0, "item": item})),
        ("response.output_text.delta", delta("Write to $1")),
        ("response.output_text.delta", delta("$2 today.")),
        (
            "response.output_text.done",
            json!({"type": "response.output_text.done", "item_id": "msg_1", "output_index": 0,
            "content_index": 0, "text": ECHO}),
        ),
        ("response.completed", json!({"type": "response.completed", "response": response()})),
    ])
}

fn messages(stream: bool) -> Value {
    json!({
        "model": "m", "stream": stream, "max_tokens": 50, "system": "Be brief.",
        "thinking": {"type": "enabled", "budget_tokens": 1_024},
        "tools": [{"name": "mail", "input_schema": {"type": "object", "properties": {"to": {"type": "string"}}}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": PROMPT, "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "mail", "input": {"to": MAIL}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": format!("sent to {MAIL}")}]},
        ],
    })
}

// Thinking is signed, and therefore returned as it is.
fn message() -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "They gave an address.", "signature": "c2ln"},
            {"type": "text", "text": ECHO},
            {"type": "tool_use", "id": "toolu_2", "name": "mail", "input": {"to": "$1$2"}},
        ],
        "usage": {"input_tokens": 60, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 10, "output_tokens": 20},
    })
}

fn message_events() -> Framing {
    let start = |index: u32, block: Value| {
        ("content_block_start", json!({"type": "content_block_start", "index": index, "content_block": block}))
    };
    let delta = |index: u32, delta: Value| {
        ("content_block_delta", json!({"type": "content_block_delta", "index": index, "delta": delta}))
    };
    let stop = |index: u32| ("content_block_stop", json!({"type": "content_block_stop", "index": index}));
    Framing::NamedSse(vec![
        (
            "message_start",
            json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
            "model": "m", "content": [], "usage": {"input_tokens": 60, "cache_read_input_tokens": 10, "output_tokens": 1}}}),
        ),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "They gave "})),
        delta(0, json!({"type": "thinking_delta", "thinking": "an address."})),
        delta(0, json!({"type": "signature_delta", "signature": "c2ln"})),
        stop(0),
        start(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "Write to $1"})),
        delta(1, json!({"type": "text_delta", "text": "$2 today."})),
        stop(1),
        start(2, json!({"type": "tool_use", "id": "toolu_2", "name": "mail", "input": {}})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "{\"to\":\"$1"})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "$2\"}"})),
        stop(2),
        (
            "message_delta",
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 20}}),
        ),
        ("message_stop", json!({"type": "message_stop"})),
    ])
}

fn gemini() -> Value {
    json!({
        "systemInstruction": {"parts": [{"text": "Be brief."}]}, "generationConfig": {"maxOutputTokens": 50},
        "tools": [{"functionDeclarations": [{"name": "mail", "parameters": {"type": "OBJECT"}}]}],
        "contents": [
            {"role": "user", "parts": [{"text": PROMPT}]},
            {"role": "model", "parts": [{"functionCall": {"name": "mail", "args": {"to": MAIL}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "mail", "response": {"to": MAIL}}}]},
        ],
    })
}

fn gemini_reply(parts: Value) -> Value {
    json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}}], "modelVersion": "m",
        "usageMetadata": {"promptTokenCount": 90, "candidatesTokenCount": 15, "thoughtsTokenCount": 5, "totalTokenCount": 110}})
}

fn gemini_parts() -> Value {
    json!([{"text": "The address is $1$2.", "thought": true}, {"text": ECHO},
        {"functionCall": {"name": "mail", "args": {"to": "$1$2"}}}])
}

fn interaction(stream: bool) -> Value {
    json!({"model": "m", "stream": stream, "system_instruction": "Be brief.", "input": [
        {"type": "user_input", "content": [{"type": "text", "text": PROMPT}]},
        {"type": "function_result", "call_id": "c1", "name": "find", "result": {"name": "anna.berg@firm.com"}}]})
}

fn interaction_usage() -> Value {
    json!({"total_input_tokens": 20, "total_cached_tokens": 5, "total_output_tokens": 3, "total_thought_tokens": 4,
        "total_tokens": 27})
}

fn interaction_reply() -> Value {
    json!({"id": "v1_a", "status": "completed", "model": "m", "usage": interaction_usage(), "steps": [
        {"type": "thought", "signature": "c2lnbmF0dXJl", "summary": [{"type": "text", "text": ECHO}]},
        {"type": "model_output", "content": [{"type": "text", "text": ECHO}]},
        {"type": "function_call", "id": "c2", "name": "find", "arguments": {"mail": "$1$2"}}]})
}

fn interaction_events() -> Framing {
    let interaction = |status: &str| json!({"id": "v1_a", "status": status, "model": "m"});
    let started = |at: u64, step: Value| ("step.start", json!({"event_type": "step.start", "index": at, "step": step}));
    let delta =
        |at: u64, delta: Value| ("step.delta", json!({"event_type": "step.delta", "index": at, "delta": delta}));
    let mut last = interaction("completed");
    last["usage"] = interaction_usage();
    Framing::NamedSse(vec![
        (
            "interaction.created",
            json!({"event_type": "interaction.created", "interaction": interaction("in_progress"), "event_id": "e1"}),
        ),
        started(0, json!({"type": "thought"})),
        delta(0, json!({"type": "thought_summary", "content": {"type": "text", "text": "Of $1"}})),
        delta(0, json!({"type": "thought_summary", "content": {"type": "text", "text": "$2."}})),
        delta(0, json!({"type": "thought_signature", "signature": "c2lnbmF0dXJl"})),
        started(1, json!({"type": "model_output"})),
        delta(1, json!({"type": "text", "text": "It is $1"})),
        delta(1, json!({"type": "text", "text": "$2"})),
        (
            "step.stop",
            json!({"event_type": "step.stop", "index": 1, "usage": {"total_input_tokens": 20, "total_output_tokens": 2}}),
        ),
        started(2, json!({"type": "function_call", "id": "c2", "name": "find"})),
        delta(2, json!({"type": "arguments_delta", "arguments": "{\"mail\":\"$1"})),
        delta(2, json!({"type": "arguments_delta", "arguments": "$2\"}"})),
        ("step.stop", json!({"event_type": "step.stop", "index": 2})),
        ("interaction.completed", json!({"event_type": "interaction.completed", "interaction": last})),
    ])
}

fn gemini_events() -> Vec<Value> {
    vec![
        gemini_reply(json!([{"text": "Write to $1"}])),
        gemini_reply(json!([{"text": "$2 today."}])),
        gemini_reply(json!([{"functionCall": {"name": "mail", "args": {"to": "$1$2"}}}])),
    ]
}

fn converse() -> Value {
    json!({
        "system": [{"text": "Be brief."}], "inferenceConfig": {"maxTokens": 50},
        "messages": [
            {"role": "user", "content": [{"text": PROMPT}]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "mail", "input": {"to": MAIL}}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": format!("sent to {MAIL}")}]}}]},
        ],
    })
}

fn converse_reply() -> Value {
    json!({"output": {"message": {"role": "assistant", "content": [{"text": ECHO}]}}, "stopReason": "end_turn",
        "usage": {"inputTokens": 90, "outputTokens": 20, "totalTokens": 110}})
}

fn converse_events() -> Framing {
    let delta = |text: &str| ("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"text": text}, "p": "ab"}));
    Framing::Aws(vec![
        ("messageStart", json!({"role": "assistant"})),
        delta("Write to $1"),
        delta("$2 today."),
        ("contentBlockStop", json!({"contentBlockIndex": 0})),
        ("messageStop", json!({"stopReason": "end_turn"})),
        ("metadata", json!({"usage": {"inputTokens": 90, "outputTokens": 20, "totalTokens": 110}})),
    ])
}

fn ollama(stream: bool) -> Value {
    json!({"model": "m", "stream": stream, "options": {"num_predict": 50}, "messages": [{"role": "user", "content": PROMPT}]})
}

fn ollama_line(text: &str, is_last: bool) -> Value {
    let mut line = json!({"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": is_last,
        "message": {"role": "assistant", "content": text}});
    if is_last {
        line.as_object_mut()
            .unwrap()
            .extend([("prompt_eval_count".into(), 90.into()), ("eval_count".into(), 20.into())]);
    }
    line
}

fn cohere(stream: bool) -> Value {
    json!({"model": "m", "stream": stream, "max_tokens": 50, "messages": [{"role": "user", "content": PROMPT}]})
}

fn cohere_reply() -> Value {
    json!({"id": "c1", "finish_reason": "COMPLETE", "message": {"role": "assistant", "content": [{"type": "text", "text": ECHO}]},
        "usage": {"billed_units": {"input_tokens": 80, "output_tokens": 20}, "tokens": {"input_tokens": 90, "output_tokens": 20}}})
}

fn cohere_events() -> Framing {
    let delta = |text: &str| {
        (
            "content-delta",
            json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": text}}}}),
        )
    };
    let end = json!({"type": "message-end", "delta": {"finish_reason": "COMPLETE",
        "usage": {"tokens": {"input_tokens": 90, "output_tokens": 20}}}});
    Framing::NamedSse(vec![
        ("message-start", json!({"type": "message-start", "id": "c1", "delta": {"message": {"role": "assistant"}}})),
        (
            "content-start",
            json!({"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "text", "text": ""}}}}),
        ),
        delta("Write to $1"),
        delta("$2 today."),
        ("content-end", json!({"type": "content-end", "index": 0})),
        ("message-end", end),
    ])
}

fn form() -> Vec<u8> {
    let part = |name: &str, text: &str| format!("--b\r\nContent-Disposition: form-data; {name}\r\n\r\n{text}\r\n");
    let parts = [
        part("name=\"model\"", "m"),
        part("name=\"prompt\"", PROMPT),
        part("name=\"file\"; filename=\"a.wav\"", "RIFF"),
    ];
    format!("{}--b--\r\n", parts.concat()).into_bytes()
}

/// Every case, in the order of the providers.
pub fn cases() -> Vec<Case> {
    use Framing::{Bytes, Growing, Json, Lines, Sse};
    let new = Case::new;
    let off = |case: Case| Case { mode: RedactMode::Off, ..case };
    let gzip = |case: Case| Case { gzip: true, ..case };
    let error = |status: u16, case: Case| Case { status, ..case };
    let (chats, completions, embeddings) =
        ("/openai/v1/chat/completions", "/openai/v1/completions", "/openai/v1/embeddings");
    let (answers, claude, converses) = ("/openai/v1/responses", "/anthropic/v1/messages", "/bedrock/model/m/converse");
    let generate = "/gemini/v1beta/models/m:generateContent";
    let anthropic = |case: Case| Case { fields: "anthropic-version: 2023-06-01\r\n", ..case };
    let text = |text: &str| json!({"model": "m", "max_tokens": 50, "prompt": text});
    let choice = |text: &str| {
        json!({"id": "c", "object": "text_completion", "choices": [{"index": 0, "text": text}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 4}})
    };
    let whole = |text: &str| json!({"choices": [{"message": {"role": "assistant", "content": text}}]});
    let failure = || json!({"error": {"message": "the key sk-operator-0123456789 may not use $1$2", "type": "invalid_request_error", "code": "bad"}});
    let vector = || {
        json!({"object": "list", "model": "m", "data": [{"index": 0, "embedding": [0.25, -0.5]}],
        "usage": {"prompt_tokens": 9, "total_tokens": 9}})
    };
    vec![
        new("openai-chat", chats, &chat(false), Json(chat_reply())),
        new("openai-chat-stream", chats, &chat(true), chat_events()),
        gzip(new("openai-chat-gzip", chats, &chat(false), Json(chat_reply()))),
        gzip(new("openai-chat-stream-gzip", chats, &chat(true), chat_events())),
        off(new("openai-chat-off", chats, &chat(false), Json(chat_reply()))),
        off(new("openai-chat-stream-off", chats, &chat(true), chat_events())),
        off(gzip(new("openai-chat-off-gzip", chats, &chat(false), Json(chat_reply())))),
        new("openai-chat-without-usage", chats, &chat(false), Json(whole(ECHO))),
        error(400, new("openai-chat-error", chats, &chat(false), Json(failure()))),
        error(429, new("openai-chat-limited", chats, &chat(true), Json(failure()))),
        new("openai-chat-stream-error", chats, &chat(true), Sse(vec![whole("x")["choices"][0].clone(), failure()])),
        new("openai-chat-invalid-json", chats, &json!("x"), Json(chat_reply())),
        new("openai-chat-not-json", chats, &chat(false), Bytes("text/html", b"<p>oops</p>")),
        new("openai-responses", answers, &responses(false), Json(response())),
        new("openai-responses-stream", answers, &responses(true), response_events()),
        off(new("openai-responses-stream-off", answers, &responses(true), response_events())),
        new("openai-completions", completions, &text(PROMPT), Json(choice(ECHO))),
        new(
            "openai-completions-stream",
            completions,
            &json!({"model": "m", "stream": true, "prompt": [PROMPT]}),
            Sse(vec![choice("Write to $1"), choice("$2 today.")]),
        ),
        new("openai-embeddings", embeddings, &json!({"model": "m", "input": [PROMPT, "Bye."]}), Json(vector())),
        new(
            "openai-moderations",
            "/openai/v1/moderations",
            &json!({"model": "m", "input": PROMPT}),
            Json(json!({"id": "modr-1", "results": [{"flagged": false}]})),
        ),
        new(
            "openai-images",
            "/openai/v1/images/generations",
            &text(PROMPT),
            Json(json!({"created": 1_700_000_000, "data": [{"b64_json": "aGk=", "revised_prompt": ECHO}]})),
        ),
        new(
            "openai-speech",
            "/openai/v1/audio/speech",
            &json!({"model": "m", "voice": "a", "input": PROMPT}),
            Bytes("audio/mpeg", b"ID3\x03"),
        ),
        Case {
            body: form(),
            content_type: "multipart/form-data; boundary=b",
            ..new("openai-transcriptions", "/openai/v1/audio/transcriptions", &Value::Null, Json(json!({"text": ECHO})))
        },
        new("openai-unknown", "/openai/v1/threads", &text(PROMPT), Json(json!({"id": "v"}))),
        off(new("openai-unknown-off", "/openai/v1/threads/t_1/runs", &text(PROMPT), Json(json!({"id": "v"})))),
        new(
            "openai-decisions",
            "/openai/v1/decisions",
            &json!({"model": "m", "input": PROMPT, "questions": [{"type": "predicate", "question": "Is it Anna Berg?"}]}),
            Json(json!({"id": "d", "model": "m", "decisions": [{"answer": true}],
                "usage": {"input_tokens": 20, "output_tokens": 2, "total_tokens": 22}})),
        ),
        new("openai-videos", "/openai/v1/videos", &text(PROMPT), Json(json!({"id": "v"}))),
        off(new("openai-videos-off", "/openai/v1/videos", &text(PROMPT), Json(json!({"id": "v"})))),
        off(new(
            "openai-batches-off",
            "/openai/v1/batches",
            &json!({"input_file_id": "file-1"}),
            Json(json!({"id": "b"})),
        )),
        new(
            "azure-chat",
            "/azure/openai/deployments/m/chat/completions?api-version=2024-10-21",
            &chat(false),
            Json(chat_reply()),
        ),
        anthropic(new("anthropic-messages", claude, &messages(false), Json(message()))),
        anthropic(new("anthropic-messages-stream", claude, &messages(true), message_events())),
        anthropic(gzip(new("anthropic-messages-gzip", claude, &messages(false), Json(message())))),
        anthropic(off(new("anthropic-messages-stream-off", claude, &messages(true), message_events()))),
        anthropic(error(
            529,
            new(
                "anthropic-error",
                claude,
                &messages(false),
                Json(json!({"type": "error", "error": {"type": "overloaded_error", "message": "later, $1$2"}})),
            ),
        )),
        anthropic(new(
            "anthropic-count-tokens",
            "/anthropic/v1/messages/count_tokens",
            &messages(false),
            Json(json!({"input_tokens": 90})),
        )),
        anthropic(new(
            "anthropic-batches",
            "/anthropic/v1/messages/batches",
            &json!({"requests": [{"custom_id": "a", "params": messages(false)}]}),
            Json(json!({"id": "b", "type": "message_batch"})),
        )),
        new("gemini-generate", generate, &gemini(), Json(gemini_reply(gemini_parts()))),
        new("gemini-stream", "/gemini/v1beta/models/m:streamGenerateContent?alt=sse", &gemini(), Sse(gemini_events())),
        new("gemini-interactions", "/gemini/v1beta/interactions", &interaction(false), Json(interaction_reply())),
        new("gemini-interactions-stream", "/gemini/v1beta/interactions", &interaction(true), interaction_events()),
        new(
            "gemini-stream-array",
            "/gemini/v1beta/models/m:streamGenerateContent",
            &gemini(),
            Growing(gemini_events()),
        ),
        new(
            "gemini-embed",
            "/gemini/v1beta/models/m:embedContent",
            &json!({"content": {"parts": [{"text": PROMPT}]}}),
            Json(json!({"embedding": {"values": [0.5]}})),
        ),
        new(
            "gemini-batch",
            "/gemini/v1beta/models/m:batchGenerateContent",
            &json!({"batch": {"input_config": {"requests": {"requests": [{"request": gemini()}]}}}}),
            Json(json!({"name": "b"})),
        ),
        error(
            404,
            new("gemini-error", generate, &gemini(), Json(json!({"error": {"code": 404, "message": "no $1$2"}}))),
        ),
        new(
            "vertex-generate",
            "/vertex/v1/projects/p/locations/global/publishers/google/models/m:generateContent",
            &gemini(),
            Json(gemini_reply(gemini_parts())),
        ),
        new(
            "vertex-claude",
            "/vertex/v1/projects/p/locations/global/publishers/anthropic/models/claude-m@1:rawPredict",
            &messages(false),
            Json(message()),
        ),
        new("bedrock-converse", converses, &converse(), Json(converse_reply())),
        new("bedrock-converse-stream", "/bedrock/model/m/converse-stream", &converse(), converse_events()),
        new("ollama-chat", "/ollama/api/chat", &ollama(false), Json(ollama_line(ECHO, true))),
        new(
            "ollama-chat-stream",
            "/ollama/api/chat",
            &ollama(true),
            Lines(vec![ollama_line("Write to $1", false), ollama_line("$2 today.", false), ollama_line("", true)]),
        ),
        new(
            "ollama-generate",
            "/ollama/api/generate",
            &json!({"model": "m", "stream": false, "prompt": PROMPT}),
            Json(json!({"model": "m", "response": ECHO, "done": true, "prompt_eval_count": 9, "eval_count": 4})),
        ),
        new(
            "ollama-embed",
            "/ollama/api/embed",
            &json!({"model": "m", "input": PROMPT}),
            Json(json!({"embeddings": [[0.5]], "prompt_eval_count": 9})),
        ),
        new("cohere-chat", "/cohere/v2/chat", &cohere(false), Json(cohere_reply())),
        new("cohere-chat-stream", "/cohere/v2/chat", &cohere(true), cohere_events()),
        new(
            "cohere-rerank",
            "/cohere/v2/rerank",
            &json!({"model": "m", "query": "mail", "documents": [PROMPT]}),
            Json(
                json!({"results": [{"index": 0, "relevance_score": 0.5}], "meta": {"billed_units": {"search_units": 1}}}),
            ),
        ),
        new("mistral-chat", "/mistral/v1/chat/completions", &chat(false), Json(chat_reply())),
        new("mistral-chat-stream", "/mistral/v1/chat/completions", &chat(true), chat_events()),
        new("chat-to-anthropic", "/anthropic/v1/chat/completions", &chat(false), Json(message())),
        new("chat-to-anthropic-stream", "/anthropic/v1/chat/completions", &chat(true), message_events()),
        new("chat-to-gemini", "/gemini/v1/chat/completions", &chat(false), Json(gemini_reply(gemini_parts()))),
        new("chat-to-gemini-stream", "/gemini/v1/chat/completions", &chat(true), Sse(gemini_events())),
        new("chat-to-bedrock", "/bedrock/v1/chat/completions", &chat(false), Json(converse_reply())),
        new("chat-to-bedrock-stream", "/bedrock/v1/chat/completions", &chat(true), converse_events()),
        new("chat-to-cohere", "/cohere/v1/chat/completions", &chat(false), Json(cohere_reply())),
        new("responses-to-anthropic", "/anthropic/v1/responses", &responses(false), Json(message())),
        new("responses-to-anthropic-stream", "/anthropic/v1/responses", &responses(true), message_events()),
        anthropic(new("messages-to-openai", "/openai/v1/messages", &messages(false), Json(chat_reply()))),
        anthropic(new("messages-to-openai-stream", "/openai/v1/messages", &messages(true), chat_events())),
        anthropic(new("messages-to-ollama", "/ollama/v1/messages", &messages(false), Json(ollama_line(ECHO, true)))),
        new("gemini-to-anthropic", "/anthropic/v1beta/models/m:generateContent", &gemini(), Json(message())),
        new(
            "gemini-to-anthropic-stream",
            "/anthropic/v1beta/models/m:streamGenerateContent?alt=sse",
            &gemini(),
            message_events(),
        ),
        new("gemini-to-openai-array", "/openai/v1/models/m:streamGenerateContent", &gemini(), chat_events()),
        new(
            "gemini-to-anthropic-count",
            "/anthropic/v1beta/models/m:countTokens",
            &gemini(),
            Json(json!({"input_tokens": 90})),
        ),
        new("interactions-to-openai", "/openai/v1beta/interactions", &interaction(false), Json(chat_reply())),
        new("interactions-to-anthropic-stream", "/anthropic/v1/interactions", &interaction(true), message_events()),
        new("converse-to-openai", "/openai/model/m/converse", &converse(), Json(chat_reply())),
        new("converse-to-anthropic-stream", "/anthropic/model/m/converse-stream", &converse(), message_events()),
        error(
            429,
            new(
                "converse-to-openai-error",
                "/openai/model/m/converse",
                &converse(),
                Json(json!({"error": {"type": "rate_limit_error", "message": "not $1$2"}})),
            ),
        ),
        error(
            400,
            new(
                "chat-to-anthropic-error",
                "/anthropic/v1/chat/completions",
                &chat(false),
                Json(json!({"type": "error", "error": {"type": "invalid_request_error", "message": "not $1$2"}})),
            ),
        ),
    ]
}
