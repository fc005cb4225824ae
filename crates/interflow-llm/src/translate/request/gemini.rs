//! Writes requests of `generateContent`, for Gemini and Vertex AI.

use serde_json::{Value, json};

use super::model_rules::ModelRules;
use super::{
    ChatRequest, ToolNames, Turn, images, input_object, join_roles, left_out, object, result_text, set, set_list,
    set_object, tool_names,
};
use crate::message::{Attachment, ContentBlock, MessageRole};
use crate::translate::call_signature::{NO_SIGNATURE, signature_in};
use crate::translate::settings::{Reasoning, ToolChoice};
use crate::translate::{Losses, WireFormat};

pub fn write(chat: &ChatRequest, rules: &ModelRules, losses: &mut Losses) -> Value {
    let settings = &chat.settings;
    let turns = chat.turns();
    let names = tool_names(&turns);
    let mut contents: Vec<Value> = turns.iter().filter_map(|turn| content(turn, &names, rules, losses)).collect();
    join_roles(&mut contents, "parts");
    let mut body = json!({ "contents": contents });
    let system = chat.system();
    if !system.is_empty() {
        body["systemInstruction"] = json!({ "parts": [{ "text": system }] });
    }
    let (functions, mut tools) = (functions(chat), chat.provider_tools(WireFormat::Gemini, losses));
    if !functions.is_empty() {
        tools.push(json!({ "functionDeclarations": functions }));
        let config = match &settings.tool_choice {
            Some(ToolChoice::Auto) => Some(json!({ "mode": "AUTO" })),
            Some(ToolChoice::None) => Some(json!({ "mode": "NONE" })),
            Some(ToolChoice::Required) => Some(json!({ "mode": "ANY" })),
            Some(ToolChoice::Named(name)) => Some(json!({ "mode": "ANY", "allowedFunctionNames": [name] })),
            None => None,
        };
        if let Some(config) = config {
            body["toolConfig"] = json!({ "functionCallingConfig": config });
        }
    }
    set_list(&mut body, "tools", tools);
    losses.add_if("parallel_tool_calls", settings.parallel_tools == Some(false));
    losses.add_if("user", settings.user.is_some());
    set_object(&mut body, "generationConfig", generation(chat, rules, losses));
    body
}

fn generation(chat: &ChatRequest, rules: &ModelRules, losses: &mut Losses) -> Value {
    let settings = &chat.settings;
    let sampling = rules.sampling(settings, rules.thinks_by_default(), losses);
    let mut config = object(json!({
        "temperature": sampling.temperature,
        "topP": sampling.top_p,
        "topK": sampling.top_k,
        "maxOutputTokens": chat.request.max_tokens,
        "seed": settings.seed,
        "frequencyPenalty": sampling.frequency_penalty,
        "presencePenalty": sampling.presence_penalty,
    }));
    set(&mut config, "stopSequences", Some(sampling.stop).filter(|s| !s.is_empty()));
    if let Some(output) = &settings.output {
        config["responseMimeType"] = "application/json".into();
        set(&mut config, "responseJsonSchema", output.schema.clone());
    }
    let thinking = match (settings.reasoning.as_ref(), rules.ladder()) {
        (None, _) => None,
        (Some(Reasoning::Off), _) if !rules.refuses("thinking.disabled", false) => Some(json!({ "thinkingBudget": 0 })),
        (Some(Reasoning::Off), ladder) => {
            losses.add("reasoning");
            ladder.and_then(|ladder| ladder.levels.first()).map(|level| json!({ "thinkingLevel": level }))
        }
        (Some(reasoning), Some(_)) => {
            Some(object(json!({ "includeThoughts": true, "thinkingLevel": rules.level(reasoning, losses) })))
        }
        (Some(Reasoning::Adaptive), None) => Some(json!({ "includeThoughts": true })),
        (Some(reasoning), None) => Some(json!({ "includeThoughts": true, "thinkingBudget": reasoning.budget() })),
    };
    set(&mut config, "thinkingConfig", thinking);
    config
}

fn content(turn: &Turn<'_>, names: &ToolNames, rules: &ModelRules, losses: &mut Losses) -> Option<Value> {
    let role = if turn.role == MessageRole::Assistant { "model" } else { "user" };
    let mut parts = Vec::new();
    for block in &turn.blocks {
        match block {
            ContentBlock::Text { text } => parts.push(json!({ "text": text })),
            ContentBlock::ToolUse { id, name, input } => {
                let mut part = json!({ "functionCall": { "name": name, "args": input_object(input) } });
                // The first of parallel calls carries the signature, which models that think by levels demand.
                let first = !parts.iter().any(|p: &Value| p.get("functionCall").is_some());
                match signature_in(id) {
                    Some(signature) => part["thoughtSignature"] = signature.into(),
                    None if first && rules.ladder().is_some() => part["thoughtSignature"] = NO_SIGNATURE.into(),
                    None => {}
                }
                parts.push(part);
            }
            ContentBlock::ToolResult { id, name, content, is_error } => {
                let name = if name.is_empty() { names.get(id).map_or("unknown", String::as_str) } else { name };
                let key = if *is_error { "error" } else { "output" };
                let response = json!({ "name": name, "response": { key: result_text(content) } });
                parts.push(json!({ "functionResponse": response }));
                parts.extend(images(content).filter_map(|image| file(image, true, losses)));
            }
            ContentBlock::Image(image) => parts.extend(file(image, true, losses)),
            ContentBlock::Document(document) => parts.extend(file(document, false, losses)),
            ContentBlock::Thinking { .. } => losses.add("thinking"),
            ContentBlock::Other { kind, .. } => losses.add(kind),
            ContentBlock::Error { .. } => {}
        }
    }
    (!parts.is_empty()).then(|| json!({ "role": role, "parts": parts }))
}

fn file(file: &Attachment, image: bool, losses: &mut Losses) -> Option<Value> {
    if let Some(data) = file.data.get() {
        if let Some(text) = file.text() {
            return Some(json!({ "text": text }));
        }
        return Some(json!({ "inlineData": { "mimeType": file.media_type, "data": data } }));
    }
    if !file.url.starts_with("http") && !file.url.starts_with("gs://") {
        return left_out(losses, "file_id");
    }
    let path = file.url.split('?').next().unwrap_or_default().to_ascii_lowercase();
    let media_type = match path.rsplit('.').next() {
        _ if !file.media_type.is_empty() => file.media_type.as_str(),
        Some("png") => "image/png",
        Some("webp") => "image/webp",
        Some("gif") => "image/gif",
        _ if image => "image/jpeg",
        _ => "application/pdf",
    };
    Some(json!({ "fileData": { "mimeType": media_type, "fileUri": file.url } }))
}

fn functions(chat: &ChatRequest) -> Vec<Value> {
    let functions = chat.functions().into_iter();
    functions
        .map(|f| {
            let mut function = json!({ "name": f.name });
            set(&mut function, "description", f.description);
            // `parameters` would accept a part of JSON Schema only.
            function["parametersJsonSchema"] = f.schema;
            function
        })
        .collect()
}
