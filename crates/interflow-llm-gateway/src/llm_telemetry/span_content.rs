//! The content of a request and its response as attributes of a span, by the conventions that the operator chose.

use bytes::Bytes;
use interflow_codec::{content_coding as coding, json};
use interflow_llm::message::{
    ApiFormat, Attachment, ChatMessage, ContentBlock, MessageRole, ModelReply, ModelRequest, parse,
};
use interflow_llm::otlp::attribute;
use interflow_types::Headers;
use serde_json::{Map, Value, json};

use super::AttributeSet;
use super::content::SpanContent;

/// Messages that OpenInference's attributes list one by one: the latest.
const MAX_LISTED_MESSAGES: usize = 64;
/// Maximum size of a decoded body.
const MAX_DECODED_BYTES: usize = 32 << 20;

/// A parsed request with its response.
struct ParsedContent {
    request: ModelRequest,
    /// Parameters of the request besides its texts: temperature and similar.
    parameters: Map<String, Value>,
    reply: ModelReply,
    has_reply: bool,
}

/// The attributes. Each of them has at most about `max` bytes: of a conversation the latest messages stay.
pub(super) fn attributes(content: SpanContent, sets: &[AttributeSet], max: usize) -> Vec<Value> {
    let Some(parsed) = ParsedContent::read(content) else { return Vec::new() };
    let mut all = parsed.parameters();
    for set in sets {
        match set {
            AttributeSet::GenAi => all.extend(parsed.gen_ai(max)),
            AttributeSet::GenAiLegacy => {}
            AttributeSet::OpenInference => all.extend(parsed.open_inference(max)),
            AttributeSet::Langfuse => all.extend(parsed.langfuse(max)),
        }
    }
    all
}

fn decoded((headers, bytes): (Headers, Bytes)) -> Option<(Headers, Bytes)> {
    let plain = coding::decode(&headers, &bytes, MAX_DECODED_BYTES as u64).ok()?;
    Some((headers, plain.unwrap_or(bytes)))
}

impl ParsedContent {
    fn read(content: SpanContent) -> Option<Self> {
        let body: Value = json::parse(&content.request.filter(|b| b.len() <= MAX_DECODED_BYTES)?).ok()?;
        let format = ApiFormat::detect(&content.path, &body)?;
        let mut parameters = Map::new();
        let inner = ["generationConfig", "generation_config", "inferenceConfig", "options"]
            .into_iter()
            .filter_map(|name| body.get(name));
        for object in inner.chain([&body]).filter_map(Value::as_object) {
            let is_plain = |value: &Value| value.is_number() || value.is_boolean();
            parameters.extend(object.iter().filter(|(_, value)| is_plain(value)).map(|(k, v)| (k.clone(), v.clone())));
        }
        let request = parse::request(format, &content.path, body);
        let response = content.response.and_then(decoded);
        let has_reply = response.is_some();
        let reply = response.map_or_else(ModelReply::default, |(headers, bytes)| {
            let media_type = headers.get_str("content-type").unwrap_or_default();
            let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            parse::reply(format, &media_type, content.status, &bytes)
        });
        Some(Self { request, parameters, reply, has_reply })
    }

    /// Parameters and the stop reason, which are no content.
    fn parameters(&self) -> Vec<Value> {
        let named = |names: &[&str]| names.iter().find_map(|name| self.parameters.get(*name)).and_then(Value::as_f64);
        let mut all = Vec::new();
        for (name, names) in [
            ("gen_ai.request.temperature", &["temperature"][..]),
            ("gen_ai.request.top_p", &["top_p", "topP"]),
            ("gen_ai.request.top_k", &["top_k", "topK"]),
            ("gen_ai.request.frequency_penalty", &["frequency_penalty", "frequencyPenalty"]),
            ("gen_ai.request.presence_penalty", &["presence_penalty", "presencePenalty"]),
        ] {
            all.extend(named(names).map(|value| attribute(name, value)));
        }
        if let Some(seed) = self.parameters.get("seed").and_then(Value::as_u64) {
            all.push(attribute("gen_ai.request.seed", seed));
        }
        if let Some(stop) = &self.reply.stop {
            all.push(attribute("gen_ai.response.finish_reasons", [stop.as_str()]));
        }
        all
    }

