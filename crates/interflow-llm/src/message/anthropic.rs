//! Anthropic's Messages API, JSON and stream; also the bodies of Bedrock's InvokeModel and Vertex's rawPredict.

use serde_json::Value;

use super::json_access::{
    arguments, base64_attachment, data_attachment, detailed_document, error_block, error_reply, number, other_block,
    take_list, take_non_empty, take_string, take_value, tool_use, url_attachment,
};
use super::{
    Attachment, Carried, ChatMessage, ContentBlock, MessageRole, ModelReply, ModelRequest, ToolDefinition, joined,
};

/// Precedes the data of reasoning that the provider does not disclose, where other reasoning has its signature.
pub const REDACTED: &str = "redacted:";

/// Parses a request of the Messages API. Missing members read as empty: the provider reports what is wrong with it.
pub fn request(mut body: Value) -> ModelRequest {
    let system = match take_value(&mut body, "system") {
        Value::String(s) => vec![s],
        Value::Array(parts) => parts.into_iter().map(|mut p| take_string(&mut p, "text")).collect(),
        _ => Vec::new(),
    };
    ModelRequest {
        model: take_string(&mut body, "model"),
        system,
        tools: take_list(&mut body, "tools").into_iter().map(tool).collect(),
        messages: take_list(&mut body, "messages").into_iter().map(message).collect(),
        session: session(&take_value(&mut body, "metadata")),
        previous: None,
        max_tokens: body["max_tokens"].as_u64(),
        stream: body["stream"].as_bool().unwrap_or_default(),
    }
}

/// Tools of the client have a name; the provider's own are identified by their type.
fn tool(definition: Value) -> ToolDefinition {
    let text = |key: &str| definition[key].as_str().unwrap_or_default().to_owned();
    let name = Some(text("name")).filter(|n| !n.is_empty()).unwrap_or_else(|| text("type"));
    ToolDefinition { name, description: text("description"), definition }
}

fn message(mut message: Value) -> ChatMessage {
    let role = if message["role"] == "assistant" { MessageRole::Assistant } else { MessageRole::User };
    ChatMessage { role, blocks: blocks(take_value(&mut message, "content")) }
}

/// Content that is a string or a list of blocks; the string is short for one text block.
fn blocks(content: Value) -> Vec<ContentBlock> {
    match content {
        Value::String(text) => vec![ContentBlock::Text { text }],
        Value::Array(list) => list.into_iter().map(block).collect(),
        _ => Vec::new(),
    }
}

fn block(mut b: Value) -> ContentBlock {
    let kind = take_string(&mut b, "type");
    match kind.as_str() {
        "text" => ContentBlock::Text { text: take_string(&mut b, "text") },
        "thinking" => ContentBlock::Thinking {
            text: take_string(&mut b, "thinking"),
            signature: Carried::new(take_string(&mut b, "signature")),
        },
        // The provider does not disclose it; an empty block keeps its place.
        "redacted_thinking" => {
            let data = take_non_empty(&mut b, "data").map(|data| format!("{REDACTED}{data}"));
            ContentBlock::Thinking { text: String::new(), signature: Carried::new(data.unwrap_or_default()) }
        }
        "tool_use" | "server_tool_use" | "mcp_tool_use" => tool_use(&mut b, "id", "input"),
        "image" => ContentBlock::Image(source(&mut b)),
        "document" => {
            let title = take_string(&mut b, "title");
            let parts = b["source"]["content"].as_array().into_iter().flatten();
            let chunks: Vec<_> = parts.filter_map(|part| part["text"].as_str().map(str::to_owned)).collect();
            let file = source(&mut b);
            detailed_document(Attachment { title, ..file }, &b, &chunks)
        }
        k if k.ends_with("tool_result") => result(k, b),
        k => other_block(k, b),
    }
}

/// `tool_result`, and the results of the provider's own tools (`…_tool_result`), whose content may be anything.
fn result(kind: &str, mut b: Value) -> ContentBlock {
    let content = match take_value(&mut b, "content") {
        content @ (Value::String(_) | Value::Array(_)) if kind == "tool_result" || kind == "mcp_tool_result" => {
            blocks(content)
        }
        Value::Null => Vec::new(),
        content => vec![other_block(kind, content)],
    };
    let is_error = b["is_error"].as_bool().unwrap_or_default();
    ContentBlock::ToolResult { id: take_string(&mut b, "tool_use_id"), name: String::new(), content, is_error }
}

