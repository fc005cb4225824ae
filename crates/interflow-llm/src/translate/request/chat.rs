//! Writes requests of OpenAI's Chat Completions, for OpenAI, Mistral, and servers with that API.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::model_rules::{ModelRules, NO_THINKING};
use super::{
    ChatRequest, LONGEST_ID, MISTRAL_ID, Target, Turn, data_url, images, input_text, left_out, object, result_text,
    set, set_list, tool_id, user_message,
};
use crate::Provider;
use crate::message::{Attachment, Carried, ContentBlock, MessageRole};
use crate::translate::settings::{Reasoning, ToolChoice};
use crate::translate::{Losses, WireFormat};

pub fn write(chat: &ChatRequest, target: &Target<'_>, rules: &ModelRules, losses: &mut Losses) -> Value {
    let settings = &chat.settings;
    let mistral = is_mistral(target);
    let effort = rules.effort(settings.reasoning.as_ref(), losses);
    let reasons = effort.is_some() || rules.thinks_by_default();
    let thinks = rules.thinks_with(effort.as_deref());
    let sampling = rules.sampling(settings, thinks, losses);
    let mut body = json!({ "model": target.model, "messages": messages(chat, target, rules, thinks, losses) });
    let limit = if target.is_openai { "max_completion_tokens" } else { "max_tokens" };
    set(&mut body, limit, chat.request.max_tokens);
    if chat.request.stream {
        body["stream"] = true.into();
        // Mistral reports usage anyway, and refuses members that it does not know.
        if !mistral {
            body["stream_options"] = json!({ "include_usage": true });
        }
    }
    set_list(&mut body, "tools", tools(chat, target.is_openai, losses));
    if body.get("tools").is_some() {
        let choice = rules.tool_choice(settings.tool_choice.as_ref(), thinks, losses).map(|choice| match choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!(if mistral { "any" } else { "required" }),
            ToolChoice::Named(name) => json!({ "type": "function", "function": { "name": name } }),
        });
        set(&mut body, "tool_choice", choice);
        set(&mut body, "parallel_tool_calls", settings.parallel_tools);
    }
    set(&mut body, "temperature", sampling.temperature);
    set(&mut body, "top_p", sampling.top_p);
    set(&mut body, if mistral { "random_seed" } else { "seed" }, settings.seed.clone());
    set(&mut body, "frequency_penalty", sampling.frequency_penalty);
    set(&mut body, "presence_penalty", sampling.presence_penalty);
    set(&mut body, "stop", Some(sampling.stop).filter(|s| !s.is_empty()));
    // Servers of open models know it, OpenAI and Mistral do not.
    let knows_top_k = !target.is_openai && !mistral;
    set(&mut body, "top_k", sampling.top_k.filter(|_| knows_top_k));
    losses.add_if("top_k", settings.top_k.is_some() && !knows_top_k);
    losses.add_if("reasoning", settings.reasoning.as_ref().is_some_and(|r| *r != Reasoning::Off) && !reasons);
    losses.add_if("user", settings.user.is_some() && mistral);
    match effort {
        Some(off) if off == NO_THINKING => body["thinking"] = json!({ "type": off }),
        effort => set(&mut body, "reasoning_effort", effort),
    }
    let format = settings.output.as_ref().map(|output| match &output.schema {
        None => json!({ "type": "json_object" }),
        Some(schema) => {
            let schema = object(json!({ "name": output.name, "schema": schema, "strict": output.strict }));
            json!({ "type": "json_schema", "json_schema": schema })
        }
    });
    set(&mut body, "response_format", format);
    if target.format == WireFormat::Mistral {
        settings.mistral.iter().for_each(|(name, value)| set(&mut body, name, Some(value.clone())));
    }
    body
}

fn is_mistral(target: &Target<'_>) -> bool {
    target.format == WireFormat::Mistral || target.provider == Provider::Mistral
}

fn messages(chat: &ChatRequest, target: &Target<'_>, rules: &ModelRules, thinks: bool, losses: &mut Losses) -> Value {
    let mut out = Vec::from_iter(chat.system_message());
    let mistral = is_mistral(target);
    let id_length = if mistral { MISTRAL_ID } else { LONGEST_ID };
    let has_thoughts = mistral && (rules.ladder().is_some() || rules.thinks_by_default());
    let demands_thoughts = !mistral && rules.demands_thoughts(thinks);
    let keeps =
        |signature: &Carried| (has_thoughts || demands_thoughts) && chat.made_thought(target.format, signature.get());
    for turn in chat.turns() {
        match turn.role {
            MessageRole::Assistant => {
                out.extend(assistant(&turn, &|id| tool_id(id, id_length), demands_thoughts, &keeps, losses));
            }
            MessageRole::User => {
                let words = user(&turn, id_length, losses, &mut out);
                if words.is_some() && target.assistant_after_tools && out.last().is_some_and(|m| m["role"] == "tool") {
                    out.push(json!({ "role": "assistant", "content": AFTER_TOOLS }));
                }
                out.extend(words);
            }
        }
    }
    // Mistral goes on with a message of the assistant only if it is told to.
    if let Some(last) = out.last_mut().filter(|last| mistral && last["role"] == "assistant") {
        last["prefix"] = true.into();
    }
    out.into()
}

/// Stands between the results of tools and the user's words, for APIs that refuse the one after the other.
const AFTER_TOOLS: &str = "OK.";

