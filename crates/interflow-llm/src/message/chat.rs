//! OpenAI's Chat Completions, JSON and stream, as used by OpenAI, Azure, OpenRouter, Copilot and many others; and the
//! older text completions.

use serde_json::{Value, json};

use super::json_access::{
    arguments, attachment_block, base64_attachment, error_block, number, optional_number, other_block, take_list,
    take_non_empty, take_string, take_value, url_attachment,
};
use super::{Attachment, Carried, ChatMessage, ContentBlock, MessageRole, ModelReply, ModelRequest, ToolDefinition};

/// Parses a request of Chat Completions or of the older text completions (`prompt`).
pub fn request(mut body: Value) -> ModelRequest {
    let mut request = ModelRequest {
        model: take_string(&mut body, "model"),
        tools: take_list(&mut body, "tools").into_iter().map(tool).collect(),
        session: take_non_empty(&mut body, "prompt_cache_key").or_else(|| take_non_empty(&mut body, "session_id")),
        max_tokens: optional_number(&body, &["max_completion_tokens"])
            .or_else(|| optional_number(&body, &["max_tokens"])),
        stream: body["stream"].as_bool().unwrap_or_default(),
        ..ModelRequest::default()
    };
    for message in take_list(&mut body, "messages") {
        add(&mut request, message);
    }
    match take_value(&mut body, "prompt") {
        Value::String(text) => request.messages.push(ChatMessage::text(MessageRole::User, text)),
        Value::Array(texts) => {
            let blocks = texts.iter().filter_map(Value::as_str).map(ContentBlock::text).collect();
            request.messages.push(ChatMessage { role: MessageRole::User, blocks });
        }
        _ => {}
    }
    request
}

pub fn tool(mut definition: Value) -> ToolDefinition {
    let inner = if definition["function"].is_object() { &definition["function"] } else { &definition };
    let inner = if definition["custom"].is_object() { &definition["custom"] } else { inner };
    let text = |key: &str| inner[key].as_str().unwrap_or_default().to_owned();
    let (name, description) = (text("name"), text("description"));
    let name = if name.is_empty() { take_string(&mut definition, "type") } else { name };
    ToolDefinition { name, description, definition }
}

fn add(request: &mut ModelRequest, mut message: Value) {
    let role = take_string(&mut message, "role");
    let blocks = match role.as_str() {
        // Only leading ones: a system message in the middle stays where it is in the history.
        "system" | "developer" if request.messages.is_empty() => {
            let parts = content(take_value(&mut message, "content"));
            return request.system.extend(parts.into_iter().filter_map(|b| b.as_text().map(str::to_owned)));
        }
        "assistant" => message_blocks(message),
        "tool" | "function" => {
            let (id, name) = (take_string(&mut message, "tool_call_id"), take_string(&mut message, "name"));
            let content = content(take_value(&mut message, "content"));
            vec![ContentBlock::ToolResult { id, name, content, is_error: false }]
        }
        _ => content(take_value(&mut message, "content")),
    };
    let role = if role == "assistant" { MessageRole::Assistant } else { MessageRole::User };
    request.messages.push(ChatMessage { role, blocks });
}

/// The thought in a message or a delta. Some servers have it under both names, some leave one empty.
pub(crate) fn thought_in(message: &Value) -> Option<&str> {
    let named = |key: &str| message[key].as_str().filter(|thought| !thought.is_empty());
    named("reasoning_content").or_else(|| named("reasoning"))
}

/// The assistant's message, in a history or a reply. Reasoning comes first, because it was generated first.
fn message_blocks(mut message: Value) -> Vec<ContentBlock> {
    let mut blocks = Vec::new();
    blocks.extend(thought_in(&message).map(ContentBlock::thinking));
    blocks.extend(content(take_value(&mut message, "content")));
    blocks.extend(take_non_empty(&mut message, "refusal").map(|text| ContentBlock::Text { text }));
    blocks.extend(take_list(&mut message, "tool_calls").into_iter().map(call));
    // Function calls before there were tools (`function_call`).
    let legacy = take_value(&mut message, "function_call");
    if legacy.is_object() {
        blocks.push(call(json!({ "function": legacy })));
    }
    blocks
}

