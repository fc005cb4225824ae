//! What the real providers refuse: unknown members, messages of a wrong form, calls of tools without results. From
//! their API references; as far as a gateway that writes such requests can get it wrong.

use std::collections::HashSet;

use serde_json::Value;

use super::Api;
use crate::message::Request;

type Checked = Result<(), String>;

/// Whose messages are checked, of those that have OpenAI's form.
#[derive(Clone, Copy, PartialEq)]
enum Dialect {
    OpenAi,
    Mistral,
    Cohere,
    /// DeepSeek, Kimi, Qwen, GLM, Grok: OpenAI's, with thoughts in the history.
    Thinking,
}

/// Checks a request; the error says what is wrong. Chat Completions are Mistral's if `mistral` is set.
pub(super) fn check(api: Api, request: &Request, body: &Value, mistral: bool) -> Checked {
    match api {
        Api::Anthropic => {
            let version = request.header("anthropic-version");
            demand(
                matches!(version, Some("2023-06-01" | "2026-10-21")),
                "anthropic-version: \"2023-06-01\" or \"2026-10-21\" is required",
            )?;
            let bearer = request.header("authorization").is_some_and(|value| value.starts_with("Bearer "));
            demand(bearer || request.header("x-api-key").is_some(), "authentication: a key is required")?;
            anthropic(body)
        }
        Api::VertexClaude => vertex_claude(request, body),
        Api::VertexClaudeCount => demand(body["model"].is_string(), "model: field required"),
        Api::Chat => {
            let thinks =
                |name: &str| ["deepseek", "kimi", "qwen", "glm", "grok"].iter().any(|maker| name.starts_with(maker));
            chat(
                body,
                match body["model"].as_str() {
                    _ if mistral => Dialect::Mistral,
                    Some(name) if thinks(name) => Dialect::Thinking,
                    _ => Dialect::OpenAi,
                },
            )
        }
        Api::Responses => responses(body),
        Api::ResponsesCount => {
            only(
                body,
                &["input", "instructions", "model", "parallel_tool_calls", "reasoning", "text", "tool_choice", "tools"],
                "input_tokens",
            )?;
            responses(body)
        }
        Api::Gemini | Api::GeminiStream => gemini(body),
        Api::GeminiCount if body["contents"].is_array() => {
            only(body, &["contents", "systemInstruction", "tools", "generationConfig"], "countTokens")
        }
        Api::GeminiCount => {
            only(body, &["generateContentRequest"], "countTokens")?;
            let mut inner = body["generateContentRequest"].clone();
            let model = inner.as_object_mut().and_then(|members| members.remove("model")).unwrap_or_default();
            demand(model.as_str().is_some_and(|m| m.starts_with("models/")), "generateContentRequest.model")?;
            gemini(&inner)
        }
        Api::BedrockCount => {
            only(body, &["input"], "count-tokens")?;
            only(&body["input"], &["converse"], "input")?;
            demand(body["input"]["converse"].get("inferenceConfig").is_none(), "converse.inferenceConfig")?;
            bedrock(&body["input"]["converse"])
        }
        Api::Bedrock | Api::BedrockStream => bedrock(body),
        Api::Cohere => cohere(body),
        Api::Ollama => ollama(body),
        Api::CountTokens => Ok(()),
    }
}

fn only(value: &Value, known: &[&str], place: &str) -> Checked {
    let members = value.as_object().ok_or_else(|| format!("{place}: no object"))?;
    match members.iter().find(|(name, value)| !known.contains(&name.as_str()) || value.is_null() && *name != "content")
    {
        Some((name, _)) => Err(format!("{place}.{name}: unknown or null")),
        None => Ok(()),
    }
}

fn demand(holds: bool, why: &str) -> Checked {
    if holds { Ok(()) } else { Err(why.to_owned()) }
}

fn list<'v>(value: &'v Value, place: &str) -> Result<&'v Vec<Value>, String> {
    value.as_array().filter(|l| !l.is_empty()).ok_or_else(|| format!("{place}: no list, or an empty one"))
}

