//! The settings of a request beside its messages, read from a client's body; members that nothing here reads are named
//! as losses.

use std::sync::LazyLock;

use interflow_types::data_file::has_word;
use serde_json::{Map, Value, json};

use super::mistral::is_own_member;
use super::{Losses, WireFormat};
use crate::message::optional_number;

/// Settings that more than one format has. Numbers stay as the client wrote them.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub temperature: Option<Value>,
    pub top_p: Option<Value>,
    pub top_k: Option<Value>,
    pub seed: Option<Value>,
    pub frequency_penalty: Option<Value>,
    pub presence_penalty: Option<Value>,
    pub stop: Vec<String>,
    /// The end user's opaque id.
    pub user: Option<String>,
    pub tool_choice: Option<ToolChoice>,
    pub parallel_tools: Option<bool>,
    pub reasoning: Option<Reasoning>,
    pub output: Option<JsonOutput>,
    /// Whether a stream ends with usage (Chat Completions only sends it when asked).
    pub stream_usage: bool,
    /// Members that both of OpenAI's APIs have (`openai` of [`MEMBERS`]), as the client wrote them, or as they would be there.
    pub openai: Map<String, Value>,
    /// How long answers are: `low`, `medium`, `high`.
    pub verbosity: Option<Value>,
    /// Whether events of a stream are padded.
    pub obfuscation: Option<bool>,
    /// Members of Chat Completions that only Mistral has, as the client wrote them.
    pub mistral: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    Auto,
    None,
    Required,
    Named(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reasoning {
    Off,
    /// `minimal`, `low`, `medium`, `high`, `xhigh`, `max`.
    Effort(String),
    /// Tokens.
    Budget(u64),
    /// The model decides.
    Adaptive,
}

/// The form of the answer: any JSON object, or one by a schema.
#[derive(Clone, Debug)]
pub struct JsonOutput {
    pub name: String,
    pub schema: Option<Value>,
    pub strict: Option<bool>,
}

impl Reasoning {
    /// As an effort; `None` if it is off or left to the model.
    pub fn effort(&self) -> Option<&str> {
        match self {
            Self::Off | Self::Adaptive => None,
            Self::Effort(effort) => Some(effort),
            Self::Budget(0..=4_096) => Some("low"),
            Self::Budget(0..=16_384) => Some("medium"),
            Self::Budget(_) => Some("high"),
        }
    }

    /// As a number of tokens; `None` if it is off.
    pub fn budget(&self) -> Option<u64> {
        match self {
            Self::Off => None,
            Self::Budget(tokens) => Some(*tokens),
            Self::Adaptive => Some(8_192),
            Self::Effort(effort) => Some(match effort.as_str() {
                "minimal" => 1_024,
                "low" => 2_048,
                "medium" => 8_192,
                _ => 16_384,
            }),
        }
    }

    fn from_effort(effort: &str) -> Self {
        match effort {
            "none" => Self::Off,
            effort => Self::Effort(effort.to_owned()),
        }
    }
}

/// Members of requests by their format, and of objects in them, that the message model or the settings hold, or that mean
/// nothing to another provider; and under `openai` those that both of OpenAI's APIs have.
static MEMBERS: LazyLock<Value> = LazyLock::new(|| crate::built_in(include_str!("../../data/read_members.json")));

fn members(of: &str) -> &'static str {
    MEMBERS[of].as_str().unwrap_or_default()
}

impl Settings {
    pub fn read(client: WireFormat, body: &Value, losses: &mut Losses) -> Self {
        let value = |key: &str| body.get(key).filter(|v| !v.is_null()).cloned();
        let text = |key: &str| body[key].as_str().map(str::to_owned);
        let mut settings =
            Self { temperature: value("temperature"), top_p: value("top_p"), top_k: value("top_k"), ..Self::default() };
        match client {
            WireFormat::Anthropic => settings.read_anthropic(body, losses),
            WireFormat::Gemini => settings.read_gemini(body, losses),
            WireFormat::Interactions => settings.read_interactions(body, losses),
            WireFormat::Bedrock => settings.read_converse(body, losses),
            WireFormat::OpenAiResponses => settings.read_responses(body, losses),
            _ => {
                settings.seed = value("seed");
                settings.frequency_penalty = value("frequency_penalty");
                settings.presence_penalty = value("presence_penalty");
                settings.read_chat(body, losses);
            }
        }
        if !client.returns_thoughts() {
            settings.user = text("safety_identifier").or_else(|| text("user"));
        }
        for (name, value) in body.as_object().into_iter().flatten() {
            if !client.returns_thoughts() && has_word(members("openai"), name) {
                if !value.is_null() {
                    settings.openai.insert(name.clone(), value.clone());
                }
            } else if client == WireFormat::OpenAiChat && is_own_member(name) {
                settings.mistral.insert(name.clone(), value.clone());
            } else if !has_word(members(client.as_str()), name) && !is_default(name, value) {
                losses.add(name);
            }
        }
        settings
    }

