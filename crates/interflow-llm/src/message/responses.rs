//! OpenAI's Responses API: JSON, stream, and WebSocket messages; also used by Azure, Copilot and the Codex backend.

use serde_json::Value;

use super::chat::{content, tool};
use super::json_access::{
    arguments, error_block, number, other_block, take_list, take_non_empty, take_string, take_value,
};
use super::{Carried, ChatMessage, ContentBlock, MessageRole, ModelReply, ModelRequest};

/// Parses a request of the Responses API. `input` is a text or a list of items; consecutive items of one role form
/// one message.
pub fn request(mut body: Value) -> ModelRequest {
    let conversation = match take_value(&mut body, "conversation") {
        Value::String(id) => Some(id),
        mut object => take_non_empty(&mut object, "id"),
    };
    let mut request = ModelRequest {
        model: take_string(&mut body, "model"),
        system: take_non_empty(&mut body, "instructions").into_iter().collect(),
        tools: take_list(&mut body, "tools").into_iter().map(tool).collect(),
        session: take_non_empty(&mut body, "prompt_cache_key").or(conversation),
        previous: take_non_empty(&mut body, "previous_response_id"),
        max_tokens: body["max_output_tokens"].as_u64(),
        stream: body["stream"].as_bool().unwrap_or_default(),
        ..ModelRequest::default()
    };
    match take_value(&mut body, "input") {
        Value::String(text) => request.messages.push(ChatMessage::text(MessageRole::User, text)),
        Value::Array(items) => items.into_iter().for_each(|item| add(&mut request, item)),
        _ => {}
    }
    request
}

fn add(request: &mut ModelRequest, mut item: Value) {
    let role = item["role"].as_str().unwrap_or_default();
    // Only leading ones: later instructions stay in the history.
    if matches!(role, "system" | "developer") && request.messages.is_empty() {
        let parts = content(take_value(&mut item, "content"));
        request.system.extend(parts.into_iter().filter_map(|b| b.as_text().map(str::to_owned)));
        return;
    }
    let (role, blocks) = entry(item);
    match request.messages.last_mut() {
        Some(last) if last.role == role => last.blocks.extend(blocks),
        _ => request.messages.push(ChatMessage { role, blocks }),
    }
}

/// An item of input or output: its role and blocks. Item types end in `_call` for what the model asks, and in
/// `_output` for the results.
fn entry(mut item: Value) -> (MessageRole, Vec<ContentBlock>) {
    let kind = take_string(&mut item, "type");
    match kind.as_str() {
        "message" | "" => {
            let role = if item["role"] == "assistant" { MessageRole::Assistant } else { MessageRole::User };
            (role, content(take_value(&mut item, "content")))
        }
        "reasoning" => {
            let mut text = String::new();
            for mut part in take_list(&mut item, "summary").into_iter().chain(take_list(&mut item, "content")) {
                if !text.is_empty() {
                    text.push_str("\n\n");
                }
                text.push_str(&take_string(&mut part, "text"));
            }
            // Only together do id and content identify it to the provider.
            let sealed = take_non_empty(&mut item, "encrypted_content")
                .map(|sealed| format!("{}:{sealed}", take_string(&mut item, "id")));
            let signature = Carried::new(sealed.unwrap_or_default());
            (MessageRole::Assistant, vec![ContentBlock::Thinking { text, signature }])
        }
        k if k.ends_with("_output") => (MessageRole::User, vec![output(item)]),
        k if k.ends_with("_call") => (MessageRole::Assistant, vec![call(k, item)]),
        k => (MessageRole::Assistant, vec![other_block(k, item)]),
    }
}

/// `function_call`, `custom_tool_call`, `local_shell_call`, and the provider's own tools.
fn call(kind: &str, mut item: Value) -> ContentBlock {
    let id = take_non_empty(&mut item, "call_id").unwrap_or_else(|| take_string(&mut item, "id"));
    let name = take_non_empty(&mut item, "name").unwrap_or_else(|| kind.trim_end_matches("_call").to_owned());
    let input = match kind {
        "function_call" => arguments(take_value(&mut item, "arguments")),
        "custom_tool_call" => take_value(&mut item, "input"),
        _ if item["action"].is_object() => take_value(&mut item, "action"),
        _ => item,
    };
    ContentBlock::ToolUse { id, name, input }
}

/// The result of a tool call, which refers to the call by `call_id`.
fn output(mut item: Value) -> ContentBlock {
    let id = take_string(&mut item, "call_id");
    let content = match take_value(&mut item, "output") {
        value @ (Value::String(_) | Value::Array(_)) => content(value),
        Value::Null => Vec::new(),
        value => vec![other_block("output", value)],
    };
    ContentBlock::ToolResult { id, name: String::new(), content, is_error: item["status"] == "failed" }
}

