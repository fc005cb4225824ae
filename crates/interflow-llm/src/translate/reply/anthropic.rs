//! Replies of Anthropic's Messages API, and of the other APIs whose replies are blocks ([`Spelling`]).

use serde_json::{Value, json};

use super::spelling::{DELTA, Spelling};
use super::{ReplyHead, call_id, completed_id, reply_id};
use crate::event_stream::StreamFraming;
use crate::message::{ContentBlock, ModelReply, REDACTED};
use crate::translate::foreign_reasoning::unsigned;
use crate::translate::{ChatEvent, Citation, StopReason, TranslatedError, WireFormat};
use interflow_types::CallUsage;

/// Writes the events of a stream. Text and thinking are closed when something else begins; calls stay open to the end,
/// because the pieces of parallel calls may alternate.
#[derive(Debug)]
pub struct AnthropicWriter {
    head: ReplyHead,
    spelling: Spelling,
    prefix: &'static str,
    started: bool,
    blocks: usize,
    open: Open,
    /// Open calls: the upstream's index and the block's.
    calls: Vec<(u64, usize)>,
    stop: Option<StopReason>,
}

#[derive(Debug, PartialEq)]
enum Open {
    None,
    Text,
    Thinking { signed: bool },
}

impl AnthropicWriter {
    pub fn new(client: WireFormat, head: ReplyHead) -> Self {
        let (spelling, prefix) = (Spelling::new(client, &head), id_prefix(client));
        Self { head, spelling, prefix, started: false, blocks: 0, open: Open::None, calls: Vec::new(), stop: None }
    }

    pub fn write(&mut self, event: ChatEvent, out: &mut Vec<u8>) {
        match event {
            ChatEvent::Start { id, model } => self.start(id.as_deref(), model, out),
            ChatEvent::Text(text) | ChatEvent::Refusal(text) => {
                if self.open != Open::Text {
                    self.open_block(Open::Text, json!({ "type": "text", "text": "" }), out);
                }
                self.delta(&[("type", "text_delta"), ("text", &text)], out);
            }
            ChatEvent::Thinking(text) => {
                self.open_thinking(out);
                self.delta(&[("type", "thinking_delta"), ("thinking", &text)], out);
            }
            ChatEvent::Signature(data) if data.starts_with(REDACTED) => {
                let data = data.trim_start_matches(REDACTED);
                self.open_block(Open::None, json!({ "type": "redacted_thinking", "data": data }), out);
                self.spelling.event(&json!({ "type": "content_block_stop", "index": self.blocks - 1 }), out);
            }
            ChatEvent::Signature(signature) => {
                self.open_thinking(out);
                self.delta(&[("type", "signature_delta"), ("signature", &signature)], out);
                self.open = Open::Thinking { signed: true };
            }
            ChatEvent::ToolStart { index, id, name } => {
                let id = completed_id(id, || call_id(&self.head.id, self.calls.len()));
                self.open_block(Open::None, json!({ "type": "tool_use", "id": id, "name": name, "input": {} }), out);
                self.calls.push((index, self.blocks - 1));
            }
            ChatEvent::ToolInput { index, json } => {
                if let Some((_, block)) = self.calls.iter().rev().find(|(i, _)| *i == index) {
                    self.spelling.delta(*block, &[("type", "input_json_delta"), ("partial_json", &json)], out);
                }
            }
            ChatEvent::Citation(page) if self.open == Open::Text => {
                let (index, page) = (self.blocks.saturating_sub(1), page.location(self.head.upstream));
                let delta = json!({ "type": "citations_delta", "citation": page });
                self.spelling.event(&json!({ "type": DELTA, "index": index, "delta": delta }), out);
            }
            ChatEvent::BlockEnd if self.open == Open::Text => self.close(out),
            ChatEvent::Stop(reason) => self.stop = Some(reason),
            // They have no form here.
            ChatEvent::Citation(_) | ChatEvent::BlockEnd | ChatEvent::Loss(_) => {}
            // They are written at the end of the reply.
            ChatEvent::Usage(_) | ChatEvent::Error { .. } | ChatEvent::Done => {}
        }
    }

    pub fn framing(&self) -> StreamFraming {
        self.spelling.framing()
    }

    /// Ends the stream with an error, in the form of an API other than Anthropic's.
    pub fn fail(&mut self, error: &TranslatedError, out: &mut Vec<u8>) {
        self.spelling.error(error, out);
    }

    pub fn end(&mut self, usage: CallUsage, out: &mut Vec<u8>) {
        self.spelling.usage = usage;
        self.start(None, None, out);
        self.close(out);
        for (_, block) in std::mem::take(&mut self.calls) {
            self.spelling.event(&json!({ "type": "content_block_stop", "index": block }), out);
        }
        let (reason, sequence) = stop_reason(self.stop.as_ref().unwrap_or(&StopReason::EndTurn));
        let delta = json!({ "stop_reason": reason, "stop_sequence": sequence });
        self.spelling.event(&json!({ "type": "message_delta", "delta": delta, "usage": usage_of(usage) }), out);
        self.spelling.event(&json!({ "type": "message_stop" }), out);
    }

