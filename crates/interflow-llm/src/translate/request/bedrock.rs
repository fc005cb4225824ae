//! Writes requests of Bedrock's Converse.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::anthropic::{CONTINUE, refuses_forced};
use super::cache_marks::CacheMarks;
use super::model_rules::{ClaudeThinking, ModelRules};
use super::{
    ChatRequest, LONGEST_ID, Target, Turn, input_object, is_blank, join_roles, left_out, object, search_result, set,
    set_list, set_object, tool_id,
};
use crate::message::{Attachment, ContentBlock, DOCUMENTS, MessageRole, REDACTED, SEARCH_RESULT};
use crate::translate::citations::attach;
use crate::translate::json_answer::{AnswerTool, JsonAnswer};
use crate::translate::settings::ToolChoice;
use crate::translate::unread::CITATIONS;
use crate::translate::{Losses, WireFormat};

pub fn write(chat: &ChatRequest, target: &Target<'_>, rules: &ModelRules, losses: &mut Losses) -> Value {
    let settings = &chat.settings;
    let claude = target.model.contains("anthropic");
    let turns = chat.turns_from_user(losses);
    let mut messages: Vec<Value> = turns.iter().filter_map(|turn| message(chat, turn, target, losses)).collect();
    join_roles(&mut messages, "content");
    let mut names = HashSet::new();
    messages.iter_mut().for_each(|message| name_apart(&mut message["content"], &mut names));
    let thinking =
        if claude { ClaudeThinking::new(chat, &turns, target, rules, losses) } else { ClaudeThinking::default() };
    let thinks = thinking.thinks;
    if messages.last().is_some_and(|last| last["role"] == "assistant") && rules.refuses("prefill", thinks) {
        losses.add("messages.prefill");
        messages.push(json!({ "role": "user", "content": [{ "text": CONTINUE }] }));
    }
    let mut body = json!({ "messages": messages });
    let caches = CacheUse::of(target.model);
    losses.add_if("cache_control", !chat.cache_marks.is_empty() && !caches.carries(&chat.cache_marks));
    set_list(&mut body, "system", system(chat, caches));
    let mut extra = object(json!({ "thinking": thinking.member }));
    let limit = if claude { thinking.limit } else { chat.request.max_tokens };
    let nova = target.model.contains("amazon.nova");
    let is_structured = if claude { rules.is_structured() } else { !nova };
    let may_force = if claude { !refuses_forced(rules, thinks) } else { nova };
    let choice = settings.tool_choice.as_ref();
    let answer = settings.output.as_ref();
    let answer = answer.map(|output| JsonAnswer::new(output, is_structured, may_force, choice));
    if let (Some(JsonAnswer::Structured(schema)), Some(output)) = (&answer, &settings.output) {
        let definition = json!({ "name": output.name, "schema": schema.to_string() });
        let format = json!({ "type": "json_schema", "structure": { "jsonSchema": definition } });
        body["outputConfig"] = json!({ "textFormat": format });
    }
    if let Some(effort) = thinking.effort {
        body["outputConfig"]["effort"] = effort.into();
    }
    let takes = |name: &str| !thinks && !rules.refuses(name, thinks);
    // The API takes none above 1.
    let is_in_range = |t: &&Value| t.as_f64().is_some_and(|t| t <= 1.0);
    let temperature = settings.temperature.as_ref().filter(|_| takes("temperature")).filter(is_in_range);
    let top_p = settings.top_p.as_ref().filter(|_| takes("top_p") && temperature.is_none());
    let mut config = object(json!({ "maxTokens": limit, "temperature": temperature, "topP": top_p }));
    set(&mut config, "stopSequences", Some(settings.stop.clone()).filter(|s| !s.is_empty()));
    set_object(&mut body, "inferenceConfig", config);
    let top_k = settings.top_k.clone().filter(|_| claude && takes("top_k"));
    losses.add_if("temperature", settings.temperature.is_some() && temperature.is_none());
    losses.add_if("top_p", settings.top_p.is_some() && top_p.is_none());
    losses.add_if("top_k", settings.top_k.is_some() && top_k.is_none());
    losses.add_if("reasoning", !claude && settings.reasoning.as_ref().is_some_and(|r| r.budget().is_some()));
    losses.add_if("seed", settings.seed.is_some());
    losses.add_if("frequency_penalty", settings.frequency_penalty.is_some());
    losses.add_if("presence_penalty", settings.presence_penalty.is_some());
    losses.add_if("user", settings.user.is_some());
    losses.add_if("response_format", answer == Some(JsonAnswer::Lost));
    losses.add_if("parallel_tool_calls", settings.parallel_tools == Some(false));
    set(&mut extra, "top_k", top_k);
    set_object(&mut body, "additionalModelRequestFields", extra);
    let answer = answer.as_ref().and_then(JsonAnswer::tool);
    set_tools(&mut body, chat, &turns, &ToolUse { may_force: !claude || may_force, caches, answer }, losses);
    body
}

