//! Replies of OpenAI's Responses API.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{ReplyHead, arguments_text, call_id, completed_id, custom_input, input_details, reply_id, sse_event};
use crate::message::{Carried, ContentBlock, ModelReply};
use crate::translate::foreign_reasoning::{ANTHROPIC_MARK, unsigned};
use crate::translate::{ChatEvent, Citation, StopReason, WireFormat};
use interflow_types::CallUsage;

/// The last event of a stream repeats the whole reply, which has to be kept up to this size.
const MAX_REPLY_BYTES: usize = 16 << 20;
const REFUSAL: &str = "refusal";

/// Writes the events of a stream.
#[derive(Debug, Default)]
pub struct ResponsesWriter {
    head: ReplyHead,
    reply: ModelReply,
    started: bool,
    sequence: u64,
    size: usize,
    /// The last block is text or thinking that may go on.
    open: bool,
    /// Calls: the upstream's index, the item's, and the arguments so far.
    calls: Vec<(u64, usize, String)>,
    stop: Option<StopReason>,
    /// Of the text with this position.
    annotations: Vec<(usize, Value)>,
}

impl ResponsesWriter {
    pub fn new(head: ReplyHead) -> Self {
        Self { head, ..Self::default() }
    }

    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Appends an event's bytes; false if the reply has become too large.
    pub fn write(&mut self, event: ChatEvent, out: &mut Vec<u8>) -> bool {
        match event {
            ChatEvent::Start { id, model } => {
                self.reply.id = id;
                self.reply.model = model;
                self.start(out);
            }
            ChatEvent::Text(text) => self.append(ContentBlock::text(""), &text, out),
            ChatEvent::Refusal(text) => self.append(refusal_block(String::new()), &text, out),
            ChatEvent::Thinking(text) => self.append(ContentBlock::thinking(""), &text, out),
            ChatEvent::Signature(signature) => self.sign(signature, out),
            ChatEvent::ToolStart { index, id, name } => {
                self.close(out);
                let id = completed_id(id, || call_id(&self.head.id, self.calls.len()));
                self.calls.push((index, self.reply.blocks.len(), String::new()));
                self.push(ContentBlock::ToolUse { id, name, input: Value::String(String::new()) }, out);
                self.open = false;
            }
            ChatEvent::ToolInput { index, json } => {
                self.size += json.len();
                if let Some((_, at, input)) = self.calls.iter_mut().rev().find(|(i, ..)| *i == index) {
                    input.push_str(&json);
                    let at = *at;
                    if self.is_custom(at) {
                        // Its input is known at the end only.
                        return self.size <= MAX_REPLY_BYTES;
                    }
                    let delta = json!({ "item_id": self.item_id("fc", at), "output_index": at, "delta": json });
                    self.event("response.function_call_arguments.delta", delta, out);
                }
            }
            ChatEvent::Citation(page) => self.cite(&page, out),
            ChatEvent::Stop(reason) => self.stop = Some(reason),
            // They have no form here.
            ChatEvent::BlockEnd | ChatEvent::Loss(_) => {}
            // They are written at the end of the reply.
            ChatEvent::Usage(_) | ChatEvent::Error { .. } | ChatEvent::Done => {}
        }
        self.size <= MAX_REPLY_BYTES
    }

    pub fn end(&mut self, usage: CallUsage, out: &mut Vec<u8>) {
        self.start(out);
        self.close(out);
        for (_, at, input) in std::mem::take(&mut self.calls) {
            if self.is_custom(at) {
                let (id, text) = (self.item_id("ctc", at), custom_input(&input));
                let delta = json!({ "item_id": id, "output_index": at, "delta": text });
                self.event("response.custom_tool_call_input.delta", delta, out);
                let done = json!({ "item_id": id, "output_index": at, "input": text });
                self.event("response.custom_tool_call_input.done", done, out);
            } else {
                let done = json!({ "item_id": self.item_id("fc", at), "output_index": at, "arguments": input });
                self.event("response.function_call_arguments.done", done, out);
            }
            if let Some(ContentBlock::ToolUse { input: whole, .. }) = self.reply.blocks.get_mut(at) {
                *whole = Value::String(input);
            }
            self.item_done(at, out);
        }
        self.reply.usage = Some(usage);
        let reason = self.stop.clone().unwrap_or(StopReason::EndTurn);
        let whole = whole_with(&self.head, &self.reply, &reason, &self.annotations);
        let name = if whole["status"] == "incomplete" { "response.incomplete" } else { "response.completed" };
        self.event(name, json!({ "response": whole }), out);
    }