    fn read_chat(&mut self, body: &Value, losses: &mut Losses) {
        self.stop = strings(&body["stop"]);
        self.parallel_tools = body["parallel_tool_calls"].as_bool();
        self.reasoning = body["reasoning_effort"].as_str().map(Reasoning::from_effort);
        self.stream_usage = body["stream_options"]["include_usage"] == true;
        self.obfuscation = body["stream_options"]["include_obfuscation"].as_bool();
        self.verbosity = body.get("verbosity").filter(|v| v.is_string()).cloned();
        self.tool_choice = openai_tool_choice(&body["tool_choice"], "/function/name", losses);
        let format = &body["response_format"];
        self.output = json_output(format, &format["json_schema"]);
    }

    fn read_gemini(&mut self, body: &Value, losses: &mut Losses) {
        let config = google(body, "generationConfig");
        name_others(config, members("gemini.generationConfig"), losses);
        let value = |name: &str| Some(google(config, name)).filter(|v| !v.is_null()).cloned();
        (self.temperature, self.top_p, self.top_k) = (value("temperature"), value("topP"), value("topK"));
        (self.seed, self.stop) = (value("seed"), strings(google(config, "stopSequences")));
        self.frequency_penalty = value("frequencyPenalty");
        self.presence_penalty = value("presencePenalty");
        let calling = google(google(body, "toolConfig"), "functionCallingConfig");
        let names = google(calling, "allowedFunctionNames");
        self.tool_choice = google_tool_choice(google(calling, "mode"), names, losses);
        let thinking = google(config, "thinkingConfig");
        let level = google(thinking, "thinkingLevel").as_str().filter(|level| *level != "THINKING_LEVEL_UNSPECIFIED");
        self.reasoning = match (google(thinking, "thinkingBudget").as_i64(), level) {
            (_, Some(level)) => Some(Reasoning::Effort(level.to_ascii_lowercase())),
            (Some(0), None) => Some(Reasoning::Off),
            (Some(budget), None) => Some(u64::try_from(budget).map_or(Reasoning::Adaptive, Reasoning::Budget)),
            (None, None) => (*google(thinking, "includeThoughts") == true).then_some(Reasoning::Adaptive),
        };
        if google(config, "responseMimeType") == "application/json" {
            let mut schema = value("responseJsonSchema").or_else(|| value("responseSchema"));
            schema.iter_mut().for_each(to_json_schema);
            self.output = Some(JsonOutput { name: "answer".to_owned(), schema, strict: None });
        }
        self.read_google(google(body, "serviceTier"), &body["labels"]);
    }

    fn read_interactions(&mut self, body: &Value, losses: &mut Losses) {
        let config = &body["generation_config"];
        name_others(config, members("interactions.generation_config"), losses);
        let value = |name: &str| config.get(name).filter(|v| !v.is_null()).cloned();
        (self.temperature, self.top_p, self.seed) = (value("temperature"), value("top_p"), value("seed"));
        self.stop = strings(&config["stop_sequences"]);
        let (choice, allowed) = (&config["tool_choice"], &config["tool_choice"]["allowed_tools"]);
        let mode = if choice.is_string() { choice } else { &allowed["mode"] };
        self.tool_choice = google_tool_choice(mode, &allowed["tools"], losses);
        let level = config["thinking_level"].as_str().map(Reasoning::from_effort);
        self.reasoning = level.or_else(|| (config["thinking_summaries"] == "auto").then_some(Reasoning::Adaptive));
        // One form of the answer, or a list of forms.
        let format = body["response_format"].get(0).unwrap_or(&body["response_format"]);
        let media_type = format["mime_type"].as_str().or_else(|| body["response_mime_type"].as_str());
        let is_schema = format["type"].as_str().is_some_and(|kind| kind != "text");
        if media_type == Some("application/json") || is_schema {
            let schema = if is_schema { Some(format) } else { format.get("schema") };
            let schema = schema.filter(|schema| schema.is_object()).cloned();
            self.output = Some(JsonOutput { name: "answer".to_owned(), schema, strict: None });
        }
        self.read_google(&body["service_tier"], &body["labels"]);
    }

