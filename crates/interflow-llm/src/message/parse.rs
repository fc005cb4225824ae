//! Parses requests and replies of every API format into the canonical model. Never fails: what cannot be read is left
//! out or kept as it is.

use interflow_types::percent;
use serde_json::Value;

use super::events::{ReplyEvent, events};
use crate::{ResponseSummary, usage};

use super::{
    ApiFormat, ContentBlock, ModelReply, ModelRequest, anthropic, chat, converse, gemini, interactions, ollama,
    responses,
};

/// Parses a request. `path` provides the model where the format has it there.
pub fn request(shape: ApiFormat, path: &str, body: Value) -> ModelRequest {
    let mut request = request_with_data(shape, path, body);
    request.messages.iter_mut().flat_map(|m| &mut m.blocks).for_each(ContentBlock::drop_carried);
    request
}

/// As [`request`], with the data of attachments and the signatures of reasoning, for a translation.
pub fn request_with_data(shape: ApiFormat, path: &str, body: Value) -> ModelRequest {
    let mut request = match shape {
        ApiFormat::Anthropic => anthropic::request(body),
        ApiFormat::Chat => chat::request(body),
        ApiFormat::Responses => responses::request(body),
        ApiFormat::Gemini => gemini::request(body),
        ApiFormat::Interactions => interactions::request(body),
        ApiFormat::Converse => converse::request(body),
        ApiFormat::Ollama => ollama::request(body),
    };
    let lower = path.to_ascii_lowercase();
    request.stream |= lower.contains("stream");
    if request.model.is_empty() {
        request.model = model_in_path(path).unwrap_or_default();
    }
    request
}

/// The model in a path: `/model/ID/invoke`, `/models/ID:generateContent`, `/deployments/ID/chat/completions`.
fn model_in_path(path: &str) -> Option<String> {
    let path = path.split('?').next()?;
    let rest = ["/model/", "/models/", "/deployments/"].iter().find_map(|mark| path.split_once(mark))?.1;
    let name = rest.split('/').next()?;
    // A Bedrock id may contain colons, literal or as %3A; a method follows the last one.
    let name = match name.rsplit_once(':') {
        Some((name, method)) if method.to_ascii_lowercase().contains("generate") || method.ends_with("redict") => name,
        _ => name,
    };
    (!name.is_empty()).then(|| percent::decoded(name).into_owned())
}

/// Parses a reply: JSON, or a stream as far as received. Anything else is the text of an error if the status is one.
pub fn reply(shape: ApiFormat, media_type: &str, status: u16, body: &[u8]) -> ModelReply {
    let mut reply = reply_with_data(shape, media_type, status, body);
    reply.blocks.iter_mut().for_each(ContentBlock::drop_carried);
    reply
}

/// As [`reply`], with the signatures of reasoning, for a translation.
pub fn reply_with_data(shape: ApiFormat, media_type: &str, status: u16, body: &[u8]) -> ModelReply {
    let mut assembly = ReplyAssembly::new(shape);
    if events(media_type, body, &mut |event| {
        assembly.event(event);
    }) {
        return assembly.end();
    }
    let parsed = interflow_codec::json::parse(body);
    let mut reply = parsed.map_or_else(|_| unreadable(shape, body), |value| json_reply(shape, status, value));
    // An error that is not in the format of the API, such as a proxy's page, is shown as it came.
    if status >= 400 && !reply.blocks.iter().any(|b| matches!(b, ContentBlock::Error { .. })) {
        let message = String::from_utf8_lossy(body.get(..2000.min(body.len())).unwrap_or_default()).into_owned();
        let blocks = vec![ContentBlock::Error { kind: String::new(), message }];
        reply = ModelReply { blocks, complete: true, ..reply };
    }
    name_errors(&mut reply, status);
    reply
}

/// As [`reply_with_data`], for a reply in JSON that is parsed already.
pub fn json_reply(shape: ApiFormat, status: u16, body: Value) -> ModelReply {
    let mut settled = ResponseSummary::default();
    // A growing array that was received completely is a list of responses.
    let parts = body.as_array().map_or(std::slice::from_ref(&body), Vec::as_slice);
    parts.iter().for_each(|part| settled.merge(&usage::summary_from_value(part)));
    let mut reply = ModelReply { usage: settled.usage, ..parse_whole(shape, body) };
    name_errors(&mut reply, status);
    reply
}

