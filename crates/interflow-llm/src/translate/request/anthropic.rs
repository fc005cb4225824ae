//! Writes requests of Anthropic's Messages API.

use serde_json::{Value, json};

use super::model_rules::{ClaudeThinking, ModelRules};
use super::{
    ChatRequest, LONGEST_ID, Target, Turn, input_object, is_blank, join_roles, left_out, object, search_result, set,
    set_list, set_object, tool_id,
};
use crate::message::{Attachment, ContentBlock, MessageRole, REDACTED, SEARCH_RESULT, take_list};
use crate::translate::citations::attach;
use crate::translate::json_answer::{AnswerTool, JsonAnswer, fits};
use crate::translate::settings::ToolChoice;
use crate::translate::unread::CITATIONS;
use crate::translate::{Losses, WireFormat};

/// The most tools of a request whose calls the API makes follow their schemas.
const MAX_STRICT_TOOLS: usize = 20;

pub fn write(chat: &ChatRequest, target: &Target<'_>, rules: &ModelRules, losses: &mut Losses) -> Value {
    let settings = &chat.settings;
    let turns = chat.turns_from_user(losses);
    let ClaudeThinking { member, effort, limit, thinks } = ClaudeThinking::new(chat, &turns, target, rules, losses);
    let mut messages: Vec<Value> = turns.iter().filter_map(|turn| message(chat, turn, losses)).collect();
    join_roles(&mut messages, "content");
    if messages.last().is_some_and(|last| last["role"] == "assistant") && rules.refuses("prefill", thinks) {
        losses.add("messages.prefill");
        messages.push(json!({ "role": "user", "content": CONTINUE }));
    }
    let mut body = json!({
        "model": target.model,
        "max_tokens": limit.unwrap_or(target.max_tokens),
        "messages": messages,
    });
    set(&mut body, "system", Some(chat.system()).filter(|s| !s.is_empty()));
    set(&mut body, "thinking", member);
    let choice = settings.tool_choice.as_ref();
    let may_force = !refuses_forced(rules, thinks);
    let answer = settings.output.as_ref();
    let answer = answer.map(|output| JsonAnswer::new(output, rules.is_structured(), may_force, choice));
    let answer_tool = answer.as_ref().and_then(JsonAnswer::tool);
    set_list(&mut body, "tools", tools(chat, rules, answer_tool, losses));
    set_tool_choice(&mut body, chat, may_force, answer_tool.map(|(name, ..)| name), losses);
    if chat.request.stream {
        body["stream"] = true.into();
    }
    set(&mut body, "stop_sequences", Some(settings.stop.clone()).filter(|s| !s.is_empty()));
    set(&mut body, "metadata", settings.user.as_ref().map(|user| json!({ "user_id": user })));
    // Sampling cannot be set while the model thinks, nor temperature above 1, nor both for newer models.
    let takes = |name: &str| !thinks && !rules.refuses(name, thinks);
    let temperature = settings.temperature.as_ref().filter(|t| t.as_f64().is_some_and(|t| t <= 1.0));
    let temperature = temperature.filter(|_| takes("temperature"));
    set(&mut body, "temperature", temperature.cloned());
    let top_p = settings.top_p.clone().filter(|_| takes("top_p") && temperature.is_none());
    let top_k = settings.top_k.clone().filter(|_| takes("top_k"));
    let is_changed = |value: &Option<Value>, usual: f64| value.as_ref().is_some_and(|v| v.as_f64() != Some(usual));
    losses.add_if("temperature", is_changed(&settings.temperature, 1.0) && temperature.is_none());
    losses.add_if("top_p", is_changed(&settings.top_p, 1.0) && top_p.is_none());
    losses.add_if("top_k", settings.top_k.is_some() && top_k.is_none());
    losses.add_if("seed", settings.seed.is_some());
    losses.add_if("frequency_penalty", is_changed(&settings.frequency_penalty, 0.0));
    losses.add_if("presence_penalty", is_changed(&settings.presence_penalty, 0.0));
    set(&mut body, "top_p", top_p);
    set(&mut body, "top_k", top_k);
    let mut config = object(json!({ "effort": effort }));
    match answer {
        Some(JsonAnswer::Structured(schema)) => config["format"] = json!({ "type": "json_schema", "schema": schema }),
        Some(JsonAnswer::Lost) => losses.add("response_format"),
        Some(JsonAnswer::Tool(_)) | None => {}
    }
    set_object(&mut body, "output_config", config);
    body
}

/// The user's words after a last turn of the assistant, for models that do not go on with one.
pub const CONTINUE: &str = "Continue.";

/// Whether a model cannot be made to call a tool.
pub fn refuses_forced(rules: &ModelRules, thinks: bool) -> bool {
    if rules.is_known() { rules.refuses("tool_choice.forced", thinks) } else { thinks }
}

fn message(chat: &ChatRequest, turn: &Turn<'_>, losses: &mut Losses) -> Option<Value> {
    let role = if turn.role == MessageRole::Assistant { "assistant" } else { "user" };
    // Results of tools come first in a message.
    let is_result = |b: &&&ContentBlock| matches!(b, ContentBlock::ToolResult { .. });
    let (results, others): (Vec<&&ContentBlock>, Vec<_>) = turn.blocks.iter().partition(is_result);
    let mut content = Vec::new();
    for b in results.into_iter().chain(others) {
        match b {
            ContentBlock::Other { kind, .. } if kind == CITATIONS => {
                attach(WireFormat::Anthropic, b, &mut content, losses);
            }
            b => content.extend(block(chat, b, losses)),
        }
    }
    (!content.is_empty()).then(|| json!({ "role": role, "content": content }))
}

