//! Redaction of LLM traffic: applies the detectors of `interflow-redact` to the texts that `interflow-llm` locates in
//! bodies.
//!
//! There are two stages. The first, after the rules, redacts requests and optionally scans responses. The second
//! restores originals in responses for the client alone: the recorder never sees them.

mod background_scan;
mod detector_findings;
mod effective_policy;
mod endpoint;
mod form_body;
mod one_text;
mod policy_files;
mod request_body;
pub(crate) mod response_body;
mod rewriters;
mod sessions;
#[cfg(test)]
mod tests;
mod upload;
mod url_and_headers;
mod websocket;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use interflow_llm::{LlmCall, LlmRefusal, Operation, realtime};
use interflow_redact::{FindingCache, OutboundMode, RedactConfig, RedactMode};
use interflow_types::schema::JsonSchema;
use interflow_types::{
    Body, BodyFuture, Direction, EarlyExit, EntryKind, Flow, HttpClient, MaybeFuture, MessageVerdict, Phase, PhaseSet,
    PlanScope, RequestHead, RequestVerdict, ResponseHead, Result, Stage, StreamMessage,
};
use parking_lot::Mutex;
use serde::Serialize;

use crate::exchange::response::whole;
use crate::llm_telemetry::ResponseFindings;
use effective_policy::EffectivePolicy;
pub use effective_policy::RedactSettings;
pub use endpoint::RedactionMount;
pub use one_text::RedactedText;
pub use policy_files::{PolicyFileView, PolicyUpdateError, RouteView};
pub(crate) use sessions::{HashedParts, SESSION_HEADERS};
use sessions::{SessionCache, SessionOwner, SharedSession};

/// The name of the stage that redacts requests.
pub(crate) const STAGE: &str = "redact";

/// Whether this flow's request is redacted, or would be; `None` if the redaction stage has not seen it.
pub(crate) fn redacts_flow(flow: &Flow) -> Option<bool> {
    Some(flow.extension::<RedactionState>()?.choice.as_ref()?.mode == RedactMode::Redact)
}

/// The redaction service, one per process; its settings change on reload.
pub struct RedactionService {
    settings: ArcSwap<RedactSettings>,
    memo: Arc<FindingCache>,
    /// The key from which placeholders are derived: the same value in the same conversation gets the same
    /// placeholder, also after a restart.
    master: [u8; 32],
    /// The client for external detectors; its requests are not recorded.
    egress: Arc<dyn HttpClient>,
    kept: SessionCache,
    counters: RedactionCounters,
    /// Locked while a policy file is changed, so that two editors cannot each write a file that was checked without
    /// the other's.
    changing: Mutex<()>,
}

#[derive(Default)]
struct RedactionCounters {
    requests: AtomicU64,
    rejected: Mutex<BTreeMap<&'static str, u64>>,
    /// In requests, and in responses.
    found: Mutex<[BTreeMap<String, u64>; 2]>,
}

/// Counters for metrics, since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RedactionCounts {
    /// Requests inspected, with or without findings.
    pub requests: u64,
    /// Requests and responses rejected.
    pub refused: u64,
    /// Findings by type, such as `email-address`; occurrences, not distinct values.
    pub found: BTreeMap<String, u64>,
    /// The part of them in responses.
    #[serde(skip)]
    pub found_in_responses: BTreeMap<String, u64>,
    /// Rejections by error code.
    #[serde(skip)]
    pub rejected: BTreeMap<&'static str, u64>,
}

/// The stages' state on a flow, from the choice of a policy to the end of the response.
#[derive(Default)]
pub(crate) struct RedactionState {
    pub choice: Option<Arc<EffectivePolicy>>,
    pub session: Option<SharedSession>,
    /// Whose the session is.
    pub owner: Option<SessionOwner>,
    /// The rewriters of a WebSocket's messages, which keep partial texts between messages.
    pub rewriters: websocket::SocketRewriters,
}

impl RedactionService {
    /// Relative paths are resolved against `base`. `egress` sends texts to external detectors, and its requests must
    /// not be recorded.
    ///
    /// # Errors
    /// An invalid policy, named by its key, or no random bytes.
    pub fn new(
        config: &RedactConfig,
        base: &Path,
        master: [u8; 32],
        egress: Arc<dyn HttpClient>,
    ) -> Result<Arc<Self>, String> {
        let bytes = usize::try_from(config.finding_cache_bytes.0).unwrap_or(usize::MAX);
        let memo = FindingCache::new(config.finding_cache_size).map_err(|e| e.to_string())?;
        let memo = Arc::new(memo.with_max_bytes(bytes));
        let settings = RedactSettings::new(config, base, &memo, &egress, None, None)?;
        let service = Self {
            settings: ArcSwap::from_pointee(settings),
            memo,
            master,
            egress,
            kept: SessionCache::default(),
            counters: RedactionCounters::default(),
            changing: Mutex::default(),
        };
        Ok(Arc::new(service))
    }

