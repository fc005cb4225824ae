//! The kinds of guardrails, built from their configuration.

pub mod heuristics;
mod http;
mod json_schema;
pub(super) mod matcher;
mod moderation;
mod schema;
mod service_call;

use std::path::Path;
use std::sync::Arc;

use interflow_llm::{GuardrailConfig, GuardrailDirection, GuardrailKind};
use interflow_types::HttpClient;

use super::check::Guardrail;
use crate::gateway::LlmGateway;
use heuristics::{HeuristicGuardrail, HeuristicSet};
use matcher::{MatchGuardrail, TextMatcher, TopicGuardrail};

/// Longest time that a stream holds text back for a match in the making, in bytes of text.
const MAX_WINDOW: u64 = 64 << 10;

/// What guardrails are built with.
pub(super) struct KindDeps<'a> {
    /// Relative paths start here.
    pub base: &'a Path,
    pub gateway: &'a Arc<LlmGateway>,
    /// The client for services; its requests are not recorded.
    pub egress: &'a Arc<dyn HttpClient>,
}

/// # Errors
/// What is wrong, beginning with the key.
pub(super) fn build(config: &GuardrailConfig, deps: &KindDeps<'_>) -> Result<Box<dyn Guardrail>, String> {
    if config.window.0 > MAX_WINDOW {
        return Err(format!("window: larger than {MAX_WINDOW} bytes"));
    }
    let window = usize::try_from(config.window.0).unwrap_or(0);
    let share = |name: &str, value: f64| match (0.0..=1.0).contains(&value) {
        true => Ok(value),
        false => Err(format!("{name}: {value} is not from 0 to 1")),
    };
    let threshold = config.threshold.map(|t| share("threshold", t)).transpose()?;
    for (name, limit) in &config.categories {
        share(&format!("categories.{name}"), *limit)?;
    }
    Ok(match config.kind {
        GuardrailKind::PromptInjection => Box::new(HeuristicGuardrail::new(HeuristicSet::PromptInjection, threshold)),
        GuardrailKind::Jailbreak => Box::new(HeuristicGuardrail::new(HeuristicSet::Jailbreak, threshold)),
        GuardrailKind::Words if config.words.is_empty() => return Err("words: it is empty; list words".into()),
        GuardrailKind::Words => Box::new(MatchGuardrail(TextMatcher::words(&config.words, window)?)),
        GuardrailKind::Topics => Box::new(TopicGuardrail::new(&config.topics, config.min_matches)?),
        GuardrailKind::Regex if config.patterns.is_empty() => {
            return Err("patterns: it is empty; list regular expressions".into());
        }
        GuardrailKind::Regex => Box::new(MatchGuardrail(TextMatcher::patterns(&config.patterns, window)?)),
        GuardrailKind::JsonSchema if config.apply_to != GuardrailDirection::Output => {
            return Err("apply_to: json_schema checks responses; write \"output\"".into());
        }
        GuardrailKind::JsonSchema => Box::new(json_schema::JsonSchemaGuardrail::new(&config.schema, deps.base)?),
        GuardrailKind::Moderation => Box::new(moderation::ModerationGuardrail::new(config, deps)?),
        GuardrailKind::Http => Box::new(http::HttpGuardrail::new(config, deps)?),
    })
}
