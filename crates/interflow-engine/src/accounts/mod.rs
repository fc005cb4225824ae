//! What LLM traffic did, told outward: audit lines, metrics under the names that Philter's proxy uses and our own, and spans
//! of OpenTelemetry's GenAI conventions. Never any content.

mod audit;
mod chain;
mod config;
mod metrics;
mod otel_env;
mod spans;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use interflow_flow::{Egress, Flow, Interest, Phase, RequestHead, Scope, Stage, Step, Transport, Verdict};
use interflow_limits::{Limits, Tokens};
use interflow_llm::{Exchange, Operation, Usage};
use parking_lot::Mutex;

use crate::limits::KeyNote;
use audit::AuditLog;
pub use chain::{Broken, Verified, verify};
pub use config::{AuditConfig, TelemetryConfig};
use metrics::Metrics;
use otel_env::ExportSettings;
use spans::Exporter;
pub use spans::Trace;

/// What was found and taken out of a flow; filled by whoever did it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The policy's name.
    pub policy: String,
    /// In the request: how many, by type.
    pub request: BTreeMap<String, u64>,
    /// In the answer: how many, by type.
    pub response: BTreeMap<String, u64>,
    /// How long looking took, in microseconds.
    pub micros: u64,
}

/// What is found in an answer while it passes; joined with the flow at its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passing(Arc<Mutex<Passed>>);

#[derive(Debug, Default)]
struct Passed {
    found: BTreeMap<String, u64>,
    micros: u64,
    cut: Option<Refused>,
}

impl Passing {
    /// One more of this type.
    pub fn found(&self, kind: &str) {
        let mut passed = self.0.lock();
        match passed.found.get_mut(kind) {
            Some(n) => *n += 1,
            None => drop(passed.found.insert(kind.to_owned(), 1)),
        }
    }

    /// Time spent looking.
    pub fn looked(&self, micros: u64) {
        self.0.lock().micros += micros;
    }

    /// Whether the answer was cut off already, and its client told.
    pub fn is_cut(&self) -> bool {
        self.0.lock().cut.is_some()
    }

    /// The answer was cut off here.
    pub fn cut(&self, kind: &'static str, code: &'static str) {
        self.0.lock().cut = Some(Refused { kind, code });
    }

    /// Puts it into the flow's tags and notes.
    pub fn settle(flow: &mut Flow) {
        let Some(passing) = flow.note::<Self>().cloned() else { return };
        let passed = std::mem::take(&mut *passing.0.lock());
        for kind in passed.found.keys() {
            flow.tag(format!("answer:{kind}"));
        }
        let told = flow.note_mut::<Found>();
        told.micros += passed.micros;
        for (kind, n) in passed.found {
            *told.response.entry(kind).or_default() += n;
        }
        if let Some(cut) = passed.cut {
            flow.tag(format!("refused:{}", cut.code));
            note_refusal(flow, cut.kind, cut.code);
        }
    }
}

/// A refusal by a stage; filled by whoever refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The kind of error.
    pub kind: &'static str,
    /// The code of the cause.
    pub code: &'static str,
}

/// Set on flows that a stage refused.
pub(crate) fn note_refusal(flow: &mut Flow, kind: &'static str, code: &'static str) {
    *flow.note_mut::<Option<Refused>>() = Some(Refused { kind, code });
}

/// What is known of a flow at its end.
pub(crate) struct Facts<'a> {
    pub flow: &'a Flow,
    pub exchange: &'a Exchange,
    pub usage: Option<Usage>,
    /// Millionths of a dollar, when the price is known.
    pub micros: Option<u64>,
    pub key: Option<&'a str>,
    pub found: Option<&'a Found>,
    pub refused: Option<Refused>,
    pub trace: Option<&'a Trace>,
}

impl Facts<'_> {
    /// The gateway's name of the upstream, else the provider's.
    pub fn provider(&self) -> &str {
        self.exchange.upstream.as_ref().map_or(self.exchange.provider.as_str(), |u| u.as_str())
    }

    pub fn policy(&self) -> &str {
        self.found.map_or("none", |f| f.policy.as_str())
    }

    /// The status that the client got; 0 when it got none.
    pub fn status(&self) -> u16 {
        self.flow.status.map_or(0, |s| s.as_u16())
    }

    /// Kind and code of the error that ended it.
    pub fn error(&self) -> Option<(&'static str, &'static str)> {
        let failed = || self.flow.failed.map(|kind| ("provider_error", kind.as_str()));
        self.refused.map(|r| (r.kind, r.code)).or_else(failed)
    }
}

/// The room.
pub struct Accounts {
    limits: Arc<Limits>,
    egress: Arc<dyn Egress>,
    metrics: Metrics,
    out: ArcSwap<Out>,
}

/// Where things are told to.
#[derive(Default)]
struct Out {
    audit: Option<Arc<AuditLog>>,
    spans: Option<Arc<Exporter>>,
    config: (AuditConfig, TelemetryConfig),
}

/// A configuration that was read and opened.
pub struct PreparedAccounts(Out);

/// Marks a flow that is counted as under way.
#[derive(Default)]
struct Begun {
    counted: bool,
    trace: Option<Trace>,
}

impl Accounts {
    /// The room by its config; relative paths begin at `home`. `egress` must not be recorded.
    ///
    /// # Errors
    /// A file that cannot be opened, or an address that makes no sense.
    pub fn new(
        audit: &AuditConfig,
        telemetry: &TelemetryConfig,
        home: &Path,
        limits: Arc<Limits>,
        egress: Arc<dyn Egress>,
    ) -> Result<Arc<Self>, String> {
        let room = Self { limits, egress, metrics: Metrics::default(), out: ArcSwap::default() };
        let prepared = room.prepare(audit, telemetry, home)?;
        room.set(prepared);
        Ok(Arc::new(room))
    }