    /// Adds to the open block if it is of the same kind as this empty one, and else begins it.
    fn append(&mut self, empty: ContentBlock, more: &str, out: &mut Vec<u8>) {
        let Some((form, _)) = PartForm::of(&empty) else { return };
        self.size += more.len();
        if self.open_part().is_none_or(|(open, _)| open != form) {
            self.close(out);
            self.push(empty, out);
            self.part_event(form, "added", form.part("", 0, &[]), out);
        }
        self.text_event(form, "delta", "delta", more, out);
        if let Some(
            ContentBlock::Text { text }
            | ContentBlock::Thinking { text, .. }
            | ContentBlock::Other { value: Value::String(text), .. },
        ) = self.reply.blocks.last_mut()
        {
            text.push_str(more);
        }
    }

    /// The form and the text of the block that may go on.
    fn open_part(&self) -> Option<(PartForm, &str)> {
        self.reply.blocks.last().filter(|_| self.open).and_then(PartForm::of)
    }

    /// Adds a page to the open text.
    fn cite(&mut self, page: &Citation, out: &mut Vec<u8>) {
        if let Some(ContentBlock::Text { text }) = self.reply.blocks.last().filter(|_| self.open) {
            let annotation = page.annotation(text.chars().count());
            let others = json!({ "annotation_index": self.annotations.len(), "annotation": annotation });
            let added = self.place(PartForm::Text, others);
            self.event("response.output_text.annotation.added", added, out);
            self.annotations.push((self.reply.blocks.len() - 1, annotation));
        }
    }

    /// A signature completes the thought before it, or stands for one that is not disclosed.
    fn sign(&mut self, signed: String, out: &mut Vec<u8>) {
        self.size += signed.len();
        if self.open_part().is_none_or(|(form, _)| form != PartForm::Thought) {
            self.close(out);
            self.push(ContentBlock::thinking(""), out);
        }
        if let Some(ContentBlock::Thinking { signature, .. }) = self.reply.blocks.last_mut() {
            *signature = Carried::new(signed);
        }
        self.close(out);
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        let response = envelope(&self.head, &self.reply, "in_progress");
        self.event("response.created", json!({ "response": response }), out);
        self.event("response.in_progress", json!({ "response": response }), out);
    }

    /// Adds a block and announces its item.
    fn push(&mut self, block: ContentBlock, out: &mut Vec<u8>) {
        self.start(out);
        let at = self.reply.blocks.len();
        let item = item(&self.head, at, &block, "in_progress", &[]);
        self.reply.blocks.push(block);
        self.event("response.output_item.added", json!({ "output_index": at, "item": item }), out);
        self.open = true;
    }

    /// Ends the open text or thought.
    fn close(&mut self, out: &mut Vec<u8>) {
        if !self.open {
            return;
        }
        let at = self.reply.blocks.len().saturating_sub(1);
        let part = self.open_part().map(|(form, text)| (form, text.to_owned()));
        if let Some((form, text)) = part.filter(|(form, text)| *form != PartForm::Thought || !text.is_empty()) {
            self.text_event(form, "done", form.member(), &text, out);
            self.part_event(form, "done", form.part(&text, at, &self.annotations), out);
        }
        self.open = false;
        self.item_done(at, out);
    }

