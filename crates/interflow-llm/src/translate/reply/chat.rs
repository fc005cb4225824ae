//! Replies of OpenAI's Chat Completions.

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Members, ReplyHead, arguments_text, call_id, completed_id, custom_input, input_details, reply_id, sse_event,
};
use crate::message::{ContentBlock, ModelReply};
use crate::translate::{ChatEvent, Citation, StopReason, WireFormat};
use interflow_types::CallUsage;

/// A chunk of a stream. It is written without a tree, since a reply has one for every token.
#[derive(Serialize)]
struct Chunk<'a, D> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [Choice<'a, D>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
}

#[derive(Serialize)]
struct Choice<'a, D> {
    index: u64,
    delta: D,
    logprobs: (),
    finish_reason: Option<&'a str>,
}

/// Writes the chunks of a stream.
#[derive(Debug)]
pub struct ChatWriter {
    head: ReplyHead,
    id: String,
    model: String,
    started: bool,
    /// The upstream's index of each call; a client gets its position.
    calls: Vec<u64>,
    /// Position and arguments of calls of custom tools, whose input is known at the end only.
    custom: Vec<(usize, String)>,
    stop: Option<StopReason>,
    /// Characters of the text so far.
    length: usize,
}

impl ChatWriter {
    pub fn new(head: ReplyHead) -> Self {
        let (id, model) = (reply_id("chatcmpl-", None, &head), head.model.clone());
        Self { head, id, model, started: false, calls: Vec::new(), custom: Vec::new(), stop: None, length: 0 }
    }

    pub fn write(&mut self, event: ChatEvent, out: &mut Vec<u8>) {
        match event {
            ChatEvent::Start { id, model } => {
                self.id = reply_id("chatcmpl-", id.as_deref(), &self.head);
                self.model = model.unwrap_or_else(|| self.head.model.clone());
                self.start(out);
            }
            ChatEvent::Text(text) => {
                self.length += text.chars().count();
                self.chunk(Members(&[("content", &text)]), None, out);
            }
            ChatEvent::Citation(page) => {
                self.chunk(json!({ "annotations": [annotation(&page, self.length)] }), None, out);
            }
            ChatEvent::Refusal(text) => self.chunk(Members(&[("refusal", &text)]), None, out),
            // Not a member of OpenAI's, but what clients of servers with its API read.
            ChatEvent::Thinking(text) => self.chunk(Members(&[("reasoning_content", &text)]), None, out),
            ChatEvent::ToolStart { index, id, name } => {
                let at = self.calls.len();
                let id = completed_id(id, || call_id(&self.head.id, at));
                self.calls.push(index);
                let (kind, input) = call_form(&self.head, &name);
                if kind == "custom" {
                    self.custom.push((at, String::new()));
                }
                let call = json!({ "index": at, "id": id, "type": kind, kind: { "name": name, input: "" } });
                self.chunk(json!({ "tool_calls": [call] }), None, out);
            }
            ChatEvent::ToolInput { index, json } => {
                if let Some(at) = self.calls.iter().rposition(|i| *i == index) {
                    if let Some((_, input)) = self.custom.iter_mut().find(|(custom, _)| *custom == at) {
                        return input.push_str(&json);
                    }
                    let call = json!({ "index": at, "function": { "arguments": json } });
                    self.chunk(json!({ "tool_calls": [call] }), None, out);
                }
            }
            ChatEvent::Stop(reason) => self.stop = Some(reason),
            // They have no form here.
            ChatEvent::Signature(_) | ChatEvent::BlockEnd | ChatEvent::Loss(_) => {}
            // They are written at the end of the reply.
            ChatEvent::Usage(_) | ChatEvent::Error { .. } | ChatEvent::Done => {}
        }
    }

