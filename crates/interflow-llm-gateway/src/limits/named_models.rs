//! The models that a body names: the one that serves it, those that may serve it instead, those of its tools, and those
//! of a batch.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use interflow_limits::ServedModel;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// The model of OpenAI's tool for images, if the request names none.
const IMAGE_TOOL_MODEL: &str = "gpt-image-1";

/// What a JSON body says about the models that it uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NamedModels {
    /// Its `model`.
    pub model: Option<String>,
    /// Its `agent`, which stands for a model in Interactions.
    pub agent: Option<String>,
    /// Models besides: fallbacks, and those of tools.
    pub others: Vec<String>,
    /// The requests of a batch.
    pub items: Vec<Self>,
    /// Whether the provider may use another model than those named: by a preset or an agent that it stores, or because
    /// there are two members `model`.
    pub is_unclear: bool,
    /// Whether the answer comes before the response is generated, and so without its usage.
    pub is_background: bool,
    /// The maximum of output tokens, for requests of a batch.
    pub max_tokens: Option<u64>,
    /// Whether that is not a whole number.
    is_maximum_invalid: bool,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct BatchItem {
    params: NamedModels,
}

impl<'de> Deserialize<'de> for NamedModels {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = NamedModels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<NamedModels, A::Error> {
                let (mut named, mut names, mut of_session) = (NamedModels::default(), 0u32, None);
                while let Some(name) = members.next_key::<String>()? {
                    // Ollama's parser ignores the case of names.
                    match name.to_ascii_lowercase().as_str() {
                        "model" if name == "model" => {
                            names = names.saturating_add(1);
                            named.model = members.next_value::<Value>()?.as_str().map(str::to_owned);
                        }
                        "model" | "models" | "fallbacks" | "fallback_models" => {
                            add_all(&members.next_value()?, &mut named.others);
                        }
                        "tools" | "plugins" => add_of_tools(&members.next_value()?, &mut named.others),
                        // What a session is going to use, which is opened with a secret that this request asks for.
                        "session" | "input_audio_transcription" => {
                            let (session, before) = (members.next_value::<Value>()?, named.others.len());
                            add_members(&session, &mut named.others);
                            let first = || named.others.get(before).cloned();
                            of_session = session["model"].as_str().map(str::to_owned).or_else(first);
                        }
                        "agent" => {
                            let agent = members.next_value::<Value>()?;
                            named.agent = agent.as_str().map(str::to_owned).or(named.agent);
                        }
                        // A prompt that OpenAI stores brings tools, which have models.
                        "prompt" => named.is_unclear |= members.next_value::<Value>()?.is_object(),
                        "preset" | "agent_id" | "assistant_id" => {
                            named.is_unclear |= !members.next_value::<Value>()?.is_null();
                        }
                        "background" => named.is_background |= members.next_value::<Value>()? == true,
                        "max_tokens" => {
                            named.add_maximum(&members.next_value()?);
                        }
                        // Gemini's batch, whose model is in the path.
                        "batch" => {
                            let batch = members.next_value::<Value>()?;
                            let config = either(&batch, "input_config", "inputConfig");
                            let items = config["requests"]["requests"].as_array().into_iter().flatten();
                            named.items.extend(items.map(|item| {
                                let config = either(&item["request"], "generation_config", "generationConfig");
                                let mut named = Self::Value::default();
                                named.add_maximum(either(config, "max_output_tokens", "maxOutputTokens"));
                                named
                            }));
                        }
                        "requests" => {
                            let items = members.next_value::<Vec<BatchItem>>()?;
                            named.items.extend(items.into_iter().map(|item| item.params));
                        }
                        _ => {
                            members.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                if names == 0 {
                    named.model = of_session;
                }
                // Parsers differ in which one they take.
                if names > 1 {
                    (named.model, named.is_unclear) = (None, true);
                }
                // A preset can be a part of the model's name, too.
                named.is_unclear |= named.model.iter().chain(&named.others).any(|name| name.contains("@preset/"));
                Ok(named)
            }
        }
        from.deserialize_map(Members)
    }
}

impl NamedModels {
    /// Every model besides the one that serves the body itself.
    pub fn besides(&self) -> impl Iterator<Item = &str> {
        let of_items = self.items.iter().flat_map(|item| item.model.iter().chain(&item.others));
        self.others.iter().chain(of_items).map(String::as_str)
    }

