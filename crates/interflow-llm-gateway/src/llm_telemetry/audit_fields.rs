//! The members of a line of the audit log. Their names are a contract.

use interflow_llm::ResponseSummary;
use interflow_types::RequestId;
use serde_json::{Value, json};

use crate::guardrails::GuardrailRecord;

use super::{CallTelemetry, RedactionFindings, TraceContext, bounded};

/// A member of each line.
pub struct AuditField {
    pub name: &'static str,
    /// What it is, as a phrase in Markdown.
    pub doc: &'static str,
    pub(super) value: fn(&AuditLine<'_>) -> Value,
}

/// What a line is made of.
pub(super) struct AuditLine<'a> {
    record: &'a CallTelemetry<'a>,
    seq: u64,
    found: RedactionFindings,
    error: Option<(&'a str, &'a str)>,
    summary: ResponseSummary,
}

impl<'a> AuditLine<'a> {
    pub fn new(record: &'a CallTelemetry<'a>, seq: u64) -> Self {
        let found = record.found.cloned().unwrap_or_default();
        Self { record, seq, found, error: record.error(), summary: record.exchange.summary() }
    }

    fn is_outbound(&self) -> bool {
        self.found.request.is_empty() && !self.found.response.is_empty()
    }

    fn entity_types(&self) -> Vec<&String> {
        let mut types: Vec<&String> = self.found.request.keys().chain(self.found.response.keys()).collect();
        types.sort();
        types.dedup();
        types
    }
}

const fn field(name: &'static str, doc: &'static str, value: fn(&AuditLine<'_>) -> Value) -> AuditField {
    AuditField { name, doc, value }
}

/// The members of each line, in their order. The hash chain adds `prev` and `hash`.
#[rustfmt::skip]
pub const AUDIT_FIELDS: &[AuditField] = &[
    field("time", "when the request began, in UTC", |l| json!(rfc3339(l.record.flow.clock.started_at().micros()))),
    field("level", "`warn` if the request failed or was refused, else `info`", |l| json!(if l.error.is_some() { "warn" } else { "info" })),
    field("msg", "`request`; `settings` in the line of a changed setting, which has `time`, `level`, `client_ip`, `changes` and `seq` only", |_| json!("request")),
    field("request_id", "the client's `X-Request-Id`, otherwise the flow's id", |l| json!(RequestId::of(l.record.flow))),
    field("direction", "`outbound` if something was detected in the response only, else `inbound`", |l| json!(if l.is_outbound() { "outbound" } else { "inbound" })),
    field("provider", "the provider", |l| json!(l.record.provider())),
    field("model", "the model that the client asked for", |l| json!(l.record.model())),
    field("policy_name", "the redaction policy", |l| json!(l.record.policy())),
    field("document_id", "the flow's id", |l| json!(l.record.flow.id.to_string())),
    field("fields_redacted", "findings in the request", |l| json!(l.found.request.values().sum::<u64>())),
    field("entity_count", "findings in request and response", |l| json!(l.found.total())),
    field("entity_types", "their entity types, sorted", |l| json!(l.entity_types())),
    field("redact_latency_ms", "time spent on detection, in milliseconds", |l| json!(l.found.micros as f64 / 1e3)),
    field("client_ip", "the client's address", |l| json!(l.record.flow.client.peer.ip().to_string())),
    field("key_id", "the virtual key", |l| json!(l.record.key)),
    field("http_status", "the status of the response", |l| json!(l.record.status())),
    field("error_type", "the type of the error or refusal", |l| json!(l.error.map(|e| e.0))),
    field("error_code", "its [code or kind](../reference/errors.md), or the status of the provider's error", |l| json!(l.error.map(|e| e.1))),
    field("trace_id", "the trace id (W3C Trace Context), with telemetry", |l| json!(l.record.trace.map(TraceContext::id))),
    field("seq", "a number that grows by one with each line since the start; a gap means lost lines", |l| json!(l.seq)),
    field("user", "the authenticated user", |l| json!(l.record.flow.user.as_deref())),
    field("transport", "how the request reached Interflow, such as `gateway`", |l| json!(l.record.flow.transport.as_str())),
    field("operation", "the operation, such as `chat`", |l| json!(l.record.exchange.operation.as_str())),
    field("outbound_entity_count", "findings in the response", |l| json!(l.found.response.values().sum::<u64>())),
    field("response_model", "the model that answered", |l| json!(l.summary.model.as_deref().map(bounded))),
    field("input_tokens", "tokens of the prompt", |l| json!(l.record.usage.map(|u| u.input))),
    field("output_tokens", "tokens of the answer", |l| json!(l.record.usage.map(|u| u.output))),
    field("dollars", "the cost in US dollars, if the price is known", |l| json!(l.record.micros.map(|m| m as f64 / 1e6))),
    field("guardrails", "the [guardrails](guardrails.md) that found something, as `NAME;input;blocked`", |l| json!(GuardrailRecord::summary(l.record.flow))),
    field("duration_ms", "time until the end of the response, in milliseconds", |l| json!(l.record.flow.timings.done.map(|us| us as f64 / 1e3))),
];

/// Microseconds since the Unix epoch as RFC 3339 in UTC.
pub fn rfc3339(micros: u64) -> String {
    let at = i64::try_from(micros).ok().and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    format!("{:.3}", at.unwrap_or(jiff::Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_as_rfc_3339() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_709_208_000_123_456, "2024-02-29T12:00:00.123Z"),
            (1_735_689_599_999_000, "2024-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(micros), text);
        }
    }
}