fn call(mut call: Value) -> ContentBlock {
    let id = take_string(&mut call, "id");
    let key = if call["custom"].is_object() { "custom" } else { "function" };
    let mut f = take_value(&mut call, key);
    let name = take_string(&mut f, "name");
    let input = if key == "custom" { take_value(&mut f, "input") } else { arguments(take_value(&mut f, "arguments")) };
    ContentBlock::ToolUse { id, name, input }
}

/// Content that is a string or a list of parts; an empty string, as beside tool calls, is dropped.
pub fn content(content: Value) -> Vec<ContentBlock> {
    match content {
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => vec![ContentBlock::Text { text }],
        Value::Array(parts) => parts.into_iter().map(part).collect(),
        _ => Vec::new(),
    }
}

fn part(mut p: Value) -> ContentBlock {
    if let Value::String(text) = p {
        return ContentBlock::Text { text };
    }
    let kind = take_string(&mut p, "type");
    match kind.as_str() {
        "text" | "input_text" | "output_text" | "summary_text" => {
            ContentBlock::Text { text: take_string(&mut p, "text") }
        }
        "refusal" => ContentBlock::Text { text: take_string(&mut p, "refusal") },
        "thinking" | "reasoning" => {
            // Mistral has a list of texts in `thinking`.
            let text = match take_value(&mut p, "thinking") {
                Value::String(text) => text,
                Value::Array(parts) => parts.into_iter().map(|mut part| take_string(&mut part, "text")).collect(),
                _ => String::new(),
            };
            ContentBlock::thinking(take_string(&mut p, "text") + &text)
        }
        "image_url" | "input_image" => {
            let (url, detail) = match take_value(&mut p, "image_url") {
                Value::String(url) => (url, take_string(&mut p, "detail")),
                mut object => (take_string(&mut object, "url"), take_string(&mut object, "detail")),
            };
            let url = if url.is_empty() { take_string(&mut p, "file_id") } else { url };
            let detail = Carried::new(if detail == "auto" { String::new() } else { detail });
            ContentBlock::Image(Attachment { detail, ..url_attachment(url) })
        }
        "input_audio" => {
            let mut audio = take_value(&mut p, "input_audio");
            let media = format!("audio/{}", take_string(&mut audio, "format"));
            ContentBlock::Document(base64_attachment(media, take_string(&mut audio, "data")))
        }
        "file" | "input_file" => {
            let mut file = if p["file"].is_object() { take_value(&mut p, "file") } else { p };
            let title = take_string(&mut file, "filename");
            let url = ["file_data", "file_url", "file_id"].into_iter().find_map(|k| take_non_empty(&mut file, k));
            attachment_block(Attachment { title, ..url_attachment(url.unwrap_or_default()) })
        }
        k => other_block(k, p),
    }
}

/// Parses a whole reply; of several choices the first.
pub fn reply(mut body: Value) -> ModelReply {
    let mut reply = head(&mut body);
    reply.complete = true;
    match take_list(&mut body, "choices").into_iter().next() {
        Some(mut choice) => {
            reply.stop = take_non_empty(&mut choice, "finish_reason");
            reply.blocks = message_blocks(take_value(&mut choice, "message"));
            reply.blocks.extend(take_non_empty(&mut choice, "text").map(|text| ContentBlock::Text { text }));
        }
        None => reply.blocks.extend(error_block(&body)),
    }
    reply
}

/// The most that a call can cost, in US dollars: what a provider reports beyond it is a mistake.
const MAX_COST: f64 = 1e6;

/// The members beside the choices, which every chunk repeats. `usage.cost` is OpenRouter's.
fn head(body: &mut Value) -> ModelReply {
    let usage = take_value(body, "usage");
    ModelReply {
        id: take_non_empty(body, "id"),
        model: take_non_empty(body, "model"),
        cost: usage["cost"].as_f64().filter(|dollars| (0.0..=MAX_COST).contains(dollars)),
        ..ModelReply::default()
    }
}

/// Finds the call that a fragment of a stream belongs to. The index of a call should do, but some servers leave it out,
/// and some give 0 to each of several calls: then another id begins another call.
#[derive(Debug, Default)]
pub(crate) struct StreamedCalls {
    /// Index and id of each call, in the order in which they began.
    calls: Vec<(Option<u64>, String)>,
}