/// What the tools of a request depend on.
struct ToolUse<'a> {
    may_force: bool,
    caches: CacheUse,
    /// Name, description and schema of the tool whose arguments are the answer.
    answer: Option<AnswerTool<'a>>,
}

/// Converse has no choice `none`: then tools are left out, unless the history has calls, which demand them.
fn set_tools(body: &mut Value, chat: &ChatRequest, turns: &[Turn<'_>], with: &ToolUse<'_>, losses: &mut Losses) {
    let ToolUse { may_force, caches, answer } = *with;
    let is_call = |b: &&ContentBlock| matches!(b, ContentBlock::ToolUse { .. } | ContentBlock::ToolResult { .. });
    let called = turns.iter().any(|turn| turn.blocks.iter().any(&is_call));
    chat.provider_tools(WireFormat::Bedrock, losses);
    let mut functions = chat.functions();
    if chat.forbids_tools() && !called {
        functions.clear();
    }
    if functions.is_empty() && answer.is_none() {
        return;
    }
    let has_own = !functions.is_empty() && !chat.forbids_tools();
    let answer_tool = answer.map(|(name, description, schema)| {
        json!({ "toolSpec": { "name": name, "description": description, "inputSchema": { "json": schema } } })
    });
    let mut tools: Vec<Value> = functions
        .into_iter()
        .map(|f| {
            let spec = json!({ "name": f.name, "description": f.description, "inputSchema": { "json": f.schema } });
            json!({ "toolSpec": object(spec) })
        })
        .chain(answer_tool)
        .collect();
    // Tools that the provider would run are left out, so that a mark in the list has no place; one at its end has.
    let mark = (0..chat.request.tools.len()).rev().find_map(|i| chat.cache_marks.of_tool(i));
    tools.extend(mark.filter(|_| caches == CacheUse::All).map(|mark| mark.block()));
    let mut config = json!({ "tools": tools });
    let choice = match &chat.settings.tool_choice {
        Some(ToolChoice::Auto) => Some(json!({ "auto": {} })),
        Some(ToolChoice::Required) if may_force => Some(json!({ "any": {} })),
        Some(ToolChoice::Named(name)) if may_force => Some(json!({ "tool": { "name": name } })),
        Some(_) => left_out(losses, "tool_choice"),
        None => None,
    };
    // The client's own tools may be called instead, unless it forbids that.
    let choice = match answer {
        Some(_) if has_own => Some(json!({ "any": {} })),
        Some((name, ..)) => Some(json!({ "tool": { "name": name } })),
        None => choice,
    };
    set(&mut config, "toolChoice", choice);
    body["toolConfig"] = config;
}

/// Which models know cache points.
#[derive(Clone, Copy, PartialEq)]
enum CacheUse {
    None,
    /// Not behind tools: Amazon's Nova.
    Prompt,
    /// Claude.
    All,
}

impl CacheUse {
    fn of(model: &str) -> Self {
        match model {
            model if model.contains("anthropic") => Self::All,
            model if model.contains("amazon.nova") => Self::Prompt,
            _ => Self::None,
        }
    }

    fn carries(self, marks: &CacheMarks) -> bool {
        let is_known = self == Self::All || self == Self::Prompt && !marks.has_tools();
        is_known && marks.are_all_placed()
    }
}

/// The system prompt: one text, or one up to each cache point.
fn system(chat: &ChatRequest, caches: CacheUse) -> Vec<Value> {
    let (mut out, mut text) = (Vec::new(), Vec::new());
    let flush = |text: &mut Vec<&str>, out: &mut Vec<Value>| {
        let whole = std::mem::take(text).join("\n\n");
        out.extend((!whole.is_empty()).then(|| json!({ "text": whole })));
    };
    for (i, part) in chat.request.system.iter().enumerate() {
        text.extend(Some(part.as_str()).filter(|p| !p.is_empty()));
        if let Some(mark) = chat.cache_marks.of_system(i).filter(|_| caches != CacheUse::None) {
            flush(&mut text, &mut out);
            // A cache point has something before it.
            out.extend((!out.is_empty()).then(|| mark.block()));
        }
    }
    flush(&mut text, &mut out);
    out
}

fn message(chat: &ChatRequest, turn: &Turn<'_>, target: &Target<'_>, losses: &mut Losses) -> Option<Value> {
    let (claude, caches) = (target.model.contains("anthropic"), CacheUse::of(target.model));
    let role = if turn.role == MessageRole::Assistant { "assistant" } else { "user" };
    let is_result = |(b, _): &(&&ContentBlock, _)| matches!(b, ContentBlock::ToolResult { .. });
    let (results, others): (Vec<_>, Vec<_>) = turn.blocks.iter().zip(&turn.cached).partition(is_result);
    let mut content = Vec::new();
    for (b, mark) in results.into_iter().chain(others) {
        match b {
            ContentBlock::Other { kind, .. } if kind == CITATIONS => {
                attach(WireFormat::Bedrock, b, &mut content, losses);
            }
            b => content.extend(block(chat, b, claude, losses)),
        }
        let mark = mark.filter(|_| caches != CacheUse::None && !content.is_empty());
        content.extend(mark.map(|mark| mark.block()));
    }
    (!content.is_empty()).then(|| json!({ "role": role, "content": content }))
}

fn block(chat: &ChatRequest, block: &ContentBlock, claude: bool, losses: &mut Losses) -> Option<Value> {
    Some(match block {
        ContentBlock::Text { text } => json!({ "text": text }),
        ContentBlock::Thinking { text, signature } => {
            match signature.get().and_then(|s| chat.anthropic_signature(s)).filter(|_| claude) {
                Some(s) if s.starts_with(REDACTED) => {
                    json!({ "reasoningContent": { "redactedContent": s.trim_start_matches(REDACTED) } })
                }
                Some(s) => json!({ "reasoningContent": { "reasoningText": { "text": text, "signature": s } } }),
                None => return left_out(losses, "thinking"),
            }
        }
        ContentBlock::ToolUse { id, name, input } => {
            json!({ "toolUse": { "toolUseId": tool_id(id, LONGEST_ID), "name": name, "input": input_object(input) } })
        }
        ContentBlock::ToolResult { id, content, is_error, .. } => {
            let content = content.iter().filter(|b| !is_blank(b));
            let mut inner: Vec<Value> = content.filter_map(|b| self::block(chat, b, claude, losses)).collect();
            if inner.is_empty() {
                inner.push(json!({ "text": "(empty)" }));
            }
            let status = if *is_error { "error" } else { "success" };
            let id = tool_id(id, LONGEST_ID);
            json!({ "toolResult": { "toolUseId": id, "content": inner, "status": status } })
        }
        ContentBlock::Image(image) => {
            let Some(data) = image.data.get() else { return left_out(losses, "image.url") };
            let format = image.media_type.trim_start_matches("image/").replace("jpg", "jpeg");
            json!({ "image": { "format": format, "source": { "bytes": data } } })
        }
        ContentBlock::Document(file) => document(file, losses)?,
        ContentBlock::Other { kind, value } if kind == SEARCH_RESULT => search_result(WireFormat::Bedrock, value),
        ContentBlock::Other { kind, .. } => return left_out(losses, kind),
        ContentBlock::Error { .. } => return None,
    })
}

/// Gives each document a name of its own, as the API demands: in the order of the history, so that those of earlier turns
/// keep theirs.
fn name_apart(content: &mut Value, names: &mut HashSet<String>) {
    for block in content.as_array_mut().into_iter().flatten() {
        if let Some(Value::String(name)) = block.pointer_mut("/document/name") {
            while !names.insert(name.clone()) {
                *name = format!("{name}-{}", names.len());
            }
        } else if let Some(inner) = block.pointer_mut("/toolResult/content") {
            name_apart(inner, names);
        }
    }
}

fn document(file: &Attachment, losses: &mut Losses) -> Option<Value> {
    let format = match DOCUMENTS.iter().find(|[_, media]| *media == file.media_type) {
        Some([format, _]) => *format,
        None if file.text().is_some() => "txt",
        None => return left_out(losses, "document"),
    };
    let Some(data) = file.data.get() else { return left_out(losses, "document.url") };
    let bytes = file.text().map_or_else(|| data.to_owned(), |text| STANDARD.encode(text));
    // The API accepts few characters in names.
    let name: String = file.title.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(100).collect();
    let name = if name.is_empty() { "document".to_owned() } else { name };
    let details = file.details();
    let chunks = details["content"].as_array();
    let source = match chunks {
        Some(chunks) => json!({ "content": chunks.iter().map(|chunk| json!({ "text": chunk })).collect::<Value>() }),
        None => json!({ "bytes": bytes }),
    };
    let (citations, context) = (&details[CITATIONS], &details["context"]);
    let document =
        json!({ "format": format, "name": name, "source": source, CITATIONS: citations, "context": context });
    Some(json!({ "document": object(document) }))
}
