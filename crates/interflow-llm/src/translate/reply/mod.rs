//! Writes replies for clients: as a stream, event by event, or as a whole.

mod anthropic;
mod chat;
mod responses;
mod spelling;

pub(super) use spelling::part;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::call_signature::completed_id;
use super::unread::CITATIONS;
use super::{ChatEvent, LOSS_HEADER, StopReason, TranslatedError, WireFormat};
use crate::event_stream::StreamFraming;
use crate::message::{ContentBlock, ModelReply};
use interflow_types::{CallUsage, Timestamp};

/// What a reply says about itself, where the upstream says nothing.
#[derive(Clone, Debug, Default)]
pub struct ReplyHead {
    /// Unique: ids of replies and tool calls are made of it if the upstream has none.
    pub id: String,
    /// The model as the client named it.
    pub model: String,
    pub created: Timestamp,
    /// Whether a stream of Gemini is a growing array.
    pub grows: bool,
    /// Whether a Chat client asked for usage at the end of a stream.
    pub stream_usage: bool,
    /// The names of the client's custom tools, whose input is a text: upstreams have them as functions.
    pub custom_tools: Vec<String>,
    /// The format of the upstream: it stands in place of the signature of thoughts that have none.
    pub upstream: WireFormat,
}

/// Writes the stream of one client.
#[derive(Debug)]
pub struct ReplyWriter {
    client: WireFormat,
    writer: Writer,
    usage: CallUsage,
    ended: bool,
    /// What was already named as lost.
    lost: Vec<&'static str>,
}

#[derive(Debug)]
enum Writer {
    /// Of Anthropic's API, and of others whose replies are blocks.
    Blocks(anthropic::AnthropicWriter),
    Chat(chat::ChatWriter),
    Responses(responses::ResponsesWriter),
}

impl ReplyWriter {
    /// `client` is one of the formats that clients speak; any other is answered as Chat Completions.
    pub fn new(client: WireFormat, head: ReplyHead) -> Self {
        let writer = match client {
            WireFormat::OpenAiResponses => Writer::Responses(responses::ResponsesWriter::new(head)),
            client if client.returns_thoughts() => Writer::Blocks(anthropic::AnthropicWriter::new(client, head)),
            _ => Writer::Chat(chat::ChatWriter::new(head)),
        };
        Self { client, writer, usage: CallUsage::default(), ended: false, lost: Vec::new() }
    }

    /// The framing of what is written.
    pub fn framing(&self) -> StreamFraming {
        match &self.writer {
            Writer::Blocks(w) => w.framing(),
            Writer::Chat(_) | Writer::Responses(_) => StreamFraming::Sse,
        }
    }

    /// Usage so far.
    pub const fn usage(&self) -> CallUsage {
        self.usage
    }

    /// Whether the stream is complete, by its end or an error.
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Appends what the client gets for an event.
    pub fn write(&mut self, event: ChatEvent, out: &mut Vec<u8>) {
        if self.ended {
            return;
        }
        match event {
            ChatEvent::Usage(usage) => self.usage = self.usage.max(usage),
            ChatEvent::Loss(name) => self.name_loss(name, out),
            ChatEvent::Citation(page) if !page.is_carried_to(self.client) => self.name_loss(CITATIONS, out),
            ChatEvent::Error { kind, message } => self.fail(&TranslatedError { status: 502, kind, message }, out),
            ChatEvent::Done => {
                self.ended = true;
                match &mut self.writer {
                    Writer::Blocks(w) => w.end(self.usage, out),
                    Writer::Chat(w) => w.end(self.usage, out),
                    Writer::Responses(w) => w.end(self.usage, out),
                }
            }
            event => match &mut self.writer {
                Writer::Blocks(w) => w.write(event, out),
                Writer::Chat(w) => w.write(event, out),
                Writer::Responses(w) => {
                    if !w.write(event, out) {
                        let message = "the reply is too long for the Responses API, whose last event repeats it".into();
                        self.fail(&TranslatedError { status: 502, kind: "response_too_large".into(), message }, out);
                    }
                }
            },
        }
    }

