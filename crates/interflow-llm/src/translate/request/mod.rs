//! A client's request, and what the writers of all formats share: turns, tools, ids of tool calls.

mod anthropic;
mod bedrock;
mod cache_marks;
mod chat;
mod cohere;
mod gemini;
mod model_rules;
mod ollama;
mod options;
mod responses;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::call_signature::plain_id;
use super::citations::detach;
use super::foreign_reasoning::{ANTHROPIC_MARK, OPENAI_MARK, has_mark, opened, unsigned};
use super::settings::{Settings, ToolChoice, to_json_schema};
use super::unread::CITATIONS;
use super::{Losses, WireFormat, is_of_provider, unread};
use crate::Provider;
use crate::message::{
    Attachment, Carried, ChatMessage, ContentBlock, MessageRole, ModelRequest, SEARCH_RESULT, ToolDefinition, joined,
    parse, take_list,
};
use cache_marks::{CacheMark, CacheMarks};
use model_rules::ModelRules;
pub use model_rules::{binds_thoughts, may_need_responses, refused_settings};

/// A chat request in the message model, with its settings.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    pub client: WireFormat,
    pub request: ModelRequest,
    pub settings: Settings,
    /// What the model itself cannot hold.
    losses: Losses,
    cache_marks: CacheMarks,
}

/// What a request is written for.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub format: WireFormat,
    pub provider: Provider,
    /// The upstream's name in the configuration.
    pub upstream: &'a str,
    /// The model's name at the upstream.
    pub model: &'a str,
    /// Sent to APIs that require a limit on output tokens if the client has none.
    pub max_tokens: u64,
    /// OpenAI itself, or its models on Azure: some members have other names than at servers with its API.
    pub is_openai: bool,
    /// A message of the assistant has to come between the result of a tool and the user's words, as Mistral demands.
    pub assistant_after_tools: bool,
}

impl ChatRequest {
    /// Reads a client's body.
    ///
    /// # Errors
    /// A message for the client: the request refers to state that only the provider of its own format has.
    pub fn parse(client: WireFormat, mut body: Value) -> Result<Self, String> {
        let Some(api) = client.api() else { return Err("requests of this API are not translated".to_owned()) };
        let (provider, stateful) = match client {
            WireFormat::OpenAiResponses => ("OpenAI", "previous_response_id conversation prompt background"),
            WireFormat::Interactions => {
                ("Google", "previous_interaction_id agent background environment continuation_token cached_content")
            }
            WireFormat::Gemini => ("Google", "cachedContent cached_content"),
            _ => ("", ""),
        };
        let is_given = |name: &&str| body.get(*name).is_some_and(|v| !v.is_null() && *v != false);
        if let Some(name) = stateful.split_whitespace().find(is_given) {
            return Err(format!(
                "`{name}` refers to state at {provider}, which this upstream does not have; send the whole input"
            ));
        }
        if matches!(client, WireFormat::Anthropic | WireFormat::Bedrock)
            && let Some(messages) = body["messages"].as_array_mut()
        {
            let own = messages.iter_mut().filter(|message| message["role"] == "assistant");
            own.filter_map(|message| message.get_mut("content")).for_each(detach);
        }
        let mut losses = Losses::default();
        let settings = Settings::read(client, &body, &mut losses);
        let cache_marks = CacheMarks::read(client, &body);
        unread::name_in_request(client, &body, &mut losses);
        let mut request = parse::request_with_data(api, "", body);
        if matches!(client, WireFormat::Gemini | WireFormat::Interactions) {
            from_google(&mut request);
        }
        request.messages.iter_mut().flat_map(|message| &mut message.blocks).for_each(write_out_result);
        let chat = Self { client, request, settings, losses, cache_marks };
        // Every API refuses it, each in words of its own.
        if chat.turns().is_empty() && !chat.is_lone_system() {
            return Err("the request has no messages, or none with content".to_owned());
        }
        Ok(chat)
    }

    /// Whether OpenAI serves this request in its Responses API only.
    pub fn needs_responses(&self, upstream: &str, model: &str) -> bool {
        let is_function = |tool: &ToolDefinition| !self.is_custom(tool);
        let has_functions = self.request.tools.iter().any(is_function);
        ModelRules::of(upstream, model).needs_responses(self.settings.reasoning.as_ref(), has_functions)
    }

