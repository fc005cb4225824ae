//! Ollama's own `/api/chat` and `/api/generate`, whole and as lines of JSON.

use serde_json::Value;

use super::chat::tool;
use super::read::{arguments, error, list, sent, some, string, take};
use super::{Block, Message, Reply, Request, Role};

pub fn request(mut body: Value) -> Request {
    let mut request = Request {
        model: string(&mut body, "model"),
        system: some(&mut body, "system").into_iter().collect(),
        tools: list(&mut body, "tools").into_iter().map(tool).collect(),
        max_tokens: body["options"]["num_predict"].as_u64(),
        stream: body["stream"].as_bool().unwrap_or(true),
        ..Request::default()
    };
    for mut message in list(&mut body, "messages") {
        match message["role"].as_str() {
            Some("system") => request.system.push(string(&mut message, "content")),
            Some("tool") => {
                let name = some(&mut message, "tool_name").unwrap_or_else(|| string(&mut message, "name"));
                let id = string(&mut message, "tool_call_id");
                let content = vec![Block::text(string(&mut message, "content"))];
                let block = Block::ToolResult { id, name, content, is_error: false };
                request.messages.push(Message { role: Role::User, blocks: vec![block] });
            }
            Some("assistant") => request.messages.push(Message { role: Role::Assistant, blocks: said(message) }),
            _ => request.messages.push(Message { role: Role::User, blocks: said(message) }),
        }
    }
    if body["prompt"].is_string() {
        let mut blocks = images(&mut body);
        blocks.push(Block::text(string(&mut body, "prompt")));
        request.messages.push(Message { role: Role::User, blocks });
    }
    request
}

fn images(holder: &mut Value) -> Vec<Block> {
    let images = list(holder, "images");
    images.iter().filter_map(Value::as_str).map(|data| Block::Image(sent(String::new(), data))).collect()
}

fn said(mut message: Value) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    blocks.extend(some(&mut message, "thinking").map(|text| Block::Thinking { text }));
    blocks.extend(images(&mut message));
    blocks.extend(some(&mut message, "content").map(|text| Block::Text { text }));
    for mut call in list(&mut message, "tool_calls") {
        let id = string(&mut call, "id");
        let mut f = take(&mut call, "function");
        let (name, input) = (string(&mut f, "name"), arguments(take(&mut f, "arguments")));
        blocks.push(Block::ToolUse { id, name, input });
    }
    blocks
}

/// Puts an answer together from its lines; a whole answer is one line.
#[derive(Default)]
pub struct Stream {
    reply: Reply,
}

impl Stream {
    pub fn event(&mut self, mut line: Value) {
        let reply = &mut self.reply;
        if line.get("error").is_some() {
            reply.blocks.extend(error(&line));
            return;
        }
        reply.model = some(&mut line, "model").or(reply.model.take());
        let mut blocks = said(take(&mut line, "message"));
        blocks.extend(some(&mut line, "thinking").map(|text| Block::Thinking { text }));
        blocks.extend(some(&mut line, "response").map(|text| Block::Text { text }));
        for block in blocks {
            match (reply.blocks.last_mut(), block) {
                (Some(Block::Text { text }), Block::Text { text: more })
                | (Some(Block::Thinking { text }), Block::Thinking { text: more }) => text.push_str(&more),
                (_, block) => reply.blocks.push(block),
            }
        }
        if line["done"] == true {
            reply.complete = true;
            reply.stop = some(&mut line, "done_reason");
        }
    }

    pub fn end(self) -> Reply {
        self.reply
    }
}