impl StreamedCalls {
    /// The position of a fragment's call, and whether it begins with this fragment.
    pub(crate) fn find(&mut self, index: Option<u64>, id: &str, name: &str) -> (usize, bool) {
        let found = match index {
            Some(_) => self.calls.iter().rposition(|(known, _)| *known == index),
            None => {
                let same_id = self.calls.iter().rposition(|(_, known)| !id.is_empty() && known == id);
                same_id.or(self.calls.len().checked_sub(1))
            }
        };
        // Some servers repeat id and name in every fragment, and some make up an id for each: only a fragment with a
        // name can begin a call.
        let is_other = |at: usize| {
            let open = self.calls.get(at).map_or("", |(_, id)| id);
            !name.is_empty() && if id.is_empty() { index.is_none() } else { id != open }
        };
        match found.filter(|at| !is_other(*at)) {
            Some(at) => (at, false),
            None => {
                self.calls.push((index, id.to_owned()));
                (self.calls.len() - 1, true)
            }
        }
    }
}

/// Assembles a reply from the chunks of a stream. Tool calls come in fragments; only the first has id and name.
#[derive(Default)]
pub struct ChatAccumulator {
    reply: ModelReply,
    thinking: String,
    text: String,
    known: StreamedCalls,
    /// Id, name and arguments of the calls.
    calls: Vec<[String; 3]>,
    errors: Vec<ContentBlock>,
}

impl ChatAccumulator {
    /// Adds a chunk. Chunks carry deltas, except for the members that each of them repeats.
    pub fn event(&mut self, mut chunk: Value) {
        if chunk.get("error").is_some_and(|e| !e.is_null()) {
            self.errors.extend(error_block(&chunk));
        }
        let news = head(&mut chunk);
        let reply = &mut self.reply;
        reply.id = reply.id.take().or(news.id);
        reply.model = reply.model.take().or(news.model);
        reply.cost = news.cost.or(reply.cost);
        // Of several choices, clients continue with the first.
        for mut choice in take_list(&mut chunk, "choices") {
            if number(&choice, &["index"]) == 0 {
                self.reply.stop = take_non_empty(&mut choice, "finish_reason").or(self.reply.stop.take());
                self.text.push_str(choice["text"].as_str().unwrap_or_default());
                self.delta(take_value(&mut choice, "delta"));
            }
        }
    }

    /// Called for `data: [DONE]`, the end of the stream.
    pub const fn mark_done(&mut self) {
        self.reply.complete = true;
    }

    fn delta(&mut self, mut delta: Value) {
        self.thinking.push_str(thought_in(&delta).unwrap_or_default());
        for key in ["content", "refusal"] {
            self.text.push_str(delta[key].as_str().unwrap_or_default());
        }
        for mut call in take_list(&mut delta, "tool_calls") {
            let index = call["index"].as_u64();
            let id = take_string(&mut call, "id");
            self.call(index, id, take_value(&mut call, "function"));
        }
        let legacy = take_value(&mut delta, "function_call");
        if legacy.is_object() {
            self.call(Some(0), String::new(), legacy);
        }
    }

    /// Adds a fragment of a tool call, creating the call at its first fragment.
    fn call(&mut self, index: Option<u64>, id: String, mut f: Value) {
        let (name, arguments) = (take_string(&mut f, "name"), take_string(&mut f, "arguments"));
        match self.known.find(index, &id, &name) {
            (_, true) => self.calls.push([id, name, arguments]),
            (at, false) => {
                if let Some([_, _, all]) = self.calls.get_mut(at) {
                    all.push_str(&arguments);
                }
            }
        }
    }

    /// The reply as far as it was received.
    pub fn end(mut self) -> ModelReply {
        // A finish reason also ends the reply: not every server sends `[DONE]`.
        self.reply.complete |= self.reply.stop.is_some();
        let blocks = &mut self.reply.blocks;
        blocks.extend((!self.thinking.is_empty()).then_some(self.thinking).map(ContentBlock::thinking));
        blocks.extend((!self.text.is_empty()).then_some(ContentBlock::Text { text: self.text }));
        blocks.extend(self.calls.into_iter().map(|[id, name, input]| ContentBlock::ToolUse {
            id,
            name,
            input: arguments(Value::String(input)),
        }));
        blocks.extend(self.errors);
        self.reply
    }
}
