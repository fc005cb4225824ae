//! Amazon Bedrock's Converse, JSON and event stream.

use serde_json::Value;

use super::read::{arguments, attached, error, list, other, sent, some, string, take};
use super::{Block, Message, Reference, Reply, Request, Role, Tool};

pub fn request(mut body: Value) -> Request {
    let mut config = take(&mut body, "toolConfig");
    let system = list(&mut body, "system").into_iter().filter_map(|mut p| some(&mut p, "text")).collect();
    Request {
        system,
        tools: list(&mut config, "tools").into_iter().filter(|t| t.get("toolSpec").is_some()).map(tool).collect(),
        messages: list(&mut body, "messages").into_iter().map(message).collect(),
        max_tokens: body["inferenceConfig"]["maxTokens"].as_u64(),
        ..Request::default()
    }
}

fn tool(mut tool: Value) -> Tool {
    let definition = take(&mut tool, "toolSpec");
    let text = |key: &str| definition[key].as_str().unwrap_or_default().to_owned();
    Tool { name: text("name"), description: text("description"), definition }
}

fn message(mut message: Value) -> Message {
    let role = if message["role"] == "assistant" { Role::Assistant } else { Role::User };
    Message { role, blocks: list(&mut message, "content").into_iter().filter_map(block).collect() }
}

fn block(mut b: Value) -> Option<Block> {
    let kind = b.as_object().and_then(|o| o.keys().next().cloned())?;
    let mut inner = take(&mut b, &kind);
    Some(match kind.as_str() {
        "text" => Block::Text { text: inner.as_str().unwrap_or_default().to_owned() },
        "reasoningContent" => {
            let mut thought = take(&mut inner, "reasoningText");
            Block::Thinking { text: string(&mut thought, "text") }
        }
        "toolUse" => Block::ToolUse {
            id: string(&mut inner, "toolUseId"),
            name: string(&mut inner, "name"),
            input: take(&mut inner, "input"),
        },
        "toolResult" => Block::ToolResult {
            id: string(&mut inner, "toolUseId"),
            name: String::new(),
            content: list(&mut inner, "content").into_iter().filter_map(block).collect(),
            is_error: inner["status"] == "error",
        },
        "image" | "document" | "video" => {
            let format = string(&mut inner, "format");
            let title = string(&mut inner, "name");
            let family = if kind == "document" { "application" } else { kind.as_str() };
            let source = &inner["source"];
            let media = format!("{family}/{format}");
            let bytes = sent(media, source["bytes"].as_str().unwrap_or_default());
            let url = source["s3Location"]["uri"].as_str().unwrap_or_default().to_owned();
            attached(Reference { title, url, ..bytes })
        }
        "cachePoint" => return None,
        k => other(k, inner),
    })
}

pub fn reply(mut body: Value) -> Reply {
    let mut output = take(&mut body, "output");
    let said = take(&mut output, "message");
    if !said.is_object() {
        return Reply { blocks: error(&body).into_iter().collect(), complete: true, ..Reply::default() };
    }
    Reply { blocks: message(said).blocks, stop: some(&mut body, "stopReason"), complete: true, ..Reply::default() }
}

/// Puts an answer together from its events.
#[derive(Default)]
pub struct Stream {
    reply: Reply,
    /// The block under way: what it is, and its text so far.
    open: Option<(Block, String)>,
}

impl Stream {
    pub fn event(&mut self, name: &str, mut event: Value) {
        match name {
            "contentBlockStart" => {
                self.close();
                let mut call = take(&mut take(&mut event, "start"), "toolUse");
                self.open = call.is_object().then(|| {
                    let (id, name) = (string(&mut call, "toolUseId"), string(&mut call, "name"));
                    (Block::ToolUse { id, name, input: Value::Null }, String::new())
                });
            }
            "contentBlockDelta" => self.delta(&event["delta"]),
            "contentBlockStop" => self.close(),
            "messageStop" => {
                self.reply.stop = some(&mut event, "stopReason");
                self.reply.complete = true;
            }
            k if k.ends_with("Exception") => {
                let message = string(&mut event, "message");
                self.close();
                self.reply.blocks.push(Block::Error { kind: k.to_owned(), message });
            }
            _ => {}
        }
    }

    fn delta(&mut self, delta: &Value) {
        let thought = delta["reasoningContent"]["text"].as_str();
        let (fresh, text) = match (delta["text"].as_str(), thought) {
            (Some(text), _) => (Block::text(""), text),
            (None, Some(text)) => (Block::Thinking { text: String::new() }, text),
            _ => (Block::text(""), delta["toolUse"]["input"].as_str().unwrap_or_default()),
        };
        if !text.is_empty() {
            self.open.get_or_insert((fresh, String::new())).1.push_str(text);
        }
    }

    fn close(&mut self) {
        let block = match self.open.take() {
            Some((Block::Text { .. }, text)) => Block::Text { text },
            Some((Block::Thinking { .. }, text)) => Block::Thinking { text },
            Some((Block::ToolUse { id, name, .. }, text)) => {
                Block::ToolUse { id, name, input: arguments(Value::String(text)) }
            }
            _ => return,
        };
        self.reply.blocks.push(block);
    }

    pub fn end(mut self) -> Reply {
        self.close();
        self.reply
    }
}
