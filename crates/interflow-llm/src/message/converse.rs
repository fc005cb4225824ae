//! Amazon Bedrock's Converse, JSON and event stream. Blocks are objects with a single member, whose name is their
//! type.

use std::sync::LazyLock;

use interflow_types::data_file;
use serde_json::Value;

use super::anthropic::REDACTED;
use super::json_access::{
    arguments, attachment_block, base64_attachment, data_attachment, detailed_document, error_reply, other_block,
    take_list, take_non_empty, take_string, take_value, tool_use,
};
use super::{
    Attachment, Carried, ChatMessage, ContentBlock, MessageRole, ModelReply, ModelRequest, SEARCH_RESULT,
    ToolDefinition,
};

/// The formats of documents, and their media types.
pub(crate) static DOCUMENTS: LazyLock<Vec<[&str; 2]>> =
    LazyLock::new(|| data_file::records(include_str!("../../data/documents.txt")).collect());

pub fn request(mut body: Value) -> ModelRequest {
    let mut config = take_value(&mut body, "toolConfig");
    let system = take_list(&mut body, "system").into_iter().filter_map(block).filter_map(|part| match part {
        ContentBlock::Text { text } => Some(text).filter(|text| !text.is_empty()),
        _ => None,
    });
    let (system, tools) = (system.collect(), take_list(&mut config, "tools").into_iter());
    ModelRequest {
        system,
        tools: tools.filter(|t| t.get("cachePoint").is_none()).map(tool).collect(),
        messages: take_list(&mut body, "messages").into_iter().map(message).collect(),
        max_tokens: body["inferenceConfig"]["maxTokens"].as_u64(),
        ..ModelRequest::default()
    }
}

fn tool(mut tool: Value) -> ToolDefinition {
    let Some(definition) = tool.get_mut("toolSpec").map(Value::take) else {
        let name = tool.as_object().and_then(|o| o.keys().next().cloned()).unwrap_or_default();
        return ToolDefinition { name, description: String::new(), definition: tool };
    };
    let text = |key: &str| definition[key].as_str().unwrap_or_default().to_owned();
    ToolDefinition { name: text("name"), description: text("description"), definition }
}

fn message(mut message: Value) -> ChatMessage {
    let role = if message["role"] == "assistant" { MessageRole::Assistant } else { MessageRole::User };
    ChatMessage { role, blocks: take_list(&mut message, "content").into_iter().filter_map(block).collect() }
}

fn block(mut b: Value) -> Option<ContentBlock> {
    let kind = b.as_object().and_then(|o| o.keys().next().cloned())?;
    let mut inner = take_value(&mut b, &kind);
    Some(match kind.as_str() {
        "text" => ContentBlock::Text { text: inner.as_str().unwrap_or_default().to_owned() },
        "reasoningContent" => {
            let mut thought = take_value(&mut inner, "reasoningText");
            let hidden = take_non_empty(&mut inner, "redactedContent").map(|data| format!("{REDACTED}{data}"));
            let signature = hidden.unwrap_or_else(|| take_string(&mut thought, "signature"));
            ContentBlock::Thinking { text: take_string(&mut thought, "text"), signature: Carried::new(signature) }
        }
        "toolUse" => tool_use(&mut inner, "toolUseId", "input"),
        "toolResult" => ContentBlock::ToolResult {
            id: take_string(&mut inner, "toolUseId"),
            name: String::new(),
            content: take_list(&mut inner, "content").into_iter().filter_map(block).collect(),
            is_error: inner["status"] == "error",
        },
        "image" | "document" | "video" => {
            let format = take_string(&mut inner, "format");
            let title = take_string(&mut inner, "name");
            let mut source = take_value(&mut inner, "source");
            let media = match DOCUMENTS.iter().find(|[name, _]| kind == "document" && *name == format) {
                Some([_, media]) => (*media).to_owned(),
                None => format!("{kind}/{format}"),
            };
            let url = source["s3Location"]["uri"].as_str().unwrap_or_default().to_owned();
            let chunks = texts(&mut source);
            let text = take_non_empty(&mut source, "text").unwrap_or_else(|| chunks.join("\n\n"));
            let file = match text.is_empty() {
                true => base64_attachment(media, take_string(&mut source, "bytes")),
                false => data_attachment("text/plain".to_owned(), text),
            };
            let file = Attachment { title, url, ..file };
            if kind == "document" { detailed_document(file, &inner, &chunks) } else { attachment_block(file) }
        }
        "citationsContent" => {
            ContentBlock::Text { text: Some(texts(&mut inner).concat()).filter(|text| !text.is_empty())? }
        }
        // A text or an image that the provider's guardrail checks.
        "guardContent" => {
            let text = take_string(&mut take_value(&mut inner, "text"), "text");
            return if text.is_empty() { block(inner) } else { Some(ContentBlock::Text { text }) };
        }
        "searchResult" => other_block(SEARCH_RESULT, inner),
        // It marks the end of a cached prefix and has no content.
        "cachePoint" => return None,
        k => other_block(k, inner),
    })
}

