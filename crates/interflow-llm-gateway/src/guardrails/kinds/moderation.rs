//! The kind `moderation`: asks a moderation endpoint with OpenAI's API about every text.

use std::collections::BTreeMap;
use std::sync::Arc;

use interflow_llm::GuardrailConfig;
use interflow_types::MaybeFuture;
use serde_json::{Value, json};

use super::super::check::{CheckInput, CheckResult, Finding, Guardrail};
use super::KindDeps;
use super::service_call::MAX_RESPONSE_BYTES;
use crate::gateway::{LlmGateway, send_json};

/// Texts of one call; more are sent in further calls.
const MAX_TEXTS: usize = 32;

pub(super) struct ModerationGuardrail {
    gateway: Arc<LlmGateway>,
    provider: String,
    model: String,
    categories: BTreeMap<String, f64>,
    threshold: Option<f64>,
}

impl ModerationGuardrail {
    pub fn new(config: &GuardrailConfig, deps: &KindDeps<'_>) -> Result<Self, String> {
        Ok(Self {
            gateway: Arc::clone(deps.gateway),
            provider: config.provider.clone(),
            model: config.model.clone(),
            categories: config.categories.clone(),
            threshold: config.threshold,
        })
    }

    async fn ask(&self, texts: &[(usize, &str)]) -> CheckResult {
        let mut body = json!({ "input": texts.iter().map(|(_, text)| text).collect::<Vec<_>>() });
        if !self.model.is_empty() {
            body["model"] = json!(self.model);
        }
        let request = self.gateway.own_request(&self.provider, "/v1/moderations", &body).await?;
        let answer = send_json(self.gateway.unrecorded(), request, MAX_RESPONSE_BYTES).await?;
        let results = answer["results"].as_array().ok_or("its answer has no `results`")?;
        if results.len() != texts.len() {
            return Err(format!("it judged {} of {} texts", results.len(), texts.len()));
        }
        let judged = texts.iter().zip(results);
        Ok(judged.flat_map(|((index, text), result)| self.findings(*index, text, result)).collect())
    }

    /// A finding for each category over its threshold. Without thresholds, the endpoint's own judgement counts.
    fn findings(&self, index: usize, text: &str, result: &Value) -> Vec<Finding> {
        let empty = serde_json::Map::new();
        let flags = result["categories"].as_object().unwrap_or(&empty);
        let scores = result["category_scores"].as_object().unwrap_or(&empty);
        let mut names: Vec<&String> = flags.keys().chain(scores.keys()).collect();
        names.sort();
        names.dedup();
        let found = names.into_iter().filter_map(|name| {
            if !self.categories.is_empty() && !self.categories.contains_key(name) {
                return None;
            }
            let score = scores.get(name).and_then(Value::as_f64);
            let flagged = flags.get(name).and_then(Value::as_bool).unwrap_or(false);
            let limit = self.categories.get(name).copied().or(self.threshold);
            let counts = match (limit, score) {
                (Some(limit), Some(score)) => score >= limit,
                _ => flagged,
            };
            let reason = format!("category {}", name.chars().take(60).collect::<String>()).into();
            let score = score.unwrap_or(1.0);
            counts.then_some(Finding { text: index, range: 0..text.len(), score, reason, replacement: None })
        });
        let mut found: Vec<Finding> = found.collect();
        // Some endpoints only say that a text is flagged.
        if found.is_empty() && flags.is_empty() && self.categories.is_empty() && result["flagged"] == json!(true) {
            found.push(Finding::new(index, 0..text.len(), 1.0, "flagged"));
        }
        found
    }
}

impl Guardrail for ModerationGuardrail {
    fn check<'a>(&'a self, input: CheckInput<'a>) -> MaybeFuture<'a, CheckResult> {
        let texts: Vec<(usize, &str)> =
            input.texts().filter(|(_, _, t)| !t.trim().is_empty()).map(|(i, _, t)| (i, t)).collect();
        MaybeFuture::pending(async move {
            let mut findings = Vec::new();
            for part in texts.chunks(MAX_TEXTS) {
                findings.extend(self.ask(part).await?);
            }
            Ok(findings)
        })
    }

    fn is_remote(&self) -> bool {
        true
    }
}
