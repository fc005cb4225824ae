//! OpenAI's Chat Completions, JSON and stream, as spoken by OpenAI, Azure, OpenRouter, Copilot and many others; and the
//! older text completions.

use serde_json::{Value, json};

use super::read::{arguments, attached, error, linked, list, maybe_number, number, other, sent, some, string, take};
use super::{Block, Message, Reference, Reply, Request, Role, Tool};

pub fn request(mut body: Value) -> Request {
    let mut request = Request {
        model: string(&mut body, "model"),
        tools: list(&mut body, "tools").into_iter().map(tool).collect(),
        session: some(&mut body, "prompt_cache_key").or_else(|| some(&mut body, "session_id")),
        max_tokens: maybe_number(&body, &["max_completion_tokens"]).or_else(|| maybe_number(&body, &["max_tokens"])),
        stream: body["stream"].as_bool().unwrap_or_default(),
        ..Request::default()
    };
    for message in list(&mut body, "messages") {
        add(&mut request, message);
    }
    match take(&mut body, "prompt") {
        Value::String(text) => request.messages.push(Message::text(Role::User, text)),
        Value::Array(texts) => {
            let blocks = texts.iter().filter_map(Value::as_str).map(Block::text).collect();
            request.messages.push(Message { role: Role::User, blocks });
        }
        _ => {}
    }
    request
}

pub fn tool(mut definition: Value) -> Tool {
    let inner = if definition["function"].is_object() { &definition["function"] } else { &definition };
    let text = |key: &str| inner[key].as_str().unwrap_or_default().to_owned();
    let (name, description) = (text("name"), text("description"));
    let name = if name.is_empty() { string(&mut definition, "type") } else { name };
    Tool { name, description, definition }
}

fn add(request: &mut Request, mut message: Value) {
    let role = string(&mut message, "role");
    match role.as_str() {
        "system" | "developer" if request.messages.is_empty() => {
            let parts = content(take(&mut message, "content"));
            request.system.extend(parts.into_iter().filter_map(|b| b.as_text().map(str::to_owned)));
        }
        "assistant" => request.messages.push(Message { role: Role::Assistant, blocks: said(message) }),
        "tool" | "function" => {
            let id = string(&mut message, "tool_call_id");
            let name = string(&mut message, "name");
            let content = content(take(&mut message, "content"));
            let block = Block::ToolResult { id, name, content, is_error: false };
            request.messages.push(Message { role: Role::User, blocks: vec![block] });
        }
        _ => {
            let blocks = content(take(&mut message, "content"));
            request.messages.push(Message { role: Role::User, blocks });
        }
    }
}

/// What the model said: of a history or of an answer.
fn said(mut message: Value) -> Vec<Block> {
    let mut blocks = Vec::new();
    let thought = some(&mut message, "reasoning_content").or_else(|| some(&mut message, "reasoning"));
    blocks.extend(thought.map(|text| Block::Thinking { text }));
    blocks.extend(content(take(&mut message, "content")));
    blocks.extend(some(&mut message, "refusal").map(|text| Block::Text { text }));
    blocks.extend(list(&mut message, "tool_calls").into_iter().map(call));
    let legacy = take(&mut message, "function_call");
    if legacy.is_object() {
        blocks.push(call(json!({ "function": legacy })));
    }
    blocks
}

fn call(mut call: Value) -> Block {
    let id = string(&mut call, "id");
    let key = if call["custom"].is_object() { "custom" } else { "function" };
    let mut f = take(&mut call, key);
    let name = string(&mut f, "name");
    let input = if key == "custom" { take(&mut f, "input") } else { arguments(take(&mut f, "arguments")) };
    Block::ToolUse { id, name, input }
}

/// Content that is a string or a list of parts.
pub fn content(content: Value) -> Vec<Block> {
    match content {
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => vec![Block::Text { text }],
        Value::Array(parts) => parts.into_iter().map(part).collect(),
        _ => Vec::new(),
    }
}