    /// The body for an upstream, and what it lacks.
    pub fn write(&self, target: &Target<'_>) -> (Value, Losses) {
        let mut losses = self.losses.clone();
        losses.add_if("provider_tool_calls", self.blocks().any(|block| is_of_provider(self.client, block)));
        losses.add_if("cache_control", !self.cache_marks.is_empty() && target.format != WireFormat::Bedrock);
        let has_details =
            matches!(target.format, WireFormat::OpenAiChat | WireFormat::OpenAiResponses | WireFormat::Mistral);
        losses.add_if("image.detail", !has_details && self.has_image_detail());
        if !matches!(target.format, WireFormat::Anthropic | WireFormat::Bedrock) {
            let messages = self.request.messages.iter();
            messages.for_each(|message| unread::name_of_documents(&message.blocks, &mut losses));
        }
        if !has_details && target.format != WireFormat::Anthropic {
            losses.add_if("tools.strict", self.request.tools.iter().any(is_strict));
        }
        if target.format != WireFormat::Mistral {
            self.settings.mistral.keys().for_each(|name| losses.add(name));
        }
        if self.is_lone_system() && !takes_lone_system(target) {
            losses.add("messages.system");
            let words = self.as_words();
            return (words.body(target, &mut losses), losses);
        }
        let takes_search = target.format == WireFormat::Anthropic
            || target.format == WireFormat::Bedrock && target.model.contains("anthropic");
        if !takes_search && self.blocks().any(ContentBlock::has_search) {
            losses.add(if self.client == WireFormat::Bedrock { "searchResult" } else { SEARCH_RESULT });
            let mut plain = self.clone();
            let messages = plain.request.messages.iter_mut();
            messages.flat_map(|message| &mut message.blocks).for_each(ContentBlock::write_out_search);
            return (plain.body(target, &mut losses), losses);
        }
        (self.body(target, &mut losses), losses)
    }

    fn body(&self, target: &Target<'_>, losses: &mut Losses) -> Value {
        let rules = ModelRules::of(target.upstream, target.model);
        let mut body = match target.format {
            WireFormat::Anthropic => anthropic::write(self, target, &rules, losses),
            WireFormat::OpenAiChat | WireFormat::Mistral => chat::write(self, target, &rules, losses),
            WireFormat::OpenAiResponses => responses::write(self, target, &rules, losses),
            WireFormat::Gemini | WireFormat::Interactions => gemini::write(self, &rules, losses),
            WireFormat::Bedrock => bedrock::write(self, target, &rules, losses),
            WireFormat::Cohere => cohere::write(self, target, losses),
            WireFormat::Ollama => ollama::write(self, target, losses),
        };
        options::write(self, target, &mut body, losses);
        body
    }

    /// Whether it has nothing but a system prompt.
    fn is_lone_system(&self) -> bool {
        self.turns().is_empty() && !self.system().is_empty()
    }

    /// The system prompt as the user's words, for APIs that demand a message of the user.
    fn as_words(&self) -> Self {
        let message = ChatMessage::text(MessageRole::User, self.system());
        let request = ModelRequest { system: Vec::new(), messages: vec![message], ..self.request.clone() };
        Self { request, cache_marks: CacheMarks::default(), ..self.clone() }
    }

