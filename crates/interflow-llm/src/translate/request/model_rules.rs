//! What a model takes, by its row in the catalog: settings that it refuses are left out, or take the form that it has for
//! them, and are named as losses. Nothing here reads the version in a model's name.

use std::sync::Arc;

use interflow_models::{Capabilities, Effort, capabilities};
use memchr::memmem;
use serde_json::{Value, json};

use super::{ChatRequest, Target, Turn};
use crate::message::{ContentBlock, MessageRole};
use crate::translate::Losses;
use crate::translate::settings::{Reasoning, Settings, ToolChoice};

/// Smallest budget that the API accepts.
const MIN_BUDGET: u64 = 1_024;
/// The effort that turns reasoning off at OpenAI.
pub const NO_EFFORT: &str = "none";
/// The type of `thinking` that turns it off: at Anthropic, and in the Chat Completions of DeepSeek, Kimi and GLM.
pub const NO_THINKING: &str = "disabled";
/// What a request says instead of the effort that its client asked for.
const OTHER_EFFORT: &str = "reasoning.effort";

/// The row of a model; a model that is not in the catalog is taken to refuse nothing.
pub struct ModelRules(Option<Arc<Capabilities>>);

impl ModelRules {
    pub fn of(upstream: &str, model: &str) -> Self {
        Self(capabilities(upstream, model))
    }

    pub const fn is_known(&self) -> bool {
        self.0.is_some()
    }

    pub fn refuses(&self, parameter: &str, thinks: bool) -> bool {
        self.0.as_ref().is_some_and(|row| row.refuses(parameter, thinks))
    }

    /// Whether the API makes the answer follow a schema.
    pub fn is_structured(&self) -> bool {
        self.0.as_ref().is_none_or(|row| row.structured_output)
    }

    pub fn ladder(&self) -> Option<&Effort> {
        self.0.as_ref()?.effort.as_ref()
    }

    pub fn thinks_by_default(&self) -> bool {
        self.0.as_ref().is_some_and(|row| row.thinks_by_default())
    }

    /// The level for an effort that a client asks for, and whether it is another.
    pub fn level(&self, reasoning: &Reasoning, losses: &mut Losses) -> Option<String> {
        let asked = reasoning.effort()?;
        if self.ladder().is_some_and(|ladder| ladder.levels.is_empty()) {
            losses.add(OTHER_EFFORT);
            return None;
        }
        let level = self.ladder().and_then(|ladder| ladder.nearest(asked)).unwrap_or(asked);
        losses.add_if(OTHER_EFFORT, level != asked);
        Some(level.to_owned())
    }

    /// The effort in the form of OpenAI's APIs; models without efforts refuse it.
    pub fn effort(&self, reasoning: Option<&Reasoning>, losses: &mut Losses) -> Option<String> {
        let reasoning = reasoning?;
        if self.is_known() && self.ladder().is_none() {
            return None;
        }
        match (reasoning, self.ladder()) {
            (Reasoning::Off, Some(ladder)) if ladder.off.is_none() && self.thinks_by_default() => {
                losses.add(OTHER_EFFORT);
                ladder.levels.first().cloned()
            }
            (Reasoning::Off, ladder) => ladder.and_then(|ladder| ladder.off.clone()),
            (Reasoning::Adaptive, Some(ladder)) if !self.thinks_by_default() => {
                ladder.nearest("high").map(str::to_owned)
            }
            (given, _) => self.level(given, losses),
        }
    }

    /// Whether a model thinks with this effort in the form of OpenAI's APIs.
    pub fn thinks_with(&self, effort: Option<&str>) -> bool {
        effort.map_or_else(|| self.thinks_by_default(), |effort| effort != NO_EFFORT && effort != NO_THINKING)
    }

    /// The choice of tools, in the forms of OpenAI's APIs, unless the model cannot be made to call one.
    pub fn tool_choice<'c>(
        &self,
        choice: Option<&'c ToolChoice>,
        thinks: bool,
        losses: &mut Losses,
    ) -> Option<&'c ToolChoice> {
        let is_forced = matches!(choice, Some(ToolChoice::Required | ToolChoice::Named(_)));
        let is_refused = is_forced && self.refuses("tool_choice.forced", thinks);
        losses.add_if("tool_choice", is_refused);
        choice.filter(|_| !is_refused)
    }

    /// Whether Chat Completions refuse a turn of the assistant without its thoughts.
    pub fn demands_thoughts(&self, thinks: bool) -> bool {
        thinks && self.0.as_ref().is_some_and(|row| row.thinking_in_history)
    }

    /// Whether the model is in the Responses API only, or takes this request only there.
    pub fn needs_responses(&self, reasoning: Option<&Reasoning>, has_functions: bool) -> bool {
        let Some(row) = &self.0 else { return false };
        let effort = self.effort(reasoning, &mut Losses::default());
        is_in_responses_only(row) || has_functions && !row.takes_tools_on("chat") && self.thinks_with(effort.as_deref())
    }

    /// The sampling that the model takes: of what it refuses only the default goes unnamed.
    pub fn sampling(&self, settings: &Settings, thinks: bool, losses: &mut Losses) -> Settings {
        let take = |name: &str, value: &Option<Value>, default: f64, losses: &mut Losses| {
            let is_refused = value.is_some() && self.refuses(name, thinks);
            losses.add_if(name, is_refused && value.as_ref().and_then(Value::as_f64) != Some(default));
            value.clone().filter(|_| !is_refused)
        };
        let is_stop_refused = !settings.stop.is_empty() && self.refuses("stop", thinks);
        losses.add_if("stop", is_stop_refused);
        Settings {
            temperature: take("temperature", &settings.temperature, 1.0, losses),
            top_p: take("top_p", &settings.top_p, 1.0, losses),
            top_k: take("top_k", &settings.top_k, 0.0, losses),
            frequency_penalty: take("frequency_penalty", &settings.frequency_penalty, 0.0, losses),
            presence_penalty: take("presence_penalty", &settings.presence_penalty, 0.0, losses),
            stop: if is_stop_refused { Vec::new() } else { settings.stop.clone() },
            ..Settings::default()
        }
    }
}