fn text(value: &Value, place: &str) -> Checked {
    demand(value.as_str().is_some_and(|t| !t.trim().is_empty()), &format!("{place}: no text"))
}

/// Every call is answered by the message that follows, and nothing else is.
#[derive(Default)]
struct Calls {
    open: HashSet<String>,
}

impl Calls {
    /// `signs` are the characters that an id may have beside letters and digits.
    fn call(&mut self, id: &Value, longest: usize, signs: &str) -> Checked {
        let id = id.as_str().unwrap_or_default();
        let fits = |c: char| c.is_ascii_alphanumeric() || signs.contains(c);
        demand(
            !id.is_empty() && id.len() <= longest && id.chars().all(fits),
            &format!("`{id}` is not an id of a call"),
        )?;
        demand(self.open.insert(id.to_owned()), &format!("{id}: called twice"))
    }

    fn answer(&mut self, id: &Value) -> Checked {
        let id = id.as_str().unwrap_or_default();
        demand(self.open.remove(id), &format!("{id}: a result without its call before it"))
    }

    fn settled(&self) -> Checked {
        demand(self.open.is_empty(), &format!("calls without a result: {:?}", self.open))
    }
}

fn function(definition: &Value, known: &[&str], schema: &str) -> Checked {
    only(definition, known, "tool")?;
    let name = definition["name"].as_str().unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    demand(!name.is_empty() && name.len() <= 64 && name.chars().all(fits), "tool.name")?;
    demand(definition.pointer(schema).is_some_and(|s| s["type"] == "object"), "tool: no schema of an object")
}

/// Anthropic's API as Vertex AI has it: the path names the model, the body the version.
fn vertex_claude(request: &Request, body: &Value) -> Checked {
    let bearer = request.header("authorization").is_some_and(|value| value.starts_with("Bearer "));
    demand(bearer, "authorization: an access token is required")?;
    demand(body.get("model").is_none(), "model: extra inputs are not permitted")?;
    demand(body["anthropic_version"] == "vertex-2023-10-16", "anthropic_version: field required")?;
    let streams = request.path().ends_with(":streamRawPredict");
    demand(streams == (body["stream"] == true), "stream and the method of the path disagree")?;
    let mut rest = body.clone();
    rest.as_object_mut().map(|members| members.remove("anthropic_version"));
    anthropic(&rest)
}

fn anthropic(body: &Value) -> Checked {
    only(
        body,
        &[
            "model",
            "max_tokens",
            "messages",
            "system",
            "tools",
            "tool_choice",
            "stream",
            "stop_sequences",
            "metadata",
            "temperature",
            "top_p",
            "top_k",
            "thinking",
            "output_config",
            "cache_control",
            "service_tier",
            "context_management",
        ],
        "",
    )?;
    let limit = body["max_tokens"].as_u64().filter(|n| *n > 0).ok_or("max_tokens: field required")?;
    for tool in body["tools"].as_array().into_iter().flatten() {
        // One that Anthropic runs itself has the date of its version in its type, and no schema.
        let own = ["web_search", "web_fetch", "code_execution"];
        let version = |name: &str| tool["type"].as_str()?.strip_prefix(name)?.strip_prefix("_20").map(str::len);
        if let Some(name) = own.into_iter().find(|name| version(name) == Some(6)) {
            demand(tool["name"] == name && tool.get("input_schema").is_none(), "tool: not as Anthropic runs it")?;
            continue;
        }
        function(tool, &["type", "name", "description", "input_schema", "strict", "cache_control"], "/input_schema")?;
    }
    demand(body.get("tool_choice").is_none() || body.get("tools").is_some(), "tool_choice without tools")?;
    if body["thinking"]["type"] == "enabled" {
        let budget = body["thinking"]["budget_tokens"].as_u64().unwrap_or_default();
        demand((1024..limit).contains(&budget), "thinking.budget_tokens must be 1024 or more and below max_tokens")?;
        demand(body.get("temperature").is_none_or(|t| *t == 1), "temperature may only be 1 when thinking")?;
    }
    demand(body["temperature"].as_f64().is_none_or(|t| t <= 1.0), "temperature above 1")?;
    let messages = list(&body["messages"], "messages")?;
    demand(messages[0]["role"] == "user", "messages: first message must use the user role")?;
    let mut calls = Calls::default();
    for message in messages {
        only(message, &["role", "content"], "message")?;
        let assistant = message["role"] == "assistant";
        // Models before 5 have no words of the operator in the middle.
        let is_older = body["model"].as_str().is_some_and(|name| name.contains("-4-") || name.contains("-3-"));
        let is_system = message["role"] == "system" && !is_older;
        demand(assistant || is_system || message["role"] == "user", "message.role")?;
        if message["content"].is_string() {
            text(&message["content"], "content")?;
            calls.settled()?;
            continue;
        }
        let blocks = list(&message["content"], "content")?;
        blocks.iter().try_for_each(|block| anthropic_block(block, assistant, &mut calls))?;
        if !assistant {
            calls.settled()?;
        }
    }
    Ok(())
}

