//! Audit log, metrics, traces and webhooks for LLM traffic: Prometheus metrics, and spans by OpenTelemetry's GenAI
//! conventions. Never any content, except in spans if the operator wants it there.

mod attempt_spans;
mod audit;
mod audit_fields;
mod config;
mod content;
mod hash_chain;
mod metrics;
mod otel_env;
mod span_content;
mod span_exporter;
mod spans;
mod webhook;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwap;
use interflow_limits::UsageLimiter;
use interflow_llm::error_response::class_of;
use interflow_llm::{LlmCall, LlmRefusal, Operation};
use interflow_tasks::SinkCounts;
use interflow_types::{CallUsage, EarlyExit, ErrorSource, Flow, HttpClient, RequestHead, Response};
use parking_lot::Mutex;

use crate::gateway::ListedAttempt;
use crate::limits::KeyContext;
pub use audit::AuditLog;
pub use audit_fields::{AUDIT_FIELDS, AuditField, rfc3339};
pub use config::{AttributeSet, AuditConfig, ContentMode, TelemetryConfig, TelemetryWebhookConfig, WebhookEvent};
pub use hash_chain::{ChainError, VerifiedChain, verify};
use metrics::LlmMetrics;
pub use metrics::{DurationHistogram, LabelValues, LabeledValues, LlmStats, REDACTION_BOUNDS, REQUEST_BOUNDS};
use otel_env::ExportSettings;
use span_exporter::{SpanCounts, SpanExporter};
pub use spans::{SPAN_ATTRIBUTES, SpanAttribute, TraceContext};
use webhook::Webhooks;

/// Maximum length, in bytes, of the names and ids that clients and providers choose.
const MAX_NAME: usize = 256;
/// Tags that are reported of a flow.
const MAX_TAGS: usize = 32;

/// What redaction found in a flow; set by the redaction stages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedactionFindings {
    pub policy: String,
    /// Findings in the request, by type.
    pub request: BTreeMap<String, u64>,
    /// Findings in the response, by type.
    pub response: BTreeMap<String, u64>,
    /// Time spent on detection, in microseconds.
    pub micros: u64,
}

impl RedactionFindings {
    /// Findings in request and response.
    pub fn total(&self) -> u64 {
        self.request.values().chain(self.response.values()).sum()
    }
}

/// Findings in a streaming response; merged into the flow at its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseFindings(Arc<Mutex<ResponseFindingsState>>);

#[derive(Debug, Default)]
struct ResponseFindingsState {
    found: BTreeMap<String, u64>,
    micros: u64,
    cut: Option<RefusalRecord>,
    unread: BTreeSet<&'static str>,
}

impl ResponseFindings {
    /// Counts a finding of this type.
    pub fn record_finding(&self, kind: &str) {
        let mut passed = self.0.lock();
        match passed.found.get_mut(kind) {
            Some(n) => *n += 1,
            None => drop(passed.found.insert(kind.to_owned(), 1)),
        }
    }

    pub fn add_scan_time(&self, micros: u64) {
        self.0.lock().micros += micros;
    }

    /// Whether the response was already cut off and the client notified.
    pub fn is_cut(&self) -> bool {
        self.0.lock().cut.is_some()
    }

    /// Marks the response as cut off.
    pub fn mark_cut(&self, kind: &'static str, code: &'static str) {
        self.0.lock().cut = Some(RefusalRecord { kind, code });
    }

    /// Part of the response passed unread; the tag says by which pass.
    pub fn mark_unread(&self, tag: &'static str) {
        self.0.lock().unread.insert(tag);
    }

    /// Merges the findings into the flow's tags and extensions.
    pub fn merge_into_flow(flow: &mut Flow) {
        let Some(passing) = flow.extension::<Self>().cloned() else { return };
        let passed = std::mem::take(&mut *passing.0.lock());
        for kind in passed.found.keys() {
            flow.tag(format!("answer:{kind}"));
        }
        passed.unread.into_iter().for_each(|tag| flow.tag(tag));
        let findings = flow.extension_mut::<RedactionFindings>();
        findings.micros += passed.micros;
        for (kind, n) in passed.found {
            *findings.response.entry(kind).or_default() += n;
        }
        if let Some(cut) = passed.cut {
            flow.tag(format!("refused:{}", cut.code));
            record_refusal(flow, cut.kind, cut.code);
        }
    }
}

