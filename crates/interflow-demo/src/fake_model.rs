//! The fake LLM provider: finds the script that a history belongs to and answers with its next step in the API's format; without a script it
//! repeats the last message.

use interflow_llm::message::{ApiFormat, ContentBlock, MessageRole, ModelReply, joined, parse};
use interflow_llm::translate::{ChatEvent, ReplyHead, ReplyWriter, StopReason, WireFormat, whole_reply};
use interflow_types::{CallUsage, Timestamp};
use serde_json::{Value, json};

use crate::dialogue::{self, DialogueStep};

/// The models of its list; it answers for any other name too.
pub const NAMES: [&str; 4] = ["claude-sonnet-5-5", "gpt-6-luna", "gemini-3.8-flash", "llama3.2"];

pub struct ModelResponse {
    pub media: &'static str,
    pub status: u16,
    pub pieces: Vec<Vec<u8>>,
}

/// Answers an LLM request on this path; `None` if the path is not an LLM endpoint.
pub fn answer(path: &str, body: &[u8]) -> Option<ModelResponse> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let format = ApiFormat::detect(path, &body)?;
    // Ollama streams unless it is told not to.
    let is_ollama_stream = format == ApiFormat::Ollama && body["stream"] != false;
    let request = parse::request(format, path, body);
    if request.model.contains("busy") {
        let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
        return Some(ModelResponse { media: "application/json", status: 529, pieces: vec![error.to_string().into()] });
    }
    let script = request.messages.first().and_then(|m| dialogue::find(&joined(&m.blocks)));
    // The number of answers in the history is the number of the step.
    let number = request.messages.iter().filter(|m| m.role == MessageRole::Assistant).count();
    let mut step = script.and_then(|script| script.steps.get(number));
    if request.system.iter().any(|s| s.contains("isNewTopic")) {
        step = script.map(|script| &script.title);
    }
    let repeated = request.messages.last().map(|message| joined(&message.blocks)).unwrap_or_default();
    // About three characters per token, which is close enough for a demo.
    let history: u64 = request.messages.iter().map(|m| joined(&m.blocks).len() as u64 / 3 + 10).sum();
    // An agent's tools and instructions.
    let input = if step.is_some() { history + 4000 } else { history };
    let turn = ModelTurn { step, number, model: request.model, input, repeated };
    let client = match format {
        ApiFormat::Anthropic => WireFormat::Anthropic,
        ApiFormat::Responses => WireFormat::OpenAiResponses,
        ApiFormat::Gemini => return Some(turn.gemini(request.stream)),
        ApiFormat::Interactions => return None,
        ApiFormat::Ollama => return Some(turn.ollama(is_ollama_stream)),
        ApiFormat::Chat | ApiFormat::Converse => WireFormat::OpenAiChat,
    };
    Some(if request.stream { turn.stream(client) } else { turn.whole(client) })
}

/// Tool call ID. Provider and agent derive the same one from the positions of step and call.
pub fn call_id(step: usize, call: usize) -> String {
    format!("call_{step:02}_{call:02}_demo")
}

struct ModelTurn {
    step: Option<&'static DialogueStep>,
    number: usize,
    model: String,
    /// Tokens of the prompt.
    input: u64,
    /// The last message, which is the answer where no script applies.
    repeated: String,
}