    fn gen_ai(&self, max: usize) -> Vec<Value> {
        let mut all = Vec::new();
        if !self.request.system.is_empty() {
            let mut spare = max;
            let parts: Vec<Value> =
                self.request.system.iter().map(|part| text_part("text", part, &mut spare)).collect();
            all.push(attribute("gen_ai.system_instructions", Value::from(parts).to_string()));
        }
        let (messages, dropped) = latest(&self.request.messages, max);
        all.push(attribute("gen_ai.input.messages", Value::from(messages).to_string()));
        if dropped > 0 {
            all.push(attribute("interflow.content.dropped_messages", dropped));
        }
        if self.has_reply {
            let mut message = message(&self.output(), &mut { max });
            message["finish_reason"] = self.reply.stop.as_deref().unwrap_or("unknown").into();
            all.push(attribute("gen_ai.output.messages", json!([message]).to_string()));
        }
        if !self.request.tools.is_empty() {
            let (mut left, mut tools) = (max, Vec::new());
            for tool in &self.request.tools {
                let value = json!({"type": "function", "name": tool.name, "description": tool.description});
                let Some(rest) = left.checked_sub(value.to_string().len()) else { break };
                left = rest;
                tools.push(value);
            }
            all.push(attribute("gen_ai.tool.definitions", Value::from(tools).to_string()));
        }
        all
    }

    fn open_inference(&self, max: usize) -> Vec<Value> {
        let mut all = self.whole("input.value", "output.value", max);
        all.push(attribute("input.mime_type", "application/json"));
        if self.has_reply {
            all.push(attribute("output.mime_type", "application/json"));
        }
        let (mut left, mut index) = (max, 0);
        for part in &self.request.system {
            let block = ContentBlock::text(part.as_str());
            listed_message(&format!("llm.input_messages.{index}.message"), "system", &[block], &mut left, &mut all);
            index += 1;
        }
        let skipped = self.request.messages.len().saturating_sub(MAX_LISTED_MESSAGES);
        for message in self.request.messages.iter().skip(skipped) {
            let prefix = format!("llm.input_messages.{index}.message");
            listed_message(&prefix, role(message), &message.blocks, &mut left, &mut all);
            index += 1;
        }
        if self.has_reply {
            let blocks = &self.reply.blocks;
            listed_message("llm.output_messages.0.message", "assistant", blocks, &mut { max }, &mut all);
        }
        let mut spare = max;
        for (index, tool) in self.request.tools.iter().enumerate() {
            let schema = tool.definition.to_string();
            let Some(rest) = spare.checked_sub(schema.len()) else { break };
            spare = rest;
            all.push(attribute(&format!("llm.tools.{index}.tool.json_schema"), schema));
        }
        all
    }

    fn langfuse(&self, max: usize) -> Vec<Value> {
        self.whole("langfuse.observation.input", "langfuse.observation.output", max)
    }

    /// Request and response as one JSON value each.
    fn whole(&self, input: &str, output: &str, max: usize) -> Vec<Value> {
        let mut spare = max;
        let system = |part: &String| json!({"role": "system", "parts": [text_part("text", part, &mut spare)]});
        let system: Vec<Value> = self.request.system.iter().map(system).collect();
        let (messages, _) = latest(&self.request.messages, spare);
        let all: Vec<Value> = system.into_iter().chain(messages).collect();
        let mut messages = vec![attribute(input, Value::from(all).to_string())];
        if self.has_reply {
            messages.push(attribute(output, message(&self.output(), &mut { max }).to_string()));
        }
        messages
    }

    fn output(&self) -> ChatMessage {
        ChatMessage { role: MessageRole::Assistant, blocks: self.reply.blocks.clone() }
    }
}

/// The latest messages within a number of bytes, and how many were left out. The last one always stays.
fn latest(messages: &[ChatMessage], max: usize) -> (Vec<Value>, u64) {
    let (mut left, mut found) = (max, Vec::new());
    for one in messages.iter().rev() {
        let value = message(one, &mut left);
        found.push(value);
        if left == 0 {
            break;
        }
    }
    found.reverse();
    let dropped = messages.len() - found.len();
    (found, dropped as u64)
}

/// The role by the conventions, which have one for the results of tools.
fn role(message: &ChatMessage) -> &'static str {
    let is_result = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult { .. });
    match message.role {
        MessageRole::Assistant => "assistant",
        MessageRole::User if !message.blocks.is_empty() && message.blocks.iter().all(is_result) => "tool",
        MessageRole::User => "user",
    }
}

/// A message by the GenAI conventions; `left` are the bytes that it may take.
fn message(message: &ChatMessage, left: &mut usize) -> Value {
    let parts: Vec<Value> = message.blocks.iter().map(|block| part(block, left)).collect();
    json!({"role": role(message), "parts": parts})
}