    fn item_done(&mut self, at: usize, out: &mut Vec<u8>) {
        if let Some(block) = self.reply.blocks.get(at) {
            let item = item(&self.head, at, block, "completed", &self.annotations);
            self.event("response.output_item.done", json!({ "output_index": at, "item": item }), out);
        }
    }

    fn is_custom(&self, at: usize) -> bool {
        let block = self.reply.blocks.get(at);
        matches!(block, Some(ContentBlock::ToolUse { name, .. }) if self.head.custom_tools.contains(name))
    }

    fn item_id(&self, prefix: &str, at: usize) -> String {
        item_id(&self.head, prefix, at)
    }

    /// The members that locate the last item's only part, and others.
    fn place(&self, form: PartForm, others: Value) -> Value {
        let (prefix, part) = if form == PartForm::Thought { ("rs", "summary_index") } else { ("msg", "content_index") };
        let at = self.reply.blocks.len().saturating_sub(1);
        let mut event = json!({ "item_id": self.item_id(prefix, at), "output_index": at, part: 0 });
        if let (Value::Object(event), Value::Object(others)) = (&mut event, others) {
            event.extend(others);
        }
        event
    }

    fn part_event(&mut self, form: PartForm, what: &str, part: Value, out: &mut Vec<u8>) {
        let name = if form == PartForm::Thought { "reasoning_summary_part" } else { "content_part" };
        let event = self.place(form, json!({ "part": part }));
        self.event(&format!("response.{name}.{what}"), event, out);
    }

    fn text_event(&mut self, form: PartForm, what: &str, member: &str, text: &str, out: &mut Vec<u8>) {
        let mut others = json!({ member: text });
        let name = match form {
            PartForm::Text => "output_text",
            PartForm::Refusal => REFUSAL,
            PartForm::Thought => "reasoning_summary_text",
        };
        if form == PartForm::Text {
            others["logprobs"] = json!([]);
        }
        let event = self.place(form, others);
        self.event(&format!("response.{name}.{what}"), event, out);
    }

    fn event(&mut self, kind: &str, mut data: Value, out: &mut Vec<u8>) {
        data["type"] = kind.into();
        data["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        sse_event(kind, &data, out);
    }
}

pub fn whole(head: &ReplyHead, reply: &ModelReply, reason: &StopReason) -> Value {
    let (at, length) = reply
        .blocks
        .iter()
        .enumerate()
        .fold((0, 0), |last, (at, block)| block.as_text().map_or(last, |text| (at, text.chars().count())));
    let pages = Citation::in_blocks(&reply.blocks).filter(|page| page.is_carried_to(WireFormat::OpenAiResponses));
    let pages = pages.map(|page| (at, page.annotation(length)));
    whole_with(head, reply, reason, &pages.collect::<Vec<_>>())
}

fn whole_with(head: &ReplyHead, reply: &ModelReply, reason: &StopReason, annotations: &[(usize, Value)]) -> Value {
    let incomplete = match reason {
        StopReason::MaxTokens => Some("max_output_tokens"),
        StopReason::Refusal => Some("content_filter"),
        _ => None,
    };
    let status = if incomplete.is_some() { "incomplete" } else { "completed" };
    let mut response = envelope(head, reply, status);
    let declines = *reason == StopReason::Declined;
    let blocks = reply.blocks.iter().map(|block| match block {
        ContentBlock::Text { text } if declines => Cow::Owned(refusal_block(text.clone())),
        block => Cow::Borrowed(block),
    });
    let items = blocks.enumerate();
    let output: Vec<Value> = items
        .map(|(at, block)| item(head, at, &block, "completed", annotations))
        .filter(|item| !item.is_null())
        .collect();
    response["output"] = output.into();
    response["incomplete_details"] = incomplete.map_or(Value::Null, |reason| json!({ "reason": reason }));
    response["usage"] = usage_of(reply.usage.unwrap_or_default());
    response
}

fn envelope(head: &ReplyHead, reply: &ModelReply, status: &str) -> Value {
    json!({
        "id": reply_id("resp_", reply.id.as_deref(), head),
        "object": "response",
        "created_at": head.created.secs(),
        "status": status,
        "error": null,
        "incomplete_details": null,
        "instructions": null,
        "metadata": {},
        "model": reply.model.as_ref().unwrap_or(&head.model),
        "output": [],
        "parallel_tool_calls": true,
        "tool_choice": "auto",
        "tools": [],
        "usage": null,
    })
}

/// Words with which the model declines have a content part of their own.
fn refusal_block(text: String) -> ContentBlock {
    ContentBlock::Other { kind: REFUSAL.to_owned(), value: text.into() }
}

/// The kinds of content whose text comes in pieces.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PartForm {
    Text,
    Refusal,
    Thought,
}