    pub fn end(&mut self, usage: CallUsage, out: &mut Vec<u8>) {
        for (at, input) in std::mem::take(&mut self.custom) {
            let call = json!({ "index": at, "custom": { "input": custom_input(&input) } });
            self.chunk(json!({ "tool_calls": [call] }), None, out);
        }
        let reason = finish_reason(self.stop.as_ref().unwrap_or(&StopReason::EndTurn));
        self.chunk(json!({}), Some(reason), out);
        if self.head.stream_usage {
            self.write_chunk::<()>(&[], Some(usage_of(usage)), out);
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.started, true) {
            self.chunk(json!({ "role": "assistant", "content": "" }), None, out);
        }
    }

    fn chunk(&mut self, delta: impl Serialize, finish_reason: Option<&str>, out: &mut Vec<u8>) {
        self.start(out);
        let choice = Choice { index: 0, delta, logprobs: (), finish_reason };
        self.write_chunk(&[choice], self.head.stream_usage.then_some(Value::Null), out);
    }

    fn write_chunk<D: Serialize>(&self, choices: &[Choice<'_, D>], usage: Option<Value>, out: &mut Vec<u8>) {
        let (created, object) = (self.head.created.secs(), "chat.completion.chunk");
        sse_event("", &Chunk { id: &self.id, object, created, model: &self.model, choices, usage }, out);
    }
}

pub fn whole(head: &ReplyHead, reply: &ModelReply, reason: &StopReason) -> Value {
    let (mut text, mut thought, mut calls) = (None::<String>, String::new(), Vec::new());
    for block in &reply.blocks {
        match block {
            ContentBlock::Text { text: more } => text.get_or_insert_default().push_str(more),
            ContentBlock::Thinking { text: more, .. } => thought.push_str(more),
            ContentBlock::ToolUse { id, name, input } => {
                let (kind, member) = call_form(head, name);
                let arguments = arguments_text(input);
                let input = if kind == "custom" { custom_input(&arguments) } else { arguments };
                calls.push(json!({ "id": id, "type": kind, kind: { "name": name, member: input } }));
            }
            _ => {}
        }
    }
    let is_refusal = *reason == StopReason::Declined;
    let (text, refusal) = if is_refusal { (None, text) } else { (text, None) };
    let mut message = json!({ "role": "assistant", "content": text, "refusal": refusal });
    let length = message["content"].as_str().map_or(0, |text| text.chars().count());
    let pages = Citation::in_blocks(&reply.blocks).filter(|page| page.is_carried_to(WireFormat::OpenAiChat));
    let pages: Vec<Value> = pages.map(|page| annotation(&page, length)).collect();
    if !pages.is_empty() {
        message["annotations"] = pages.into();
    }
    if !thought.is_empty() {
        message["reasoning_content"] = thought.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    json!({
        "id": reply_id("chatcmpl-", reply.id.as_deref(), head),
        "object": "chat.completion",
        "created": head.created.secs(),
        "model": reply.model.as_ref().unwrap_or(&head.model),
        "choices": [{ "index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(reason) }],
        "usage": usage_of(reply.usage.unwrap_or_default()),
    })
}

/// The type of a call, and the member that has its input.
fn call_form(head: &ReplyHead, tool: &String) -> (&'static str, &'static str) {
    if head.custom_tools.contains(tool) { ("custom", "input") } else { ("function", "arguments") }
}

fn annotation(page: &Citation, end: usize) -> Value {
    let mut inner = page.annotation(end);
    inner.as_object_mut().map(|members| members.shift_remove("type"));
    json!({ "type": "url_citation", "url_citation": inner })
}

const fn finish_reason(reason: &StopReason) -> &'static str {
    match reason {
        StopReason::EndTurn | StopReason::StopSequence(_) | StopReason::Declined => "stop",
        StopReason::MaxTokens => "length",
        StopReason::ToolUse => "tool_calls",
        StopReason::Refusal => "content_filter",
    }
}

fn usage_of(usage: CallUsage) -> Value {
    json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total(),
        "prompt_tokens_details": input_details(usage),
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning },
    })
}
