//! Replies in blocks, as the APIs write them whose replies are blocks, too: events and messages of Anthropic's API become
//! those of Gemini, of Google's Interactions and of Bedrock's Converse, by the forms in `data/reply_forms.json`.

use std::sync::LazyLock;

use interflow_codec::aws_event_stream::{self, HeaderValue};
use interflow_types::{ByteStr, CallUsage, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Members, ReplyHead, sse_event};
use crate::error_body::exception_event;
use crate::event_stream::StreamFraming;
use crate::message::{REDACTED, arguments, number, take_list};
use crate::translate::call_signature::NO_SIGNATURE;
use crate::translate::foreign_reasoning::sealed;
use crate::translate::{TranslatedError, WireFormat};

/// By the client's format: what its parts and events are made of. `$name` stands for a value, and what has none is left out.
static FORMS: LazyLock<Value> = LazyLock::new(|| crate::built_in(include_str!("../../../data/reply_forms.json")));

/// The type of an event that adds to a block.
pub const DELTA: &str = "content_block_delta";

#[derive(Serialize)]
struct Delta<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    index: usize,
    delta: Members<'a>,
}

/// The form of a client's reply, and what its events depend on.
#[derive(Debug, Default)]
pub struct Spelling {
    client: WireFormat,
    grows: bool,
    created: Timestamp,
    /// What the first event says of the message.
    message: Value,
    /// Calls with the arguments so far, for Gemini, which sends calls as a whole.
    calls: Vec<(u64, Value, String)>,
    /// The pages that Gemini's answer is grounded on.
    chunks: Vec<Value>,
    has_call: bool,
    is_begun: bool,
    pub usage: CallUsage,
}

impl Spelling {
    pub fn new(client: WireFormat, head: &ReplyHead) -> Self {
        Self { client, grows: head.grows, created: head.created, ..Self::default() }
    }

    pub const fn framing(&self) -> StreamFraming {
        self.client.framing(self.grows)
    }

    /// Writes an event of Anthropic's API for the client.
    pub fn event(&mut self, event: &Value, out: &mut Vec<u8>) {
        let kind = event["type"].as_str().unwrap_or_default();
        if self.client == WireFormat::Anthropic {
            return sse_event(kind, event, out);
        }
        let (index, block) = (number(event, &["index"]), &event["content_block"]);
        let at = self.calls.iter().position(|(call, ..)| *call == index);
        match kind {
            "message_start" => self.message = event["message"].clone(),
            "content_block_start" => {
                if self.client == WireFormat::Gemini && block["type"] == "tool_use" {
                    self.calls.push((index, block.clone(), String::new()));
                }
                self.write(kind, index, &part(self.client, "starts", block), out);
                // One that is not disclosed comes at once, but where it has deltas.
                let part =
                    if block["type"] == "redacted_thinking" { part(self.client, "deltas", block) } else { Value::Null };
                return self.write(DELTA, index, &part, out);
            }
            DELTA => {
                let delta = &event["delta"];
                if let (Some(at), Some(json)) = (at, delta["partial_json"].as_str()) {
                    self.calls[at].2.push_str(json);
                }
                if delta["citation"].is_object() {
                    self.chunks.push(citation(self.client, &delta["citation"]));
                }
                return self.write(kind, index, &part(self.client, "deltas", delta), out);
            }
            "content_block_stop" if self.client == WireFormat::Gemini => {
                let Some((_, mut call, text)) = at.map(|at| self.calls.remove(at)) else { return };
                call["input"] = arguments(text.into());
                let part = self.call("deltas", call);
                return self.write(DELTA, index, &part, out);
            }
            "message_delta" => self.message["stop_reason"] = event["delta"]["stop_reason"].clone(),
            _ => {}
        }
        self.write(kind, index, &json!({}), out);
        let is_last = kind == if self.client == WireFormat::Gemini { "message_delta" } else { "message_stop" };
        match self.client {
            WireFormat::Interactions if is_last => out.extend_from_slice(b"event: done\ndata: [DONE]\n\n"),
            _ if is_last && self.framing() == StreamFraming::Array => out.push(b']'),
            _ => {}
        }
    }

