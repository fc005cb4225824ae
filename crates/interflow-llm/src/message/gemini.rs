//! Google's Gemini API and Vertex AI, and the Code Assist endpoint, which wraps the same bodies.

use serde_json::Value;

use super::json_access::{
    attachment_block, base64_attachment, error_block, other_block, take_list, take_non_empty, take_string, take_value,
    tool_use,
};
use super::{Attachment, Carried, ChatMessage, ContentBlock, MessageRole, ModelReply, ModelRequest, ToolDefinition};

/// Parses a request of `generateContent`. Members exist in camel case and in snake case; both are accepted, as by the
/// API.
pub fn request(mut body: Value) -> ModelRequest {
    let wrapped = body["request"].is_object();
    let mut inner = if wrapped { take_value(&mut body, "request") } else { Value::Null };
    let model = take_string(&mut body, "model");
    let inner = if wrapped { &mut inner } else { &mut body };
    let system = ["systemInstruction", "system_instruction"].into_iter().flat_map(|key| {
        let mut instruction = take_value(inner, key);
        take_list(&mut instruction, "parts").into_iter().map(|mut p| take_string(&mut p, "text")).collect::<Vec<_>>()
    });
    let system = system.collect();
    let tools = take_list(inner, "tools").into_iter().flat_map(tools).collect();
    let messages = take_list(inner, "contents").into_iter().map(message).fold(Vec::new(), joined);
    ModelRequest {
        model,
        system,
        tools,
        messages,
        session: take_non_empty(inner, "session_id").or_else(|| take_non_empty(inner, "sessionId")),
        previous: None,
        max_tokens: ["/generationConfig/maxOutputTokens", "/generation_config/max_output_tokens"]
            .iter()
            .find_map(|limit| inner.pointer(limit)?.as_u64()),
        stream: false,
    }
}

fn tools(mut group: Value) -> Vec<ToolDefinition> {
    let mut declared = take_list(&mut group, "functionDeclarations");
    declared.extend(take_list(&mut group, "function_declarations"));
    if declared.is_empty() {
        let name = group.as_object().and_then(|o| o.keys().next().cloned()).unwrap_or_default();
        return vec![ToolDefinition { name, description: String::new(), definition: group }];
    }
    let tool = |definition: Value| {
        let text = |key: &str| definition[key].as_str().unwrap_or_default().to_owned();
        ToolDefinition { name: text("name"), description: text("description"), definition }
    };
    declared.into_iter().map(tool).collect()
}

fn message(mut content: Value) -> ChatMessage {
    let role = if content["role"] == "model" { MessageRole::Assistant } else { MessageRole::User };
    let mut blocks = Vec::new();
    take_list(&mut content, "parts").into_iter().filter_map(part).for_each(|block| add(&mut blocks, block));
    ChatMessage { role, blocks }
}

/// Clients repeat the chunks of a streamed reply: as parts of one message, or as consecutive messages. Both forms
/// must give the same message, so that conversations are recognised.
pub(super) fn joined(mut all: Vec<ChatMessage>, message: ChatMessage) -> Vec<ChatMessage> {
    match all.last_mut() {
        Some(last) if last.role == MessageRole::Assistant && message.role == MessageRole::Assistant => {
            message.blocks.into_iter().for_each(|block| add(&mut last.blocks, block));
        }
        _ => all.push(message),
    }
    all
}

fn part(mut p: Value) -> Option<ContentBlock> {
    const KINDS: &str = "functionCall function_call functionResponse function_response inlineData inline_data fileData \
        file_data text";
    Some(match KINDS.split(' ').find(|kind| p.get(kind).is_some()) {
        Some("text") => {
            let text = take_string(&mut p, "text");
            match p["thought"].as_bool() {
                Some(true) => thought(text, &mut p),
                _ if text.is_empty() => return None,
                _ => ContentBlock::Text { text },
            }
        }
        Some(key @ ("functionCall" | "function_call")) => tool_use(&mut take_value(&mut p, key), "id", "args"),
        Some(key @ ("functionResponse" | "function_response")) => result(take_value(&mut p, key)),
        Some(key) => {
            let mut file = take_value(&mut p, key);
            let media_type =
                take_non_empty(&mut file, "mimeType").unwrap_or_else(|| take_string(&mut file, "mime_type"));
            let url = take_non_empty(&mut file, "fileUri").unwrap_or_else(|| take_string(&mut file, "file_uri"));
            attachment_block(match take_non_empty(&mut file, "data") {
                Some(data) => base64_attachment(media_type, data),
                None => Attachment { media_type, url, ..Attachment::default() },
            })
        }
        None if p["thought"] == true => thought(String::new(), &mut p),
        // A part may contain only a thought signature, which has no content.
        None if p.get("thoughtSignature").or(p.get("thought_signature")).is_some() => return None,
        None => {
            let kind = p.as_object().and_then(|o| o.keys().next().cloned()).unwrap_or_default();
            other_block(&kind, p)
        }
    })
}

