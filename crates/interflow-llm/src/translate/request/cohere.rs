//! Writes requests of Cohere's chat, version 2.

use serde_json::{Value, json};

use super::{ChatRequest, Target, Turn, chat, data_url, images, object, result_text, set, set_list, user_message};
use crate::message::{ContentBlock, MessageRole};
use crate::translate::Losses;
use crate::translate::call_signature::plain_id;
use crate::translate::settings::{JsonOutput, Reasoning, ToolChoice};

pub fn write(chat: &ChatRequest, target: &Target<'_>, losses: &mut Losses) -> Value {
    let settings = &chat.settings;
    let mut messages = Vec::from_iter(chat.system_message());
    for turn in &chat.turns() {
        match turn.role {
            MessageRole::Assistant => messages.extend(assistant(turn, losses)),
            MessageRole::User => user(turn, losses, &mut messages),
        }
    }
    let mut body = object(json!({
        "model": target.model,
        "messages": messages,
        "stream": chat.request.stream,
        "max_tokens": chat.request.max_tokens,
        "temperature": settings.temperature,
        "p": settings.top_p,
        "k": settings.top_k,
        "seed": settings.seed,
        "frequency_penalty": settings.frequency_penalty,
        "presence_penalty": settings.presence_penalty,
    }));
    set(&mut body, "stop_sequences", Some(settings.stop.clone()).filter(|s| !s.is_empty()));
    set_list(&mut body, "tools", chat::tools(chat, false, losses));
    let choice = match settings.tool_choice {
        Some(ToolChoice::None) => Some("NONE"),
        Some(ToolChoice::Required | ToolChoice::Named(_)) => Some("REQUIRED"),
        Some(ToolChoice::Auto) | None => None,
    };
    if body.get("tools").is_some() {
        set(&mut body, "tool_choice", choice);
    }
    losses.add_if("tool_choice", matches!(settings.tool_choice, Some(ToolChoice::Named(_))));
    losses.add_if("parallel_tool_calls", settings.parallel_tools == Some(false));
    losses.add_if("user", settings.user.is_some());
    let thinking = settings.reasoning.as_ref().map(|reasoning| match reasoning {
        Reasoning::Off => json!({ "type": "disabled" }),
        reasoning => object(json!({ "type": "enabled", "token_budget": reasoning.budget() })),
    });
    set(&mut body, "thinking", thinking);
    let format = |output: &JsonOutput| object(json!({ "type": "json_object", "json_schema": output.schema }));
    set(&mut body, "response_format", settings.output.as_ref().map(format));
    body
}

fn assistant(turn: &Turn<'_>, losses: &mut Losses) -> Option<Value> {
    let mut message = chat::assistant(turn, &|id| plain_id(id).into(), false, &|_| false, losses)?;
    // Words beside calls are the plan for them.
    if message.get("tool_calls").is_some() {
        message["tool_plan"] = message["content"].take();
    }
    Some(object(message))
}

fn user(turn: &Turn<'_>, losses: &mut Losses, out: &mut Vec<Value>) {
    let mut parts = Vec::new();
    for block in &turn.blocks {
        match block {
            ContentBlock::ToolResult { id, content, is_error, .. } => {
                losses.add_if("tool_result.is_error", *is_error);
                losses.add_if("tool_result.image", images(content).next().is_some());
                out.push(json!({ "role": "tool", "tool_call_id": plain_id(id), "content": result_text(content) }));
            }
            ContentBlock::Text { text } => parts.push(json!({ "type": "text", "text": text })),
            ContentBlock::Image(image) if image.data.get().is_some() || image.url.starts_with("http") => {
                parts.push(json!({ "type": "image_url", "image_url": { "url": data_url(image) } }));
            }
            ContentBlock::Image(_) => losses.add("file_id"),
            ContentBlock::Document(file) if file.text().is_some() => {
                parts.push(json!({ "type": "text", "text": file.text() }));
            }
            ContentBlock::Document(_) => losses.add("document"),
            ContentBlock::Other { kind, .. } => losses.add(kind),
            ContentBlock::Thinking { .. } | ContentBlock::ToolUse { .. } | ContentBlock::Error { .. } => {}
        }
    }
    out.extend(user_message(parts));
}
