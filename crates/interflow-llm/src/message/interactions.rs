//! Google's Interactions API: JSON, and its stream of steps.

use serde_json::Value;

use super::chat::{content, tool};
use super::gemini::joined;
use super::json_access::{
    arguments, attachment_block, base64_attachment, error_block, number, other_block, take_list, take_non_empty,
    take_string, take_value,
};
use super::{Attachment, Carried, ChatMessage, ContentBlock, MessageRole, ModelReply, ModelRequest};

/// Parses a request. `input` is a text, one part, or a list of parts or steps.
pub fn request(mut body: Value) -> ModelRequest {
    let input = match take_value(&mut body, "input") {
        Value::Array(items) => items,
        Value::Null => Vec::new(),
        one => vec![one],
    };
    let messages = input.into_iter().map(step).map(|(role, blocks)| ChatMessage { role, blocks });
    ModelRequest {
        model: take_non_empty(&mut body, "model").unwrap_or_else(|| take_string(&mut body, "agent")),
        system: take_non_empty(&mut body, "system_instruction").into_iter().collect(),
        tools: take_list(&mut body, "tools").into_iter().map(tool).collect(),
        messages: messages.fold(Vec::new(), joined_steps),
        previous: take_non_empty(&mut body, "previous_interaction_id"),
        max_tokens: body["generation_config"]["max_output_tokens"].as_u64(),
        stream: body["stream"].as_bool().unwrap_or_default(),
        ..ModelRequest::default()
    }
}

/// Steps of one role form one message.
fn joined_steps(mut all: Vec<ChatMessage>, message: ChatMessage) -> Vec<ChatMessage> {
    match all.last_mut() {
        Some(last) if last.role == MessageRole::User && message.role == MessageRole::User => {
            last.blocks.extend(message.blocks);
            all
        }
        _ => joined(all, message),
    }
}

/// A step, or a part of the input. Calls of tools end in `_call`, and their results in `_result`.
fn step(mut step: Value) -> (MessageRole, Vec<ContentBlock>) {
    let kind = step["type"].as_str().unwrap_or_default().to_owned();
    match kind.as_str() {
        "user_input" => (MessageRole::User, parts(&mut step, "content")),
        "model_output" => (MessageRole::Assistant, parts(&mut step, "content")),
        "thought" => {
            let summary = take_list(&mut step, "summary").into_iter().map(|mut part| take_string(&mut part, "text"));
            let text = summary.collect::<Vec<_>>().join("\n\n");
            let signature = Carried::new(take_string(&mut step, "signature"));
            (MessageRole::Assistant, vec![ContentBlock::Thinking { text, signature }])
        }
        k if k.ends_with("_call") => {
            let id = take_string(&mut step, "id");
            let name = take_non_empty(&mut step, "name").unwrap_or_else(|| k.trim_end_matches("_call").to_owned());
            let input = arguments(take_value(&mut step, "arguments"));
            (MessageRole::Assistant, vec![ContentBlock::ToolUse { id, name, input }])
        }
        k if k.ends_with("_result") => {
            let (id, name) = (take_string(&mut step, "call_id"), take_string(&mut step, "name"));
            let is_error = step["is_error"] == true;
            let content = match step["result"] {
                Value::Object(_) => vec![other_block("result", take_value(&mut step, "result"))],
                _ => parts(&mut step, "result"),
            };
            (MessageRole::User, vec![ContentBlock::ToolResult { id, name, content, is_error }])
        }
        _ => (MessageRole::User, vec![part(step)]),
    }
}

fn parts(step: &mut Value, key: &str) -> Vec<ContentBlock> {
    match take_value(step, key) {
        Value::Array(parts) => parts.into_iter().map(part).collect(),
        text => content(text),
    }
}

fn part(mut part: Value) -> ContentBlock {
    let is_file = matches!(part["type"].as_str(), Some("image" | "audio" | "video" | "document"));
    if !is_file {
        return content(Value::Array(vec![part])).pop().unwrap_or_else(|| ContentBlock::text(""));
    }
    let media_type = take_string(&mut part, "mime_type");
    attachment_block(match take_non_empty(&mut part, "data") {
        Some(data) => base64_attachment(media_type, data),
        None => Attachment { media_type, url: take_string(&mut part, "uri"), ..Attachment::default() },
    })
}

