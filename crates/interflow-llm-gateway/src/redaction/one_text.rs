//! Redaction of one text by a named policy, for APIs that take texts rather than requests to a provider.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use interflow_llm::LlmRefusal;
use interflow_redact::{RedactionSession, Replacement, ValuePolicy};
use interflow_types::{Direction, EntryKind, Flow, StatusCode};
use parking_lot::Mutex;

use super::RedactionService;
use super::request_body::detector_failed;
use crate::limits::KeyContext;
use crate::llm_telemetry::RedactionFindings;

/// A redacted text.
pub struct RedactedText {
    /// The text as it was given.
    pub original: String,
    pub redacted: String,
    /// What was replaced, in the order of the original.
    pub spans: Vec<Replacement>,
    /// The name of the policy, `default` if it has none, and its fingerprint in hexadecimal.
    pub policy: String,
    pub policy_version: String,
}

impl RedactionService {
    /// The policy for values in requests to the gateway. That of the flow's virtual key wins over `policy`, a name in
    /// `redact.policies`; without either, it is the active one.
    ///
    /// # Errors
    /// There is no policy of this name.
    pub fn value_policy(&self, flow: &Flow, policy: Option<&str>) -> Result<ValuePolicy, String> {
        let settings = self.settings();
        let of_key = flow.extension::<KeyContext>().and_then(|note| note.key.as_ref()?.policy.clone());
        let name = of_key.as_deref().or(policy);
        let redactor = match name {
            None => settings.redactor(),
            Some(name) => Arc::clone(
                settings.of_key(name).ok_or_else(|| format!("there is no policy `{name}` in redact.policies"))?,
            ),
        };
        Ok(ValuePolicy {
            mode: settings.mode(EntryKind::Gateway),
            redactor,
            detectors: settings.detectors.clone(),
            restore: settings.config.restore,
            context: settings.config.context.clone(),
            max_size: settings.max_body,
            guard: None,
        })
    }

    /// Counts findings by type in values that were redacted elsewhere.
    pub fn count_findings(&self, direction: Direction, found: &BTreeMap<String, u64>) {
        self.add_counts(direction, found);
    }

    /// The largest text that is redacted, in bytes (`redact.max_body`).
    pub fn max_text(&self) -> usize {
        self.settings().max_body
    }

    /// Redacts a text for good: its placeholders cannot be restored. Without a name, the policy is that of the flow's
    /// virtual key, or the active one. What is found is recorded with the flow and counted.
    ///
    /// # Errors
    /// There is no policy of this name, or a detector failed.
    pub async fn redact_text(
        &self,
        flow: &mut Flow,
        policy: &str,
        context: &str,
        text: String,
    ) -> Result<RedactedText, LlmRefusal> {
        let settings = self.settings();
        let of_key = flow.extension::<KeyContext>().and_then(|note| note.key.as_ref()?.policy.clone());
        let name = of_key.as_deref().filter(|_| policy.is_empty()).unwrap_or(policy);
        let Some(redactor) = settings.redactor_by_name(name) else {
            let message = format!("there is no policy named `{name}`");
            return Err(LlmRefusal::new(StatusCode::NOT_FOUND, "not_found", "unknown_policy", message));
        };
        let begun = Instant::now();
        let session = Arc::new(Mutex::new(RedactionSession::one_way().in_context(context.to_owned())));
        let original = Arc::new(text);
        let (text, own) = (Arc::clone(&original), Arc::clone(redactor));
        let redact = move |session: &mut RedactionSession| own.redact_text(&text, session);
        let done = settings.detectors.redact(original.len(), &session, redact).await;
        let done = done.map_err(|e| detector_failed(&e))?.ok_or_else(|| failed("the work was cut short"))?;
        let done = done.map_err(|e| failed(e.to_string()))?;
        let (policy, original) = (redactor.policy(), Arc::unwrap_or_clone(original));
        let name = if policy.name().is_empty() { "default" } else { policy.name() };
        self.record_findings(flow, name, &done.spans, begun);
        Ok(RedactedText {
            redacted: done.output.unwrap_or_else(|| original.clone()),
            original,
            spans: done.spans,
            policy: name.to_owned(),
            policy_version: hex::encode(policy.version()),
        })
    }

    fn record_findings(&self, flow: &mut Flow, policy: &str, spans: &[Replacement], begun: Instant) {
        let findings = flow.extension_mut::<RedactionFindings>();
        findings.policy = policy.to_owned();
        findings.micros = begun.elapsed().as_micros() as u64;
        for span in spans {
            *findings.request.entry(span.type_name.clone()).or_default() += 1;
        }
        let request_findings = findings.request.clone();
        self.add_counts(Direction::Request, &request_findings);
    }
}

fn failed(why: impl Into<String>) -> LlmRefusal {
    LlmRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "request_failed", why)
}
