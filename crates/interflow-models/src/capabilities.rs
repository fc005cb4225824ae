//! What a model takes and refuses: translation goes by it, never by the version in a model's name.

use std::collections::BTreeSet;

use serde::Deserialize;

/// What a model can do. Words are plain text, so that a newer catalog may have new ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// APIs that serve the model at its maker, the preferred one first: `responses`, `chat`, `messages`, `realtime`,
    /// `generate_content`, `interactions`. Empty if not known.
    pub apis: Vec<String>,
    /// APIs that take function tools while the model thinks; all of `apis` if empty.
    pub tools_on: Vec<String>,
    /// Parameters that are an error or have no effect; see [`Capabilities::refuses`].
    refuses: BTreeSet<String>,
    /// Those that are an error only while the model thinks.
    refuses_while_thinking: BTreeSet<String>,
    /// The efforts that can be asked for; `None` if the model takes no effort.
    pub effort: Option<Effort>,
    pub thinking: ThinkingMode,
    /// What thoughts are bound to; they are then refused, or dropped, behind another history.
    pub bound_thinking: Option<ThinkingBinding>,
    /// Whether Chat Completions refuse a turn of the assistant without its thoughts while the model thinks.
    pub thinking_in_history: bool,
    /// Whether the API makes the answer follow a schema.
    pub structured_output: bool,
    /// What it reads: `text`, `image`, `audio`, `video`, `pdf`.
    pub input: Vec<String>,
    /// What it writes.
    pub output: Vec<String>,
}

/// When a model thinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingMode {
    /// It cannot.
    #[default]
    Never,
    /// When a request asks for it.
    Optional,
    /// Unless a request turns it off.
    Default,
    /// It cannot be turned off.
    Always,
}

/// What signed thoughts are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingBinding {
    /// All that precedes them, and the account.
    Transcript,
    /// That, and the model.
    Model,
}

/// The efforts of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Effort {
    /// From the lowest to the highest, without what turns thinking off.
    pub levels: Vec<String>,
    /// The one that applies if a request has none; `none` where thinking is off then. `None` if not known.
    pub default: Option<String>,
    /// What turns thinking off, or as far off as the model lets: the effort `none` (OpenAI, Mistral), or the type of
    /// `thinking` (Anthropic): `disabled`, `between_tools`. `None` if nothing does.
    pub off: Option<String>,
    /// The highest effort with which `off` is accepted; any if `None`.
    pub off_up_to: Option<String>,
}

/// All efforts of all models, from the lowest to the highest.
const EFFORTS: [&str; 6] = ["minimal", "low", "medium", "high", "xhigh", "max"];

impl Effort {
    /// Whether it is one of the levels, or turns thinking off.
    pub fn takes(&self, effort: &str) -> bool {
        self.off.as_deref() == Some(effort) || self.levels.iter().any(|level| level == effort)
    }

    /// The level for an effort that a request asks for: the same, else the next lower one, else the lowest. `None` for
    /// an effort that no model has.
    pub fn nearest(&self, asked: &str) -> Option<&str> {
        let rank = |level: &str| EFFORTS.iter().position(|e| *e == level);
        let asked = rank(asked)?;
        let lower = self.levels.iter().rev().find(|level| rank(level).is_some_and(|r| r <= asked));
        lower.or(self.levels.first()).map(String::as_str)
    }
}

impl Capabilities {
    /// Whether a parameter is an error or has no effect, as the model thinks or not. The names are those of OpenAI's
    /// Chat Completions (`temperature`, `top_p`, `logprobs`, `frequency_penalty`, `presence_penalty`, `stop`, and
    /// `max_tokens`, in place of which `max_completion_tokens` is taken), and `top_k`, `tools`, `prefill` (a last turn
    /// of the assistant), `tool_choice.forced`, `thinking.disabled`, `thinking.budget`, `thinking.adaptive`,
    /// `cached_content`, and versions of tools such as `computer_20251124`.
    pub fn refuses(&self, parameter: &str, thinks: bool) -> bool {
        self.refuses.contains(parameter) || thinks && self.refuses_while_thinking.contains(parameter)
    }