/// Whether [`ModelRules::needs_responses`] may apply, as far as it can be told without the request's settings.
pub fn may_need_responses(upstream: &str, model: &str, has_tools: impl FnOnce() -> bool) -> bool {
    capabilities(upstream, model)
        .is_some_and(|row| is_in_responses_only(&row) || !row.takes_tools_on("chat") && has_tools())
}

/// The settings of a request in the model's own format that the model refuses by its row.
pub fn refused_settings(upstream: &str, model: &str, body: &[u8]) -> Vec<&'static str> {
    let rules = ModelRules::of(upstream, model);
    let is_written = |name: &str| memmem::find(body, format!("\"{name}\"").as_bytes()).is_some();
    let names = ["temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "stop"].into_iter();
    let mut refused: Vec<_> =
        names.filter(|name| rules.refuses(name, rules.thinks_by_default()) && is_written(name)).collect();
    if !refused.is_empty() {
        // The name may be that of something else within the body.
        let body: Value = interflow_codec::json::parse(body).unwrap_or_default();
        refused.retain(|name| body.get(*name).is_some());
    }
    refused
}

fn is_in_responses_only(row: &Capabilities) -> bool {
    let is_at = |api: &str| row.apis.iter().any(|known| known == api);
    is_at("responses") && !is_at("chat")
}

/// Whether the thoughts of a model are bound to all that precedes them.
pub fn binds_thoughts(upstream: &str, model: &str) -> bool {
    capabilities(upstream, model).is_some_and(|row| row.bound_thinking.is_some())
}

/// How Claude is told to think.
#[derive(Default)]
pub struct ClaudeThinking {
    /// The member `thinking`.
    pub member: Option<Value>,
    pub effort: Option<String>,
    /// Limit of output tokens, which includes the thoughts.
    pub limit: Option<u64>,
    /// Whether it thinks.
    pub thinks: bool,
}

impl ClaudeThinking {
    pub fn new(
        chat: &ChatRequest,
        turns: &[Turn<'_>],
        target: &Target<'_>,
        rules: &ModelRules,
        losses: &mut Losses,
    ) -> Self {
        let limit = chat.request.max_tokens;
        let unset = Self { limit, thinks: rules.thinks_by_default(), ..Self::default() };
        let Some(reasoning) = &chat.settings.reasoning else { return unset };
        let Some(budget) = reasoning.budget() else { return Self::off(unset, rules, losses) };
        if rules.ladder().is_some() && !rules.refuses("thinking.adaptive", false) {
            let effort = rules.level(reasoning, losses);
            return Self { member: Some(json!({ "type": "adaptive" })), effort, limit, thinks: true };
        }
        // The limit includes the thoughts: without one, room is made for both.
        let limit = limit.unwrap_or(target.max_tokens.saturating_add(budget));
        let budget = budget.min(limit.saturating_sub(1)).max(MIN_BUDGET);
        if budget >= limit || rules.refuses("thinking.budget", false) || lacks_thinking(chat, turns) {
            losses.add("reasoning");
            return unset;
        }
        let member = json!({ "type": "enabled", "budget_tokens": budget });
        Self { member: Some(member), limit: Some(limit), thinks: true, ..Self::default() }
    }

    /// Thinking that the client does not want: turned off, or as far down as the model lets.
    fn off(unset: Self, rules: &ModelRules, losses: &mut Losses) -> Self {
        let Some(ladder) = rules.ladder().filter(|_| unset.thinks) else { return unset };
        let Some(off) = ladder.off.as_deref() else {
            losses.add("reasoning");
            return Self { effort: ladder.levels.first().cloned(), ..unset };
        };
        let is_off = off == NO_THINKING;
        losses.add_if("reasoning", !is_off);
        Self { member: Some(json!({ "type": off })), thinks: !is_off, ..unset }
    }
}

/// Whether the turn in progress called tools without the signed thoughts before them: the API then refuses thinking.
fn lacks_thinking(chat: &ChatRequest, turns: &[Turn<'_>]) -> bool {
    let last = turns.iter().rev().find(|turn| turn.role == MessageRole::Assistant);
    let answered = turns.last().is_some_and(|t| t.blocks.iter().any(|b| matches!(b, ContentBlock::ToolResult { .. })));
    let signed = |b: &&ContentBlock| match b {
        ContentBlock::Thinking { signature, .. } => signature.get().and_then(|s| chat.anthropic_signature(s)).is_some(),
        _ => false,
    };
    answered && last.is_some_and(|turn| !turn.blocks.iter().any(signed))
}