impl PartForm {
    /// The form of a block, and its text; `None` for one without a content part.
    fn of(block: &ContentBlock) -> Option<(Self, &str)> {
        match block {
            ContentBlock::Text { text } => Some((Self::Text, text)),
            ContentBlock::Thinking { text, .. } => Some((Self::Thought, text)),
            ContentBlock::Other { kind, value } if kind == REFUSAL => Some((Self::Refusal, value.as_str()?)),
            _ => None,
        }
    }

    /// The member of a part that has its text.
    const fn member(self) -> &'static str {
        if matches!(self, Self::Refusal) { REFUSAL } else { "text" }
    }

    /// The content part of the block at this position.
    fn part(self, text: &str, at: usize, annotations: &[(usize, Value)]) -> Value {
        match self {
            Self::Text => {
                let own: Vec<&Value> = annotations.iter().filter(|(of, _)| *of == at).map(|(_, page)| page).collect();
                json!({ "type": "output_text", "text": text, "annotations": own })
            }
            Self::Refusal => json!({ "type": REFUSAL, "refusal": text }),
            Self::Thought => json!({ "type": "summary_text", "text": text }),
        }
    }
}

/// The item of a block; null for one that the API has no item for.
fn item(head: &ReplyHead, at: usize, block: &ContentBlock, status: &str, annotations: &[(usize, Value)]) -> Value {
    let message = |part: Value| {
        let content = if status == "completed" { json!([part]) } else { json!([]) };
        json!({
            "id": item_id(head, "msg", at), "type": "message", "status": status, "role": "assistant",
            "content": content,
        })
    };
    match block {
        ContentBlock::Text { .. } | ContentBlock::Other { .. } => {
            PartForm::of(block).map_or(Value::Null, |(form, text)| message(form.part(text, at, annotations)))
        }
        ContentBlock::Thinking { text, signature } => {
            let part = PartForm::Thought.part(text, at, annotations);
            let summary = if text.is_empty() { json!([]) } else { json!([part]) };
            let mut item = json!({ "id": item_id(head, "rs", at), "type": "reasoning", "summary": summary });
            match signature.get() {
                Some(signature) => item["encrypted_content"] = format!("{ANTHROPIC_MARK}{signature}").into(),
                // A signature may follow until the thought is complete.
                None if status == "completed" => item["encrypted_content"] = unsigned(head.upstream).into(),
                None => {}
            }
            item
        }
        ContentBlock::ToolUse { id, name, input } => {
            // A call in progress shows none yet.
            let arguments = if status == "completed" { arguments_text(input) } else { String::new() };
            if head.custom_tools.contains(name) {
                return json!({
                    "id": item_id(head, "ctc", at), "type": "custom_tool_call", "status": status, "call_id": id,
                    "name": name, "input": if input == "" { String::new() } else { custom_input(&arguments) },
                });
            }
            json!({
                "id": item_id(head, "fc", at), "type": "function_call", "status": status, "call_id": id, "name": name,
                "arguments": arguments,
            })
        }
        _ => Value::Null,
    }
}

fn item_id(head: &ReplyHead, prefix: &str, at: usize) -> String {
    format!("{prefix}_{}_{at}", head.id)
}

fn usage_of(usage: CallUsage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": input_details(usage),
        "output_tokens": usage.output,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning },
        "total_tokens": usage.total(),
    })
}
