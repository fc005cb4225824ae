//! What a model takes and refuses: translation goes by it, never by the version in a model's name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use interflow_types::schema::JsonSchema;
use serde::Deserialize;

/// What a model can do. Words are plain text, so that a newer catalog may have new ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ModelCapabilities")]
pub struct Capabilities {
    /// APIs that serve the model at its maker, the preferred one first: `responses`, `chat`, `messages`, `realtime`,
    /// `generate_content`, `interactions`. Empty if not known.
    pub apis: Vec<String>,
    /// APIs that take function tools while the model thinks; all of `apis` if empty.
    pub tools_on: Vec<String>,
    /// Parameters that are an error or have no effect.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingBinding {
    /// All that precedes them, and the account.
    Transcript,
    /// That, and the model.
    Model,
}

/// The efforts of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ModelEfforts")]
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

/// What translation does with parameters that a model refuses; all others are left out. Tests of `interflow-llm` compare
/// it with what requests become.
static TRANSLATION: LazyLock<BTreeMap<String, String>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../data/translation.json")).expect("a test reads it"));

impl Capabilities {
    /// What translation does with what a request has and the model refuses, each as `parameter: what`.
    pub fn translation(&self) -> Vec<String> {
        let (levels, off) = self.effort.as_ref().map(|e| (&e.levels[..], e.off.as_deref())).unwrap_or_default();
        let off = off.or(levels.first().map(String::as_str)).unwrap_or("the default");
        let what = |name: &str| TRANSLATION.get(name).map_or("left out".to_owned(), |text| text.replace("{off}", off));
        let mut lines: Vec<_> = self.refuses.iter().map(|name| format!("{name}: {}", what(name))).collect();
        let thinking = self.refuses_while_thinking.difference(&self.refuses);
        lines.extend(thinking.map(|name| format!("{name}: {} while it thinks", what(name))));
        let nearest = |asked| Some((asked, self.effort.as_ref()?.nearest(asked)?));
        let moved = EFFORTS.into_iter().filter_map(nearest).filter(|(asked, level)| asked != level);
        lines.extend(moved.map(|(asked, level)| format!("effort {asked}: becomes {level}")));
        if self.effort.is_none() && self.thinking == ThinkingMode::Never {
            lines.push("effort: left out".to_owned());
        }
        if !self.takes_tools_on("chat") && self.takes_tools_on("responses") {
            lines.push("tools with reasoning in Chat Completions: sent to Responses".to_owned());
        }
        lines
    }

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
    fn what_translation_does_follows_from_what_a_model_refuses() {
        for (model, expected) in [
            (
                "claude-opus-5-5",
                &["temperature: left out", "tool_choice.forced: becomes auto", "thinking.disabled: becomes low"][..],
            ),
            ("claude-sonnet-5-5", &["thinking.disabled: becomes between_tools", "effort minimal: becomes low"]),
            ("claude-opus-4-6", &["temperature: left out while it thinks", "effort xhigh: becomes high"]),
            (
                "gpt-6.1-sol",
                &[
                    "max_tokens: sent as max_completion_tokens",
                    "tools with reasoning in Chat Completions: sent to Responses",
                ],
            ),
            ("gpt-4o", &["effort: left out"]),
        ] {
            let lines = capabilities("any", model).unwrap().translation();
            for line in expected {
                assert!(lines.iter().any(|l| l == line), "{model}: no `{line}` in {lines:?}");
            }
        }
    }

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

