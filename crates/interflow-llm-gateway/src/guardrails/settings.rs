//! The compiled `[llm.guardrail]` sections, and which of them apply to a call.

use std::sync::Arc;

use interflow_limits::{any_matches, covers_model};
use interflow_llm::spans::TextPlace;
use interflow_llm::{
    GuardrailAction, GuardrailConfig, GuardrailDirection, GuardrailKind, GuardrailMessages, LlmCall, LlmConfig,
};
use interflow_types::{Direction, Flow};

use super::check::{CallFacts, CheckInput, Guardrail};
use super::kinds::{self, KindDeps};
use super::texts::GuardText;
use crate::gateway::LlmGateway;
use crate::limits::KeyContext;

/// Longest name of a guardrail; it is a label of metrics and tags.
const MAX_NAME: usize = 64;

/// Compiled guardrails. Immutable: a reload makes another, and flows in progress keep theirs.
pub struct GuardrailSettings {
    guards: Vec<Arc<Guard>>,
    /// Knows which models may serve a request.
    gateway: Arc<LlmGateway>,
    /// Largest body that is checked.
    pub(super) max_body: usize,
}

/// A guardrail with its configuration.
pub(super) struct Guard {
    pub name: Arc<str>,
    pub config: GuardrailConfig,
    pub check: Box<dyn Guardrail>,
}

/// The guardrails of one call, kept with its flow until the response.
#[derive(Clone, Default)]
pub(crate) struct ActiveGuards {
    pub(super) input: Vec<Arc<Guard>>,
    pub(super) output: Vec<Arc<Guard>>,
    pub facts: Arc<CallFacts>,
    pub max_body: usize,
}

impl GuardrailSettings {
    pub(super) fn new(config: &LlmConfig, deps: &KindDeps<'_>) -> Result<Self, String> {
        let mut guards = Vec::new();
        for (name, own) in &config.guardrail {
            let valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(valid) {
                return Err(format!(
                    "llm.guardrail.{name}: a name has letters, digits, `-`, `_` and `.`, and at most {MAX_NAME} of them"
                ));
            }
            if own.kind == GuardrailKind::Moderation && !crate::gateway::is_known_upstream(config, &own.provider) {
                return Err(format!("llm.guardrail.{name}.provider: there is no upstream {}", own.provider));
            }
            let check = kinds::build(own, deps).map_err(|e| format!("llm.guardrail.{name}.{e}"))?;
            guards.push(Arc::new(Guard { name: name.as_str().into(), config: own.clone(), check }));
        }
        // Services last, so that what is blocked here does not cost a call.
        guards.sort_by_key(|g| g.check.is_remote());
        let max_body = usize::try_from(config.max_body.0).unwrap_or(usize::MAX);
        Ok(Self { guards, gateway: Arc::clone(deps.gateway), max_body })
    }

    #[cfg(test)]
    pub(super) fn guards(&self) -> &[Arc<Guard>] {
        &self.guards
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.guards.is_empty()
    }

    /// Whether something may be blocked or changed, so that nothing may pass unchecked.
    pub(super) fn is_strict(&self) -> bool {
        self.guards.iter().any(|g| g.is_strict())
    }

    /// The guardrails that apply to a call.
    pub(super) fn for_flow(&self, flow: &Flow, call: &LlmCall) -> ActiveGuards {
        let names_models = self.guards.iter().any(|guard| !guard.config.models.is_empty());
        let models = if names_models { self.gateway.models_of(call) } else { Vec::new() };
        let applying: Vec<&Arc<Guard>> = self.guards.iter().filter(|g| g.applies(flow, call, &models)).collect();
        let of = |covers: fn(&GuardrailConfig) -> bool| {
            applying.iter().filter(|g| covers(&g.config)).map(|g| Arc::clone(g)).collect::<Vec<_>>()
        };
        let key = flow.extension::<KeyContext>().and_then(|k| k.key.as_ref());
        let facts = CallFacts {
            flow: flow.id.to_string(),
            provider: call.upstream.as_ref().map_or(call.provider.as_str(), |u| u.as_str()).to_owned(),
            model: call.model.as_ref().map(ToString::to_string),
            operation: call.operation.as_str().to_owned(),
            user: flow.user.as_deref().map(str::to_owned),
            key: key.map(|k| k.id.to_string()),
        };
        ActiveGuards {
            input: of(|c| c.apply_to != GuardrailDirection::Output),
            output: of(|c| c.apply_to != GuardrailDirection::Input),
            facts: Arc::new(facts),
            max_body: self.max_body,
        }
    }
}

impl Guard {
    /// Whether it may change or stop something.
    pub fn is_strict(&self) -> bool {
        self.config.action != GuardrailAction::Flag
    }

    fn applies(&self, flow: &Flow, call: &LlmCall, models: &[Arc<str>]) -> bool {
        let config = &self.config;
        let any = |patterns: &[String], values: &[Option<&str>]| {
            patterns.is_empty() || values.iter().flatten().any(|v| any_matches(patterns, v))
        };
        let key = flow.extension::<KeyContext>().and_then(|k| k.key.as_ref());
        let covers = |model: &Arc<str>| covers_model(&config.models, model);
        // It may be sent to these as well.
        let others = |patterns: &[String]| call.others.iter().any(|o| any_matches(patterns, o));
        any(&config.keys, &[key.map(|k| &*k.id)])
            && any(&config.users, &[flow.user.as_deref()])
            && (any(&config.routes, &[call.upstream.as_deref(), call.route.as_deref()]) || others(&config.routes))
            && (any(&config.providers, &[Some(call.provider.as_str()), call.upstream.as_deref()])
                || others(&config.providers))
            // A model that cannot be read is treated as one that is covered.
            && (config.models.is_empty() || models.is_empty() || models.iter().any(covers))
    }

    /// The texts that it looks at, by their index.
    pub fn select(&self, direction: Direction, texts: &[GuardText]) -> Vec<usize> {
        let latest = self.config.messages == GuardrailMessages::Latest;
        let wanted = |t: &GuardText| self.wants_place(direction, t.place) && !(latest && t.is_history);
        texts.iter().enumerate().filter(|(_, t)| wanted(t)).map(|(i, _)| i).collect()
    }

    pub fn wants_place(&self, direction: Direction, place: TextPlace) -> bool {
        let heuristic = matches!(self.config.kind, GuardrailKind::PromptInjection | GuardrailKind::Jailbreak);
        match self.config.places.as_slice() {
            [] if heuristic && direction == Direction::Request => {
                matches!(place, TextPlace::User | TextPlace::ToolResult | TextPlace::Document | TextPlace::Unknown)
            }
            [] => true,
            places => places.contains(&place),
        }
    }

    pub fn input<'a>(
        &'a self,
        direction: Direction,
        facts: &'a CallFacts,
        texts: &'a [GuardText],
        selected: &'a [usize],
    ) -> CheckInput<'a> {
        CheckInput { direction, facts, guardrail: &self.name, texts, selected }
    }
}