fn part(mut p: Value) -> Block {
    if let Value::String(text) = p {
        return Block::Text { text };
    }
    let kind = string(&mut p, "type");
    match kind.as_str() {
        "text" | "input_text" | "output_text" | "summary_text" => Block::Text { text: string(&mut p, "text") },
        "refusal" => Block::Text { text: string(&mut p, "refusal") },
        "thinking" | "reasoning" => Block::Thinking { text: string(&mut p, "text") + &string(&mut p, "thinking") },
        "image_url" | "input_image" => {
            let url = match take(&mut p, "image_url") {
                Value::String(url) => url,
                mut object => string(&mut object, "url"),
            };
            let url = if url.is_empty() { string(&mut p, "file_id") } else { url };
            Block::Image(linked(url))
        }
        "input_audio" => {
            let mut audio = take(&mut p, "input_audio");
            let media = format!("audio/{}", string(&mut audio, "format"));
            Block::Document(sent(media, audio["data"].as_str().unwrap_or_default()))
        }
        "file" | "input_file" => {
            let mut file = if p["file"].is_object() { take(&mut p, "file") } else { p };
            let title = string(&mut file, "filename");
            let url = ["file_data", "file_url", "file_id"].into_iter().find_map(|k| some(&mut file, k));
            attached(Reference { title, ..linked(url.unwrap_or_default()) })
        }
        k => other(k, p),
    }
}

pub fn reply(mut body: Value) -> Reply {
    let mut reply = head(&mut body);
    reply.complete = true;
    match list(&mut body, "choices").into_iter().next() {
        Some(mut choice) => {
            reply.stop = some(&mut choice, "finish_reason");
            reply.blocks = said(take(&mut choice, "message"));
            reply.blocks.extend(some(&mut choice, "text").map(|text| Block::Text { text }));
        }
        None => reply.blocks.extend(error(&body)),
    }
    reply
}

/// What stands beside the choices.
fn head(body: &mut Value) -> Reply {
    let usage = take(body, "usage");
    Reply { id: some(body, "id"), model: some(body, "model"), cost: usage["cost"].as_f64(), ..Reply::default() }
}

/// Puts an answer together from its chunks.
#[derive(Default)]
pub struct Stream {
    reply: Reply,
    thinking: String,
    text: String,
    /// Calls under way by index: id, name, arguments.
    calls: Vec<(u64, [String; 3])>,
    errors: Vec<Block>,
}

impl Stream {
    pub fn event(&mut self, mut chunk: Value) {
        if chunk.get("error").is_some_and(|e| !e.is_null()) {
            self.errors.extend(error(&chunk));
        }
        let news = head(&mut chunk);
        let reply = &mut self.reply;
        reply.id = reply.id.take().or(news.id);
        reply.model = reply.model.take().or(news.model);
        reply.cost = news.cost.or(reply.cost);
        // Of several answers to one request the first is the one that clients go on with.
        for mut choice in list(&mut chunk, "choices") {
            if number(&choice, &["index"]) == 0 {
                self.reply.stop = some(&mut choice, "finish_reason").or(self.reply.stop.take());
                self.text.push_str(choice["text"].as_str().unwrap_or_default());
                self.delta(take(&mut choice, "delta"));
            }
        }
    }

    /// `data: [DONE]`.
    pub const fn done(&mut self) {
        self.reply.complete = true;
    }

    fn delta(&mut self, mut delta: Value) {
        for key in ["reasoning_content", "reasoning"] {
            self.thinking.push_str(delta[key].as_str().unwrap_or_default());
        }
        for key in ["content", "refusal"] {
            self.text.push_str(delta[key].as_str().unwrap_or_default());
        }
        for mut call in list(&mut delta, "tool_calls") {
            let index = number(&call, &["index"]);
            let id = string(&mut call, "id");
            self.call(index, id, take(&mut call, "function"));
        }
        let legacy = take(&mut delta, "function_call");
        if legacy.is_object() {
            self.call(0, String::new(), legacy);
        }
    }

    fn call(&mut self, index: u64, id: String, mut f: Value) {
        let at = self.calls.iter().position(|(i, _)| *i == index).unwrap_or_else(|| {
            self.calls.push((index, Default::default()));
            self.calls.len() - 1
        });
        if let Some((_, call)) = self.calls.get_mut(at) {
            for (have, more) in call.iter_mut().zip([id, string(&mut f, "name"), string(&mut f, "arguments")]) {
                have.push_str(&more);
            }
        }
    }

    pub fn end(mut self) -> Reply {
        // A reason to stop is an end too: not everybody sends `[DONE]`.
        self.reply.complete |= self.reply.stop.is_some();
        let blocks = &mut self.reply.blocks;
        blocks.extend((!self.thinking.is_empty()).then_some(Block::Thinking { text: self.thinking }));
        blocks.extend((!self.text.is_empty()).then_some(Block::Text { text: self.text }));
        blocks.extend(self.calls.into_iter().map(|(_, [id, name, input])| Block::ToolUse {
            id,
            name,
            input: arguments(Value::String(input)),
        }));
        blocks.extend(self.errors);
        self.reply
    }
}
