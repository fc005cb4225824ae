//! The fake LLM provider: finds the script that a history belongs to and returns its next step in the API's format.

use interflow_llm::message::{ApiFormat, ChatMessage, MessageRole, joined, parse};
use serde_json::{Value, json};

use crate::dialogue::{DialogueScript, DialogueStep, FIX, HELPERS, QUESTIONS, SUPPORT, TITLE};

pub struct ModelResponse {
    pub media: &'static str,
    pub status: u16,
    pub pieces: Vec<String>,
}

/// Answers an LLM request on this path; `None` if the path is not an LLM endpoint.
pub fn answer(path: &str, body: &[u8]) -> Option<ModelResponse> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let shape = ApiFormat::detect(path, &body)?;
    let request = parse::request(shape, path, body);
    if request.model.contains("busy") {
        let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
        return Some(ModelResponse { media: "application/json", status: 529, pieces: vec![error.to_string()] });
    }
    let (mut step, number) = step(&request.messages);
    if request.system.iter().any(|s| s.contains("isNewTopic")) {
        step = Some(&TITLE);
    }
    // About three characters per token, which is close enough for a demo.
    let read = request.messages.iter().map(|m| joined(&m.blocks).len() as u64 / 3 + 40).sum::<u64>() + 4000;
    let turn = ModelTurn { step, number, model: request.model, read };
    Some(match shape {
        ApiFormat::Anthropic => turn.anthropic(),
        ApiFormat::Responses => turn.responses(),
        ApiFormat::Gemini => turn.gemini(),
        ApiFormat::Ollama => turn.ollama(),
        ApiFormat::Chat | ApiFormat::Converse => turn.chat(),
    })
}

/// The next step for a history, and its index.
fn step(messages: &[ChatMessage]) -> (Option<&'static DialogueStep>, usize) {
    let first = messages.first().map(|m| joined(&m.blocks)).unwrap_or_default();
    // The number of answers in the history is the number of the step.
    let answered = messages.iter().filter(|m| m.role == MessageRole::Assistant).count();
    let scripts = [&FIX, &SUPPORT].into_iter().chain(&HELPERS).chain(&QUESTIONS);
    let script: Option<&'static DialogueScript> = scripts.into_iter().find(|s| first.contains(s.prompt));
    (script.and_then(|s| s.steps.get(answered)), answered)
}

/// Tool call ID. Provider and agent derive the same one from the positions of step and call.
pub fn call_id(step: usize, call: usize) -> String {
    format!("call_{step:02}_{call:02}_demo")
}

struct ModelTurn {
    step: Option<&'static DialogueStep>,
    number: usize,
    model: String,
    read: u64,
}

