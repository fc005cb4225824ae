//! Writes requests of Ollama's `/api/chat`.

use serde_json::{Value, json};

use super::chat::tools;
use super::{
    ChatRequest, Target, ToolNames, Turn, images, input_object, object, result_text, set, set_list, set_object,
    tool_names,
};
use crate::message::{Attachment, ContentBlock, MessageRole};
use crate::translate::settings::{Reasoning, ToolChoice};
use crate::translate::{Losses, WireFormat};

pub fn write(chat: &ChatRequest, target: &Target<'_>, losses: &mut Losses) -> Value {
    let settings = &chat.settings;
    let turns = chat.turns();
    let names = tool_names(&turns);
    let mut messages = Vec::from_iter(chat.system_message());
    for turn in &turns {
        add(chat, turn, &names, losses, &mut messages);
    }
    let mut options = object(json!({
        "num_predict": chat.request.max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k,
        "seed": settings.seed,
        "frequency_penalty": settings.frequency_penalty,
        "presence_penalty": settings.presence_penalty,
    }));
    set(&mut options, "stop", Some(settings.stop.clone()).filter(|s| !s.is_empty()));
    // Ollama streams unless it is told otherwise.
    let mut body = json!({ "model": target.model, "messages": messages, "stream": chat.request.stream });
    set_object(&mut body, "options", options);
    if !chat.forbids_tools() {
        set_list(&mut body, "tools", tools(chat, false, losses));
    }
    losses.add_if("tool_choice", matches!(settings.tool_choice, Some(ToolChoice::Required | ToolChoice::Named(_))));
    losses.add_if("parallel_tool_calls", settings.parallel_tools == Some(false));
    losses.add_if("user", settings.user.is_some());
    // Models that cannot think refuse the setting, so that `false` is not sent.
    let think = settings.reasoning.as_ref().filter(|r| **r != Reasoning::Off).map(|r| match r.effort() {
        Some(effort @ ("low" | "medium" | "high")) if target.model.contains("gpt-oss") => json!(effort),
        _ => json!(true),
    });
    set(&mut body, "think", think);
    let format = settings.output.as_ref().map(|output| output.schema.clone().unwrap_or_else(|| "json".into()));
    set(&mut body, "format", format);
    body
}

fn add(chat: &ChatRequest, turn: &Turn<'_>, names: &ToolNames, losses: &mut Losses, out: &mut Vec<Value>) {
    let role = if turn.role == MessageRole::Assistant { "assistant" } else { "user" };
    let (mut text, mut calls, mut pictures, mut thought) = (Vec::new(), Vec::new(), Vec::new(), String::new());
    for block in &turn.blocks {
        match block {
            ContentBlock::Text { text: more } => text.push(more.as_str()),
            ContentBlock::Thinking { text, signature } => {
                match chat.made_thought(WireFormat::Ollama, signature.get()) {
                    true => thought.push_str(text),
                    false => losses.add("thinking"),
                }
            }
            ContentBlock::ToolUse { name, input, .. } => {
                calls.push(json!({ "function": { "name": name, "arguments": input_object(input) } }));
            }
            ContentBlock::ToolResult { id, name, content, is_error } => {
                losses.add_if("tool_result.is_error", *is_error);
                let name = if name.is_empty() { names.get(id) } else { Some(name) };
                out.push(object(json!({ "role": "tool", "tool_name": name, "content": result_text(content) })));
                pictures.extend(images(content).filter_map(|image| picture(image, losses)));
            }
            ContentBlock::Image(image) => pictures.extend(picture(image, losses)),
            ContentBlock::Document(file) if file.text().is_some() => text.extend(file.text()),
            ContentBlock::Document(_) => losses.add("document"),
            ContentBlock::Other { kind, .. } => losses.add(kind),
            ContentBlock::Error { .. } => {}
        }
    }
    if text.is_empty() && calls.is_empty() && pictures.is_empty() && thought.is_empty() {
        return;
    }
    let mut message = json!({ "role": role, "content": text.join("\n\n") });
    set(&mut message, "thinking", Some(thought).filter(|t| !t.is_empty()));
    set_list(&mut message, "images", pictures);
    set_list(&mut message, "tool_calls", calls);
    out.push(message);
}

/// Images are bare base64.
fn picture(image: &Attachment, losses: &mut Losses) -> Option<Value> {
    losses.add_if("image.url", image.data.get().is_none());
    image.data.get().map(Value::from)
}