/// Parses a whole interaction. One that runs in the background has no steps yet.
pub fn reply(mut body: Value) -> ModelReply {
    let status = take_non_empty(&mut body, "status");
    let steps = take_list(&mut body, "steps").into_iter().map(step);
    let mut blocks: Vec<_> =
        steps.filter(|(role, _)| *role == MessageRole::Assistant).flat_map(|(_, blocks)| blocks).collect();
    if body["error"].is_object() || status.is_none() {
        blocks.extend(error_block(&body));
    }
    let (id, model) = (take_non_empty(&mut body, "id"), take_non_empty(&mut body, "model"));
    ModelReply { id, model, blocks, stop: status, complete: true, ..ModelReply::default() }
}

/// Assembles a reply from the events of a stream. The last one need not repeat the steps.
#[derive(Default)]
pub struct InteractionsAccumulator {
    reply: ModelReply,
    /// Steps by their index, with the texts that their deltas added: to the content, or to the arguments of a call.
    steps: Vec<(u64, Value, String)>,
}

impl InteractionsAccumulator {
    pub fn event(&mut self, mut event: Value) {
        let at = number(&event, &["index"]);
        match event["event_type"].as_str().unwrap_or_default() {
            "step.start" => self.steps.push((at, take_value(&mut event, "step"), String::new())),
            "step.delta" => {
                let Some((_, step, text)) = self.steps.iter_mut().rfind(|(index, ..)| *index == at) else { return };
                let delta = take_value(&mut event, "delta");
                let own = ["text", "arguments"].into_iter().find_map(|name| delta[name].as_str());
                match own.or(delta["content"]["text"].as_str()) {
                    Some(more) => text.push_str(more),
                    // Media.
                    None if step["type"] == "model_output" && delta["data"].is_string() => {
                        let mut parts = take_list(step, "content");
                        parts.push(delta);
                        step["content"] = parts.into();
                    }
                    None => {}
                }
            }
            "error" => self.reply.blocks.extend(error_block(&event)),
            _ => {
                let mut whole = take_value(&mut event, "interaction");
                if let Some(steps) = whole["steps"].as_array().filter(|steps| !steps.is_empty()) {
                    self.steps = steps.iter().map(|step| (0, step.clone(), String::new())).collect();
                }
                self.reply.id = take_non_empty(&mut whole, "id").or(self.reply.id.take());
                self.reply.model = take_non_empty(&mut whole, "model").or(self.reply.model.take());
                let status = whole["status"].as_str().or(event["status"].as_str()).map(str::to_owned);
                self.reply.complete |= status.as_deref().is_some_and(|s| !matches!(s, "in_progress" | "queued"));
                self.reply.stop = status.or(self.reply.stop.take());
            }
        }
    }

    pub fn end(mut self) -> ModelReply {
        let steps = std::mem::take(&mut self.steps).into_iter().map(|(_, step, text)| finished(step, text));
        let of_model = steps.filter(|(role, _)| *role == MessageRole::Assistant).flat_map(|(_, blocks)| blocks);
        self.reply.blocks = of_model.chain(std::mem::take(&mut self.reply.blocks)).collect();
        self.reply
    }
}

/// A step with the text that its deltas added.
fn finished(mut whole: Value, text: String) -> (MessageRole, Vec<ContentBlock>) {
    let kind = whole["type"].as_str().unwrap_or_default().to_owned();
    if !text.is_empty() && kind.ends_with("_call") {
        whole["arguments"] = text.into();
        return step(whole);
    }
    let (role, mut blocks) = step(whole);
    match (&kind[..], blocks.last_mut()) {
        (_, Some(ContentBlock::Thinking { text: before, .. } | ContentBlock::Text { text: before })) => {
            before.push_str(&text);
        }
        _ if !text.is_empty() => blocks.push(ContentBlock::Text { text }),
        _ => {}
    }
    (role, blocks)
}