    /// Names a loss in a comment, which clients skip, and which only server-sent events have: the header of the response
    /// is already sent.
    fn name_loss(&mut self, name: &'static str, out: &mut Vec<u8>) {
        if !self.lost.contains(&name) && self.framing() == StreamFraming::Sse {
            self.lost.push(name);
            out.extend_from_slice(format!(": {LOSS_HEADER}: {name}\n\n").as_bytes());
        }
    }

    /// Appends what keeps a connection alive and means nothing: Anthropic's event for it, or a comment.
    pub fn ping(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.client {
            _ if self.ended || self.framing() != StreamFraming::Sse => b"",
            WireFormat::Anthropic => b"event: ping\ndata: {\"type\":\"ping\"}\n\n",
            _ => b": ping\n\n",
        });
    }

    /// Ends the stream with an error.
    pub fn fail(&mut self, error: &TranslatedError, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.ended, true) {
            let sequence = match &mut self.writer {
                Writer::Blocks(w) if self.client != WireFormat::Anthropic => return w.fail(error, out),
                Writer::Responses(w) => w.sequence(),
                _ => 0,
            };
            out.extend_from_slice(error.event(self.client, sequence).as_bytes());
        }
    }
}

/// Appends a server-sent event of this name, if it has one.
fn sse_event(name: &str, data: &impl Serialize, out: &mut Vec<u8>) {
    if !name.is_empty() {
        out.extend_from_slice([b"event: ", name.as_bytes(), b"\n"].concat().as_slice());
    }
    out.extend_from_slice(b"data: ");
    // It has no maps with keys of other types, and memory does not fail.
    let _ = serde_json::to_writer(&mut *out, data);
    out.extend_from_slice(b"\n\n");
}

/// An object whose members are texts, in their order.
struct Members<'a>(&'a [(&'static str, &'a str)]);

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// The whole body of a reply for a client.
pub fn whole_reply(client: WireFormat, head: &ReplyHead, reply: &ModelReply) -> Value {
    let mut reply = reply.clone();
    let mut calls = 0;
    for block in &mut reply.blocks {
        if let ContentBlock::ToolUse { id, .. } = block {
            *id = completed_id(std::mem::take(id), || call_id(&head.id, calls));
            calls += 1;
        }
    }
    let reason = match reply.stop.as_deref().map(StopReason::from_name) {
        Some(StopReason::EndTurn) | None if calls > 0 => StopReason::ToolUse,
        reason => reason.unwrap_or(StopReason::EndTurn),
    };
    match client {
        WireFormat::OpenAiResponses => responses::whole(head, &reply, &reason),
        client if client.returns_thoughts() => anthropic::whole(client, head, &reply, &reason),
        _ => chat::whole(head, &reply, &reason),
    }
}

/// The cached part of the input, in OpenAI's form. Most caches count no writes.
fn input_details(usage: CallUsage) -> Value {
    let mut details = serde_json::json!({ "cached_tokens": usage.cache_read });
    if usage.cache_write > 0 {
        details["cache_write_tokens"] = usage.cache_write.into();
    }
    details
}

/// The arguments of a call that has none.
pub(super) const NO_ARGUMENTS: &str = "{}";

/// The arguments of a call as JSON, in OpenAI's form. A string holds JSON that could not be read, or not yet.
pub(super) fn arguments_text(input: &Value) -> String {
    match input {
        Value::Null => NO_ARGUMENTS.to_owned(),
        Value::String(text) if text.trim().is_empty() => NO_ARGUMENTS.to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The input of a custom tool, from the arguments of the function in its place.
fn custom_input(arguments: &str) -> String {
    match interflow_codec::json::parse::<Value>(arguments.as_bytes()) {
        Ok(Value::Object(members)) if members.is_empty() => String::new(),
        Ok(value) => value["input"].as_str().unwrap_or(arguments).to_owned(),
        Err(_) => arguments.to_owned(),
    }
}

/// The id of a tool call that the upstream gave none.
fn call_id(reply: &str, index: usize) -> String {
    format!("call_{reply}_{index}")
}

/// The upstream's id, with the prefix of the client's API in front.
fn reply_id(prefix: &str, id: Option<&str>, head: &ReplyHead) -> String {
    let id = id.filter(|id| !id.is_empty()).unwrap_or(&head.id);
    if id.starts_with(prefix) { id.to_owned() } else { format!("{prefix}{id}") }
}