fn block(chat: &ChatRequest, block: &ContentBlock, losses: &mut Losses) -> Option<Value> {
    Some(match block {
        ContentBlock::Text { text } => json!({ "type": "text", "text": text }),
        ContentBlock::Thinking { text, signature } => {
            let signed = signature.get().and_then(|s| chat.anthropic_signature(s));
            match signed {
                Some(s) if s.starts_with(REDACTED) => {
                    json!({ "type": "redacted_thinking", "data": s.trim_start_matches(REDACTED) })
                }
                Some(s) => json!({ "type": "thinking", "thinking": text, "signature": s }),
                None => return left_out(losses, "reasoning_content"),
            }
        }
        ContentBlock::ToolUse { id, name, input } => {
            json!({ "type": "tool_use", "id": tool_id(id, LONGEST_ID), "name": name, "input": input_object(input) })
        }
        ContentBlock::ToolResult { id, content, is_error, .. } => {
            let content = content.iter().filter(|b| !is_blank(b));
            let content: Vec<Value> = content.filter_map(|b| self::block(chat, b, losses)).collect();
            let is_error = is_error.then_some(true);
            object(
                json!({ "type": "tool_result", "tool_use_id": tool_id(id, LONGEST_ID), "content": content, "is_error": is_error }),
            )
        }
        ContentBlock::Image(file) => json!({ "type": "image", "source": source(file, losses)? }),
        ContentBlock::Document(file) if file.media_type.starts_with("audio/") => {
            return left_out(losses, "input_audio");
        }
        ContentBlock::Document(file) if file.text().is_none() && !takes_document(file) => {
            return left_out(losses, "document");
        }
        ContentBlock::Document(file) => {
            let title = Some(&file.title).filter(|t| !t.is_empty());
            let (source, details) = (source(file, losses)?, file.details());
            object(json!({
                "type": "document", "source": source, "title": title,
                CITATIONS: details[CITATIONS], "context": details["context"],
            }))
        }
        ContentBlock::Other { kind, value } if kind == SEARCH_RESULT => search_result(WireFormat::Anthropic, value),
        ContentBlock::Other { kind, .. } => return left_out(losses, kind),
        ContentBlock::Error { .. } => return None,
    })
}

/// Beside text the API has PDF only.
fn takes_document(file: &Attachment) -> bool {
    file.data.get().is_none() || file.media_type == "application/pdf"
}

fn source(file: &Attachment, losses: &mut Losses) -> Option<Value> {
    let chunks = take_list(&mut file.details(), "content");
    if !chunks.is_empty() {
        let chunks: Value = chunks.iter().map(|chunk| json!({ "type": "text", "text": chunk })).collect();
        return Some(json!({ "type": "content", "content": chunks }));
    }
    if let Some(text) = file.text() {
        return Some(json!({ "type": "text", "media_type": "text/plain", "data": text }));
    }
    match file.data.get() {
        Some(data) => Some(json!({ "type": "base64", "media_type": file.media_type, "data": data })),
        None if file.url.starts_with("http") => Some(json!({ "type": "url", "url": file.url })),
        // A file's id, valid at its own provider only.
        None => left_out(losses, "file_id"),
    }
}

fn tools(chat: &ChatRequest, rules: &ModelRules, answer: Option<AnswerTool<'_>>, losses: &mut Losses) -> Vec<Value> {
    let functions = chat.functions().into_iter();
    let own = chat.provider_tools(WireFormat::Anthropic, losses);
    let enforces = rules.is_structured();
    let mut strict_tools = 0;
    let answer = answer
        .map(|(name, description, schema)| json!({ "name": name, "description": description, "input_schema": schema }));
    functions
        .map(|f| {
            // A schema that goes beyond what the API enforces would be refused.
            let is_strict = f.strict == Some(true);
            let strict = (is_strict && enforces && strict_tools < MAX_STRICT_TOOLS && fits(&f.schema)).then_some(true);
            strict_tools += usize::from(strict.is_some());
            losses.add_if("tools.strict", is_strict && strict.is_none());
            object(json!({ "name": f.name, "description": f.description, "input_schema": f.schema, "strict": strict }))
        })
        .chain(answer)
        .chain(own)
        .collect()
}

fn set_tool_choice(body: &mut Value, chat: &ChatRequest, may_force: bool, answer: Option<&str>, losses: &mut Losses) {
    let Some(tools) = body["tools"].as_array() else { return };
    if let Some(answer) = answer {
        // The client's own tools may be called instead, unless it forbids that.
        let is_only = tools.len() == 1 || chat.forbids_tools();
        body["tool_choice"] =
            if is_only { json!({ "type": "tool", "name": answer }) } else { json!({ "type": "any" }) };
        // There is one answer.
        if is_only || chat.settings.parallel_tools == Some(false) {
            body["tool_choice"]["disable_parallel_tool_use"] = true.into();
        }
        return;
    }
    let forced = |choice: Value, losses: &mut Losses| {
        if may_force {
            return choice;
        }
        losses.add("tool_choice");
        json!({ "type": "auto" })
    };
    let choice = match &chat.settings.tool_choice {
        Some(ToolChoice::None) => json!({ "type": "none" }),
        Some(ToolChoice::Required) => forced(json!({ "type": "any" }), losses),
        Some(ToolChoice::Named(name)) => forced(json!({ "type": "tool", "name": name }), losses),
        Some(ToolChoice::Auto) => json!({ "type": "auto" }),
        None if chat.settings.parallel_tools.is_some() => json!({ "type": "auto" }),
        None => return,
    };
    body["tool_choice"] = choice;
    if chat.settings.parallel_tools == Some(false) && body["tool_choice"]["type"] != "none" {
        body["tool_choice"]["disable_parallel_tool_use"] = true.into();
    }
}
