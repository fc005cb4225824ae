//! OpenAI's Responses API: JSON, stream, and the messages of its WebSocket; Azure, Copilot and the Codex backend speak it too.

use serde_json::Value;

use super::chat::{content, tool};
use super::read::{arguments, error, list, number, other, some, string, take};
use super::{Block, Message, Reply, Request, Role};

pub fn request(mut body: Value) -> Request {
    let conversation = match take(&mut body, "conversation") {
        Value::String(id) => Some(id),
        mut object => some(&mut object, "id"),
    };
    let mut request = Request {
        model: string(&mut body, "model"),
        system: some(&mut body, "instructions").into_iter().collect(),
        tools: list(&mut body, "tools").into_iter().map(tool).collect(),
        session: some(&mut body, "prompt_cache_key").or(conversation),
        previous: some(&mut body, "previous_response_id"),
        max_tokens: body["max_output_tokens"].as_u64(),
        stream: body["stream"].as_bool().unwrap_or_default(),
        ..Request::default()
    };
    match take(&mut body, "input") {
        Value::String(text) => request.messages.push(Message::text(Role::User, text)),
        Value::Array(items) => items.into_iter().for_each(|item| add(&mut request, item)),
        _ => {}
    }
    request
}

fn add(request: &mut Request, mut item: Value) {
    let role = item["role"].as_str().unwrap_or_default();
    if matches!(role, "system" | "developer") && request.messages.is_empty() {
        let parts = content(take(&mut item, "content"));
        request.system.extend(parts.into_iter().filter_map(|b| b.as_text().map(str::to_owned)));
        return;
    }
    let (role, blocks) = entry(item);
    match request.messages.last_mut() {
        Some(last) if last.role == role => last.blocks.extend(blocks),
        _ => request.messages.push(Message { role, blocks }),
    }
}

/// An item of input or output: who says it, and what.
fn entry(mut item: Value) -> (Role, Vec<Block>) {
    let kind = string(&mut item, "type");
    match kind.as_str() {
        "message" | "" => {
            let role = if item["role"] == "assistant" { Role::Assistant } else { Role::User };
            (role, content(take(&mut item, "content")))
        }
        "reasoning" => {
            let mut text = String::new();
            for mut part in list(&mut item, "summary").into_iter().chain(list(&mut item, "content")) {
                if !text.is_empty() {
                    text.push_str("\n\n");
                }
                text.push_str(&string(&mut part, "text"));
            }
            (Role::Assistant, vec![Block::Thinking { text }])
        }
        k if k.ends_with("_output") => (Role::User, vec![output(item)]),
        k if k.ends_with("_call") => (Role::Assistant, vec![call(k, item)]),
        k => (Role::Assistant, vec![other(k, item)]),
    }
}

/// `function_call`, `custom_tool_call`, `local_shell_call`, and the provider's own tools.
fn call(kind: &str, mut item: Value) -> Block {
    let id = some(&mut item, "call_id").unwrap_or_else(|| string(&mut item, "id"));
    let name = some(&mut item, "name").unwrap_or_else(|| kind.trim_end_matches("_call").to_owned());
    let input = match kind {
        "function_call" => arguments(take(&mut item, "arguments")),
        "custom_tool_call" => take(&mut item, "input"),
        _ if item["action"].is_object() => take(&mut item, "action"),
        _ => item,
    };
    Block::ToolUse { id, name, input }
}

fn output(mut item: Value) -> Block {
    let id = string(&mut item, "call_id");
    let content = match take(&mut item, "output") {
        value @ (Value::String(_) | Value::Array(_)) => content(value),
        Value::Null => Vec::new(),
        value => vec![other("output", value)],
    };
    Block::ToolResult { id, name: String::new(), content, is_error: item["status"] == "failed" }
}

pub fn reply(mut body: Value) -> Reply {
    let status = string(&mut body, "status");
    let failed = body.get("error").is_some_and(|e| !e.is_null()) || status.is_empty() && body.get("output").is_none();
    let mut blocks: Vec<Block> = list(&mut body, "output").into_iter().flat_map(|item| entry(item).1).collect();
    if failed {
        blocks.extend(error(&body));
    }
    let why = some(&mut take(&mut body, "incomplete_details"), "reason");
    Reply {
        id: some(&mut body, "id"),
        model: some(&mut body, "model"),
        blocks,
        stop: why.or(Some(status).filter(|s| !s.is_empty())),
        usage: None,
        cost: None,
        complete: true,
    }
}

/// Puts an answer together from its events.
#[derive(Default)]
pub struct Stream {
    reply: Reply,
    /// Items that are done, by their place in the output.
    done: Vec<(u64, Vec<Block>)>,
    /// Items under way: place, what began it, its text so far.
    open: Vec<(u64, Value, String)>,
    errors: Vec<Block>,
}

impl Stream {
    /// True when the answer has come to its end.
    pub fn event(&mut self, mut event: Value) -> bool {
        let at = number(&event, &["output_index"]);
        let kind = string(&mut event, "type");
        match kind.as_str() {
            "response.created" | "response.in_progress" => {
                let mut response = take(&mut event, "response");
                self.reply.id = some(&mut response, "id").or(self.reply.id.take());
                self.reply.model = some(&mut response, "model").or(self.reply.model.take());
            }
            "response.output_item.added" => self.open.push((at, take(&mut event, "item"), String::new())),
            "response.output_item.done" => {
                self.open.retain(|(i, ..)| *i != at);
                self.done.push((at, entry(take(&mut event, "item")).1));
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.done" => {
                self.last(reply(take(&mut event, "response")));
                return true;
            }
            "error" | "response.error" => {
                self.errors.extend(error(&event));
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

    /// The whole answer as its last event has it; some backends leave the output out there.
    fn last(&mut self, whole: Reply) {
        let answered = whole.blocks.iter().any(|b| !matches!(b, Block::Error { .. }));
        if answered {
            self.done.clear();
            self.open.clear();
        }
        let before = std::mem::replace(&mut self.reply, whole);
        self.reply.id = self.reply.id.take().or(before.id);
        self.reply.model = self.reply.model.take().or(before.model);
    }

    pub fn end(mut self) -> Reply {
        let open = self.open.into_iter().map(|(i, item, text)| (i, begun(item, text)));
        self.done.extend(open);
        self.done.sort_by_key(|(i, _)| *i);
        let mut blocks: Vec<Block> = self.done.into_iter().flat_map(|(_, blocks)| blocks).collect();
        blocks.append(&mut self.reply.blocks);
        blocks.append(&mut self.errors);
        self.reply.blocks = blocks;
        self.reply
    }
}

/// An item that a cut stream left open.
fn begun(mut item: Value, text: String) -> Vec<Block> {
    match item["type"].as_str() {
        Some("function_call") => {
            let id = some(&mut item, "call_id").unwrap_or_else(|| string(&mut item, "id"));
            vec![Block::ToolUse { id, name: string(&mut item, "name"), input: arguments(Value::String(text)) }]
        }
        Some("reasoning") => vec![Block::Thinking { text }],
        Some("message") if !text.is_empty() => vec![Block::Text { text }],
        _ => Vec::new(),
    }
}
