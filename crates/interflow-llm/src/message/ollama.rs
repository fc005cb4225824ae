//! Ollama's native `/api/chat` and `/api/generate`, whole and as JSON lines.

use serde_json::Value;

use super::chat::tool;
use super::json_access::{
    arguments, base64_attachment, error_block, take_list, take_non_empty, take_string, take_value,
};
use super::{ChatMessage, ContentBlock, MessageRole, ModelReply, ModelRequest};

/// Parses a request of `/api/chat` or `/api/generate`.
pub fn request(mut body: Value) -> ModelRequest {
    let mut request = ModelRequest {
        model: take_string(&mut body, "model"),
        system: take_non_empty(&mut body, "system").into_iter().collect(),
        tools: take_list(&mut body, "tools").into_iter().map(tool).collect(),
        max_tokens: body["options"]["num_predict"].as_u64(),
        // Ollama streams unless the request says otherwise.
        stream: body["stream"].as_bool().unwrap_or(true),
        ..ModelRequest::default()
    };
    for mut message in take_list(&mut body, "messages") {
        let role = if message["role"] == "assistant" { MessageRole::Assistant } else { MessageRole::User };
        let blocks = match message["role"].as_str() {
            Some("system") => {
                request.system.push(take_string(&mut message, "content"));
                continue;
            }
            Some("tool") => {
                let name =
                    take_non_empty(&mut message, "tool_name").unwrap_or_else(|| take_string(&mut message, "name"));
                let id = take_string(&mut message, "tool_call_id");
                let content = vec![ContentBlock::text(take_string(&mut message, "content"))];
                vec![ContentBlock::ToolResult { id, name, content, is_error: false }]
            }
            _ => message_blocks(message),
        };
        request.messages.push(ChatMessage { role, blocks });
    }
    if body["prompt"].is_string() {
        let mut blocks = images(&mut body);
        blocks.push(ContentBlock::text(take_string(&mut body, "prompt")));
        request.messages.push(ChatMessage { role: MessageRole::User, blocks });
    }
    request
}

/// Images are bare base64 without a media type.
fn images(holder: &mut Value) -> Vec<ContentBlock> {
    let image = |data| match data {
        Value::String(data) => Some(ContentBlock::Image(base64_attachment(String::new(), data))),
        _ => None,
    };
    take_list(holder, "images").into_iter().filter_map(image).collect()
}

fn message_blocks(mut message: Value) -> Vec<ContentBlock> {
    let mut blocks: Vec<ContentBlock> = Vec::new();
    blocks.extend(take_non_empty(&mut message, "thinking").map(ContentBlock::thinking));
    blocks.extend(images(&mut message));
    blocks.extend(take_non_empty(&mut message, "content").map(|text| ContentBlock::Text { text }));
    for mut call in take_list(&mut message, "tool_calls") {
        let id = take_string(&mut call, "id");
        let mut f = take_value(&mut call, "function");
        let (name, input) = (take_string(&mut f, "name"), arguments(take_value(&mut f, "arguments")));
        blocks.push(ContentBlock::ToolUse { id, name, input });
    }
    blocks
}

/// Assembles a reply from its lines; a complete reply is one line. Texts of consecutive lines are joined.
#[derive(Default)]
pub struct OllamaAccumulator {
    reply: ModelReply,
}

impl OllamaAccumulator {
    pub fn event(&mut self, mut line: Value) {
        let reply = &mut self.reply;
        if line.get("error").is_some() {
            reply.blocks.extend(error_block(&line));
            return;
        }
        reply.model = take_non_empty(&mut line, "model").or(reply.model.take());
        let mut blocks = message_blocks(take_value(&mut line, "message"));
        blocks.extend(take_non_empty(&mut line, "thinking").map(ContentBlock::thinking));
        blocks.extend(take_non_empty(&mut line, "response").map(|text| ContentBlock::Text { text }));
        for block in blocks {
            match (reply.blocks.last_mut(), block) {
                (Some(ContentBlock::Text { text }), ContentBlock::Text { text: more })
                | (Some(ContentBlock::Thinking { text, .. }), ContentBlock::Thinking { text: more, .. }) => {
                    text.push_str(&more)
                }
                (_, block) => reply.blocks.push(block),
            }
        }
        if line["done"] == true {
            reply.complete = true;
            reply.stop = take_non_empty(&mut line, "done_reason");
        }
    }

    pub fn end(self) -> ModelReply {
        self.reply
    }
}