impl ModelTurn {
    fn thinking(&self) -> &'static str {
        self.step.map_or("", |step| &step.thinks)
    }

    fn text(&self) -> &str {
        self.step.map_or(&self.repeated, |step| &step.says)
    }

    fn calls(&self) -> Vec<(String, &'static str, &'static str)> {
        let calls = self.step.map_or(&[][..], |s| &s.calls);
        calls.iter().enumerate().map(|(i, c)| (call_id(self.number, i), &*c.tool, &*c.arguments)).collect()
    }

    fn usage(&self) -> CallUsage {
        let calls: usize = self.calls().iter().map(|(_, _, input)| input.len()).sum();
        let reasoning = self.thinking().len() as u64 / 3;
        // From the second call on, most of the prompt comes from the cache.
        let cache_read = if self.number == 0 || self.step.is_none() { 0 } else { self.input * 9 / 10 };
        CallUsage {
            input: self.input,
            output: (self.text().len() + calls) as u64 / 3 + 12 + reasoning,
            cache_read,
            cache_write: if self.step.is_some() { self.input - cache_read } else { 0 },
            reasoning,
            ..CallUsage::default()
        }
    }

    fn head(&self) -> ReplyHead {
        ReplyHead {
            id: format!("demo_{}_{}", self.number, self.input),
            model: self.model.clone(),
            created: Timestamp::now(),
            grows: false,
            stream_usage: true,
            custom_tools: Vec::new(),
            upstream: WireFormat::Anthropic,
        }
    }

    fn stop(&self) -> StopReason {
        if self.calls().is_empty() { StopReason::EndTurn } else { StopReason::ToolUse }
    }

    fn stream(&self, client: WireFormat) -> ModelResponse {
        let mut events = vec![ChatEvent::Start { id: None, model: Some(self.model.clone()) }];
        events.extend(words(self.thinking()).map(|word| ChatEvent::Thinking(word.to_owned())));
        events.extend(words(self.text()).map(|word| ChatEvent::Text(word.to_owned())));
        for (index, (id, name, input)) in (0..).zip(self.calls()) {
            events.push(ChatEvent::ToolStart { index, id, name: name.to_owned() });
            events.push(ChatEvent::ToolInput { index, json: input.to_owned() });
        }
        events.extend([ChatEvent::Usage(self.usage()), ChatEvent::Stop(self.stop()), ChatEvent::Done]);
        let mut writer = ReplyWriter::new(client, self.head());
        let piece = |event| {
            let mut out = Vec::new();
            writer.write(event, &mut out);
            out
        };
        let pieces = events.into_iter().map(piece).filter(|piece| !piece.is_empty()).collect();
        ModelResponse { media: "text/event-stream", status: 200, pieces }
    }

    fn whole(&self, client: WireFormat) -> ModelResponse {
        let mut blocks = Vec::new();
        if !self.thinking().is_empty() && client == WireFormat::Anthropic {
            blocks.push(ContentBlock::thinking(self.thinking()));
        }
        if !self.text().is_empty() {
            blocks.push(ContentBlock::text(self.text()));
        }
        blocks.extend(self.calls().into_iter().map(|(id, name, input)| ContentBlock::ToolUse {
            id,
            name: name.to_owned(),
            input: serde_json::from_str(input).unwrap_or_default(),
        }));
        let stop = if self.stop() == StopReason::ToolUse { "tool_use" } else { "end_turn" };
        let reply = ModelReply {
            blocks,
            stop: Some(stop.to_owned()),
            usage: Some(self.usage()),
            complete: true,
            ..ModelReply::default()
        };
        json_body(&whole_reply(client, &self.head(), &reply))
    }

    fn gemini(&self, is_stream: bool) -> ModelResponse {
        let chunk = |text: &str| json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}], "modelVersion": self.model});
        let usage = self.usage();
        let counts = json!({"promptTokenCount": usage.input, "candidatesTokenCount": usage.output});
        if !is_stream {
            let mut body = chunk(self.text());
            body["candidates"][0]["finishReason"] = "STOP".into();
            body["usageMetadata"] = counts;
            return json_body(&body);
        }
        let mut chunks: Vec<Value> = words(self.text()).map(chunk).collect();
        chunks
            .push(json!({"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}], "usageMetadata": counts}));
        let pieces = chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n").into()).collect();
        ModelResponse { media: "text/event-stream", status: 200, pieces }
    }

    fn ollama(&self, is_stream: bool) -> ModelResponse {
        let line = |text: &str, done: bool| json!({"model": self.model, "message": {"role": "assistant", "content": text}, "done": done});
        let usage = self.usage();
        let last = |text: &str| {
            let mut line = line(text, true);
            line["done_reason"] = "stop".into();
            line["prompt_eval_count"] = usage.input.into();
            line["eval_count"] = usage.output.into();
            line
        };
        if !is_stream {
            return json_body(&last(self.text()));
        }
        let mut lines: Vec<Value> = words(self.text()).map(|word| line(word, false)).collect();
        lines.push(last(""));
        let pieces = lines.iter().map(|line| format!("{line}\n").into()).collect();
        ModelResponse { media: "application/x-ndjson", status: 200, pieces }
    }
}

fn json_body(body: &Value) -> ModelResponse {
    ModelResponse { media: "application/json", status: 200, pieces: vec![body.to_string().into()] }
}

/// Splits text into chunks of a few words, as models stream it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_without_a_script_is_repeated_in_every_format_whole_and_streamed() {
        let message = json!([{"role": "user", "content": "two words"}]);
        let contents = json!([{"role": "user", "parts": [{"text": "two words"}]}]);
        for (path, body, format) in [
            ("/v1/messages", json!({"model": "m", "max_tokens": 9, "messages": message}), ApiFormat::Anthropic),
            ("/v1/chat/completions", json!({"model": "m", "messages": message}), ApiFormat::Chat),
            ("/v1/responses", json!({"model": "m", "input": "two words"}), ApiFormat::Responses),
            ("/v1beta/models/m:generateContent", json!({"contents": contents}), ApiFormat::Gemini),
            ("/v1beta/models/m:streamGenerateContent?alt=sse", json!({"contents": contents}), ApiFormat::Gemini),
            ("/api/chat", json!({"model": "m", "messages": message}), ApiFormat::Ollama),
        ] {
            for stream in [false, true] {
                let mut body = body.clone();
                body["stream"] = stream.into();
                let answer = answer(path, body.to_string().as_bytes()).unwrap();
                let reply = parse::reply(format, answer.media, answer.status, &answer.pieces.concat());
                assert_eq!(joined(&reply.blocks), "two words", "{path} {stream}");
                assert!(reply.complete && reply.usage.is_some_and(|usage| usage.output > 0), "{path} {stream}");
                let is_stream = stream && format != ApiFormat::Gemini || path.contains("alt=sse");
                assert_eq!(answer.pieces.len() > 1, is_stream, "{path} {stream}");
            }
        }
    }

    #[test]
    fn paths_of_no_api_and_bodies_that_are_not_json_have_no_answer() {
        assert!(answer("/orders", b"{\"order\":1}").is_none());
        assert!(answer("/v1/messages", b"not JSON").is_none());
    }
}