/// The texts in an object's list of content.
fn texts(value: &mut Value) -> Vec<String> {
    take_list(value, "content").into_iter().filter_map(|mut part| take_non_empty(&mut part, "text")).collect()
}

pub fn reply(mut body: Value) -> ModelReply {
    let mut output = take_value(&mut body, "output");
    let said = take_value(&mut output, "message");
    if !said.is_object() {
        return error_reply(&body);
    }
    let stop = take_non_empty(&mut body, "stopReason");
    ModelReply { blocks: message(said).blocks, stop, complete: true, ..ModelReply::default() }
}

/// Assembles a reply from the events of an AWS event stream.
#[derive(Default)]
pub struct ConverseAccumulator {
    reply: ModelReply,
    /// The open block and its text so far. Text blocks have no start event: their first delta opens them.
    open: Option<(ContentBlock, String)>,
}

impl ConverseAccumulator {
    pub fn event(&mut self, name: &str, mut event: Value) {
        match name {
            "contentBlockStart" => {
                self.close();
                let mut call = take_value(&mut take_value(&mut event, "start"), "toolUse");
                self.open = call.is_object().then(|| {
                    let (id, name) = (take_string(&mut call, "toolUseId"), take_string(&mut call, "name"));
                    (ContentBlock::ToolUse { id, name, input: Value::Null }, String::new())
                });
            }
            "contentBlockDelta" => self.delta(&event["delta"]),
            "contentBlockStop" => self.close(),
            "messageStop" => {
                self.reply.stop = take_non_empty(&mut event, "stopReason");
                self.reply.complete = true;
            }
            k if k.ends_with("Exception") => {
                let message = take_string(&mut event, "message");
                self.close();
                self.reply.blocks.push(ContentBlock::Error { kind: k.to_owned(), message });
            }
            _ => {}
        }
    }

    fn delta(&mut self, delta: &Value) {
        let thought = delta["reasoningContent"]["text"].as_str();
        let (fresh, text) = match (delta["text"].as_str(), thought) {
            (Some(text), _) => (ContentBlock::text(""), text),
            (None, Some(text)) => (ContentBlock::thinking(""), text),
            _ => (ContentBlock::text(""), delta["toolUse"]["input"].as_str().unwrap_or_default()),
        };
        if !text.is_empty() {
            self.open.get_or_insert((fresh, String::new())).1.push_str(text);
        }
    }

    /// Moves the open block to the reply; its tool input is parsed only now.
    fn close(&mut self) {
        let block = match self.open.take() {
            Some((ContentBlock::Text { .. }, text)) => ContentBlock::Text { text },
            Some((ContentBlock::Thinking { signature, .. }, text)) => ContentBlock::Thinking { text, signature },
            Some((ContentBlock::ToolUse { id, name, .. }, text)) => {
                ContentBlock::ToolUse { id, name, input: arguments(Value::String(text)) }
            }
            _ => return,
        };
        self.reply.blocks.push(block);
    }

    pub fn end(mut self) -> ModelReply {
        self.close();
        self.reply
    }
}