    /// The messages with consecutive ones of one role joined, since several APIs demand that roles alternate.
    fn turns(&self) -> Vec<Turn<'_>> {
        let mut turns: Vec<Turn<'_>> = Vec::new();
        for (m, message) in self.request.messages.iter().enumerate() {
            let is_kept = |b: &ContentBlock| !is_blank(b) && !is_of_provider(self.client, b);
            let blocks = message.blocks.iter().enumerate().filter(|(_, b)| is_kept(b));
            if blocks.clone().next().is_none() {
                continue;
            }
            let marks: Vec<_> = blocks.clone().map(|(b, _)| self.cache_marks.of_block(m, b)).collect();
            let blocks = blocks.map(|(_, block)| block);
            match turns.last_mut().filter(|turn| turn.role == message.role) {
                Some(turn) => {
                    turn.blocks.extend(blocks);
                    turn.cached.extend(marks);
                }
                None => turns.push(Turn { role: message.role, blocks: blocks.collect(), cached: marks }),
            }
        }
        turns
    }

    /// As [`turns`](Self::turns), for APIs whose history begins with the user: one that does not, gets a turn of the
    /// user's in front.
    fn turns_from_user(&self, losses: &mut Losses) -> Vec<Turn<'_>> {
        let mut turns = self.turns();
        if turns.first().is_some_and(|turn| turn.role == MessageRole::Assistant) {
            losses.add("messages.assistant_first");
            let first = Turn { role: MessageRole::User, blocks: vec![&FIRST_TURN], cached: vec![None] };
            turns.insert(0, first);
        }
        turns
    }

    fn system(&self) -> String {
        self.request.system.iter().filter(|s| !s.is_empty()).cloned().collect::<Vec<_>>().join("\n\n")
    }

    /// The system prompt as a message, if there is one.
    fn system_message(&self) -> Option<Value> {
        Some(self.system()).filter(|s| !s.is_empty()).map(|s| json!({ "role": "system", "content": s }))
    }

    fn blocks(&self) -> impl Iterator<Item = &ContentBlock> {
        self.request.messages.iter().flat_map(|message| &message.blocks)
    }

    fn has_image_detail(&self) -> bool {
        images(self.blocks()).any(|image| image.detail.get().is_some())
    }

    /// The names of the client's custom tools, whose input is a text.
    pub fn custom_tools(&self) -> Vec<String> {
        let tools = self.request.tools.iter().filter(|tool| self.is_custom(tool));
        tools.map(|tool| tool.name.clone()).collect()
    }

    fn is_custom(&self, tool: &ToolDefinition) -> bool {
        let has_custom = !matches!(self.client, WireFormat::Anthropic | WireFormat::Gemini | WireFormat::Bedrock);
        has_custom && tool.definition["type"] == "custom"
    }

    /// The kind of a tool that a provider runs itself; `None` for one of the client's own.
    fn provider_kind<'t>(&self, tool: &'t ToolDefinition) -> Option<&'t str> {
        let kind = tool.definition["type"].as_str();
        let is_own = match self.client {
            WireFormat::Anthropic => kind.is_none_or(|kind| kind == "custom"),
            WireFormat::Gemini | WireFormat::Bedrock => tool.definition["name"].is_string(),
            _ => kind == Some("function") || self.is_custom(tool),
        };
        (!is_own).then(|| kind.unwrap_or(&tool.name))
    }

    /// What this format has for the tools that a provider runs itself; the others are lost.
    fn provider_tools(&self, format: WireFormat, losses: &mut Losses) -> Vec<Value> {
        let kinds = self.request.tools.iter().filter_map(|tool| self.provider_kind(tool));
        let named = |row: &&Value, kind: &str| {
            row["kinds"]
                .as_array()
                .is_some_and(|all| all.iter().any(|name| name.as_str().is_some_and(|n| kind.starts_with(n))))
        };
        kinds
            .filter_map(|kind| {
                let row = PROVIDER_TOOLS.as_array()?.iter().find(|row| named(row, kind));
                let tool = row.and_then(|row| row.get(format.as_str()));
                losses.add_if(&format!("tools.{kind}"), tool.is_none());
                tool.cloned()
            })
            .collect()
    }

    /// The client's own tools. Custom tools become functions with one text.
    fn functions(&self) -> Vec<Function<'_>> {
        let mut functions = Vec::new();
        for tool in self.request.tools.iter().filter(|tool| self.provider_kind(tool).is_none()) {
            let definition = &tool.definition;
            if self.is_custom(tool) {
                functions.push(custom_function(tool));
                continue;
            }
            let inner = if definition["function"].is_object() { &definition["function"] } else { definition };
            let members =
                ["parametersJsonSchema", "parameters_json_schema", "parameters", "input_schema", "inputSchema"];
            let schema = members.into_iter().find_map(|name| inner.get(name));
            let schema = schema.map(|schema| schema.get("json").unwrap_or(schema));
            let mut schema = schema.filter(|s| s.as_object().is_some_and(|s| !s.is_empty())).cloned();
            if self.client == WireFormat::Gemini {
                schema.iter_mut().for_each(to_json_schema);
            }
            functions.push(Function {
                name: &tool.name,
                description: Some(tool.description.as_str().into()).filter(|d: &Cow<'_, str>| !d.is_empty()),
                schema: schema.unwrap_or_else(|| json!({ "type": "object", "properties": {} })),
                strict: inner["strict"].as_bool(),
            });
        }
        functions
    }

    /// As [`functions`](Self::functions), for OpenAI: what its strictness demands of a schema, that of Anthropic does not.
    fn openai_functions(&self, is_openai: bool, losses: &mut Losses) -> Vec<Function<'_>> {
        let mut functions = self.functions();
        if is_openai && self.client == WireFormat::Anthropic {
            let unfit = functions.iter_mut().filter(|f| f.strict == Some(true) && !requires_all(&f.schema));
            for function in unfit {
                function.strict = None;
                losses.add("tools.strict");
            }
        }
        functions
    }

    /// Whether tools must not be called. APIs without such a setting are then not shown the tools, unless the history
    /// has calls.
    fn forbids_tools(&self) -> bool {
        self.settings.tool_choice == Some(ToolChoice::None)
    }

    /// Anthropic's signature of a thought: clients of other formats got it with a mark in front.
    fn anthropic_signature<'s>(&self, signature: &'s str) -> Option<&'s str> {
        match self.client {
            client if client.returns_thoughts() => Some(signature).filter(|s| !has_mark(s.as_bytes())),
            WireFormat::OpenAiResponses => signature.split_once(':')?.1.strip_prefix(ANTHROPIC_MARK),
            _ => None,
        }
    }

    /// Whether an upstream of this format made a thought. A client of Chat Completions cannot say.
    fn made_thought(&self, format: WireFormat, signature: Option<&str>) -> bool {
        match self.client {
            client if client.returns_thoughts() => signature == Some(&*unsigned(format)),
            WireFormat::OpenAiResponses => {
                signature.and_then(|s| s.split_once(':')).is_some_and(|(_, mark)| mark == unsigned(format))
            }
            _ => true,
        }
    }

    /// Id and content of a reasoning item of OpenAI that a client of another API returns.
    fn openai_reasoning<'s>(&self, signature: &'s str) -> Option<(&'s str, &'s str)> {
        signature.strip_prefix(OPENAI_MARK)?.split_once(':').filter(|_| self.client.returns_thoughts())
    }
}