fn part(block: &ContentBlock, left: &mut usize) -> Value {
    match block {
        ContentBlock::Text { text } => text_part("text", text, left),
        ContentBlock::Thinking { text, .. } => text_part("reasoning", text, left),
        ContentBlock::ToolUse { id, name, input } => {
            json!({"type": "tool_call", "id": id, "name": name, "arguments": bounded_json(input, left)})
        }
        ContentBlock::ToolResult { id, content, .. } => {
            let texts: Vec<&str> = content.iter().filter_map(ContentBlock::as_text).collect();
            json!({"type": "tool_call_response", "id": id, "response": bounded(&texts.join("\n"), left)})
        }
        ContentBlock::Image(file) => file_part("image", file, left),
        ContentBlock::Document(file) => file_part("document", file, left),
        ContentBlock::Error { kind, message } => {
            json!({"type": "error", "kind": kind, "content": bounded(message, left)})
        }
        ContentBlock::Other { kind, value } => json!({"type": kind, "content": bounded_json(value, left)}),
    }
}

/// A file without its bytes.
fn file_part(modality: &str, file: &Attachment, left: &mut usize) -> Value {
    json!({"type": "uri", "modality": modality, "mime_type": file.media_type, "uri": bounded(&file.url, left)})
}

fn text_part(kind: &str, text: &str, left: &mut usize) -> Value {
    json!({"type": kind, "content": bounded(text, left)})
}

/// A text, cut to the bytes that are left.
fn bounded(text: &str, left: &mut usize) -> String {
    let end = text.floor_char_boundary((*left).min(text.len()));
    *left -= end;
    match text.len() - end {
        0 => text.to_owned(),
        more => {
            // What is left is less than a character.
            *left = 0;
            format!("{} [{more} bytes more]", &text[..end])
        }
    }
}

/// JSON, as a text if it has to be cut.
fn bounded_json(value: &Value, left: &mut usize) -> Value {
    let written = value.to_string();
    if written.len() > *left {
        return bounded(&written, left).into();
    }
    *left -= written.len();
    value.clone()
}