/// Errors without a kind have that of the response.
fn name_errors(reply: &mut ModelReply, status: u16) {
    for block in &mut reply.blocks {
        if let ContentBlock::Error { kind, .. } = block
            && kind.is_empty()
        {
            *kind = status.to_string();
        }
    }
}

fn parse_whole(shape: ApiFormat, body: Value) -> ModelReply {
    match shape {
        ApiFormat::Anthropic => anthropic::reply(body),
        ApiFormat::Chat => chat::reply(body),
        ApiFormat::Responses => responses::reply(body),
        ApiFormat::Gemini => gemini::reply(body),
        ApiFormat::Interactions => interactions::reply(body),
        ApiFormat::Converse => converse::reply(body),
        ApiFormat::Ollama => {
            let mut assembly = ollama::OllamaAccumulator::default();
            assembly.event(body);
            assembly.end()
        }
    }
}

/// A body that is not JSON: JSON lines without their media type, or a truncated body, of which nothing can be read.
fn unreadable(shape: ApiFormat, body: &[u8]) -> ModelReply {
    let mut assembly = ReplyAssembly::new(shape);
    if matches!(shape, ApiFormat::Ollama) {
        events("application/x-ndjson", body, &mut |event| {
            assembly.event(event);
        });
    }
    assembly.end()
}

/// Assembles a reply from events of any API format.
pub struct ReplyAssembly {
    stream: ReplyAccumulator,
    settled: ResponseSummary,
}

enum ReplyAccumulator {
    Anthropic(anthropic::AnthropicAccumulator),
    Chat(chat::ChatAccumulator),
    Responses(responses::ResponsesAccumulator),
    Gemini(gemini::GeminiAccumulator),
    Interactions(interactions::InteractionsAccumulator),
    Converse(converse::ConverseAccumulator),
    Ollama(ollama::OllamaAccumulator),
}

impl ReplyAssembly {
    pub fn new(shape: ApiFormat) -> Self {
        let stream = match shape {
            ApiFormat::Anthropic => ReplyAccumulator::Anthropic(anthropic::AnthropicAccumulator::default()),
            ApiFormat::Chat => ReplyAccumulator::Chat(chat::ChatAccumulator::default()),
            ApiFormat::Responses => ReplyAccumulator::Responses(responses::ResponsesAccumulator::default()),
            ApiFormat::Gemini => ReplyAccumulator::Gemini(gemini::GeminiAccumulator::default()),
            ApiFormat::Interactions => ReplyAccumulator::Interactions(interactions::InteractionsAccumulator::default()),
            ApiFormat::Converse => ReplyAccumulator::Converse(converse::ConverseAccumulator::default()),
            ApiFormat::Ollama => ReplyAccumulator::Ollama(ollama::OllamaAccumulator::default()),
        };
        Self { stream, settled: ResponseSummary::default() }
    }

    /// Processes the next event; true if it ends the reply. Usage is collected from every event that has any.
    pub fn event(&mut self, event: ReplyEvent) -> bool {
        // The end mark of Chat Completions is not JSON.
        if event.done
            && let ReplyAccumulator::Chat(s) = &mut self.stream
        {
            s.mark_done();
            return true;
        }
        if event.data.is_null() {
            return false;
        }
        self.settled.merge(&usage::summary_from_value(&event.data));
        match &mut self.stream {
            ReplyAccumulator::Anthropic(s) => s.event(event.data),
            ReplyAccumulator::Chat(s) => s.event(event.data),
            ReplyAccumulator::Responses(s) => return s.event(event.data),
            ReplyAccumulator::Gemini(s) => s.event(event.data),
            ReplyAccumulator::Interactions(s) => s.event(event.data),
            ReplyAccumulator::Converse(s) => s.event(&event.name, event.data),
            ReplyAccumulator::Ollama(s) => s.event(event.data),
        }
        false
    }

    /// The reply as far as it was received, with the usage reported up to then.
    pub fn end(self) -> ModelReply {
        let reply = match self.stream {
            ReplyAccumulator::Anthropic(s) => s.end(),
            ReplyAccumulator::Chat(s) => s.end(),
            ReplyAccumulator::Responses(s) => s.end(),
            ReplyAccumulator::Gemini(s) => s.end(),
            ReplyAccumulator::Interactions(s) => s.end(),
            ReplyAccumulator::Converse(s) => s.end(),
            ReplyAccumulator::Ollama(s) => s.end(),
        };
        ModelReply { usage: self.settled.usage, ..reply }
    }
}