/// Makes what only Google's APIs have as other clients would send it: signatures that hold those of other providers, and
/// calls without ids, which results belong to by the tool's name, in order. Other APIs refuse a second result of a call,
/// which Gemini CLI sends when it resumes.
fn from_google(request: &mut ModelRequest) {
    let (mut at, mut by_name, mut open) = (0, HashMap::<String, VecDeque<String>>::new(), HashMap::new());
    for message in &mut request.messages {
        message.blocks.retain_mut(|block| {
            at += 1;
            match block {
                ContentBlock::Thinking { signature, .. } => {
                    *signature = Carried::new(signature.get().and_then(opened).unwrap_or_default());
                }
                ContentBlock::ToolUse { id, name, .. } => {
                    if id.is_empty() {
                        *id = format!("call_{}", at - 1);
                    }
                    by_name.entry(name.clone()).or_default().push_back(id.clone());
                    *open.entry(id.clone()).or_default() += 1;
                }
                ContentBlock::ToolResult { id, name, .. } => {
                    if let Some(calls) = by_name.get_mut(name).filter(|_| id.is_empty()) {
                        // Some were answered by their ids.
                        let mut calls = std::iter::from_fn(|| calls.pop_front());
                        *id = calls.find(|call| open.get(call).is_some_and(|n| *n > 0)).unwrap_or_default();
                    }
                    return open.get_mut(id).is_none_or(|n: &mut usize| std::mem::replace(n, n.saturating_sub(1)) > 0);
                }
                _ => {}
            }
            true
        });
    }
}

/// Makes a tool's structured result a text, since most APIs have no other.
fn write_out_result(block: &mut ContentBlock) {
    let ContentBlock::ToolResult { content, .. } = block else { return };
    for inner in content {
        if let ContentBlock::Other { kind, value } = inner
            && ["response", "result", "output", "json"].contains(&kind.as_str())
        {
            *inner = ContentBlock::text(value.to_string());
        }
    }
}

/// The tools that providers run themselves, by their names in requests, and what each format has for them.
static PROVIDER_TOOLS: LazyLock<Value> =
    LazyLock::new(|| crate::built_in(include_str!("../../../data/provider_tools.json")));