/// A rejection by a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalRecord {
    /// The error kind.
    pub kind: &'static str,
    /// The error code.
    pub code: &'static str,
}

/// Records that a stage rejected the flow.
fn record_refusal(flow: &mut Flow, kind: &'static str, code: &'static str) {
    *flow.extension_mut::<Option<RefusalRecord>>() = Some(RefusalRecord { kind, code });
}

/// Refuses a request, or its response.
pub(crate) fn refuse(flow: &mut Flow, refusal: &LlmRefusal) -> EarlyExit {
    EarlyExit::Answer(Box::new(refusal_response(flow, refusal)))
}

/// The response of a refusal, in the format of the request's API, so that SDKs raise the exception that their users expect.
/// It is recorded for the audit log and metrics.
pub(crate) fn refusal_response(flow: &mut Flow, refusal: &LlmRefusal) -> Response {
    flow.tag(format!("refused:{}", refusal.code));
    record_refusal(flow, refusal.kind, refusal.code);
    // Not its message, which may have words of the content.
    tracing::info!(flow = %flow.id, client = %flow.client.peer, code = refusal.code, "refused");
    let provider = flow.extension::<LlmCall>().map(|call| call.provider).unwrap_or_default();
    refusal.to_response(provider, flow)
}

/// A completed request, as reported by all sinks.
pub(crate) struct CallTelemetry<'a> {
    pub flow: &'a Flow,
    pub exchange: &'a LlmCall,
    pub usage: Option<CallUsage>,
    /// Cost in millionths of a dollar, if the price is known.
    pub micros: Option<u64>,
    /// What a response from the cache would have cost: the usage of the request that it was made for, and its price.
    pub saved: Option<(CallUsage, Option<u64>)>,
    pub key: Option<&'a str>,
    pub found: Option<&'a RedactionFindings>,
    pub refused: Option<RefusalRecord>,
    pub trace: Option<&'a TraceContext>,
}

impl CallTelemetry<'_> {
    /// The gateway's name of the upstream, or else the provider's.
    pub fn provider(&self) -> &str {
        self.exchange.upstream.as_ref().map_or(self.exchange.provider.as_str(), |u| u.as_str())
    }

    pub fn policy(&self) -> &str {
        self.found.map_or("none", |f| f.policy.as_str())
    }

    /// The status sent to the client; 0 if none was.
    pub fn status(&self) -> u16 {
        self.flow.status.map_or(0, |s| s.as_u16())
    }

    /// The model that the client asked for.
    pub fn model(&self) -> Option<&str> {
        self.exchange.model.as_deref().map(bounded)
    }

    /// The model that answered.
    pub fn response_model(&self) -> Option<String> {
        self.exchange.summary().model.as_deref().map(|model| bounded(model).to_owned())
    }

    /// The tags of the flow, without those that say what guardrails found: they may have words of the content.
    pub fn tags(&self) -> Vec<&str> {
        let tags = self.flow.tags.iter().map(|tag| tag.as_str());
        tags.filter(|tag| !tag.starts_with("guardrail-finding:")).take(MAX_TAGS).collect()
    }

    /// The class of the refusal or error that ended it, and its code, its kind, or the status of the provider's error.
    pub fn error(&self) -> Option<(&'static str, &str)> {
        let by_kind = || self.flow.error_kind.map(|kind| (class_of(kind).0, kind.as_str()));
        let status = self.flow.status.as_ref().filter(|status| status.as_u16() >= 400);
        let refused = self.refused.map(|r| (r.kind, r.code));
        refused.or_else(by_kind).or_else(|| Some(("provider_error", status?.as_str())))
    }

    /// Whether the provider failed, or answered with an error. A client that leaves is not its failure.
    pub fn failed_at_provider(&self) -> bool {
        let is_upstream = match self.flow.error_kind {
            Some(kind) => kind.error_source() == ErrorSource::Upstream,
            None => self.status() >= 400,
        };
        is_upstream && self.refused.is_none()
    }
}

/// A name or an id that a client or a provider chose, as far as it is reported.
fn bounded(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME)]
}

/// Reports LLM traffic to the audit log, metrics and traces.
pub struct LlmTelemetry {
    limits: Arc<UsageLimiter>,
    egress: Arc<dyn HttpClient>,
    metrics: LlmMetrics,
    // Since the start, whatever sinks there were.
    spans: SpanCounts,
    events: Arc<SinkCounts>,
    out: ArcSwap<TelemetrySinks>,
}