    fn add_maximum(&mut self, value: &Value) {
        let number = value.as_str().map_or_else(|| value.as_f64(), |text| text.trim().parse().ok());
        match number {
            Some(n) if n.fract() == 0.0 && n >= 0.0 => self.max_tokens = self.max_tokens.max(Some(n as u64)),
            _ => self.is_maximum_invalid |= !value.is_null(),
        }
    }

    /// Whether the maximum of output tokens of a request of a batch is not a whole number.
    pub fn has_invalid_maximum(&self) -> bool {
        self.items.iter().any(|item| item.is_maximum_invalid)
    }

    /// How many requests of a batch state no maximum of output tokens.
    pub fn unstated_maxima(&self) -> u64 {
        self.items.iter().filter(|item| item.max_tokens.is_none()).count() as u64
    }

    /// The output tokens of all requests of a batch at most; `None` if it is none.
    pub fn most_of_batch(&self) -> Option<u64> {
        let add = |sum: u64, item: &Self| sum.saturating_add(item.max_tokens.unwrap_or_default());
        (!self.items.is_empty()).then(|| self.items.iter().fold(0, add))
    }

    /// The models of a batch at this provider.
    pub fn models_of_batch(&self, provider: &Arc<str>) -> Vec<ServedModel> {
        let names: BTreeSet<_> = self.items.iter().filter_map(|item| item.model.as_deref()).collect();
        names.into_iter().map(|model| ServedModel { provider: Arc::clone(provider), model: model.into() }).collect()
    }

    /// Whether it is a batch of which each request says which model serves it.
    pub fn is_batch_of_models(&self) -> bool {
        let is_clear = |item: &Self| item.model.is_some() && !item.is_unclear;
        !self.is_unclear && !self.items.is_empty() && self.items.iter().all(is_clear)
    }
}

/// The member of an object under either of its two spellings.
fn either<'v>(object: &'v Value, snake: &str, camel: &str) -> &'v Value {
    object.get(snake).unwrap_or(&object[camel])
}

/// Adds the models of a list of alternatives: names, objects with a `model`, or lists by name.
fn add_all(value: &Value, to: &mut Vec<String>) {
    match value {
        Value::String(name) => to.push(name.clone()),
        Value::Array(parts) => parts.iter().for_each(|part| add_all(part, to)),
        Value::Object(members) if members.contains_key("model") => add_members(value, to),
        Value::Object(members) => members.values().for_each(|part| add_all(part, to)),
        _ => {}
    }
}

/// Adds the models of a list of tools or plugins, except for what is in the schemas of functions.
fn add_of_tools(tools: &Value, to: &mut Vec<String>) {
    for tool in tools.as_array().into_iter().flatten() {
        match tool["type"].as_str() {
            Some("image_generation") if !tool["model"].is_string() => to.push(IMAGE_TOOL_MODEL.to_owned()),
            None if tool.get("id").is_some() => add_members(tool, to),
            None | Some("function" | "custom") => add_all(&tool["model"], to),
            Some(_) => add_members(tool, to),
        }
    }
}