fn anthropic_block(block: &Value, assistant: bool, calls: &mut Calls) -> Checked {
    match block["type"].as_str() {
        Some("text") => only(block, &["type", "text", "cache_control"], "text").and(text(&block["text"], "text")),
        Some("image") if !assistant => {
            let source = &block["source"];
            match source["type"].as_str() {
                Some("url") => text(&source["url"], "source.url"),
                Some("base64") => {
                    let known = ["image/png", "image/jpeg", "image/gif", "image/webp"];
                    demand(known.iter().any(|k| source["media_type"] == *k), "source.media_type")?;
                    text(&source["data"], "source.data")
                }
                _ => Err("source.type".into()),
            }
        }
        Some("document") if !assistant => {
            only(block, &["type", "source", "title", "context", "citations", "cache_control"], "document")?;
            let source = &block["source"];
            match source["type"].as_str() {
                Some("url") => text(&source["url"], "source.url"),
                Some("base64") => {
                    demand(source["media_type"] == "application/pdf", "source.media_type")?;
                    text(&source["data"], "source.data")
                }
                Some("text") => {
                    demand(source["media_type"] == "text/plain", "source.media_type")?;
                    text(&source["data"], "source.data")
                }
                _ => Err("source.type".into()),
            }
        }
        Some("tool_use") if assistant => {
            demand(block["input"].is_object(), "tool_use.input")?;
            calls.call(&block["id"], 128, "_-")
        }
        Some("tool_result") if !assistant => {
            only(block, &["type", "tool_use_id", "content", "is_error", "cache_control"], "tool_result")?;
            calls.answer(&block["tool_use_id"])?;
            let inner = block["content"].as_array().into_iter().flatten();
            inner.into_iter().try_for_each(|b| anthropic_block(b, false, &mut Calls::default()))
        }
        Some("thinking") if assistant => text(&block["signature"], "thinking.signature"),
        other => Err(format!("content: a block {other:?} in this role")),
    }
}

fn chat(body: &Value, dialect: Dialect) -> Checked {
    let mut known = vec![
        "model",
        "messages",
        "max_tokens",
        "stream",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "temperature",
        "top_p",
        "frequency_penalty",
        "presence_penalty",
        "stop",
        "reasoning_effort",
        "response_format",
    ];
    known.extend(match dialect {
        Dialect::Mistral => ["random_seed", "safe_prompt", "prompt_mode", "prompt_cache_key"],
        _ => ["max_completion_tokens", "stream_options", "seed", "user"],
    });
    // What OpenAI has beside the models' settings; other servers need not know it.
    if body["model"].as_str().is_some_and(|model| model.starts_with("gpt-")) {
        known.extend(["store", "prompt_cache_key", "prompt_cache_options", "service_tier", "metadata", "verbosity"]);
    }
    let more: &[&str] = if dialect == Dialect::Thinking { &["thinking", "top_k"] } else { &[] };
    known.extend(more);
    only(body, &known, "")?;
    demand(body.get("stream_options").is_none() || body["stream"] == true, "stream_options without stream")?;
    for tool in body["tools"].as_array().into_iter().flatten() {
        demand(tool["type"] == "function", "tool.type")?;
        function(&tool["function"], &["name", "description", "parameters", "strict"], "/parameters")?;
    }
    demand(body.get("tool_choice").is_none() || body.get("tools").is_some(), "tool_choice without tools")?;
    let file = if dialect == Dialect::Mistral { "document_url" } else { "file" };
    openai_messages(&body["messages"], &["text", "image_url", "input_audio", file], dialect)
}