impl ModelTurn {
    fn text(&self) -> &'static str {
        self.step.map_or("There is nothing more to say.", |s| s.says)
    }

    fn calls(&self) -> Vec<(String, &'static str, &'static str)> {
        let calls = self.step.map_or(&[][..], |s| s.calls);
        calls.iter().enumerate().map(|(i, (name, input, _))| (call_id(self.number, i), *name, *input)).collect()
    }

    fn id(&self) -> String {
        format!("resp_demo_{}_{}", self.number, self.read)
    }

    fn written(&self) -> u64 {
        let calls: usize = self.calls().iter().map(|(_, _, input)| input.len()).sum();
        (self.text().len() + calls) as u64 / 3 + 12
    }

    fn anthropic(&self) -> ModelResponse {
        // From the second call on, most of the prompt comes from the cache.
        let cached = if self.number == 0 { 0 } else { self.read * 9 / 10 };
        let usage = json!({"input_tokens": 12, "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": self.read - cached, "output_tokens": 1});
        let mut events = vec![json!({"type": "message_start", "message": {"id": self.id(), "type": "message",
            "role": "assistant", "model": self.model, "content": [], "usage": usage}})];
        let mut index = 0;
        let mut block = |start: Value, deltas: Vec<Value>| {
            events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
            let delta = |d: Value| json!({"type": "content_block_delta", "index": index, "delta": d});
            events.extend(deltas.into_iter().map(delta));
            events.push(json!({"type": "content_block_stop", "index": index}));
            index += 1;
        };
        let thinks = self.step.map_or("", |s| s.thinks);
        if !thinks.is_empty() {
            let deltas = words(thinks).map(|w| json!({"type": "thinking_delta", "thinking": w})).collect();
            block(json!({"type": "thinking", "thinking": ""}), deltas);
        }
        if !self.text().is_empty() {
            let deltas = words(self.text()).map(|w| json!({"type": "text_delta", "text": w})).collect();
            block(json!({"type": "text", "text": ""}), deltas);
        }
        for (id, name, input) in self.calls() {
            let delta = json!({"type": "input_json_delta", "partial_json": input});
            block(json!({"type": "tool_use", "id": id, "name": name, "input": {}}), vec![delta]);
        }
        let stop = if self.calls().is_empty() { "end_turn" } else { "tool_use" };
        events.push(json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": self.written()}}));
        events.push(json!({"type": "message_stop"}));
        let piece = |e: &Value| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap_or_default());
        ModelResponse { media: "text/event-stream", status: 200, pieces: events.iter().map(piece).collect() }
    }

    fn chat(&self) -> ModelResponse {
        let calls: Vec<Value> = self.calls().into_iter().map(|(id, name, input)| {
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": input}})
        }).collect();
        let mut message = json!({"role": "assistant", "content": self.text()});
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        let body = json!({"id": self.id(), "object": "chat.completion", "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": self.read, "completion_tokens": self.written(),
                "prompt_tokens_details": {"cached_tokens": if self.number == 0 { 0 } else { self.read / 2 }}}});
        ModelResponse { media: "application/json", status: 200, pieces: vec![body.to_string()] }
    }

    fn responses(&self) -> ModelResponse {
        let mut output = Vec::new();
        if !self.text().is_empty() {
            output.push(json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": self.text()}]}));
        }
        output.extend(self.calls().into_iter().map(
            |(id, name, input)| json!({"type": "function_call", "call_id": id, "name": name, "arguments": input}),
        ));
        let mut events = vec![json!({"type": "response.created", "response": {"id": self.id(), "model": self.model}})];
        for (i, item) in output.iter().enumerate() {
            events
                .push(json!({"type": "response.output_item.added", "output_index": i, "item": {"type": item["type"]}}));
            events.push(json!({"type": "response.output_item.done", "output_index": i, "item": item}));
        }
        let usage = json!({"input_tokens": self.read, "output_tokens": self.written() + 60,
            "input_tokens_details": {"cached_tokens": self.read / 3}, "output_tokens_details": {"reasoning_tokens": 60}});
        events.push(json!({"type": "response.completed", "response": {"id": self.id(), "status": "completed",
            "model": self.model, "output": output, "usage": usage}}));
        let piece = |e: &Value| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap_or_default());
        ModelResponse { media: "text/event-stream", status: 200, pieces: events.iter().map(piece).collect() }
    }

    fn gemini(&self) -> ModelResponse {
        let chunk = |text: &str| json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}], "modelVersion": self.model});
        let mut chunks: Vec<Value> = words(self.text()).map(chunk).collect();
        chunks.push(json!({"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": self.read, "candidatesTokenCount": self.written()}}));
        let pieces = chunks.iter().map(|c| format!("data: {c}\r\n\r\n")).collect();
        ModelResponse { media: "text/event-stream", status: 200, pieces }
    }

    fn ollama(&self) -> ModelResponse {
        let line =
            |text: &str| json!({"model": self.model, "message": {"role": "assistant", "content": text}, "done": false});
        let mut lines: Vec<Value> = words(self.text()).map(line).collect();
        lines.push(json!({"model": self.model, "message": {"role": "assistant", "content": ""}, "done": true,
            "done_reason": "stop", "prompt_eval_count": self.read, "eval_count": self.written()}));
        ModelResponse {
            media: "application/x-ndjson",
            status: 200,
            pieces: lines.iter().map(|l| format!("{l}\n")).collect(),
        }
    }
}

/// Splits text into chunks of a few words, as models stream it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}