    /// Reads and opens what another config names, without putting it in force.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn prepare(
        &self,
        audit: &AuditConfig,
        telemetry: &TelemetryConfig,
        home: &Path,
    ) -> Result<PreparedAccounts, String> {
        let now = self.out.load();
        // The log goes on when nothing about it changed: its chain has one writer only.
        let log = match (audit.enabled, &now.audit) {
            (false, _) => None,
            (true, Some(log)) if now.config.0 == *audit => Some(Arc::clone(log)),
            (true, _) => Some(Arc::new(AuditLog::open(audit, home)?)),
        };
        let spans = match &now.spans {
            Some(spans) if now.config.1 == *telemetry => Some(Arc::clone(spans)),
            _ => self.exporter(telemetry)?,
        };
        Ok(PreparedAccounts(Out { audit: log, spans, config: (audit.clone(), telemetry.clone()) }))
    }

    fn exporter(&self, telemetry: &TelemetryConfig) -> Result<Option<Arc<Exporter>>, String> {
        let Some(settings) = ExportSettings::new(telemetry, &|name| std::env::var(name).ok())? else { return Ok(None) };
        match Exporter::new(&settings, Arc::clone(&self.egress)) {
            Ok(exporter) => Ok(Some(exporter)),
            Err(e) if telemetry.endpoint.is_some() => Err(e),
            // Variables may be set for all programs of a machine; none of them keeps this one from its work.
            Err(e) => {
                tracing::warn!("no spans are exported: {e}");
                Ok(None)
            }
        }
    }

    /// Puts it in force.
    pub fn set(&self, prepared: PreparedAccounts) {
        self.out.store(Arc::new(prepared.0));
    }

    /// Says how many requests the gateway serves at once, for its metric; 0 for no bound.
    pub fn set_capacity(&self, max: usize) {
        self.metrics.set_capacity(max as u64);
    }

    /// The metrics in Prometheus's text format.
    pub fn prometheus(&self) -> String {
        let out = self.out.load();
        let lost = out.audit.as_ref().map_or(0, |a| a.lost());
        let dropped = out.spans.as_ref().map_or(0, |s| s.dropped());
        self.metrics.page(&self.limits, lost, dropped)
    }

    /// Writes out what waits to be written.
    pub fn close(&self) {
        if let Some(audit) = &self.out.load().audit {
            audit.flush();
        }
    }

    fn told(&self, facts: &Facts<'_>) {
        self.metrics.count(facts);
        let out = self.out.load();
        if let Some(audit) = &out.audit {
            audit.write(facts);
        }
        if let (Some(spans), Some(trace)) = (&out.spans, facts.trace) {
            spans.add(facts, trace);
        }
    }
}

/// The stage that watches.
pub struct AccountStage(pub Arc<Accounts>);

impl Stage for AccountStage {
    fn name(&self) -> &'static str {
        "accounts"
    }

    fn interest(&self, scope: &Scope<'_>) -> Interest {
        let seen = scope.intercepted || matches!(scope.transport, Transport::Absolute | Transport::Gateway);
        if seen && scope.transport != Transport::Internal {
            Interest::of(Phase::RequestHead).and(Phase::Done)
        } else {
            Interest::NONE
        }
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> Step<'a, Verdict> {
        if flow.note::<Exchange>().is_some() {
            let trace = self.0.out.load().spans.as_ref().map(|spans| Trace::begin(flow, head, spans.sampler()));
            *flow.note_mut::<Begun>() = Begun { counted: true, trace };
            self.0.metrics.begin();
        }
        Step::Now(Verdict::Continue)
    }

    fn done(&self, flow: &Flow) {
        let begun = flow.note::<Begun>();
        if begun.is_some_and(|b| b.counted) {
            self.0.metrics.end();
        }
        let Some(exchange) = flow.note::<Exchange>() else { return };
        let refused = flow.note::<Option<Refused>>().copied().flatten();
        if matches!(exchange.operation, Operation::Lookup | Operation::Telemetry) && refused.is_none() {
            return;
        }
        let usage = exchange.usage();
        let cost = usage.and_then(|u| {
            let tokens =
                Tokens { input: u.input, output: u.output, cache_read: u.cache_read, cache_write: u.cache_write };
            let name = exchange.upstream.as_ref().map_or(exchange.provider.as_str(), |n| n.as_str());
            let cost = |model: Option<&str>| self.0.limits.cost(name, model, &tokens);
            cost(exchange.model.as_deref()).or_else(|| cost(exchange.settled().model.as_deref()))
        });
        self.0.told(&Facts {
            flow,
            exchange,
            usage,
            micros: cost,
            key: flow.note::<KeyNote>().and_then(|n| n.key.as_ref()).map(|k| &*k.id),
            found: flow.note::<Found>(),
            refused,
            trace: begun.and_then(|b| b.trace.as_ref()),
        });
    }
}

/// Sums by label, bounded: what comes after so many labels is counted as `other`.
#[derive(Debug)]
struct Labelled<K, V> {
    most: usize,
    sums: Mutex<BTreeMap<K, V>>,
}

impl<K: Ord, V: Default> Labelled<K, V> {
    const fn new(most: usize) -> Self {
        Self { most, sums: Mutex::new(BTreeMap::new()) }
    }

    fn change(&self, key: K, other: impl FnOnce() -> K, change: impl FnOnce(&mut V)) {
        let mut sums = self.sums.lock();
        let key = if sums.len() >= self.most && !sums.contains_key(&key) { other() } else { key };
        change(sums.entry(key).or_default());
    }
}
