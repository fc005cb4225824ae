//! The kind `http`: a service of the operator's decides. Its contract is in docs/guides/guardrails.md.

use std::sync::Arc;

use interflow_files::{check_field_secret, resolve_secret_ref};
use interflow_llm::{GuardrailConfig, GuardrailProtocol};
use interflow_types::{Direction, HttpClient, MaybeFuture, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::check::{CheckInput, CheckResult, Finding, Guardrail};
use super::super::record::direction_name;
use super::{KindDeps, service_call};

/// Longest reason of a service that is reported, in characters.
const MAX_REASON: usize = 200;

pub(super) struct HttpGuardrail {
    egress: Arc<dyn HttpClient>,
    url: Url,
    token: Option<String>,
    protocol: GuardrailProtocol,
}

/// The answer of the own protocol.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    action: Decision,
    reason: String,
    score: Option<f64>,
    findings: Vec<AnswerFinding>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Decision {
    /// Only the list of findings counts.
    #[default]
    Allow,
    /// The texts are a finding as a whole, even if none is listed.
    Flag,
}

/// Positions count characters (Unicode code points), as most languages do.
#[derive(Deserialize)]
struct AnswerFinding {
    index: usize,
    start: Option<usize>,
    end: Option<usize>,
    score: Option<f64>,
    #[serde(default)]
    reason: String,
    replacement: Option<String>,
}

impl HttpGuardrail {
    pub fn new(config: &GuardrailConfig, deps: &KindDeps<'_>) -> Result<Self, String> {
        let url = Url::of_service(&config.url)
            .map_err(|e| format!("url: `{}`: {e}; write it as https://host/path", config.url))?;
        let token = config.token.as_deref().map(|text| resolve_secret_ref(text).and_then(check_field_secret));
        let token = token.transpose().map_err(|e| format!("token: {e}"))?;
        Ok(Self { egress: Arc::clone(deps.egress), url, token, protocol: config.protocol })
    }

    async fn ask(&self, input: CheckInput<'_>) -> CheckResult {
        let body = match self.protocol {
            GuardrailProtocol::Interflow => own_request(input),
            GuardrailProtocol::Litellm => litellm_request(input),
        };
        let answer = service_call::post_json(&*self.egress, &self.url, self.token.as_deref(), &body).await?;
        match self.protocol {
            GuardrailProtocol::Interflow => own_findings(input, answer),
            GuardrailProtocol::Litellm => litellm_findings(input, &answer),
        }
    }
}

impl Guardrail for HttpGuardrail {
    fn check<'a>(&'a self, input: CheckInput<'a>) -> MaybeFuture<'a, CheckResult> {
        MaybeFuture::pending(self.ask(input))
    }

    fn is_remote(&self) -> bool {
        true
    }
}

fn own_request(input: CheckInput<'_>) -> Value {
    let texts: Vec<Value> = input
        .texts()
        .map(|(index, place, text)| json!({ "index": index, "place": place.as_str(), "text": text }))
        .collect();
    let facts = input.facts;
    json!({
        "version": 1,
        "guardrail": input.guardrail,
        "direction": direction_name(input.direction),
        "flow": facts.flow,
        "provider": facts.provider,
        "model": facts.model,
        "operation": facts.operation,
        "user": facts.user,
        "key": facts.key,
        "texts": texts
    })
}

fn own_findings(input: CheckInput<'_>, answer: Value) -> CheckResult {
    let answer: Answer = serde_json::from_value(answer)
        .map_err(|_| "its answer is not of the form {\"action\": \"allow\" | \"flag\", \"findings\": […]}")?;
    let text_of = |index: usize| input.texts().find(|(i, ..)| *i == index).map(|(_, _, text)| text);
    let mut findings = Vec::new();
    for told in answer.findings {
        let text = text_of(told.index).ok_or("it reported a text that it was not sent")?;
        let byte = |chars: usize| {
            let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            ends.nth(chars).ok_or("it reported a span outside the text")
        };
        let start = told.start.map_or(Ok(0), byte)?;
        let end = told.end.map_or(Ok(text.len()), byte)?;
        if start > end {
            return Err("it reported a span that ends before it begins".into());
        }
        let score = told.score.or(answer.score).unwrap_or(1.0);
        let reason = reason(if told.reason.is_empty() { &answer.reason } else { &told.reason });
        let range = start..end;
        findings.push(Finding { text: told.index, range, score, reason: reason.into(), replacement: told.replacement });
    }
    if findings.is_empty() && answer.action == Decision::Flag {
        let (score, why) = (answer.score.unwrap_or(1.0), reason(&answer.reason));
        findings.extend(input.texts().map(|(i, _, text)| Finding::new(i, 0..text.len(), score, why.clone())));
    }
    Ok(findings)
}

fn litellm_request(input: CheckInput<'_>) -> Value {
    let texts: Vec<&str> = input.texts().map(|(_, _, text)| text).collect();
    let facts = input.facts;
    json!({
        "texts": texts,
        "input_type": match input.direction { Direction::Request => "request", Direction::Response => "response" },
        "request_data": { "user_api_key_user_id": facts.user, "user_api_key_alias": facts.key },
        "litellm_call_id": facts.flow,
        "model": facts.model,
        "additional_provider_specific_params": {}
    })
}

fn litellm_findings(input: CheckInput<'_>, answer: &Value) -> CheckResult {
    let why = reason(answer["blocked_reason"].as_str().unwrap_or_default());
    let finding = |index: usize, text: &str, replacement: Option<String>| Finding {
        replacement,
        ..Finding::new(index, 0..text.len(), 1.0, why.clone())
    };
    match answer["action"].as_str() {
        Some("NONE") => Ok(Vec::new()),
        Some("BLOCKED") => Ok(input.texts().map(|(index, _, text)| finding(index, text, None)).collect()),
        Some("GUARDRAIL_INTERVENED") => {
            let texts = answer["texts"].as_array().ok_or("it changed texts, and sent none")?;
            let sent: Vec<_> = input.texts().collect();
            if sent.len() != texts.len() {
                return Err(format!("it returned {} of {} texts", texts.len(), sent.len()));
            }
            let changed = sent.iter().zip(texts).filter_map(|((index, _, text), new)| {
                let new = new.as_str().filter(|new| new != text)?;
                Some(finding(*index, text, Some(new.to_owned())))
            });
            Ok(changed.collect())
        }
        _ => Err("its answer has no `action` of NONE, BLOCKED or GUARDRAIL_INTERVENED".into()),
    }
}

/// A service's words, bounded, on one line.
fn reason(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_REASON).collect();
    if line.trim().is_empty() { "flagged".to_owned() } else { line.trim().to_owned() }
}