    /// A model of each family in the table of the guide.
    const FAMILIES: [(&str, &[&str]); 20] = [
        ("Claude Fable 5.1", &["claude-fable-5-1", "claude-fable-5-2", "claude-mythos-5-2", "claude-opus-5-5"]),
        ("Claude Sonnet 5.5", &["claude-sonnet-5-5"]),
        ("Claude Haiku 5.5", &["claude-haiku-5-5"]),
        ("Claude Opus 5, Sonnet 5", &["claude-opus-5", "claude-sonnet-5"]),
        ("Claude 4.7, 4.8", &["claude-opus-4-7", "claude-opus-4-8"]),
        ("Claude 4.6", &["claude-opus-4-6", "claude-sonnet-4-6"]),
        ("Claude 4.5", &["claude-sonnet-4-5", "claude-haiku-4-5"]),
        ("GPT-6.2, GPT-6.1 Sol", &["gpt-6.2-sol", "gpt-6.2-astra", "gpt-6.1-sol", "gpt-6-astra"]),
        ("other GPT-6", &["gpt-6-luna", "gpt-5.6-sol", "gpt-5.5", "gpt-5.4"]),
        ("GPT-5 ", &["gpt-5", "gpt-5-mini"]),
        ("Gemini 4", &["gemini-4-argon", "gemini-3.8-flash"]),
        ("Gemini 3 ", &["gemini-3.1-pro-preview", "gemini-3.5-flash"]),
        ("Gemini 2.5", &["gemini-2.5-pro", "gemini-2.5-flash"]),
        ("DeepSeek V4", &["deepseek-v4-pro"]),
        ("Kimi K3", &["kimi-k3.1-pro"]),
        ("Kimi K2.5", &["kimi-k2.5"]),
        ("Grok 4", &["grok-4.7"]),
        ("GLM 5.3", &["glm-5.3"]),
        ("Qwen 3.5", &["qwen3.8-max"]),
        ("Mistral's", &["mistral-medium-latest", "mistral-small-latest"]),
    ];

    #[test]
    fn the_guide_says_of_each_family_what_its_models_refuse() {
        let page = include_str!("../../../docs/guides/llm-translation.md");
        let table = page.split("| models | sampling |").nth(1).unwrap().split("\n\n").next().unwrap();
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(rows.len(), FAMILIES.len(), "{rows:#?}");
        for (row, (family, models)) in rows.into_iter().zip(FAMILIES) {
            let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [label, sampling, reasoning, forced, prefill] = cells[..] else { panic!("{row}") };
            assert!(format!("{label} ").starts_with(family), "{row}");
            for model in models {
                let known = capabilities("any", model).unwrap();
                let refused = |parameter| match (known.refuses(parameter, false), known.refuses(parameter, true)) {
                    (true, _) => "always",
                    (false, true) => "while",
                    (false, false) => "kept",
                };
                let says = |cell: &str, always| match cell {
                    _ if cell.starts_with("kept") || cell.starts_with("penalties") => "kept",
                    _ if cell.contains("while") => "while",
                    _ if cell.starts_with(always) => "always",
                    _ => "unclear",
                };
                // A model that always thinks refuses both alike.
                let thinks = known.thinking == crate::ThinkingMode::Always;
                let alike = |state| if thinks && state == "while" { "always" } else { state };
                assert_eq!(alike(refused("temperature")), alike(says(sampling, "left out")), "{model}: {row}");
                let forced = forced.replace("left out", "`auto`");
                assert_eq!(alike(refused("tool_choice.forced")), alike(says(&forced, "`auto`")), "{model}: {row}");
                assert_eq!(known.refuses("prefill", false), prefill.contains("follows"), "{model}: {row}");
                match &known.effort {
                    None => assert!(
                        reasoning.starts_with("a budget") || reasoning.starts_with("on, or off"),
                        "{model}: {row}"
                    ),
                    Some(effort) => {
                        let lowest = effort.levels.first().map_or("", String::as_str);
                        let off = effort.off.as_deref().unwrap_or(lowest);
                        let off = if off == lowest { [off, "the lowest"] } else { [off, off] };
                        let says_off = !reasoning.contains("off") || off.iter().any(|word| reasoning.contains(word));
                        assert!(says_off, "{model}, off is {off:?}: {row}");
                    }
                }
            }
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