    /// Tiers of service and labels under the names that OpenAI's APIs have for them.
    fn read_google(&mut self, tier: &Value, labels: &Value) {
        let tier = tier.as_str().map(|tier| if tier == "standard" { "default" } else { tier });
        self.openai.extend(tier.map(|tier| ("service_tier".to_owned(), tier.into())));
        if labels.is_object() {
            self.openai.insert("metadata".to_owned(), labels.clone());
        }
    }

    fn read_converse(&mut self, body: &Value, losses: &mut Losses) {
        let (config, extra) = (&body["inferenceConfig"], &body["additionalModelRequestFields"]);
        name_others(config, members("bedrock.inferenceConfig"), losses);
        name_others(extra, "thinking top_k", losses);
        let value = |object: &Value, name: &str| object.get(name).filter(|v| !v.is_null()).cloned();
        (self.temperature, self.top_p) = (value(config, "temperature"), value(config, "topP"));
        (self.top_k, self.stop) = (value(extra, "top_k"), strings(&config["stopSequences"]));
        let choice = &body["toolConfig"]["toolChoice"];
        self.tool_choice = match choice["tool"]["name"].as_str() {
            Some(name) => Some(ToolChoice::Named(name.to_owned())),
            None if choice["any"].is_object() => Some(ToolChoice::Required),
            None => choice["auto"].is_object().then_some(ToolChoice::Auto),
        };
        let effort = body["outputConfig"]["effort"].as_str().map(Reasoning::from_effort);
        self.reasoning = claude_reasoning(&extra["thinking"], effort);
        let format = &body["outputConfig"]["textFormat"];
        let mut definition = format["structure"]["jsonSchema"].clone();
        // The schema is JSON in a string.
        if let Some(schema) = definition["schema"].as_str().and_then(|schema| serde_json::from_str(schema).ok()) {
            definition["schema"] = schema;
        }
        self.output = json_output(format, &definition);
        self.read_google(&body["serviceTier"]["type"], &body["requestMetadata"]);
    }

    fn read_responses(&mut self, body: &Value, losses: &mut Losses) {
        self.parallel_tools = body["parallel_tool_calls"].as_bool();
        self.reasoning = body["reasoning"]["effort"].as_str().map(Reasoning::from_effort);
        self.tool_choice = openai_tool_choice(&body["tool_choice"], "/name", losses);
        let format = &body["text"]["format"];
        self.output = json_output(format, format);
        self.obfuscation = body["stream_options"]["include_obfuscation"].as_bool();
        self.verbosity = body["text"].get("verbosity").filter(|v| v.is_string()).cloned();
        let included = body["include"].as_array().into_iter().flatten().filter_map(Value::as_str);
        included.filter(|name| *name != "reasoning.encrypted_content").for_each(|name| losses.add(name));
        let unknown = ["mode", "context"].into_iter().filter(|name| body["reasoning"][*name].is_string());
        unknown.for_each(|name| losses.add(&format!("reasoning.{name}")));
    }

    fn read_anthropic(&mut self, body: &Value, losses: &mut Losses) {
        self.stop = strings(&body["stop_sequences"]);
        let metadata = body["metadata"].as_object().into_iter().flatten();
        metadata.filter(|(name, _)| *name != "user_id").for_each(|(name, _)| losses.add(&format!("metadata.{name}")));
        self.user = body["metadata"]["user_id"].as_str().map(str::to_owned);
        self.openai.extend(self.user.clone().map(|user| ("user".to_owned(), user.into())));
        // `auto`, the default, may use capacity that was bought, which OpenAI's accounts have another setting for.
        if body["service_tier"] == "standard_only" {
            self.openai.insert("service_tier".to_owned(), "default".into());
        }
        let choice = &body["tool_choice"];
        self.tool_choice = match choice["type"].as_str() {
            Some("auto") => Some(ToolChoice::Auto),
            Some("any") => Some(ToolChoice::Required),
            Some("none") => Some(ToolChoice::None),
            Some("tool") => choice["name"].as_str().map(|name| ToolChoice::Named(name.to_owned())),
            _ => None,
        };
        self.parallel_tools = choice["disable_parallel_tool_use"].as_bool().map(|off| !off);
        let effort = body["output_config"]["effort"].as_str().map(Reasoning::from_effort);
        self.reasoning = claude_reasoning(&body["thinking"], effort);
        let format =
            if body["output_format"].is_object() { &body["output_format"] } else { &body["output_config"]["format"] };
        self.output = json_output(format, format);
    }
}