#[derive(Default)]
struct TelemetrySinks {
    /// It stays when it is disabled, since its chain must have one writer.
    audit: Option<Arc<AuditLog>>,
    spans: Option<Arc<SpanExporter>>,
    webhooks: Webhooks,
    config: (AuditConfig, TelemetryConfig),
}

impl TelemetrySinks {
    /// The audit log, if it is enabled.
    fn audit(&self) -> Option<&AuditLog> {
        self.audit.as_deref().filter(|_| self.config.0.enabled)
    }
}

/// A validated configuration, whose audit log is not opened yet, and the data directory.
pub struct PreparedTelemetry(TelemetrySinks, PathBuf);

/// Marks a flow that is counted as in progress.
#[derive(Default)]
struct ActiveRequestMarker {
    counted: bool,
    trace: Option<TraceContext>,
}

impl LlmTelemetry {
    /// Relative paths are resolved against `home`. Requests sent over `egress` must not be recorded.
    ///
    /// # Errors
    /// A file cannot be opened, or an address is invalid.
    pub fn new(
        audit: &AuditConfig,
        telemetry: &TelemetryConfig,
        home: &Path,
        limits: Arc<UsageLimiter>,
        egress: Arc<dyn HttpClient>,
        max_concurrent: usize,
    ) -> Result<Arc<Self>, String> {
        let (metrics, spans, events, out) = Default::default();
        let service = Self { limits, egress, metrics, spans, events, out };
        let PreparedTelemetry(mut sinks, _) = service.prepare(audit, telemetry, home)?;
        if audit.enabled {
            sinks.audit = Some(Arc::new(AuditLog::open(audit, home)?));
        }
        service.switch_to(sinks, max_concurrent);
        Ok(Arc::new(service))
    }

