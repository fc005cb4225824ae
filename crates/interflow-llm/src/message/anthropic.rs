//! Anthropic's Messages API, JSON and stream; Bedrock's InvokeModel and Vertex's rawPredict carry the same bodies.

use serde_json::Value;

use super::read::{arguments, error, linked, list, number, other, sent, some, string, take};
use super::{Block, Message, Reference, Reply, Request, Role, Tool};

pub fn request(mut body: Value) -> Request {
    let system = match take(&mut body, "system") {
        Value::String(s) => vec![s],
        Value::Array(parts) => parts.into_iter().map(|mut p| string(&mut p, "text")).collect(),
        _ => Vec::new(),
    };
    Request {
        model: string(&mut body, "model"),
        system,
        tools: list(&mut body, "tools").into_iter().map(tool).collect(),
        messages: list(&mut body, "messages").into_iter().map(message).collect(),
        session: session(&take(&mut body, "metadata")),
        previous: None,
        max_tokens: body["max_tokens"].as_u64(),
        stream: body["stream"].as_bool().unwrap_or_default(),
    }
}

fn tool(definition: Value) -> Tool {
    let text = |key: &str| definition[key].as_str().unwrap_or_default().to_owned();
    let name = Some(text("name")).filter(|n| !n.is_empty()).unwrap_or_else(|| text("type"));
    Tool { name, description: text("description"), definition }
}

fn message(mut message: Value) -> Message {
    let role = if message["role"] == "assistant" { Role::Assistant } else { Role::User };
    Message { role, blocks: blocks(take(&mut message, "content")) }
}

/// Content that is a string or a list of blocks.
fn blocks(content: Value) -> Vec<Block> {
    match content {
        Value::String(text) => vec![Block::Text { text }],
        Value::Array(list) => list.into_iter().map(block).collect(),
        _ => Vec::new(),
    }
}

fn block(mut b: Value) -> Block {
    let kind = string(&mut b, "type");
    match kind.as_str() {
        "text" => Block::Text { text: string(&mut b, "text") },
        "thinking" => Block::Thinking { text: string(&mut b, "thinking") },
        "redacted_thinking" => Block::Thinking { text: String::new() },
        "tool_use" | "server_tool_use" | "mcp_tool_use" => {
            Block::ToolUse { id: string(&mut b, "id"), name: string(&mut b, "name"), input: take(&mut b, "input") }
        }
        "image" => Block::Image(source(&mut b)),
        "document" => {
            let title = string(&mut b, "title");
            Block::Document(Reference { title, ..source(&mut b) })
        }
        k if k.ends_with("tool_result") => result(k, b),
        k => other(k, b),
    }
}

/// `tool_result`, and the results of the provider's own tools, whose content may be anything.
fn result(kind: &str, mut b: Value) -> Block {
    let content = match take(&mut b, "content") {
        content @ (Value::String(_) | Value::Array(_)) if kind == "tool_result" || kind == "mcp_tool_result" => {
            blocks(content)
        }
        Value::Null => Vec::new(),
        content => vec![other(kind, content)],
    };
    let is_error = b["is_error"].as_bool().unwrap_or_default();
    Block::ToolResult { id: string(&mut b, "tool_use_id"), name: String::new(), content, is_error }
}

fn source(b: &mut Value) -> Reference {
    let mut source = take(b, "source");
    let media_type = string(&mut source, "media_type");
    match source["type"].as_str() {
        Some("url") => Reference { media_type, ..linked(string(&mut source, "url")) },
        Some("file") => Reference { media_type, url: string(&mut source, "file_id"), ..Reference::default() },
        _ => sent(media_type, source["data"].as_str().unwrap_or_default()),
    }
}

/// `metadata.user_id` is a string with `session_<uuid>` in it, or an object (perhaps in JSON within the string).
fn session(metadata: &Value) -> Option<String> {
    let id = &metadata["user_id"];
    let named = |v: &Value| v["session_id"].as_str().filter(|s| !s.is_empty()).map(str::to_owned);
    if let Some(found) = named(id) {
        return Some(found);
    }
    let text = id.as_str()?;
    if let Some(found) = serde_json::from_str::<Value>(text).ok().as_ref().and_then(named) {
        return Some(found);
    }
    let (_, rest) = text.rsplit_once("session_")?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
    Some(rest[..end].to_owned()).filter(|s| !s.is_empty())
}

pub fn reply(mut body: Value) -> Reply {
    if body["type"] == "error" || body.get("error").is_some() {
        return Reply { blocks: error(&body).into_iter().collect(), complete: true, ..Reply::default() };
    }
    Reply {
        id: some(&mut body, "id"),
        model: some(&mut body, "model"),
        stop: some(&mut body, "stop_reason"),
        blocks: blocks(take(&mut body, "content")),
        usage: None,
        cost: None,
        complete: true,
    }
}

/// Puts an answer together from its events.
#[derive(Default)]
pub struct Stream {
    reply: Reply,
    /// Blocks under way, by their index on the wire, with the text that is still coming.
    open: Vec<(u64, Block, String)>,
}

impl Stream {
    pub fn event(&mut self, mut event: Value) {
        let index = number(&event, &["index"]);
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                let mut message = take(&mut event, "message");
                self.reply.id = some(&mut message, "id");
                self.reply.model = some(&mut message, "model");
            }
            "content_block_start" => {
                let block = block(take(&mut event, "content_block"));
                self.open.push((index, block, String::new()));
            }
            "content_block_delta" => self.delta(index, &event["delta"]),
            "content_block_stop" => self.stop(index),
            "message_delta" => {
                self.reply.stop = some(&mut take(&mut event, "delta"), "stop_reason").or(self.reply.stop.take());
            }
            "message_stop" => self.reply.complete = true,
            "error" => self.reply.blocks.extend(error(&event)),
            _ => {}
        }
    }

    fn delta(&mut self, index: u64, delta: &Value) {
        let Some((_, _, text)) = self.open.iter_mut().find(|(i, ..)| *i == index) else { return };
        for key in ["text", "partial_json", "thinking"] {
            text.push_str(delta[key].as_str().unwrap_or_default());
        }
    }

    fn stop(&mut self, index: u64) {
        if let Some(at) = self.open.iter().position(|(i, ..)| *i == index) {
            let (_, block, text) = self.open.remove(at);
            self.reply.blocks.push(filled(block, text));
        }
    }

    pub fn end(mut self) -> Reply {
        // What a cut stream left open is kept as far as it came; errors stand behind it.
        let open = std::mem::take(&mut self.open).into_iter().map(|(_, block, text)| filled(block, text));
        let at = self.reply.blocks.iter().position(|b| matches!(b, Block::Error { .. }));
        let at = at.unwrap_or(self.reply.blocks.len());
        self.reply.blocks.splice(at..at, open);
        self.reply
    }
}

/// A block with what its deltas brought.
fn filled(block: Block, more: String) -> Block {
    match block {
        Block::Text { text } => Block::Text { text: text + &more },
        Block::Thinking { text } => Block::Thinking { text: text + &more },
        Block::ToolUse { id, name, .. } if !more.is_empty() => {
            Block::ToolUse { id, name, input: arguments(Value::String(more)) }
        }
        block => block,
    }
}
