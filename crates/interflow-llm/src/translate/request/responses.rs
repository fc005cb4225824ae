//! Writes requests of OpenAI's Responses API.

use serde_json::{Value, json};

use super::model_rules::{ModelRules, NO_EFFORT, NO_THINKING};
use super::{
    ChatRequest, LONGEST_ID, Target, Turn, data_url, images, input_text, left_out, object, result_text, set, set_list,
    tool_id,
};
use crate::message::{Attachment, ContentBlock, MessageRole};
use crate::translate::settings::{Reasoning, ToolChoice};
use crate::translate::{Losses, WireFormat};

/// Smallest limit that the API accepts.
const MIN_OUTPUT_TOKENS: u64 = 16;

pub fn write(chat: &ChatRequest, target: &Target<'_>, rules: &ModelRules, losses: &mut Losses) -> Value {
    let settings = &chat.settings;
    let input: Vec<Value> = chat.turns().iter().flat_map(|turn| items(chat, turn, losses)).collect();
    // The client sends its whole history with each request, so that nothing need be kept for it.
    let mut body = json!({ "model": target.model, "input": input, "store": false });
    set(&mut body, "instructions", Some(chat.system()).filter(|s| !s.is_empty()));
    set(&mut body, "max_output_tokens", chat.request.max_tokens.map(|n| n.max(MIN_OUTPUT_TOKENS)));
    losses.add_if("max_tokens", chat.request.max_tokens.is_some_and(|n| n < MIN_OUTPUT_TOKENS));
    if chat.request.stream {
        body["stream"] = true.into();
    }
    let effort = rules.effort(settings.reasoning.as_ref(), losses);
    let thinks = rules.thinks_with(effort.as_deref());
    let sampling = rules.sampling(settings, thinks, losses);
    set_list(&mut body, "tools", tools(chat, target.is_openai, losses));
    if body.get("tools").is_some() {
        let choice = rules.tool_choice(settings.tool_choice.as_ref(), thinks, losses).map(|choice| match choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Named(name) => json!({ "type": "function", "name": name }),
        });
        set(&mut body, "tool_choice", choice);
        set(&mut body, "parallel_tool_calls", settings.parallel_tools);
    }
    set(&mut body, "temperature", sampling.temperature);
    set(&mut body, "top_p", sampling.top_p);
    let reasons = settings.reasoning.as_ref().is_some_and(|r| *r != Reasoning::Off);
    // One that decides itself how much to think is asked for its thoughts all the same.
    let asks = effort.is_some() || reasons && (rules.thinks_by_default() || !rules.is_known());
    if asks {
        let effort = effort.map(|effort| if effort == NO_THINKING { NO_EFFORT.into() } else { effort });
        body["reasoning"] = object(json!({ "effort": effort }));
        // Clients of OpenAI's APIs do not return them.
        if chat.client.returns_thoughts() {
            body["reasoning"]["summary"] = "auto".into();
            body["include"] = json!(["reasoning.encrypted_content"]);
        }
    }
    losses.add_if("reasoning", reasons && !asks);
    losses.add_if("top_k", settings.top_k.is_some());
    losses.add_if("seed", settings.seed.is_some());
    losses.add_if("stop", !settings.stop.is_empty());
    losses.add_if("frequency_penalty", settings.frequency_penalty.is_some());
    losses.add_if("presence_penalty", settings.presence_penalty.is_some());
    if let Some(output) = &settings.output {
        let format = match &output.schema {
            None => json!({ "type": "json_object" }),
            Some(schema) => {
                object(json!({ "type": "json_schema", "name": output.name, "schema": schema, "strict": output.strict }))
            }
        };
        body["text"] = json!({ "format": format });
    }
    body
}