/// Messages in the form that OpenAI, Mistral and Cohere share.
fn openai_messages(messages: &Value, parts: &[&str], dialect: Dialect) -> Checked {
    let (mut calls, mut before) = (Calls::default(), "");
    for message in list(messages, "messages")? {
        let role = message["role"].as_str().unwrap_or_default();
        let follows = !(dialect == Dialect::Mistral && role == "user" && before == "tool");
        demand(follows, "Unexpected role 'user' after role 'tool'")?;
        before = role;
        if role != "tool" {
            calls.settled()?;
        }
        match role {
            "developer" if dialect == Dialect::Mistral => return Err("role `developer`".into()),
            "system" | "developer" => text(&message["content"], "system")?,
            "user" if message["content"].is_string() => text(&message["content"], "user")?,
            "user" => {
                for part in list(&message["content"], "user")? {
                    demand(parts.iter().any(|known| part["type"] == *known), "part.type")?;
                    match part["type"].as_str() {
                        Some("image_url") => {
                            let url = part["image_url"]["url"].as_str().unwrap_or_default();
                            demand(url.starts_with("http") || url.starts_with("data:image/"), "image_url.url")?;
                        }
                        Some("file") => {
                            let data = part["file"]["file_data"].as_str().unwrap_or_default();
                            demand(data.starts_with("data:") && data.contains(";base64,"), "file.file_data")?;
                            text(&part["file"]["filename"], "file.filename")?;
                        }
                        Some("document_url") => {
                            let url = part["document_url"].as_str().unwrap_or_default();
                            demand(url.starts_with("http") || url.starts_with("data:"), "document_url")?;
                        }
                        _ => {}
                    }
                }
            }
            "assistant" => {
                let own = if dialect == Dialect::Mistral { "prefix" } else { "tool_plan" };
                let mut known = vec!["role", "content", "tool_calls", own];
                known.extend(["reasoning_content"].into_iter().filter(|_| dialect == Dialect::Thinking));
                only(message, &known, "assistant")?;
                let called = message["tool_calls"].as_array().into_iter().flatten();
                let has_parts = dialect == Dialect::Mistral && message["content"].is_array();
                let has_content = message["content"].is_string() || has_parts;
                demand(has_content || message["tool_calls"].is_array(), "assistant: no content")?;
                for call in called {
                    let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
                    demand(serde_json::from_str::<Value>(arguments).is_ok(), "arguments: no JSON in a string")?;
                    demand(call["type"] == "function", "tool_call.type")?;
                    match dialect {
                        Dialect::Mistral => {
                            demand(call["id"].as_str().is_some_and(|id| id.len() == 9), "tool_call.id")?;
                            calls.call(&call["id"], 9, "")?;
                        }
                        Dialect::OpenAi | Dialect::Thinking => calls.call(&call["id"], 64, "_-.:")?,
                        Dialect::Cohere => calls.call(&call["id"], 200, "_-.:")?,
                    }
                }
            }
            "tool" => {
                only(message, &["role", "tool_call_id", "content"], "tool")?;
                demand(message["content"].is_string(), "tool: content is not text")?;
                calls.answer(&message["tool_call_id"])?;
            }
            other => return Err(format!("role `{other}`")),
        }
    }
    calls.settled()
}