/// Whether an API answers a request without a message of the user.
fn takes_lone_system(target: &Target<'_>) -> bool {
    match target.format {
        WireFormat::OpenAiChat => target.provider != Provider::Mistral,
        WireFormat::Ollama => true,
        _ => false,
    }
}

/// Stands for what the user said before a history that begins with the assistant.
static FIRST_TURN: LazyLock<ContentBlock> =
    LazyLock::new(|| ContentBlock::text("(The beginning of the conversation is not available.)"));

struct Turn<'a> {
    role: MessageRole,
    blocks: Vec<&'a ContentBlock>,
    /// For each block, the mark of the cached prefix that ends with it.
    cached: Vec<Option<&'a CacheMark>>,
}

struct Function<'a> {
    name: &'a str,
    description: Option<Cow<'a, str>>,
    schema: Value,
    strict: Option<bool>,
}

/// Whether all objects of a schema are closed and demand each of their members.
fn requires_all(schema: &Value) -> bool {
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    let is_object = schema["type"] == "object" || schema.get("properties").is_some();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let inner = ["items", "anyOf", "$defs", "definitions"].into_iter().filter_map(|name| schema.get(name));
    let each = |value: &Value| match value {
        Value::Array(all) => all.iter().all(requires_all),
        Value::Object(all) if schema.get("items") != Some(value) => all.values().all(requires_all),
        one => requires_all(one),
    };
    (!is_object || schema["additionalProperties"] == false)
        && properties.into_iter().all(|(name, inner)| required.iter().any(|r| r == name) && requires_all(inner))
        && inner.into_iter().all(each)
}

fn is_strict(tool: &ToolDefinition) -> bool {
    tool.definition["strict"] == true || tool.definition["function"]["strict"] == true
}

/// A function in place of a custom tool. A grammar, which a function does not enforce, is part of its description.
fn custom_function(tool: &ToolDefinition) -> Function<'_> {
    let definition = &tool.definition;
    let inner = if definition["custom"].is_object() { &definition["custom"] } else { definition };
    let format = if inner["format"]["grammar"].is_object() { &inner["format"]["grammar"] } else { &inner["format"] };
    let mut description = inner["description"].as_str().unwrap_or_default().to_owned();
    if let Some(grammar) = format["definition"].as_str() {
        let syntax = format["syntax"].as_str().unwrap_or("given");
        let sentence = format!("The member `input` is a text that follows this grammar ({syntax}):\n{grammar}");
        description = if description.is_empty() { sentence } else { format!("{description}\n\n{sentence}") };
    }
    let schema = json!({
        "type": "object", "properties": { "input": { "type": "string" } }, "required": ["input"],
        "additionalProperties": false,
    });
    let description = Some(description.into()).filter(|d: &Cow<'_, str>| !d.is_empty());
    Function { name: &tool.name, description, schema, strict: None }
}

fn is_blank(block: &ContentBlock) -> bool {
    match block {
        ContentBlock::Text { text } => text.trim().is_empty(),
        ContentBlock::Error { .. } => true,
        _ => false,
    }
}

type ToolNames = HashMap<String, String>;

/// The name of each called tool by the call's id, for formats whose results name the tool.
fn tool_names(turns: &[Turn<'_>]) -> ToolNames {
    let named = |block: &&ContentBlock| match block {
        ContentBlock::ToolUse { id, name, .. } => Some((id.clone(), name.clone())),
        _ => None,
    };
    turns.iter().flat_map(|turn| &turn.blocks).filter_map(named).collect()
}

/// The text of a tool's result; structured content as JSON. Attachments are left to the caller.
fn result_text(content: &[ContentBlock]) -> String {
    let other: Vec<String> = content
        .iter()
        .filter_map(|block| match block {
            ContentBlock::Other { value, .. } => Some(value.to_string()),
            _ => None,
        })
        .collect();
    if other.is_empty() {
        joined(content)
    } else {
        [vec![joined(content)], other].concat().join("\n").trim().to_owned()
    }
}

/// The user's message in OpenAI's form, if it has content: a single text in its simplest form, which every server
/// understands.
fn user_message(parts: Vec<Value>) -> Option<Value> {
    let content = match parts.as_slice() {
        [] => return None,
        [only] if only["type"] == "text" => only["text"].clone(),
        _ => parts.into(),
    };
    Some(json!({ "role": "user", "content": content }))
}

fn images<'b>(content: impl IntoIterator<Item = &'b ContentBlock>) -> impl Iterator<Item = &'b Attachment> {
    content.into_iter().filter_map(|block| match block {
        ContentBlock::Image(image) => Some(image),
        _ => None,
    })
}