    /// Writes a delta of Anthropic's API for the client. Most events are deltas: they are written without a tree.
    pub fn delta(&mut self, index: usize, delta: &[(&'static str, &str)], out: &mut Vec<u8>) {
        let event = Delta { kind: DELTA, index, delta: Members(delta) };
        match self.client {
            WireFormat::Anthropic => sse_event(DELTA, &event, out),
            _ => self.event(&json!(event), out),
        }
    }

    /// A message of Anthropic's API as a whole reply.
    pub fn whole(&mut self, mut message: Value) -> Value {
        if self.client == WireFormat::Anthropic {
            return message;
        }
        let blocks = take_list(&mut message, "content");
        self.message = message;
        let mut parts = Vec::new();
        for block in blocks {
            for page in block["citations"].as_array().into_iter().flatten() {
                let page = citation(self.client, page);
                if !self.chunks.contains(&page) {
                    self.chunks.push(page);
                }
            }
            parts.push(if block["type"] == "tool_use" {
                self.call("parts", block)
            } else {
                part(self.client, "parts", &block)
            });
        }
        let mut from = self.values();
        from["parts"] = parts.into();
        fill(&form(self.client)["whole"], &from)
    }

    /// The last event of a stream that failed.
    pub fn error(&mut self, error: &TranslatedError, out: &mut Vec<u8>) {
        let body = error.body(self.client, "");
        match self.client {
            WireFormat::Interactions => out.extend_from_slice(error.event(self.client, 0).as_bytes()),
            WireFormat::Gemini => self.frame(&body, out),
            _ => out.extend(exception_event(&error.message)),
        }
        if self.framing() == StreamFraming::Array {
            out.push(b']');
        }
    }

    /// A call. The first one has the signature that Gemini demands, should the history get there.
    fn call(&mut self, forms: &str, mut call: Value) -> Value {
        if !std::mem::replace(&mut self.has_call, true) {
            call["mark"] = NO_SIGNATURE.into();
        }
        part(self.client, forms, &call)
    }

    /// What events and whole replies say of the message.
    fn values(&self) -> Value {
        let created =
            i64::try_from(self.created.micros()).ok().and_then(|at| jiff::Timestamp::from_microsecond(at).ok());
        let CallUsage { input, output, reasoning, cache_read, cache_write, .. } = self.usage;
        let usage = json!({
            "input": input, "output": output, "reasoning": reasoning, "cache_read": cache_read, "cache_write": cache_write,
            "total": self.usage.total(), "spoken": output.saturating_sub(reasoning),
            "uncached": input.saturating_sub(cache_read.saturating_add(cache_write)),
        });
        let grounding = json!({ "chunks": Some(&self.chunks).filter(|chunks| !chunks.is_empty()) });
        let reason = self.message["stop_reason"].as_str().unwrap_or_default();
        let form = form(self.client);
        json!({
            "id": self.message["id"], "model": self.message["model"], "created": format!("{:.6}", created.unwrap_or_default()),
            "latency": Timestamp::now().micros().saturating_sub(self.created.micros()) / 1_000,
            "reason": form["reasons"][reason], "usage": fill(&form["usage"], &usage),
            "grounding": Some(fill(&form["grounding"], &grounding)).filter(|g| g["groundingChunks"].is_array()),
            "end": form["deltas"]["end"],
        })
    }

    /// Writes an event with this part, if the client gets any.
    fn write(&mut self, kind: &str, index: u64, part: &Value, out: &mut Vec<u8>) {
        if !part.is_null() {
            // Most events are deltas, which say nothing else of the message.
            let mut from = match kind.starts_with("content_block") {
                true => json!({ "id": self.message["id"], "model": self.message["model"] }),
                false => self.values(),
            };
            (from["index"], from["part"]) = (index.into(), part.clone());
            let event = fill(&form(self.client)["events"][kind], &from);
            self.frame(&event, out);
        }
    }

    fn frame(&mut self, event: &Value, out: &mut Vec<u8>) {
        let Some((name, payload)) = event.as_object().and_then(|members| members.iter().next()) else { return };
        match self.framing() {
            StreamFraming::EventStream => {
                let headers =
                    [(":event-type", name.as_str()), (":content-type", "application/json"), (":message-type", "event")];
                let headers =
                    headers.map(|(name, text)| (ByteStr::from(name), HeaderValue::String(ByteStr::from(text))));
                // Fails only if names or values are too long for their fields.
                let _ = aws_event_stream::write_message(out, &headers, payload.to_string().as_bytes());
            }
            StreamFraming::Array => {
                let separator = if std::mem::replace(&mut self.is_begun, true) { ",\r\n" } else { "[" };
                out.extend_from_slice(format!("{separator}{event}").as_bytes());
            }
            _ if self.client == WireFormat::Gemini => sse_event("", event, out),
            _ => sse_event(payload.as_str().unwrap_or_default(), event, out),
        }
    }
}

fn form(client: WireFormat) -> &'static Value {
    &FORMS[client.as_str()]
}

/// A citation of Anthropic's API.
fn citation(client: WireFormat, location: &Value) -> Value {
    fill(&form(client)["citation"][location["type"].as_str().unwrap_or_default()], location)
}

/// A block, or what a delta adds to one; null if the client gets nothing for it.
pub fn part(client: WireFormat, forms: &str, block: &Value) -> Value {
    let mut from = block.clone();
    if client != WireFormat::Bedrock {
        let hidden = block["data"].as_str().map(|data| sealed(&format!("{REDACTED}{data}")));
        let signature = hidden.or_else(|| block["signature"].as_str().filter(|s| !s.is_empty()).map(sealed));
        from["signature"] = signature.into();
    }
    let pages = match (&block["citation"], &block["citations"]) {
        (Value::Null, pages) => {
            pages.as_array().map(|pages| pages.iter().map(|page| citation(client, page)).collect::<Vec<_>>())
        }
        (page, _) => Some(vec![citation(client, page)]),
    };
    from["citation"] = pages.as_ref().and_then(|pages| pages.first()).cloned().unwrap_or_default();
    from["citations"] = pages.into();
    let forms = &form(client)[forms];
    let cited = forms.get("cited").filter(|_| block["citations"].is_array());
    fill(cited.unwrap_or(&forms[block["type"].as_str().unwrap_or_default()]), &from)
}

/// A form with these values; null if there is no such form.
fn fill(form: &Value, from: &Value) -> Value {
    match form {
        Value::String(name) if name.starts_with('$') => from[&name[1..]].clone(),
        Value::Array(all) => all.iter().map(|inner| fill(inner, from)).collect(),
        Value::Object(members) => {
            let filled = members.iter().map(|(name, inner)| (name.clone(), fill(inner, from)));
            Value::Object(filled.filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}