fn responses(body: &Value) -> Checked {
    only(
        body,
        &[
            "model",
            "input",
            "instructions",
            "max_output_tokens",
            "stream",
            "store",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "temperature",
            "top_p",
            "user",
            "reasoning",
            "include",
            "text",
            "prompt_cache_key",
            "prompt_cache_options",
            "service_tier",
            "metadata",
            "stream_options",
            "client_metadata",
        ],
        "",
    )?;
    demand(body["max_output_tokens"].as_u64().is_none_or(|n| n >= 16), "max_output_tokens below 16")?;
    let tools = body["tools"].as_array().into_iter().flatten();
    for tool in tools.filter(|tool| tool["type"] == "function") {
        function(tool, &["type", "name", "description", "parameters", "strict"], "/parameters")?;
    }
    if body["input"].is_string() {
        return text(&body["input"], "input");
    }
    let mut calls = Calls::default();
    for item in list(&body["input"], "input")? {
        match item["type"].as_str() {
            None | Some("message") if item["content"].is_string() => calls.settled()?,
            None | Some("message") => {
                calls.settled()?;
                let kinds: &[&str] = match item["role"].as_str() {
                    Some("assistant") => &["output_text"],
                    Some("user" | "developer" | "system") => &["input_text", "input_image", "input_file"],
                    _ => return Err("message.role".into()),
                };
                for part in list(&item["content"], "content")? {
                    demand(kinds.iter().any(|k| part["type"] == *k), "a part of this type in this role")?;
                }
            }
            Some("function_call") => {
                text(&item["arguments"], "arguments")?;
                calls.call(&item["call_id"], 64, "_-.:")?;
            }
            Some("function_call_output") => {
                demand(item["output"].is_string() || item["output"].is_array(), "output")?;
                calls.answer(&item["call_id"])?;
            }
            Some("reasoning") => text(&item["encrypted_content"], "encrypted_content")?,
            // To an item of an earlier response.
            Some("item_reference") => text(&item["id"], "id")?,
            other => return Err(format!("an item {other:?}")),
        }
    }
    calls.settled()
}

fn gemini(body: &Value) -> Checked {
    only(body, &["contents", "systemInstruction", "tools", "toolConfig", "generationConfig"], "")?;
    if body.get("generationConfig").is_some() {
        let known = [
            "temperature",
            "topP",
            "topK",
            "maxOutputTokens",
            "stopSequences",
            "seed",
            "frequencyPenalty",
            "presencePenalty",
            "responseMimeType",
            "responseJsonSchema",
            "responseSchema",
            "thinkingConfig",
        ];
        only(&body["generationConfig"], &known, "generationConfig")?;
    }
    for tool in body["tools"][0]["functionDeclarations"].as_array().into_iter().flatten() {
        let mut tool = tool.clone();
        // The older member has a schema of OpenAPI, with types in capitals; names in snake case are taken, too.
        let names = ["parametersJsonSchema", "parameters_json_schema", "parameters"];
        let schema = names.into_iter().find(|name| tool.get(name).is_some()).unwrap_or(names[0]);
        if tool["parameters"]["type"] == "OBJECT" {
            tool["parameters"]["type"] = "object".into();
        }
        function(&tool, &["name", "description", schema], &format!("/{schema}"))?;
    }
    let mut open = Vec::new();
    for content in list(&body["contents"], "contents")? {
        only(content, &["role", "parts"], "content")?;
        let model = content["role"] == "model";
        demand(model || content["role"] == "user", "content.role")?;
        let mut answered = Vec::new();
        for part in list(&content["parts"], "parts")? {
            if let Some(call) = part.get("functionCall") {
                demand(model && call["args"].is_object(), "functionCall.args")?;
                open.push(call["name"].clone());
            } else if let Some(response) = part.get("functionResponse") {
                demand(!model && response["response"].is_object(), "functionResponse.response")?;
                answered.push(response["name"].clone());
            } else if let Some(data) = part.get("inlineData") {
                // The API takes both, and its newest SDK sends either.
                let media_type = data.get("mime_type").unwrap_or(&data["mimeType"]);
                text(media_type, "mimeType").and(text(&data["data"], "data"))?;
            } else if part.get("fileData").is_none() {
                demand(part["text"].is_string(), "part")?;
            }
        }
        if !model {
            // The number of responses must be that of the calls, by their names.
            demand(open == answered, &format!("calls {open:?}, responses {answered:?}"))?;
            open.clear();
        }
    }
    Ok(())
}