/// Stands for the thoughts of a turn that has none, for APIs that refuse such a turn; Kimi takes an empty one for none.
const NO_THOUGHTS: &str = " ";

/// `id_of`: the id of a call for the upstream. `keeps`: whether the upstream gets a thought with this signature; it is
/// a member of its own if the upstream demands one of each turn.
pub fn assistant(
    turn: &Turn<'_>,
    id_of: &dyn Fn(&str) -> Cow<'_, str>,
    demands_thoughts: bool,
    keeps: &dyn Fn(&Carried) -> bool,
    losses: &mut Losses,
) -> Option<Value> {
    let (mut text, mut calls, mut thoughts) = (Vec::new(), Vec::new(), Vec::new());
    for block in &turn.blocks {
        match block {
            ContentBlock::Text { text: more } => text.push(more.as_str()),
            ContentBlock::ToolUse { id, name, input } => calls.push(json!({
                "id": id_of(id),
                "type": "function",
                "function": { "name": name, "arguments": input_text(input) },
            })),
            ContentBlock::Thinking { text, signature } if keeps(signature) && !text.is_empty() => {
                thoughts.push(text.as_str())
            }
            ContentBlock::Thinking { .. } => losses.add("thinking"),
            ContentBlock::Other { kind, .. } => losses.add(kind),
            ContentBlock::Image(_) | ContentBlock::Document(_) => losses.add("assistant.image"),
            ContentBlock::ToolResult { .. } | ContentBlock::Error { .. } => {}
        }
    }
    if text.is_empty() && calls.is_empty() {
        return None;
    }
    let text = (!text.is_empty()).then(|| text.join("\n\n"));
    let mut message = json!({ "role": "assistant", "content": text });
    if demands_thoughts {
        let is_missing = thoughts.is_empty();
        message["reasoning_content"] = if is_missing { NO_THOUGHTS.into() } else { thoughts.join("\n\n").into() };
    } else if !thoughts.is_empty() {
        let part = |text| json!({ "type": "thinking", "thinking": [{ "type": "text", "text": text }] });
        let text = text.map(|text| json!({ "type": "text", "text": text }));
        message["content"] = thoughts.into_iter().map(part).chain(text).collect();
    }
    set_list(&mut message, "tool_calls", calls);
    Some(message)
}

/// Appends the results of tools, which are messages of their own, and returns the user's words. Results hold text only:
/// images follow as the user's.
fn user(turn: &Turn<'_>, id_length: usize, losses: &mut Losses, out: &mut Vec<Value>) -> Option<Value> {
    let mut parts = Vec::new();
    for block in &turn.blocks {
        match block {
            ContentBlock::ToolResult { id, content, is_error, .. } => {
                let id = tool_id(id, id_length);
                let mut text = result_text(content);
                losses.add_if("tool_result.is_error", *is_error);
                if images(content).next().is_some() {
                    text.push_str(if text.is_empty() { "The image follows." } else { "\nThe image follows." });
                    parts.extend(images(content).filter_map(|image| image_part(image, losses)));
                }
                out.push(json!({ "role": "tool", "tool_call_id": id, "content": text }));
            }
            ContentBlock::Text { text } => parts.push(json!({ "type": "text", "text": text })),
            ContentBlock::Image(image) => parts.extend(image_part(image, losses)),
            ContentBlock::Document(file) => parts.extend(file_part(file, id_length == MISTRAL_ID, losses)),
            ContentBlock::Other { kind, .. } => losses.add(kind),
            ContentBlock::Thinking { .. } | ContentBlock::ToolUse { .. } | ContentBlock::Error { .. } => {}
        }
    }
    user_message(parts)
}

fn image_part(image: &Attachment, losses: &mut Losses) -> Option<Value> {
    let url = data_url(image);
    if !url.starts_with("data:") && !url.starts_with("http") {
        return left_out(losses, "file_id");
    }
    let image = object(json!({ "url": url, "detail": image.detail.get() }));
    Some(json!({ "type": "image_url", "image_url": image }))
}

fn file_part(file: &Attachment, mistral: bool, losses: &mut Losses) -> Option<Value> {
    let name = if file.title.is_empty() { "document" } else { &file.title };
    let url = || Some(json!({ "type": "document_url", "document_url": data_url(file), "document_name": name }));
    let Some(data) = file.data.get() else {
        let is_taken = mistral && file.url.starts_with("http");
        return if is_taken { url() } else { left_out(losses, "document.url") };
    };
    if let Some(format) = file.media_type.strip_prefix("audio/") {
        let audio = if mistral { data.into() } else { json!({ "data": data, "format": format }) };
        return Some(json!({ "type": "input_audio", "input_audio": audio }));
    }
    if let Some(text) = file.text() {
        return Some(json!({ "type": "text", "text": text }));
    }
    if mistral {
        return url();
    }
    Some(json!({ "type": "file", "file": { "filename": name, "file_data": data_url(file) } }))
}

/// Tools in OpenAI's form, which Cohere and Ollama have taken over.
pub fn tools(chat: &ChatRequest, is_openai: bool, losses: &mut Losses) -> Vec<Value> {
    chat.provider_tools(WireFormat::OpenAiChat, losses);
    let functions = chat.openai_functions(is_openai, losses).into_iter();
    functions
        .map(|f| {
            let function =
                json!({ "name": f.name, "description": f.description, "parameters": f.schema, "strict": f.strict });
            json!({ "type": "function", "function": object(function) })
        })
        .collect()
}