/// Adds the models of the members `model` and `models` at any depth.
fn add_members(value: &Value, to: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, part) in members {
                match name.to_ascii_lowercase().as_str() {
                    "model" | "models" => add_all(part, to),
                    _ => add_members(part, to),
                }
            }
        }
        Value::Array(parts) => parts.iter().for_each(|part| add_members(part, to)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_of_a_body_is_found() {
        for (body, model, others, is_unclear) in [
            (r#"{"model":"a","models":["b","c"],"messages":[{"model":"x"}]}"#, Some("a"), vec!["b", "c"], false),
            (r#"{"model":"a","Model":"b"}"#, Some("a"), vec!["b"], false),
            (r#"{"model":"a","model":"b"}"#, None, vec![], true),
            (r#"{"mod\u0065l":"a"}"#, Some("a"), vec![], false),
            (
                r#"{"model":"a","fallbacks":[{"model":"b","speed":"fast"},{"a":["c"]}]}"#,
                Some("a"),
                vec!["b", "c"],
                false,
            ),
            (r#"{"model":"a","preset":"p"}"#, Some("a"), vec![], true),
            (r#"{"model":"a","prompt":{"id":"pmpt_1"}}"#, Some("a"), vec![], true),
            (r#"{"model":"a","prompt":"a text"}"#, Some("a"), vec![], false),
            (
                r#"{"session":{"audio":{"input":{"transcription":{"model":"b"}}},"model":"a"}}"#,
                Some("a"),
                vec!["b", "a"],
                false,
            ),
            (r#"{"session":{"audio":{"input":{"transcription":{"model":"b"}}}}}"#, Some("b"), vec!["b"], false),
            (r#"{"model":"a","session":{"model":"b"}}"#, Some("a"), vec!["b"], false),
            (r#"{"model":"a@preset/p"}"#, Some("a@preset/p"), vec![], true),
            (r#"{"model":"a","tools":[{"type":"image_generation"}]}"#, Some("a"), vec![IMAGE_TOOL_MODEL], false),
            (
                r#"{"model":"a","tools":[{"type":"image_generation","model":"i"},{"type":"x:advisor","parameters":{"model":"b"}}]}"#,
                Some("a"),
                vec!["i", "b"],
                false,
            ),
            (
                r#"{"model":"a","tools":[{"type":"function","function":{"parameters":{"default":{"model":"x"}}}}]}"#,
                Some("a"),
                vec![],
                false,
            ),
            (
                r#"{"model":"a","plugins":[{"id":"fusion","analysis_models":1,"models":["b"]}]}"#,
                Some("a"),
                vec!["b"],
                false,
            ),
        ] {
            let named: NamedModels = serde_json::from_str(body).unwrap();
            assert_eq!((named.model.as_deref(), named.is_unclear), (model, is_unclear), "{body}");
            assert_eq!(named.others, others, "{body}");
        }
        assert!(serde_json::from_str::<NamedModels>("[]").is_err());
    }

    #[test]
    fn a_batch_names_the_model_of_each_of_its_requests() {
        for (body, is_clear) in [
            (r#"{"requests":[{"params":{"model":"a"}},{"params":{"model":"b","tools":[]}}]}"#, true),
            (r#"{"requests":[{"params":{"model":"a"}},{"params":{}}]}"#, false),
            (r#"{"requests":[{"params":{"model":"a","model":"b"}}]}"#, false),
            (r#"{"model":"a","requests":[]}"#, false),
        ] {
            let named: NamedModels = serde_json::from_str(body).unwrap();
            assert_eq!(named.is_batch_of_models(), is_clear, "{body}");
        }
    }

    #[test]
    fn the_maxima_of_a_batch_are_summed() {
        let gemini = |config: &str, maximum: &str| {
            format!(
                r#"{{"batch":{{"{config}":{{"requests":{{"requests":[{{"request":{{"generationConfig":{maximum}}}}},
                {{"request":{{"generation_config":{{"max_output_tokens":5}}}}}}]}}}}}}}}"#
            )
        };
        for (body, most, unstated, is_invalid) in [
            (r#"{"requests":[{"params":{"max_tokens":1}},{"params":{"max_tokens":"7"}}]}"#.into(), 8, 0, false),
            (r#"{"requests":[{"params":{"max_tokens":-1}},{"params":{"max_tokens":2}}]}"#.into(), 2, 1, true),
            (gemini("input_config", r#"{"maxOutputTokens":9}"#), 14, 0, false),
            (gemini("inputConfig", "{}"), 5, 1, false),
            (gemini("inputConfig", r#"{"maxOutputTokens":1.5}"#), 5, 1, true),
        ] {
            let named: NamedModels = serde_json::from_str(&body).unwrap();
            let read = (named.most_of_batch(), named.unstated_maxima(), named.has_invalid_maximum());
            assert_eq!(read, (Some(most), unstated, is_invalid), "{body}");
        }
        let named: NamedModels = serde_json::from_str(r#"{"batch":true}"#).unwrap();
        assert_eq!(named.most_of_batch(), None);
    }
}