/// Parses a whole response. An incomplete one has its reason as the stop reason.
pub fn reply(mut body: Value) -> ModelReply {
    let status = take_string(&mut body, "status");
    let failed = body.get("error").is_some_and(|e| !e.is_null()) || status.is_empty() && body.get("output").is_none();
    let mut blocks: Vec<ContentBlock> =
        take_list(&mut body, "output").into_iter().flat_map(|item| entry(item).1).collect();
    if failed {
        blocks.extend(error_block(&body));
    }
    let why = take_non_empty(&mut take_value(&mut body, "incomplete_details"), "reason");
    ModelReply {
        id: take_non_empty(&mut body, "id"),
        model: take_non_empty(&mut body, "model"),
        blocks,
        stop: why.or(Some(status).filter(|s| !s.is_empty())),
        complete: true,
        ..ModelReply::default()
    }
}

/// Assembles a reply from the events of a stream. The last event repeats the complete response; until it comes,
/// completed and open items are kept by their output index, so that a stream that breaks off loses nothing.
#[derive(Default)]
pub struct ResponsesAccumulator {
    reply: ModelReply,
    /// Completed items with their output index.
    done: Vec<(u64, Vec<ContentBlock>)>,
    /// Open items: output index, initial value, text so far. Only the first open item of an index receives deltas.
    open: Vec<(u64, Value, String)>,
    errors: Vec<ContentBlock>,
}

impl ResponsesAccumulator {
    /// Adds an event. Returns whether it ends the reply.
    pub fn event(&mut self, mut event: Value) -> bool {
        let at = number(&event, &["output_index"]);
        let kind = take_string(&mut event, "type");
        match kind.as_str() {
            "response.created" | "response.in_progress" => {
                let mut response = take_value(&mut event, "response");
                self.reply.id = take_non_empty(&mut response, "id").or(self.reply.id.take());
                self.reply.model = take_non_empty(&mut response, "model").or(self.reply.model.take());
            }
            "response.output_item.added" => self.open.push((at, take_value(&mut event, "item"), String::new())),
            "response.output_item.done" => {
                self.open.retain(|(i, ..)| *i != at);
                self.done.push((at, entry(take_value(&mut event, "item")).1));
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.done" => {
                self.finish_with(reply(take_value(&mut event, "response")));
                return true;
            }
            "error" | "response.error" => {
                self.errors.extend(error_block(&event));
                return true;
            }
            k if k.ends_with(".delta") => {
                if let Some((.., text)) = self.open.iter_mut().find(|(i, ..)| *i == at) {
                    text.push_str(event["delta"].as_str().unwrap_or_default());
                }
            }
            _ => {}
        }
        false
    }

    /// Takes over the complete response of the last event; some backends omit its output, and then the collected
    /// items stay.
    fn finish_with(&mut self, whole: ModelReply) {
        let answered = whole.blocks.iter().any(|b| !matches!(b, ContentBlock::Error { .. }));
        if answered {
            self.done.clear();
            self.open.clear();
        }
        let before = std::mem::replace(&mut self.reply, whole);
        self.reply.id = self.reply.id.take().or(before.id);
        self.reply.model = self.reply.model.take().or(before.model);
    }

    pub fn end(mut self) -> ModelReply {
        let open = self.open.into_iter().map(|(i, item, text)| (i, partial_blocks(item, text)));
        self.done.extend(open);
        self.done.sort_by_key(|(i, _)| *i);
        let mut blocks: Vec<ContentBlock> = self.done.into_iter().flat_map(|(_, blocks)| blocks).collect();
        blocks.append(&mut self.reply.blocks);
        blocks.append(&mut self.errors);
        self.reply.blocks = blocks;
        self.reply
    }
}

/// The blocks of an item left open by a truncated stream.
fn partial_blocks(mut item: Value, text: String) -> Vec<ContentBlock> {
    match item["type"].as_str() {
        Some("function_call") => {
            let id = take_non_empty(&mut item, "call_id").unwrap_or_else(|| take_string(&mut item, "id"));
            let (name, input) = (take_string(&mut item, "name"), arguments(Value::String(text)));
            vec![ContentBlock::ToolUse { id, name, input }]
        }
        Some("reasoning") => vec![ContentBlock::thinking(text)],
        Some("message") if !text.is_empty() => vec![ContentBlock::Text { text }],
        _ => Vec::new(),
    }
}
