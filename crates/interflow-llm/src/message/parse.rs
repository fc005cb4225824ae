//! Reading requests and answers of every shape.

use serde_json::Value;

use super::events::{Event, events};
use crate::{Settled, usage};

use super::{Block, Reply, Request, Shape, anthropic, chat, converse, gemini, ollama, responses};

/// Reads a request. `path` is asked for the model where the shape names it there.
pub fn request(shape: Shape, path: &str, body: Value) -> Request {
    let mut request = match shape {
        Shape::Anthropic => anthropic::request(body),
        Shape::Chat => chat::request(body),
        Shape::Responses => responses::request(body),
        Shape::Gemini => gemini::request(body),
        Shape::Converse => converse::request(body),
        Shape::Ollama => ollama::request(body),
    };
    let lower = path.to_ascii_lowercase();
    request.stream |= lower.contains("stream");
    if request.model.is_empty() {
        request.model = model_of(path).unwrap_or_default();
    }
    request
}

/// `/model/ID/invoke`, `/models/ID:generateContent`, `/deployments/ID/chat/completions`.
fn model_of(path: &str) -> Option<String> {
    let path = path.split('?').next()?;
    let rest = ["/model/", "/models/", "/deployments/"].iter().find_map(|mark| path.split_once(mark))?.1;
    let name = rest.split('/').next()?;
    // An id of Bedrock may hold colons itself, written plainly or as %3A; a method follows the last one.
    let name = match name.rsplit_once(':') {
        Some((name, method)) if method.to_ascii_lowercase().contains("generate") || method.ends_with("redict") => name,
        _ => name,
    };
    let name = name.replace("%3A", ":").replace("%3a", ":").replace("%2F", "/");
    (!name.is_empty()).then_some(name)
}

/// Reads an answer: JSON, or a stream as far as it came. What is neither is an error's text when the status says so.
pub fn reply(shape: Shape, media_type: &str, status: u16, body: &[u8]) -> Reply {
    let mut assembly = Assembly::new(shape);
    if events(media_type, body, &mut |event| {
        assembly.event(event);
    }) {
        return assembly.end();
    }
    let mut reply = match serde_json::from_slice::<Value>(body) {
        Ok(value) => {
            let mut settled = Settled::default();
            let parts = value.as_array().map_or(std::slice::from_ref(&value), Vec::as_slice);
            parts.iter().for_each(|part| settled.merge(&usage::of_value(part)));
            Reply { usage: settled.usage, ..whole(shape, value) }
        }
        Err(_) => unreadable(shape, body),
    };
    if status >= 400 && !reply.blocks.iter().any(|b| matches!(b, Block::Error { .. })) {
        let text = String::from_utf8_lossy(body.get(..2000.min(body.len())).unwrap_or_default()).into_owned();
        reply = Reply { blocks: vec![Block::Error { kind: String::new(), message: text }], complete: true, ..reply };
    }
    for block in &mut reply.blocks {
        if let Block::Error { kind, .. } = block
            && kind.is_empty()
        {
            *kind = status.to_string();
        }
    }
    reply
}

fn whole(shape: Shape, body: Value) -> Reply {
    match shape {
        Shape::Anthropic => anthropic::reply(body),
        Shape::Chat => chat::reply(body),
        Shape::Responses => responses::reply(body),
        Shape::Gemini => gemini::reply(body),
        Shape::Converse => converse::reply(body),
        Shape::Ollama => {
            let mut assembly = ollama::Stream::default();
            assembly.event(body);
            assembly.end()
        }
    }
}

/// A body that is no JSON: lines of JSON without their type, or half a body.
fn unreadable(shape: Shape, body: &[u8]) -> Reply {
    let mut assembly = Assembly::new(shape);
    if matches!(shape, Shape::Ollama) {
        events("application/x-ndjson", body, &mut |event| {
            assembly.event(event);
        });
    }
    assembly.end()
}

/// Puts an answer together from events, whatever its shape.
pub struct Assembly {
    stream: Stream,
    settled: Settled,
}

enum Stream {
    Anthropic(anthropic::Stream),
    Chat(chat::Stream),
    Responses(responses::Stream),
    Gemini(gemini::Stream),
    Converse(converse::Stream),
    Ollama(ollama::Stream),
}

impl Assembly {
    /// One that has seen nothing yet.
    pub fn new(shape: Shape) -> Self {
        let stream = match shape {
            Shape::Anthropic => Stream::Anthropic(anthropic::Stream::default()),
            Shape::Chat => Stream::Chat(chat::Stream::default()),
            Shape::Responses => Stream::Responses(responses::Stream::default()),
            Shape::Gemini => Stream::Gemini(gemini::Stream::default()),
            Shape::Converse => Stream::Converse(converse::Stream::default()),
            Shape::Ollama => Stream::Ollama(ollama::Stream::default()),
        };
        Self { stream, settled: Settled::default() }
    }

    /// Takes the next event; true when it says that the answer is over.
    pub fn event(&mut self, event: Event) -> bool {
        if event.done
            && let Stream::Chat(s) = &mut self.stream
        {
            s.done();
            return true;
        }
        if event.data.is_null() {
            return false;
        }
        self.settled.merge(&usage::of_value(&event.data));
        match &mut self.stream {
            Stream::Anthropic(s) => s.event(event.data),
            Stream::Chat(s) => s.event(event.data),
            Stream::Responses(s) => return s.event(event.data),
            Stream::Gemini(s) => s.event(event.data),
            Stream::Converse(s) => s.event(&event.name, event.data),
            Stream::Ollama(s) => s.event(event.data),
        }
        false
    }

    /// The answer as far as it came.
    pub fn end(self) -> Reply {
        let reply = match self.stream {
            Stream::Anthropic(s) => s.end(),
            Stream::Chat(s) => s.end(),
            Stream::Responses(s) => s.end(),
            Stream::Gemini(s) => s.end(),
            Stream::Converse(s) => s.end(),
            Stream::Ollama(s) => s.end(),
        };
        Reply { usage: self.settled.usage, ..reply }
    }
}