    /// Validates another configuration, without activating it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn prepare(
        &self,
        audit: &AuditConfig,
        telemetry: &TelemetryConfig,
        home: &Path,
    ) -> Result<PreparedTelemetry, String> {
        let now = self.out.load();
        if now.config.0 != *audit {
            AuditLog::check(audit, home)?;
        }
        let spans = match &now.spans {
            Some(spans) if now.config.1 == *telemetry => Some(Arc::clone(spans)),
            _ => self.exporter(telemetry)?,
        };
        let webhooks = match now.config.1.webhook == telemetry.webhook {
            true => now.webhooks.clone(),
            false => Webhooks::new(&telemetry.webhook, &self.egress, &self.events)?,
        };
        let config = (audit.clone(), telemetry.clone());
        Ok(PreparedTelemetry(TelemetrySinks { audit: None, spans, webhooks, config }, home.to_owned()))
    }

    fn exporter(&self, telemetry: &TelemetryConfig) -> Result<Option<Arc<SpanExporter>>, String> {
        let Some(settings) = ExportSettings::new(telemetry, &|name| std::env::var(name).ok())? else { return Ok(None) };
        match SpanExporter::new(&settings, telemetry, Arc::clone(&self.egress), self.spans.clone()) {
            Ok(exporter) => Ok(Some(exporter)),
            Err(e) if telemetry.endpoint.is_some() => Err(e),
            // Variables may be set for every program on the machine; a bad one must not prevent startup.
            Err(e) => {
                tracing::warn!("no spans are exported: {e}");
                Ok(None)
            }
        }
    }

    /// Activates a configuration. `max_concurrent` is the limit on concurrent requests reported as a metric; 0: none.
    pub fn activate(&self, PreparedTelemetry(mut sinks, home): PreparedTelemetry, max_concurrent: usize) {
        let now = self.out.load();
        sinks.audit.clone_from(&now.audit);
        let config = &sinks.config.0;
        let opened = match &now.audit {
            _ if !config.enabled || now.config.0 == *config => Ok(()),
            Some(log) => log.reopen(config, &home),
            None => AuditLog::open(config, &home).map(|log| sinks.audit = Some(Arc::new(log))),
        };
        if let Err(e) = opened {
            tracing::error!("{e}; the audit log goes on as it was");
            sinks.config.0 = now.config.0.clone();
        }
        self.switch_to(sinks, max_concurrent);
    }

    fn switch_to(&self, sinks: TelemetrySinks, max_concurrent: usize) {
        self.out.store(Arc::new(sinks));
        self.metrics.record_capacity(max_concurrent as u64);
    }

    /// What was counted since the start.
    pub fn stats(&self) -> LlmStats {
        let out = self.out.load();
        LlmStats {
            lost_audit_lines: out.audit.as_ref().map_or(0, |a| a.lost_lines()),
            dropped_spans: self.spans.queue.dropped.load(Relaxed),
            dropped_contents: self.spans.contents.load(Relaxed),
            webhook_events: (self.events.delivered.load(Relaxed), self.events.dropped.load(Relaxed)),
            ..self.metrics.stats()
        }
    }

    /// What spans have of the texts of requests and responses.
    pub(crate) fn content_mode(&self) -> ContentMode {
        let out = self.out.load();
        if out.spans.is_some() { out.config.1.content } else { ContentMode::None }
    }

    /// Writes to the audit log that somebody at this address changed settings: a list of keys with their values before
    /// and after.
    pub fn record_settings(&self, client: &str, changes: &serde_json::Value) {
        if let Some(audit) = self.out.load().audit() {
            audit.write_event("settings", [("client_ip", client.into()), ("changes", changes.clone())]);
        }
    }

    pub fn close(&self) {
        if let Some(audit) = &self.out.load().audit {
            audit.flush();
        }
    }

    fn export(&self, record: &CallTelemetry<'_>) {
        self.metrics.count_request(record);
        let out = self.out.load();
        if let Some(audit) = out.audit() {
            audit.write(record);
        }
        if let (Some(spans), Some(trace)) = (&out.spans, record.trace) {
            spans.add(record, trace);
        }
        out.webhooks.send(record);
    }

    /// Counts a call as begun.
    pub(crate) fn begin(&self, flow: &mut Flow, head: &mut RequestHead) {
        if flow.extension::<LlmCall>().is_none() {
            return;
        }
        let trace = self.out.load().spans.as_ref().map(|spans| TraceContext::from_request(flow, head, spans.sampler()));
        *flow.extension_mut::<ActiveRequestMarker>() = ActiveRequestMarker { counted: true, trace };
        self.metrics.request_started();
    }

    /// Reports a flow that has ended.
    pub(crate) fn done(&self, flow: &Flow) {
        let begun = flow.extension::<ActiveRequestMarker>();
        if begun.is_some_and(|b| b.counted) {
            self.metrics.request_ended();
        }
        let Some(exchange) = flow.extension::<LlmCall>() else { return };
        let refused = flow.extension::<Option<RefusalRecord>>().copied().flatten();
        let is_free = exchange.operation == Operation::Lookup || exchange.operation.is_incidental();
        if is_free && refused.is_none() {
            return;
        }
        // A response of the cache has the usage of the one that was paid.
        let is_hit = crate::gateway::response_cache::is_hit(flow);
        let charged = || crate::limits::charged_usage(flow).map(|charged| charged.usage);
        let usage = if is_hit { exchange.usage() } else { charged().filter(|usage| usage.total() > 0) };
        let cost = usage.and_then(|u| {
            let name = exchange.upstream.as_ref().map_or(exchange.provider.as_str(), |n| n.as_str());
            let answered = exchange.summary().model;
            let cost = |name: &str, model: Option<&str>| self.limits.cost(name, model, answered.as_deref(), &u);
            // By the deployment that served it, as budgets are charged.
            let served = ListedAttempt::serving(flow).and_then(|attempt| attempt.served);
            let by_deployment = served.as_ref().and_then(|s| cost(&s.provider, Some(&s.model)));
            by_deployment.or_else(|| cost(name, exchange.model.as_deref()))
        });
        // The provider was paid for the response once.
        let saved = is_hit.then(|| (usage.unwrap_or_default(), cost));
        self.export(&CallTelemetry {
            flow,
            exchange,
            usage: usage.filter(|_| !is_hit),
            micros: if is_hit { Some(0) } else { cost },
            saved,
            key: flow.extension::<KeyContext>().and_then(|n| n.key.as_ref()).map(|k| &*k.id),
            found: flow.extension::<RedactionFindings>(),
            refused,
            trace: begun.and_then(|b| b.trace.as_ref()),
        });
    }
}

#[cfg(test)]
mod tests;