    /// Compiles another configuration, without activating it; a reload first compiles everything.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn compile(&self, config: &RedactConfig, base: &Path) -> Result<RedactSettings, String> {
        RedactSettings::new(config, base, &self.memo, &self.egress, Some(&*self.settings()), None)
    }

    /// Activates settings. Flows in progress keep theirs.
    pub fn activate(&self, settings: RedactSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// The policy files of a configuration; the first need not exist yet.
    pub fn policy_files(config: &RedactConfig, base: &Path) -> Vec<PathBuf> {
        let routes = config.route.iter().filter_map(|r| r.policy.as_ref()).map(|p| base.join(p));
        let listed = config.policies.values().map(|p| base.join(p));
        std::iter::once(effective_policy::policy_file(config, base)).chain(routes).chain(listed).collect()
    }

    /// The stages, in order: redaction before the recorder takes its copy, restoring after it.
    pub fn stages(self: &Arc<Self>) -> [Arc<dyn Stage>; 2] {
        [Arc::new(RedactStage(Arc::clone(self))), Arc::new(RestoreStage(Arc::clone(self)))]
    }

    /// The redactor of the active policy, without per-route exceptions.
    pub fn redactor(&self) -> Arc<interflow_redact::Redactor> {
        self.settings.load().redactor()
    }

    pub fn counts(&self) -> RedactionCounts {
        let [mut found, found_in_responses] = self.counters.found.lock().clone();
        found_in_responses.iter().for_each(|(kind, n)| *found.entry(kind.clone()).or_default() += n);
        let rejected = self.counters.rejected.lock().clone();
        let (requests, refused) = (self.counters.requests.load(Relaxed), rejected.values().sum());
        RedactionCounts { requests, refused, found, found_in_responses, rejected }
    }

    /// Whether prompts with this kind of entry may be redacted by the active configuration, on any route.
    pub fn redacts(&self, transport: EntryKind) -> bool {
        self.settings.load().redacts(transport)
    }

    fn settings(&self) -> Arc<RedactSettings> {
        self.settings.load_full()
    }

    fn add_counts(&self, direction: Direction, found: &BTreeMap<String, u64>) {
        let mut all = self.counters.found.lock();
        for (name, n) in found {
            *all[usize::from(direction == Direction::Response)].entry(name.clone()).or_default() += n;
        }
    }

    /// Rejects the flow with an error in the client's format, and counts it.
    fn refuse(&self, flow: &mut Flow, refusal: &LlmRefusal) -> EarlyExit {
        *self.counters.rejected.lock().entry(refusal.code).or_default() += 1;
        flow.tag(format!("refused:{}", refusal.code));
        crate::llm_telemetry::record_refusal(flow, refusal.kind, refusal.code);
        tracing::info!(flow = %flow.id, code = refusal.code, "refused: {}", refusal.message);
        let provider = flow.extension::<LlmCall>().map(|e| e.provider).unwrap_or_default();
        EarlyExit::Answer(Box::new(refusal.to_response(provider, flow)))
    }
}

/// Redacts requests and scans responses.
struct RedactStage(Arc<RedactionService>);

