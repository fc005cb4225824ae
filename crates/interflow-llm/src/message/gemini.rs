//! Google's Gemini API and Vertex AI, and the Code Assist endpoint that wraps the same bodies.

use serde_json::Value;

use super::read::{attached, error, list, other, sent, some, string, take};
use super::{Block, Message, Reference, Reply, Request, Role, Tool};

pub fn request(mut body: Value) -> Request {
    let wrapped = body["request"].is_object();
    let mut inner = if wrapped { take(&mut body, "request") } else { Value::Null };
    let model = string(&mut body, "model");
    let inner = if wrapped { &mut inner } else { &mut body };
    let system = ["systemInstruction", "system_instruction"].into_iter().flat_map(|key| {
        let mut instruction = take(inner, key);
        list(&mut instruction, "parts").into_iter().map(|mut p| string(&mut p, "text")).collect::<Vec<_>>()
    });
    let system = system.collect();
    let tools = list(inner, "tools").into_iter().flat_map(tools).collect();
    let messages = list(inner, "contents").into_iter().map(message).fold(Vec::new(), joined);
    Request {
        model,
        system,
        tools,
        messages,
        session: some(inner, "session_id").or_else(|| some(inner, "sessionId")),
        previous: None,
        max_tokens: inner["generationConfig"]["maxOutputTokens"].as_u64(),
        stream: false,
    }
}

fn tools(mut group: Value) -> Vec<Tool> {
    let mut declared = list(&mut group, "functionDeclarations");
    declared.extend(list(&mut group, "function_declarations"));
    if declared.is_empty() {
        let name = group.as_object().and_then(|o| o.keys().next().cloned()).unwrap_or_default();
        return vec![Tool { name, description: String::new(), definition: group }];
    }
    let tool = |definition: Value| {
        let text = |key: &str| definition[key].as_str().unwrap_or_default().to_owned();
        Tool { name: text("name"), description: text("description"), definition }
    };
    declared.into_iter().map(tool).collect()
}

fn message(mut content: Value) -> Message {
    let role = if content["role"] == "model" { Role::Assistant } else { Role::User };
    let mut blocks = Vec::new();
    list(&mut content, "parts").into_iter().filter_map(part).for_each(|block| add(&mut blocks, block));
    Message { role, blocks }
}

/// Clients repeat the pieces of a streamed answer as they came: as parts of one message, or as messages in a row.
fn joined(mut all: Vec<Message>, message: Message) -> Vec<Message> {
    match all.last_mut() {
        Some(last) if last.role == Role::Assistant && message.role == Role::Assistant => {
            message.blocks.into_iter().for_each(|block| add(&mut last.blocks, block));
        }
        _ => all.push(message),
    }
    all
}

fn part(mut p: Value) -> Option<Block> {
    let key = ["functionCall", "functionResponse", "inlineData", "inline_data", "fileData", "file_data", "text"]
        .into_iter()
        .find(|k| p.get(k).is_some());
    Some(match key {
        Some("text") => {
            let text = string(&mut p, "text");
            match p["thought"].as_bool() {
                Some(true) => Block::Thinking { text },
                _ if text.is_empty() => return None,
                _ => Block::Text { text },
            }
        }
        Some("functionCall") => {
            let mut call = take(&mut p, "functionCall");
            Block::ToolUse {
                id: string(&mut call, "id"),
                name: string(&mut call, "name"),
                input: take(&mut call, "args"),
            }
        }
        Some("functionResponse") => result(take(&mut p, "functionResponse")),
        Some(key @ ("inlineData" | "inline_data")) => {
            let mut data = take(&mut p, key);
            let media = some(&mut data, "mimeType").unwrap_or_else(|| string(&mut data, "mime_type"));
            attached(sent(media, data["data"].as_str().unwrap_or_default()))
        }
        Some(key) => {
            let mut file = take(&mut p, key);
            let media_type = some(&mut file, "mimeType").unwrap_or_else(|| string(&mut file, "mime_type"));
            let url = some(&mut file, "fileUri").unwrap_or_else(|| string(&mut file, "file_uri"));
            attached(Reference { media_type, url, ..Reference::default() })
        }
        // A part may hold nothing but a signature of its thoughts.
        None if p.get("thoughtSignature").is_some() => return None,
        None => {
            let kind = p.as_object().and_then(|o| o.keys().next().cloned()).unwrap_or_default();
            other(&kind, p)
        }
    })
}

fn result(mut r: Value) -> Block {
    let (id, name) = (string(&mut r, "id"), string(&mut r, "name"));
    let mut response = take(&mut r, "response");
    let is_error = response.get("error").is_some();
    let lone = response.as_object().is_some_and(|o| o.len() == 1);
    let text = ["output", "result", "content", "error"].into_iter().find_map(|k| match response.get(k) {
        Some(Value::String(_)) if lone => some(&mut response, k),
        _ => None,
    });
    let content = match text {
        Some(text) => vec![Block::Text { text }],
        None if response.is_null() => Vec::new(),
        None => vec![other("response", response)],
    };
    Block::ToolResult { id, name, content, is_error }
}

pub fn reply(body: Value) -> Reply {
    let mut stream = Stream::default();
    match body {
        // A stream that was not asked for as events comes as one list.
        Value::Array(chunks) => chunks.into_iter().for_each(|c| stream.event(c)),
        one => stream.event(one),
    }
    stream.reply.complete = true;
    stream.end()
}

/// Puts an answer together from its chunks.
#[derive(Default)]
pub struct Stream {
    reply: Reply,
}

impl Stream {
    pub fn event(&mut self, mut chunk: Value) {
        if chunk["response"].is_object() {
            chunk = take(&mut chunk, "response");
        }
        let reply = &mut self.reply;
        if chunk.get("error").is_some() {
            reply.blocks.extend(error(&chunk));
        }
        reply.id = some(&mut chunk, "responseId").or(reply.id.take());
        reply.model = some(&mut chunk, "modelVersion").or(reply.model.take());
        if let Some(why) = chunk["promptFeedback"]["blockReason"].as_str() {
            reply.stop = Some(why.to_owned());
            reply.complete = true;
        }
        let Some(mut candidate) = list(&mut chunk, "candidates").into_iter().next() else { return };
        let mut content = take(&mut candidate, "content");
        for block in list(&mut content, "parts").into_iter().filter_map(part) {
            add(&mut reply.blocks, block);
        }
        if let Some(stop) = some(&mut candidate, "finishReason") {
            reply.stop = Some(stop);
            reply.complete = true;
        }
    }

    pub fn end(self) -> Reply {
        self.reply
    }
}

/// Pieces of one text come as texts of their own.
fn add(blocks: &mut Vec<Block>, block: Block) {
    match (blocks.last_mut(), block) {
        (Some(Block::Text { text }), Block::Text { text: more })
        | (Some(Block::Thinking { text }), Block::Thinking { text: more }) => text.push_str(&more),
        (_, block) => blocks.push(block),
    }
}