fn source(b: &mut Value) -> Attachment {
    let mut source = take_value(b, "source");
    let media_type = take_string(&mut source, "media_type");
    match source["type"].as_str() {
        Some("url") => Attachment { media_type, ..url_attachment(take_string(&mut source, "url")) },
        Some("file") => Attachment { media_type, url: take_string(&mut source, "file_id"), ..Attachment::default() },
        Some("text") => data_attachment(media_type, take_string(&mut source, "data")),
        Some("content") => {
            data_attachment("text/plain".to_owned(), joined(&blocks(take_value(&mut source, "content"))))
        }
        _ => base64_attachment(media_type, take_string(&mut source, "data")),
    }
}

/// `metadata.user_id` is a string that contains `session_<uuid>`, or an object (possibly as JSON within the string).
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

/// Parses a whole reply, or the error in its place.
pub fn reply(mut body: Value) -> ModelReply {
    if body["type"] == "error" || body.get("error").is_some() {
        return error_reply(&body);
    }
    ModelReply {
        id: take_non_empty(&mut body, "id"),
        model: take_non_empty(&mut body, "model"),
        stop: take_non_empty(&mut body, "stop_reason"),
        blocks: blocks(take_value(&mut body, "content")),
        complete: true,
        ..ModelReply::default()
    }
}

/// Assembles a reply from the events of a stream. Blocks left open when the stream breaks off are kept as far as they
/// came.
#[derive(Default)]
pub struct AnthropicAccumulator {
    reply: ModelReply,
    /// Open blocks, by their index in the stream, with the text received so far. A list, since there are rarely more
    /// than one.
    open: Vec<(u64, ContentBlock, String)>,
}

impl AnthropicAccumulator {
    /// Adds an event of the stream. Unknown event types are ignored, as the API's documentation asks of clients.
    pub fn event(&mut self, mut event: Value) {
        let index = number(&event, &["index"]);
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                let mut message = take_value(&mut event, "message");
                self.reply.id = take_non_empty(&mut message, "id");
                self.reply.model = take_non_empty(&mut message, "model");
            }
            "content_block_start" => {
                let block = block(take_value(&mut event, "content_block"));
                self.open.push((index, block, String::new()));
            }
            "content_block_delta" => self.delta(index, &event["delta"]),
            "content_block_stop" => self.stop(index),
            "message_delta" => {
                self.reply.stop =
                    take_non_empty(&mut take_value(&mut event, "delta"), "stop_reason").or(self.reply.stop.take());
            }
            "message_stop" => self.reply.complete = true,
            "error" => self.reply.blocks.extend(error_block(&event)),
            _ => {}
        }
    }

    fn delta(&mut self, index: u64, delta: &Value) {
        let Some((_, _, text)) = self.open.iter_mut().find(|(i, ..)| *i == index) else { return };
        // A delta has one of these, by its type.
        for key in ["text", "partial_json", "thinking"] {
            text.push_str(delta[key].as_str().unwrap_or_default());
        }
    }

    fn stop(&mut self, index: u64) {
        if let Some(at) = self.open.iter().position(|(i, ..)| *i == index) {
            let (_, block, text) = self.open.remove(at);
            self.reply.blocks.push(complete_block(block, text));
        }
    }

    /// The reply as far as it was received; not `complete` if the stream broke off.
    pub fn end(mut self) -> ModelReply {
        // Blocks left open by a truncated stream are kept as received; errors follow them.
        let open = std::mem::take(&mut self.open).into_iter().map(|(_, block, text)| complete_block(block, text));
        let at = self.reply.blocks.iter().position(|b| matches!(b, ContentBlock::Error { .. }));
        let at = at.unwrap_or(self.reply.blocks.len());
        self.reply.blocks.splice(at..at, open);
        self.reply
    }
}

/// A block with the content of its deltas. A tool call's input arrives as pieces of JSON, which are parsed only now.
fn complete_block(block: ContentBlock, more: String) -> ContentBlock {
    match block {
        ContentBlock::Text { text } => ContentBlock::Text { text: text + &more },
        ContentBlock::Thinking { text, signature } => ContentBlock::Thinking { text: text + &more, signature },
        ContentBlock::ToolUse { id, name, .. } if !more.is_empty() => {
            ContentBlock::ToolUse { id, name, input: arguments(Value::String(more)) }
        }
        block => block,
    }
}