/// The URL of an attachment, which holds the data if there is any.
fn data_url(file: &Attachment) -> String {
    file.data.get().map_or_else(|| file.url.clone(), |data| format!("data:{};base64,{data}", file.media_type))
}

/// A search result for an API that has them.
fn search_result(format: WireFormat, value: &Value) -> Value {
    let texts = value["content"].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
    let is_converse = format == WireFormat::Bedrock;
    let kind = (!is_converse).then_some("text");
    let content: Value = texts.map(|text| object(json!({ "type": kind, "text": text }))).collect();
    let kind = (!is_converse).then_some(SEARCH_RESULT);
    let result = object(json!({
        "type": kind, "source": value["source"], "title": value["title"], "content": content, CITATIONS: value[CITATIONS],
    }));
    if is_converse { json!({ "searchResult": result }) } else { result }
}

/// Arguments as an object, which most APIs demand; others are wrapped.
fn input_object(input: &Value) -> Value {
    match input {
        Value::Object(_) => input.clone(),
        Value::Null => json!({}),
        other => json!({ "input": other }),
    }
}

/// Arguments as JSON in a string. A text, the input of a custom tool, is wrapped as in [`input_object`].
fn input_text(input: &Value) -> String {
    match input {
        Value::String(_) => input_object(input).to_string(),
        Value::Null => "{}".to_owned(),
        other => other.to_string(),
    }
}

/// The id of a tool call as an API accepts it: letters, digits, `_` and `-`, up to `max`. Others become a hash, the
/// same for call and result.
fn tool_id(id: &str, max: usize) -> Cow<'_, str> {
    let id = plain_id(id);
    let fits = |c: char| c.is_ascii_alphanumeric() || max > MISTRAL_ID && (c == '_' || c == '-');
    let exact = max > MISTRAL_ID || id.len() == max;
    if !id.is_empty() && id.len() <= max && exact && id.chars().all(fits) {
        return Cow::Borrowed(id);
    }
    let hash = blake3::hash(id.as_bytes()).to_hex();
    Cow::Owned(if max == MISTRAL_ID { hash[..MISTRAL_ID].to_owned() } else { format!("call_{}", &hash[..24]) })
}

/// Longest id of a tool call that OpenAI and Bedrock accept.
const LONGEST_ID: usize = 64;
/// Mistral's ids are exactly this long, letters and digits.
const MISTRAL_ID: usize = 9;

/// Sets a member if there is a value.
fn set(body: &mut Value, name: &str, value: Option<impl Into<Value>>) {
    if let (Some(value), Some(members)) = (value, body.as_object_mut()) {
        members.insert(name.to_owned(), value.into());
    }
}

/// Joins messages of one role that follow one another because nothing of those between them is carried.
fn join_roles(messages: &mut Vec<Value>, content: &str) {
    messages.dedup_by(|next, last| {
        let is_same = next["role"] == last["role"];
        if let (true, Some(blocks)) = (is_same, last[content].as_array_mut()) {
            blocks.append(&mut take_list(next, content));
        }
        is_same
    });
}

/// As [`set`], unless the list is empty.
fn set_list(body: &mut Value, name: &str, list: Vec<Value>) {
    set(body, name, Some(list).filter(|l| !l.is_empty()));
}

/// As [`set`], unless the object is empty.
fn set_object(body: &mut Value, name: &str, object: Value) {
    set(body, name, Some(object).filter(|o| o.as_object().is_some_and(|o| !o.is_empty())));
}

/// What has no place in the upstream's format.
fn left_out(losses: &mut Losses, name: &str) -> Option<Value> {
    losses.add(name);
    None
}

/// An object without its null members.
fn object(members: Value) -> Value {
    match members {
        Value::Object(members) => {
            Value::Object(members.into_iter().filter(|(_, v)| !v.is_null()).collect::<Map<_, _>>())
        }
        other => other,
    }
}