/// A message by OpenInference: one attribute per part.
fn listed_message(prefix: &str, role: &str, blocks: &[ContentBlock], left: &mut usize, all: &mut Vec<Value>) {
    let (mut texts, mut calls) = (Vec::new(), 0);
    for block in blocks {
        match block {
            ContentBlock::Text { text } => texts.push(bounded(text, left)),
            ContentBlock::ToolUse { id, name, input } => {
                let call = format!("{prefix}.tool_calls.{calls}.tool_call");
                all.push(attribute(&format!("{call}.id"), id.as_str()));
                all.push(attribute(&format!("{call}.function.name"), name.as_str()));
                all.push(attribute(&format!("{call}.function.arguments"), bounded(&input.to_string(), left)));
                calls += 1;
            }
            ContentBlock::ToolResult { id, content, .. } => {
                all.push(attribute(&format!("{prefix}.tool_call_id"), id.as_str()));
                texts.extend(content.iter().filter_map(ContentBlock::as_text).map(|text| bounded(text, left)));
            }
            _ => {}
        }
    }
    all.push(attribute(&format!("{prefix}.role"), role));
    if !texts.is_empty() {
        all.push(attribute(&format!("{prefix}.content"), texts.join("\n")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(request: &Value, response: &Value) -> SpanContent {
        let json = |value: &Value| {
            let headers = [("Content-Type", "application/json")].into_iter().collect();
            Some((headers, Bytes::from(value.to_string())))
        };
        let request = json(request).map(|(_, body)| body);
        SpanContent { path: "/v1/messages".into(), status: 200, request, response: json(response) }
    }

    fn conversation() -> SpanContent {
        let call = json!({"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Paris"}});
        let result = json!({"type": "tool_result", "tool_use_id": "t1", "content": "rainy"});
        let request = json!({"model": "claude-x", "system": "Be brief.", "temperature": 0.5, "max_tokens": 9,
            "tools": [{"name": "weather", "description": "the weather", "input_schema": {"type": "object"}}],
            "messages": [{"role": "user", "content": "Weather in Paris?"}, {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]}]});
        let said = json!({"type": "text", "text": "It rains."});
        content(&request, &json!({"id": "m", "content": [said], "stop_reason": "end_turn"}))
    }

    fn value(attributes: &[Value], name: &str) -> Option<String> {
        let found = attributes.iter().find(|a| a["key"] == name)?;
        Some(found["value"]["stringValue"].as_str().map_or_else(|| found["value"].to_string(), str::to_owned))
    }

    fn parsed(attributes: &[Value], name: &str) -> Value {
        serde_json::from_str(&value(attributes, name).unwrap_or_else(|| panic!("{name}: {attributes:?}"))).unwrap()
    }

    #[test]
    fn messages_tools_and_parameters_have_the_names_of_the_genai_conventions() {
        let all = attributes(conversation(), &[AttributeSet::GenAi], 10_000);
        assert_eq!(parsed(&all, "gen_ai.system_instructions"), json!([{"type": "text", "content": "Be brief."}]));
        assert_eq!(
            parsed(&all, "gen_ai.input.messages"),
            json!([
                {"role": "user", "parts": [{"type": "text", "content": "Weather in Paris?"}]},
                {"role": "assistant", "parts":
                    [{"type": "tool_call", "id": "t1", "name": "weather", "arguments": {"city": "Paris"}}]},
                {"role": "tool", "parts": [{"type": "tool_call_response", "id": "t1", "response": "rainy"}]},
            ])
        );
        assert_eq!(
            parsed(&all, "gen_ai.output.messages"),
            json!([{"role": "assistant", "parts": [{"type": "text", "content": "It rains."}], "finish_reason": "end_turn"}])
        );
        assert_eq!(parsed(&all, "gen_ai.tool.definitions")[0]["name"], "weather");
        assert_eq!(value(&all, "gen_ai.request.temperature").unwrap(), json!({"doubleValue": 0.5}).to_string());
        assert!(value(&all, "gen_ai.response.finish_reasons").unwrap().contains("end_turn"));
        assert_eq!(value(&all, "input.value"), None, "only the sets that were chosen");
    }

    #[test]
    fn openinference_and_langfuse_have_their_own_names() {
        let all = attributes(conversation(), &[AttributeSet::OpenInference, AttributeSet::Langfuse], 10_000);
        for (name, expected) in [
            ("llm.input_messages.0.message.role", "system"),
            ("llm.input_messages.0.message.content", "Be brief."),
            ("llm.input_messages.1.message.content", "Weather in Paris?"),
            ("llm.input_messages.2.message.tool_calls.0.tool_call.function.name", "weather"),
            ("llm.input_messages.2.message.tool_calls.0.tool_call.function.arguments", "{\"city\":\"Paris\"}"),
            ("llm.input_messages.3.message.role", "tool"),
            ("llm.input_messages.3.message.tool_call_id", "t1"),
            ("llm.output_messages.0.message.content", "It rains."),
        ] {
            assert_eq!(value(&all, name).as_deref(), Some(expected), "{name}");
        }
        assert!(value(&all, "llm.tools.0.tool.json_schema").unwrap().contains("input_schema"));
        assert_eq!(parsed(&all, "langfuse.observation.output")["parts"][0]["content"], "It rains.");
        assert_eq!(value(&all, "gen_ai.input.messages"), None);
    }

    #[test]
    fn long_histories_keep_their_latest_messages_within_the_bound() {
        let messages: Vec<Value> =
            (0..100).map(|i| json!({"role": "user", "content": format!("{i} {}", "x".repeat(500))})).collect();
        let request = json!({"model": "m", "messages": messages, "max_tokens": 5});
        let all = attributes(content(&request, &json!({"content": []})), &[AttributeSet::GenAi], 2_000);
        let kept = parsed(&all, "gen_ai.input.messages");
        let kept = kept.as_array().unwrap();
        assert!(kept.len() < 6 && kept.last().unwrap().to_string().contains("\"99 xxx"), "{kept:?}");
        assert!(kept[0].to_string().contains("bytes more]"), "{kept:?}");
        assert!(value(&all, "interflow.content.dropped_messages").is_some());
        let image =
            json!({"type": "image", "source": {"type": "url", "url": format!("https://a.test/{}", "é".repeat(5_000))}});
        let request =
            json!({"model": "m", "max_tokens": 5, "messages": vec![json!({"role": "user", "content": [image]}); 100]});
        for (set, name) in
            [(AttributeSet::GenAi, "gen_ai.input.messages"), (AttributeSet::Langfuse, "langfuse.observation.input")]
        {
            let text = value(&attributes(content(&request, &json!({"content": []})), &[set], 2_000), name).unwrap();
            assert!(text.len() < 2_500 && text.contains("a.test"), "{} bytes", text.len());
        }
        let broken = SpanContent { path: "/v1/messages".into(), status: 200, request: None, response: None };
        assert!(attributes(broken, &[AttributeSet::GenAi], 10).is_empty());
    }
}