    fn start(&mut self, id: Option<&str>, model: Option<String>, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        let message = json!({
            "id": reply_id(self.prefix, id, &self.head),
            "type": "message",
            "role": "assistant",
            "model": model.unwrap_or_else(|| self.head.model.clone()),
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            // Not known yet to most upstreams; the last event has all counts.
            "usage": usage_of(CallUsage::default()),
        });
        self.spelling.event(&json!({ "type": "message_start", "message": message }), out);
    }

    /// A thought that was signed is complete; what follows is another.
    fn open_thinking(&mut self, out: &mut Vec<u8>) {
        if self.open != (Open::Thinking { signed: false }) {
            let block = json!({ "type": "thinking", "thinking": "", "signature": "" });
            self.open_block(Open::Thinking { signed: false }, block, out);
        }
    }

    fn open_block(&mut self, open: Open, block: Value, out: &mut Vec<u8>) {
        self.start(None, None, out);
        self.close(out);
        self.spelling
            .event(&json!({ "type": "content_block_start", "index": self.blocks, "content_block": block }), out);
        self.blocks += 1;
        self.open = open;
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        if self.open == (Open::Thinking { signed: false }) {
            let signature = unsigned(self.head.upstream);
            self.delta(&[("type", "signature_delta"), ("signature", &signature)], out);
        }
        if std::mem::replace(&mut self.open, Open::None) != Open::None {
            self.spelling.event(&json!({ "type": "content_block_stop", "index": self.blocks.saturating_sub(1) }), out);
        }
    }

    fn delta(&mut self, delta: &[(&'static str, &str)], out: &mut Vec<u8>) {
        self.spelling.delta(self.blocks.saturating_sub(1), delta, out);
    }
}

pub fn whole(client: WireFormat, head: &ReplyHead, reply: &ModelReply, reason: &StopReason) -> Value {
    let mut content: Vec<Value> = Vec::new();
    for own in &reply.blocks {
        content.extend(block(head, own));
        let pages = Citation::in_blocks(std::slice::from_ref(own)).filter(|page| page.is_carried_to(client));
        let pages: Vec<Value> = pages.map(|page| page.location(head.upstream)).collect();
        if let Some(text) = content.iter_mut().rfind(|block| block["type"] == "text").filter(|_| !pages.is_empty()) {
            text["citations"] = pages.into();
        }
    }
    let (reason, sequence) = stop_reason(reason);
    let usage = reply.usage.unwrap_or_default();
    let message = json!({
        "id": reply_id(id_prefix(client), reply.id.as_deref(), head),
        "type": "message",
        "role": "assistant",
        "model": reply.model.as_ref().unwrap_or(&head.model),
        "content": content,
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": usage_of(usage),
    });
    let mut spelling = Spelling::new(client, head);
    spelling.usage = usage;
    spelling.whole(message)
}

/// How ids of replies begin.
const fn id_prefix(client: WireFormat) -> &'static str {
    match client {
        WireFormat::Anthropic => "msg_",
        WireFormat::Interactions => "v1_",
        _ => "",
    }
}

fn block(head: &ReplyHead, block: &ContentBlock) -> Option<Value> {
    Some(match block {
        ContentBlock::Text { text } => json!({ "type": "text", "text": text }),
        ContentBlock::Thinking { text, signature } => match signature.get() {
            Some(s) if s.starts_with(REDACTED) => {
                json!({ "type": "redacted_thinking", "data": s.trim_start_matches(REDACTED) })
            }
            Some(signature) => json!({ "type": "thinking", "thinking": text, "signature": signature }),
            None => json!({ "type": "thinking", "thinking": text, "signature": unsigned(head.upstream) }),
        },
        ContentBlock::ToolUse { id, name, input } => {
            json!({ "type": "tool_use", "id": id, "name": name, "input": object(input) })
        }
        _ => return None,
    })
}

/// Arguments that are no object stay visible as one.
fn object(input: &Value) -> Value {
    match input {
        Value::Object(_) => input.clone(),
        Value::Null => json!({}),
        Value::String(text) if text.trim().is_empty() => json!({}),
        other => json!({ "input": other }),
    }
}

fn stop_reason(reason: &StopReason) -> (&'static str, Option<&str>) {
    match reason {
        StopReason::EndTurn => ("end_turn", None),
        StopReason::MaxTokens => ("max_tokens", None),
        StopReason::StopSequence(sequence) => ("stop_sequence", sequence.as_deref()),
        StopReason::ToolUse => ("tool_use", None),
        StopReason::Refusal | StopReason::Declined => ("refusal", None),
    }
}

/// Anthropic counts cached tokens beside the input.
fn usage_of(usage: CallUsage) -> Value {
    let cached = usage.cache_read.saturating_add(usage.cache_write);
    json!({
        "input_tokens": usage.input.saturating_sub(cached),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    })
}