fn bedrock(body: &Value) -> Checked {
    only(
        body,
        &["messages", "system", "inferenceConfig", "toolConfig", "additionalModelRequestFields", "outputConfig"],
        "",
    )?;
    if let Some(config) = body.get("outputConfig") {
        only(config, &["textFormat", "effort"], "outputConfig")?;
        if config.get("textFormat").is_some() {
            let schema = config["textFormat"]["structure"]["jsonSchema"]["schema"].as_str().unwrap_or_default();
            let is_schema = serde_json::from_str::<Value>(schema).is_ok_and(|schema| schema.is_object());
            demand(config["textFormat"]["type"] == "json_schema" && is_schema, "outputConfig.textFormat")?;
        }
    }
    if body.get("inferenceConfig").is_some() {
        only(&body["inferenceConfig"], &["maxTokens", "temperature", "topP", "stopSequences"], "inferenceConfig")?;
    }
    for tool in body["toolConfig"]["tools"].as_array().into_iter().flatten() {
        if tool.get("cachePoint").is_none() {
            function(&tool["toolSpec"], &["name", "description", "inputSchema"], "/inputSchema/json")?;
        }
    }
    let (mut calls, mut before) = (Calls::default(), "assistant");
    for message in list(&body["messages"], "messages")? {
        let role = message["role"].as_str().unwrap_or_default();
        demand(role != before, "roles must alternate, beginning with user")?;
        before = if role == "user" { "user" } else { "assistant" };
        for block in list(&message["content"], "content")? {
            let (kind, inner) = block.as_object().and_then(|b| b.iter().next()).ok_or("an empty block")?;
            match kind.as_str() {
                "text" => text(inner, "text")?,
                "toolUse" | "toolResult" => {
                    demand(body.get("toolConfig").is_some(), "toolConfig is required with tool blocks")?;
                    match kind.as_str() {
                        "toolUse" => calls.call(&inner["toolUseId"], 64, "_-")?,
                        _ => list(&inner["content"], "toolResult").and(calls.answer(&inner["toolUseId"]))?,
                    }
                }
                "cachePoint" => {
                    only(inner, &["type", "ttl"], "cachePoint")?;
                    demand(inner["type"] == "default", "cachePoint.type")?;
                }
                "image" => {
                    let known = ["png", "jpeg", "gif", "webp"];
                    demand(known.iter().any(|k| inner["format"] == *k), "image.format")?;
                    text(&inner["source"]["bytes"], "image.source")?;
                }
                "document" => {
                    let known = ["pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"];
                    demand(known.iter().any(|k| inner["format"] == *k), "document.format")?;
                    let fits = |c: char| c.is_ascii_alphanumeric() || " -()[]".contains(c);
                    demand(
                        inner["name"].as_str().is_some_and(|n| !n.is_empty() && n.chars().all(fits)),
                        "document.name",
                    )?;
                    text(&inner["source"]["bytes"], "document.source")?;
                }
                "reasoningContent" => text(&inner["reasoningText"]["signature"], "signature")?,
                other => return Err(format!("a block {other}")),
            }
        }
        if role == "user" {
            calls.settled()?;
        }
    }
    Ok(())
}

fn cohere(body: &Value) -> Checked {
    only(
        body,
        &[
            "model",
            "messages",
            "stream",
            "max_tokens",
            "temperature",
            "p",
            "k",
            "seed",
            "frequency_penalty",
            "presence_penalty",
            "stop_sequences",
            "tools",
            "tool_choice",
            "thinking",
            "response_format",
        ],
        "",
    )?;
    openai_messages(&body["messages"], &["text", "image_url"], Dialect::Cohere)
}

fn ollama(body: &Value) -> Checked {
    only(body, &["model", "messages", "stream", "options", "tools", "think", "format"], "")?;
    for message in list(&body["messages"], "messages")? {
        only(message, &["role", "content", "images", "tool_calls", "tool_name", "thinking"], "message")?;
        demand(message["content"].is_string(), "content is not a string")?;
        for image in message["images"].as_array().into_iter().flatten() {
            demand(image.as_str().is_some_and(|i| !i.starts_with("data:")), "images: bare base64 only")?;
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            demand(call["function"]["arguments"].is_object(), "arguments: no object")?;
        }
    }
    Ok(())
}