fn claude_reasoning(thinking: &Value, effort: Option<Reasoning>) -> Option<Reasoning> {
    match thinking["type"].as_str() {
        Some("disabled") => Some(Reasoning::Off),
        Some("enabled") => optional_number(thinking, &["budget_tokens"]).map(Reasoning::Budget),
        Some("adaptive") => effort.or(Some(Reasoning::Adaptive)),
        _ => effort,
    }
}

/// Names the members of an object that are not in a list.
fn name_others(object: &Value, members: &str, losses: &mut Losses) {
    let given = object.as_object().into_iter().flatten();
    let others = given.filter(|(name, value)| !has_word(members, &camel_case(name)) && !is_default(name, value));
    others.filter(|(name, _)| !has_word(members, name)).for_each(|(name, _)| losses.add(name));
}

/// A member of a request of Gemini, which the API takes in camel case and in snake case.
fn google<'v>(object: &'v Value, name: &str) -> &'v Value {
    static NONE: Value = Value::Null;
    let members = object.as_object().into_iter().flatten();
    let mut named = members.filter(|(own, value)| camel_case(own) == name && !value.is_null());
    named.next().map_or(&NONE, |(_, value)| value)
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        name + &initial.to_ascii_uppercase() + rest
    })
}

/// The choice of tools in the words of Google's APIs; `names` are those that may be called.
fn google_tool_choice(mode: &Value, names: &Value, losses: &mut Losses) -> Option<ToolChoice> {
    let names = strings(names);
    let choice = match mode.as_str()?.to_ascii_lowercase().as_str() {
        "none" => ToolChoice::None,
        "any" => match names.as_slice() {
            [one] => return Some(ToolChoice::Named(one.clone())),
            _ => ToolChoice::Required,
        },
        _ => ToolChoice::Auto,
    };
    losses.add_if("tool_choice", !names.is_empty());
    Some(choice)
}

/// Makes a schema of OpenAPI, with types in capitals, one of JSON Schema.
pub fn to_json_schema(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(to_json_schema),
        Value::Object(members) => {
            members.shift_remove("propertyOrdering");
            let is_nullable = members.shift_remove("nullable") == Some(Value::Bool(true));
            if let Some(Value::String(kind)) = members.get_mut("type") {
                kind.make_ascii_lowercase();
                if is_nullable {
                    let kinds = json!([kind, "null"]);
                    members.insert("type".to_owned(), kinds);
                }
            }
            for (name, value) in members {
                match (name.as_str(), value) {
                    // Google writes long numbers as text.
                    ("minItems" | "maxItems" | "minLength" | "maxLength", value) => {
                        if let Some(number) = value.as_str().and_then(|text| text.parse::<u64>().ok()) {
                            *value = number.into();
                        }
                    }
                    ("properties" | "$defs", Value::Object(all)) => all.values_mut().for_each(to_json_schema),
                    ("items" | "anyOf" | "prefixItems" | "additionalProperties", value) => to_json_schema(value),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// Whether a member has the value that it would have if absent.
fn is_default(name: &str, value: &Value) -> bool {
    match name {
        "n" => *value == 1,
        "truncation" => *value == "disabled" || value.is_null(),
        _ => match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(list) => list.is_empty(),
            // Empty, the options of a search switch it on.
            Value::Object(members) => members.is_empty() && name != "web_search_options",
            _ => false,
        },
    }
}

fn openai_tool_choice(choice: &Value, name: &str, losses: &mut Losses) -> Option<ToolChoice> {
    match choice {
        Value::Null => None,
        Value::String(s) if s == "auto" => Some(ToolChoice::Auto),
        Value::String(s) if s == "none" => Some(ToolChoice::None),
        Value::String(s) if s == "required" => Some(ToolChoice::Required),
        choice => {
            let custom = name.replace("function", "custom");
            let named = match choice["type"].as_str() {
                Some("function") => choice.pointer(name).and_then(Value::as_str),
                Some("custom") => choice.pointer(&custom).and_then(Value::as_str),
                _ => None,
            };
            losses.add_if("tool_choice", named.is_none());
            named.map(|name| ToolChoice::Named(name.to_owned()))
        }
    }
}

fn json_output(format: &Value, definition: &Value) -> Option<JsonOutput> {
    let schema = match format["type"].as_str()? {
        "json_object" => None,
        "json_schema" => Some(definition["schema"].clone()),
        _ => return None,
    };
    let name = definition["name"].as_str().unwrap_or("answer").to_owned();
    Some(JsonOutput { name, schema, strict: definition["strict"].as_bool() })
}

fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(one) => vec![one.clone()],
        Value::Array(many) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}