fn thought(text: String, part: &mut Value) -> ContentBlock {
    let signature = take_non_empty(part, "thoughtSignature").unwrap_or_else(|| take_string(part, "thought_signature"));
    ContentBlock::Thinking { text, signature: Carried::new(signature) }
}

/// The result of a tool. A response with a single text member is reduced to the text.
fn result(mut r: Value) -> ContentBlock {
    let (id, name) = (take_string(&mut r, "id"), take_string(&mut r, "name"));
    let mut response = take_value(&mut r, "response");
    let is_error = response.get("error").is_some();
    let lone = response.as_object().is_some_and(|o| o.len() == 1);
    let text = ["output", "result", "content", "error"].into_iter().find_map(|k| match response.get(k) {
        Some(Value::String(_)) if lone => take_non_empty(&mut response, k),
        _ => None,
    });
    let mut content = match text {
        Some(text) => vec![ContentBlock::Text { text }],
        None if response.is_null() => Vec::new(),
        None => vec![other_block("response", response)],
    };
    // Its media.
    content.extend(take_list(&mut r, "parts").into_iter().filter_map(part));
    ContentBlock::ToolResult { id, name, content, is_error }
}

pub fn reply(body: Value) -> ModelReply {
    let mut stream = GeminiAccumulator::default();
    match body {
        // Without `alt=sse` a stream is one list.
        Value::Array(chunks) => chunks.into_iter().for_each(|c| stream.event(c)),
        one => stream.event(one),
    }
    stream.reply.complete = true;
    stream.end()
}

/// Assembles a reply from its chunks, each of which is a response of its own.
#[derive(Default)]
pub struct GeminiAccumulator {
    reply: ModelReply,
}

impl GeminiAccumulator {
    pub fn event(&mut self, mut chunk: Value) {
        if chunk["response"].is_object() {
            chunk = take_value(&mut chunk, "response");
        }
        let reply = &mut self.reply;
        if chunk.get("error").is_some() {
            reply.blocks.extend(error_block(&chunk));
        }
        reply.id = take_non_empty(&mut chunk, "responseId").or(reply.id.take());
        reply.model = take_non_empty(&mut chunk, "modelVersion").or(reply.model.take());
        if let Some(why) = chunk["promptFeedback"]["blockReason"].as_str() {
            reply.stop = Some(why.to_owned());
            reply.complete = true;
        }
        let Some(mut candidate) = take_list(&mut chunk, "candidates").into_iter().next() else { return };
        let mut content = take_value(&mut candidate, "content");
        for block in take_list(&mut content, "parts").into_iter().filter_map(part) {
            add(&mut reply.blocks, block);
        }
        if let Some(stop) = take_non_empty(&mut candidate, "finishReason") {
            reply.stop = Some(stop);
            reply.complete = true;
        }
    }

    pub fn end(self) -> ModelReply {
        self.reply
    }
}

/// Chunks of one text arrive as separate text parts, which are joined.
fn add(blocks: &mut Vec<ContentBlock>, block: ContentBlock) {
    match (blocks.last_mut(), block) {
        (Some(ContentBlock::Text { text }), ContentBlock::Text { text: more }) => text.push_str(&more),
        (Some(ContentBlock::Thinking { text, signature }), ContentBlock::Thinking { text: more, signature: last }) => {
            text.push_str(&more);
            if last.get().is_some() {
                *signature = last;
            }
        }
        (_, block) => blocks.push(block),
    }
}