impl Stage for RedactStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        if self.0.settings().wants(scope) {
            PhaseSet::from_phase(Phase::RequestHead)
                .with(Phase::RequestBody)
                .with(Phase::ResponseBody)
                .with(Phase::Message)
                .with(Phase::Done)
        } else {
            PhaseSet::NONE
        }
    }

    fn needs_inspection(&self, scope: &PlanScope<'_>) -> bool {
        self.0.settings().protects(scope)
    }

    /// A request to a provider that ended before it was inspected is treated as redacted: what was not inspected must
    /// not be recorded.
    fn withholds_originals(&self, flow: &Flow) -> bool {
        redacts_flow(flow).unwrap_or_else(|| flow.extension::<LlmCall>().is_some())
    }

    fn finish(&self, flow: &mut Flow) {
        ResponseFindings::merge_into_flow(flow);
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        let verdict = match flow.extension::<LlmCall>().cloned() {
            // A WebSocket's messages are redacted one by one; its handshake has no body, so the decision is made
            // here.
            Some(exchange) if changes_protocol(head, exchange.operation) => {
                websocket::open(&self.0, flow, head, &exchange)
            }
            _ => RequestVerdict::Continue,
        };
        MaybeFuture::Ready(verdict)
    }

    fn request_body<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead, body: Body) -> BodyFuture<'a> {
        let Some(exchange) = flow.extension::<LlmCall>().cloned() else { return MaybeFuture::Ready(Ok(body)) };
        MaybeFuture::pending(request_body::redact(&self.0, flow, head, exchange, body))
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        _request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> BodyFuture<'a> {
        // No choice was made if the request was not an LLM call, or was rejected before it was inspected.
        let Some(choice) = flow.extension::<RedactionState>().and_then(|n| n.choice.clone()) else {
            return MaybeFuture::Ready(Ok(body));
        };
        if choice.outbound == OutboundMode::Off || body.is_empty() {
            return MaybeFuture::Ready(Ok(body));
        }
        MaybeFuture::pending(response_body::scan(&self.0, flow, choice, head, body))
    }

    fn wants_messages(&self, flow: &Flow) -> bool {
        websocket::wants_messages(flow)
    }

    fn inspects_injected_messages(&self) -> bool {
        true
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut StreamMessage) -> MaybeFuture<'a, MessageVerdict> {
        match message.direction {
            Direction::Request => MaybeFuture::pending(websocket::redact_message(&self.0, flow, message)),
            Direction::Response => MaybeFuture::Ready(websocket::scan_message(&self.0, flow, message)),
        }
    }
}

/// Restores originals in responses. The last stage of the response, after the recorder's copy was taken.
struct RestoreStage(Arc<RedactionService>);

impl RestoreStage {
    /// The session, if there is something to restore: the policy restores, and the request contained findings.
    fn session(flow: &Flow) -> Option<(Arc<EffectivePolicy>, SharedSession)> {
        let note = flow.extension::<RedactionState>()?;
        let (choice, session) = (note.choice.as_ref()?, note.session.as_ref()?);
        let holds = session.lock().vault().is_some_and(|v| !v.is_empty());
        (choice.restore && holds).then(|| (Arc::clone(choice), Arc::clone(session)))
    }
}

impl Stage for RestoreStage {
    fn name(&self) -> &'static str {
        "restore"
    }

    fn interest(&self, scope: &PlanScope<'_>) -> PhaseSet {
        if self.0.settings().wants(scope) {
            PhaseSet::from_phase(Phase::ResponseBody).with(Phase::Message).with(Phase::Done)
        } else {
            PhaseSet::NONE
        }
    }

    fn restores_secrets(&self, flow: &Flow) -> bool {
        Self::session(flow).is_some()
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        _request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> BodyFuture<'a> {
        let Some((choice, session)) = Self::session(flow) else {
            whole::forget(flow);
            return MaybeFuture::Ready(Ok(body));
        };
        if body.is_empty() {
            return MaybeFuture::Ready(Ok(body));
        }
        MaybeFuture::pending(response_body::restore(&self.0, flow, choice, session, head, body))
    }

    fn wants_messages(&self, flow: &Flow) -> bool {
        websocket::wants_messages(flow)
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut StreamMessage) -> MaybeFuture<'a, MessageVerdict> {
        MaybeFuture::Ready(match message.direction {
            Direction::Request => MessageVerdict::Continue,
            Direction::Response => websocket::restore_message(flow, message),
        })
    }

    fn done(&self, flow: &Flow) {
        // The client may ask the provider to continue from this response by its id alone.
        let Some(exchange) = flow.extension::<LlmCall>().filter(|e| continues(e.operation)) else { return };
        if let Some((_, session)) = Self::session(flow)
            && let Some(owner) = flow.extension::<RedactionState>().and_then(|state| state.owner)
            && let Some(id) = exchange.summary().id
        {
            self.0.kept.insert(owner, &id, session, self.0.settings().conversations);
        }
    }
}

/// Whether a protocol other than HTTP may follow. Some clients offer HTTP/2 in every request; a lookup has no body
/// that could carry data after an upgrade.
fn changes_protocol(head: &RequestHead, operation: Operation) -> bool {
    realtime::is_websocket(head) || head.protocol.is_some() && operation != Operation::Lookup
}

/// Whether later requests may continue from a response of this operation by its id.
const fn continues(operation: Operation) -> bool {
    matches!(operation, Operation::Responses | Operation::Realtime)
}

const fn is_gateway(transport: EntryKind) -> bool {
    matches!(transport, EntryKind::Gateway)
}