    /// Whether an API takes function tools while the model thinks.
    pub fn takes_tools_on(&self, api: &str) -> bool {
        !self.refuses.contains("tools") && (self.tools_on.is_empty() || self.tools_on.iter().any(|a| a == api))
    }

    /// Whether it thinks when a request says nothing about it.
    pub fn thinks_by_default(&self) -> bool {
        matches!(self.thinking, ThinkingMode::Default | ThinkingMode::Always)
    }
}

#[cfg(test)]
mod tests {
    use crate::capabilities;

    #[test]
    fn effort_that_a_model_lacks_becomes_the_next_lower_one() {
        for (model, asked, expected) in [
            ("gpt-6.1-sol", "max", Some("max")),
            ("gpt-5.6-sol", "max", Some("xhigh")),
            ("gpt-5.6-sol", "minimal", Some("low")),
            ("claude-opus-4-6", "xhigh", Some("high")),
            ("gemini-4-argon", "xhigh", Some("high")),
            ("kimi-k3.1-pro", "medium", Some("low")),
            ("deepseek-v4-pro", "low", Some("high")),
            ("glm-5.3", "xhigh", Some("high")),
            ("gpt-6.1-sol", "extreme", None),
        ] {
            let capabilities = capabilities("any", model).unwrap();
            assert_eq!(capabilities.effort.as_ref().unwrap().nearest(asked), expected, "{model} {asked}");
        }
    }

    #[test]
    fn parameters_are_refused_as_the_providers_document_it() {
        for (model, thinks, refused, taken) in [
            (
                "claude-opus-5-5",
                true,
                &["temperature", "prefill", "tool_choice.forced", "thinking.disabled"][..],
                &["tools"][..],
            ),
            (
                "claude-haiku-5-5",
                true,
                &["temperature", "prefill", "thinking.budget"],
                &["tool_choice.forced", "thinking.disabled"],
            ),
            ("claude-opus-4-6", false, &["prefill"], &["temperature", "tool_choice.forced", "thinking.budget"]),
            ("claude-opus-4-6", true, &["temperature", "tool_choice.forced"], &["top_p"]),
            ("claude-haiku-4-5", false, &["thinking.adaptive"], &["temperature", "prefill", "thinking.budget"]),
            ("gpt-6-astra", true, &["temperature", "max_tokens", "stop"], &["tools"]),
            ("gpt-5.4", false, &["max_tokens"], &["temperature", "top_p"]),
            ("gpt-4o", false, &[], &["temperature", "max_tokens", "stop"]),
            ("gemini-4-argon", true, &["temperature", "cached_content"], &["tools"]),
            ("deepseek-v4-pro", true, &["temperature", "tool_choice.forced"], &["tools", "stop"]),
            ("deepseek-v4-pro", false, &[], &["temperature", "tool_choice.forced"]),
            ("kimi-k3.1-pro", true, &["temperature", "top_p", "thinking.disabled"], &["tools", "stop"]),
            ("grok-4.7", true, &["presence_penalty", "stop"], &["temperature", "tool_choice.forced"]),
            ("qwen3.8-max", true, &["tool_choice.forced"], &["temperature"]),
        ] {
            let capabilities = capabilities("any", model).unwrap();
            for parameter in refused {
                assert!(capabilities.refuses(parameter, thinks), "{model} takes {parameter}");
            }
            for parameter in taken {
                assert!(!capabilities.refuses(parameter, thinks), "{model} refuses {parameter}");
            }
        }
    }

    #[test]
    fn newer_openai_models_take_tools_with_reasoning_on_responses_only() {
        for (model, chat) in [("gpt-5.6-sol", false), ("gpt-6.2-astra", false), ("gpt-5.1", true), ("gpt-4o", true)] {
            let capabilities = capabilities("openai", model).unwrap();
            assert_eq!(capabilities.takes_tools_on("chat"), chat, "{model}");
            assert!(capabilities.takes_tools_on("responses"), "{model}");
        }
    }
}