/// The items of a turn: a message for each run of words and images, and an item for each call, result or thought.
fn items(chat: &ChatRequest, turn: &Turn<'_>, losses: &mut Losses) -> Vec<Value> {
    let (role, text_type) = match turn.role {
        MessageRole::Assistant => ("assistant", "output_text"),
        MessageRole::User => ("user", "input_text"),
    };
    let (mut out, mut parts) = (Vec::new(), Vec::new());
    let flush = |parts: &mut Vec<Value>, out: &mut Vec<Value>| {
        if !parts.is_empty() {
            out.push(json!({ "type": "message", "role": role, "content": std::mem::take(parts) }));
        }
    };
    for block in &turn.blocks {
        match block {
            ContentBlock::Text { text } => parts.push(json!({ "type": text_type, "text": text })),
            ContentBlock::Image(file) | ContentBlock::Document(file) if role == "user" => {
                parts.extend(file_part(file, losses));
            }
            ContentBlock::ToolUse { id, name, input } => {
                flush(&mut parts, &mut out);
                let id = tool_id(id, LONGEST_ID);
                out.push(
                    json!({ "type": "function_call", "call_id": id, "name": name, "arguments": input_text(input) }),
                );
            }
            ContentBlock::ToolResult { id, content, is_error, .. } => {
                flush(&mut parts, &mut out);
                losses.add_if("tool_result.is_error", *is_error);
                let id = tool_id(id, LONGEST_ID);
                out.push(
                    json!({ "type": "function_call_output", "call_id": id, "output": result_output(content, losses) }),
                );
            }
            ContentBlock::Thinking { text, signature } => {
                match signature.get().and_then(|s| chat.openai_reasoning(s)) {
                    Some((id, sealed)) => {
                        flush(&mut parts, &mut out);
                        out.push(reasoning(id, sealed, text));
                    }
                    None => losses.add("thinking"),
                }
            }
            ContentBlock::Other { kind, .. } => losses.add(kind),
            ContentBlock::Image(_) | ContentBlock::Document(_) => losses.add("assistant.image"),
            ContentBlock::Error { .. } => {}
        }
    }
    flush(&mut parts, &mut out);
    out
}

fn reasoning(id: &str, sealed: &str, text: &str) -> Value {
    let summary = if text.is_empty() { json!([]) } else { json!([{ "type": "summary_text", "text": text }]) };
    json!({ "type": "reasoning", "id": id, "summary": summary, "encrypted_content": sealed })
}

/// A text, or a list of parts if there are images.
fn result_output(content: &[ContentBlock], losses: &mut Losses) -> Value {
    if images(content).next().is_none() {
        return result_text(content).into();
    }
    let text = result_text(content);
    let mut parts: Vec<Value> = Vec::new();
    parts.extend((!text.is_empty()).then(|| json!({ "type": "input_text", "text": text })));
    parts.extend(images(content).filter_map(|image| file_part(image, losses)));
    parts.into()
}

fn file_part(file: &Attachment, losses: &mut Losses) -> Option<Value> {
    if let Some(text) = file.text() {
        return Some(json!({ "type": "input_text", "text": text }));
    }
    let url = data_url(file);
    if !url.starts_with("data:") && !url.starts_with("http") {
        return left_out(losses, "file_id");
    }
    Some(match file.media_type.split('/').next() {
        Some("audio") => return left_out(losses, "input_audio"),
        // An image by its URL has no media type.
        Some("image" | "") => {
            json!({ "type": "input_image", "image_url": url, "detail": file.detail.get().unwrap_or("auto") })
        }
        _ if url.starts_with("http") => json!({ "type": "input_file", "file_url": url }),
        _ => {
            let name = if file.title.is_empty() { "document" } else { &file.title };
            json!({ "type": "input_file", "filename": name, "file_data": url })
        }
    })
}

fn tools(chat: &ChatRequest, is_openai: bool, losses: &mut Losses) -> Vec<Value> {
    let own = chat.provider_tools(WireFormat::OpenAiResponses, losses);
    let functions = chat.openai_functions(is_openai, losses).into_iter();
    functions
        .map(|f| {
            // Strict is the default here, which schemas written for other APIs do not fit.
            let strict = f.strict.unwrap_or(false);
            object(json!({
                "type": "function", "name": f.name, "description": f.description, "parameters": f.schema, "strict": strict,
            }))
        })
        .chain(own)
        .collect()
}
