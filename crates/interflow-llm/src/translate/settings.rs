//! The settings of a request beside its messages, read from a client's body; members that nothing here reads are named
//! as losses.

use serde_json::{Map, Value};

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
    /// Members that both of OpenAI's APIs have ([`OPENAI`]), as the client wrote them, or as they would be there.
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

/// Members of each format that the message model or the settings hold, or that mean nothing to another provider.
const CHAT: &str = "model messages tools max_tokens max_completion_tokens stream stream_options temperature top_p top_k seed \
    frequency_penalty presence_penalty stop tool_choice parallel_tool_calls reasoning_effort response_format \
    verbosity session_id";
const RESPONSES: &str = "model input instructions tools max_output_tokens stream temperature top_p tool_choice parallel_tool_calls \
    reasoning text include stream_options";
const ANTHROPIC: &str = "model messages system tools max_tokens stream temperature top_p top_k stop_sequences tool_choice thinking \
    output_config output_format metadata service_tier";
/// Members of both of OpenAI's APIs. Other APIs have some of them in other forms.
const OPENAI: &str = "metadata moderation prompt_cache_key prompt_cache_options prompt_cache_retention safety_identifier \
    service_tier store user";

impl Settings {
    pub fn read(client: WireFormat, body: &Value, losses: &mut Losses) -> Self {
        let value = |key: &str| body.get(key).filter(|v| !v.is_null()).cloned();
        let text = |key: &str| body[key].as_str().map(str::to_owned);
        let mut settings =
            Self { temperature: value("temperature"), top_p: value("top_p"), top_k: value("top_k"), ..Self::default() };
        let members = match client {
            WireFormat::Anthropic => {
                settings.read_anthropic(body, losses);
                ANTHROPIC
            }
            WireFormat::OpenAiResponses => {
                settings.read_responses(body, losses);
                settings.user = text("safety_identifier").or_else(|| text("user"));
                RESPONSES
            }
            _ => {
                settings.seed = value("seed");
                settings.frequency_penalty = value("frequency_penalty");
                settings.presence_penalty = value("presence_penalty");
                settings.read_chat(body, losses);
                settings.user = text("safety_identifier").or_else(|| text("user"));
                CHAT
            }
        };
        for (name, value) in body.as_object().into_iter().flatten() {
            if client != WireFormat::Anthropic && has_word(OPENAI, name) {
                if !value.is_null() {
                    settings.openai.insert(name.clone(), value.clone());
                }
            } else if client == WireFormat::OpenAiChat && is_own_member(name) {
                settings.mistral.insert(name.clone(), value.clone());
            } else if !has_word(members, name) && !is_default(name, value) {
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
        self.reasoning = match body["thinking"]["type"].as_str() {
            Some("disabled") => Some(Reasoning::Off),
            Some("enabled") => optional_number(&body["thinking"], &["budget_tokens"]).map(Reasoning::Budget),
            Some("adaptive") => effort.or(Some(Reasoning::Adaptive)),
            _ => effort,
        };
        let format =
            if body["output_format"].is_object() { &body["output_format"] } else { &body["output_config"]["format"] };
        self.output = json_output(format, format);
    }
}

/// Whether a name is in a list whose names are divided by spaces.
pub(super) fn has_word(list: &str, name: &str) -> bool {
    list.split(' ').any(|word| word == name)
}

/// Whether a member has the value that it would have if absent.
fn is_default(name: &str, value: &Value) -> bool {
    match name {
        "n" => *value == 1,
        "truncation" => *value == "disabled" || value.is_null(),
        _ => match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(members) => members.is_empty(),
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
            if named.is_none() {
                losses.add("tool_choice");
            }
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
