//! Redaction on the way to LLM providers: joins what `llm` knows of bodies to what `redact` does with texts.
//!
//! Two stages. The first one, behind the rules, takes out what requests hold, and looks at answers when the owner wants
//! that. The second one puts originals back into answers, for the client alone: the recorder never sees them.

mod background_scan;
mod effective_policy;
mod event_rewriter;
mod philter_api;
mod policy_files;
mod request_body;
mod response_body;
mod rewriters;
#[cfg(test)]
mod tests;
mod url_and_headers;
mod websocket;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use interflow_llm::{LlmCall, LlmRefusal, Operation, realtime};
use interflow_redact::{FindingCache, OutboundMode, RedactConfig, RedactMode, RedactionSession};
use interflow_types::{
    Body, ByteStr, Direction, EntryKind, Flow, HttpClient, MaybeFuture, Phase, PhaseSet, PlanScope, RequestHead,
    ResponseHead, Result, Stage, StageVerdict, StreamMessage,
};
use parking_lot::Mutex;

use crate::llm_telemetry::ResponseFindings;
use effective_policy::EffectivePolicy;
pub use effective_policy::RedactSettings;
pub use philter_api::PhilterMount;
pub use policy_files::{PolicyFileView, PolicyUpdateError, RouteView};

/// The name of the stage that takes out what requests hold.
pub(crate) const STAGE: &str = "redact";

/// Whether redaction takes something out of this flow's request, or would; `None` when it has not looked at the flow.
fn redacts_flow(flow: &Flow) -> Option<bool> {
    Some(flow.extension::<RedactionState>()?.choice.as_ref()?.mode == RedactMode::Redact)
}

/// The room. One per process; its settings change with the config.
pub struct RedactionService {
    settings: ArcSwap<RedactSettings>,
    memo: Arc<FindingCache>,
    /// The secret that placeholders are made with.
    master: [u8; 32],
    /// The way out to services that give a second opinion; no recorder sees it.
    egress: Arc<dyn HttpClient>,
    kept: Mutex<RedactionSessionCache>,
    counters: RedactionCounters,
    /// Held while a policy's file is changed.
    changing: Mutex<()>,
}

/// A conversation's placeholders and originals, shared by its request and its answer.
pub(crate) type SharedSession = Arc<Mutex<RedactionSession>>;

/// Sessions of conversations that the provider continues by an id, the oldest first to go.
#[derive(Default)]
struct RedactionSessionCache {
    sessions: HashMap<ByteStr, SharedSession>,
    order: VecDeque<ByteStr>,
}

#[derive(Default)]
struct RedactionCounters {
    requests: AtomicU64,
    refused: AtomicU64,
    found: Mutex<BTreeMap<String, u64>>,
}

/// What has been done until now, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedactionCounts {
    /// Requests that were looked into.
    pub requests: u64,
    /// Requests and answers that were refused.
    pub refused: u64,
    /// Findings by their type's name.
    pub found: BTreeMap<String, u64>,
}

/// What the stages remember of a flow.
#[derive(Default)]
pub(crate) struct RedactionState {
    pub choice: Option<Arc<EffectivePolicy>>,
    pub session: Option<SharedSession>,
    /// The writers of a WebSocket's messages.
    pub rewriters: websocket::SocketRewriters,
}

impl RedactionService {
    /// The room by its config. `base` is the folder that relative paths begin in; `egress` carries texts to services that are
    /// asked for a second opinion, and must not be recorded.
    ///
    /// # Errors
    /// A policy that cannot be read, named by its key; no random bytes.
    pub fn new(
        config: &RedactConfig,
        base: &Path,
        master: [u8; 32],
        egress: Arc<dyn HttpClient>,
    ) -> Result<Arc<Self>, String> {
        let memo = Arc::new(FindingCache::new(config.finding_cache_size).map_err(|e| e.to_string())?);
        let settings = RedactSettings::new(config, base, &memo, &egress, None)?;
        let room = Self {
            settings: ArcSwap::from_pointee(settings),
            memo,
            master,
            egress,
            kept: Mutex::default(),
            counters: RedactionCounters::default(),
            changing: Mutex::default(),
        };
        Ok(Arc::new(room))
    }

    /// Compiles another config, without putting it in force.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn compile(&self, config: &RedactConfig, base: &Path) -> Result<RedactSettings, String> {
        RedactSettings::new(config, base, &self.memo, &self.egress, None)
    }

    /// Puts it in force. Flows under way keep what they began with.
    pub fn activate(&self, settings: RedactSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// The files of a config's policies; the first one need not be there yet.
    pub fn policy_files(config: &RedactConfig, base: &Path) -> Vec<PathBuf> {
        let routes = config.route.iter().filter_map(|r| r.policy.as_ref()).map(|p| base.join(p));
        let listed = config.policies.values().map(|p| base.join(p));
        std::iter::once(effective_policy::policy_file(config, base)).chain(routes).chain(listed).collect()
    }

    /// The stages, in their order.
    pub fn stages(self: &Arc<Self>) -> [Arc<dyn Stage>; 2] {
        [Arc::new(RedactStage(Arc::clone(self))), Arc::new(RestoreStage(Arc::clone(self)))]
    }

    /// The redactor by the policy in force, without the exceptions of single routes.
    pub fn redactor(&self) -> Arc<interflow_redact::Redactor> {
        self.settings.load().redactor()
    }

    /// What has been done until now.
    pub fn counts(&self) -> RedactionCounts {
        RedactionCounts {
            requests: self.counters.requests.load(Relaxed),
            refused: self.counters.refused.load(Relaxed),
            found: self.counters.found.lock().clone(),
        }
    }

    /// Whether prompts that come this way may have to be redacted, by the config in force.
    pub fn redacts(&self, transport: EntryKind) -> bool {
        self.settings.load().redacts(transport)
    }

    fn settings(&self) -> Arc<RedactSettings> {
        self.settings.load_full()
    }

    fn add_counts(&self, found: &BTreeMap<String, u64>) {
        let mut all = self.counters.found.lock();
        for (name, n) in found {
            *all.entry(name.clone()).or_default() += n;
        }
    }

    /// Ends the flow with a refusal in the client's shape.
    fn refuse(&self, flow: &mut Flow, refusal: &LlmRefusal) -> StageVerdict {
        self.counters.refused.fetch_add(1, Relaxed);
        flow.tag(format!("refused:{}", refusal.code));
        crate::llm_telemetry::record_refusal(flow, refusal.kind, refusal.code);
        tracing::info!(flow = %flow.id, code = refusal.code, "refused: {}", refusal.message);
        let provider = flow.extension::<LlmCall>().map(|e| e.provider).unwrap_or_default();
        StageVerdict::Answer(Box::new(refusal.to_response(provider, flow)))
    }

    fn cached_session(&self, id: &ByteStr) -> Option<SharedSession> {
        self.kept.lock().sessions.get(id).cloned()
    }

    fn cache_session(&self, id: ByteStr, session: SharedSession) {
        let most = self.settings().conversations;
        let mut kept = self.kept.lock();
        if kept.sessions.insert(id.clone(), session).is_none() {
            kept.order.push_back(id);
        }
        while kept.order.len() > most {
            if let Some(oldest) = kept.order.pop_front() {
                kept.sessions.remove(&oldest);
            }
        }
    }
}

/// Takes out what requests hold, and looks at answers.
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

    /// A request to a provider that ended before it was inspected counts as one that would have been redacted.
    fn withholds_originals(&self, flow: &Flow) -> bool {
        redacts_flow(flow).unwrap_or_else(|| flow.extension::<LlmCall>().is_some())
    }

    fn finish(&self, flow: &mut Flow) {
        ResponseFindings::merge_into_flow(flow);
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> MaybeFuture<'a, StageVerdict> {
        let verdict = match flow.extension::<LlmCall>().cloned() {
            Some(exchange) if changes_protocol(head, exchange.operation) => {
                websocket::open(&self.0, flow, head, &exchange)
            }
            _ => StageVerdict::Continue,
        };
        MaybeFuture::Ready(verdict)
    }

    fn request_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
        body: Body,
    ) -> MaybeFuture<'a, Result<Body, StageVerdict>> {
        let Some(exchange) = flow.extension::<LlmCall>().cloned() else { return MaybeFuture::Ready(Ok(body)) };
        MaybeFuture::pending(request_body::redact(&self.0, flow, head, exchange, body))
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        _request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> MaybeFuture<'a, Result<Body, StageVerdict>> {
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

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut StreamMessage) -> MaybeFuture<'a, StageVerdict> {
        match message.direction {
            Direction::Request => MaybeFuture::pending(websocket::redact_message(&self.0, flow, message)),
            Direction::Response => MaybeFuture::Ready(websocket::scan_message(&self.0, flow, message)),
        }
    }
}

/// Puts originals back into answers.
struct RestoreStage(Arc<RedactionService>);

impl RestoreStage {
    /// The session, when there is something to put back.
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
    ) -> MaybeFuture<'a, Result<Body, StageVerdict>> {
        let Some((choice, session)) = Self::session(flow) else { return MaybeFuture::Ready(Ok(body)) };
        if body.is_empty() {
            return MaybeFuture::Ready(Ok(body));
        }
        MaybeFuture::pending(response_body::restore(&self.0, flow, choice, session, head, body))
    }

    fn wants_messages(&self, flow: &Flow) -> bool {
        websocket::wants_messages(flow)
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut StreamMessage) -> MaybeFuture<'a, StageVerdict> {
        MaybeFuture::Ready(match message.direction {
            Direction::Request => StageVerdict::Continue,
            Direction::Response => websocket::restore_message(flow, message),
        })
    }

    fn done(&self, flow: &Flow) {
        // The provider may be asked to go on from this answer, by its id alone.
        let Some(exchange) = flow.extension::<LlmCall>().filter(|e| continues(e.operation)) else { return };
        if let Some((_, session)) = Self::session(flow)
            && let Some(id) = exchange.summary().id
        {
            self.0.cache_session(id, session);
        }
    }
}

/// Whether what follows may be no HTTP any more. Some clients offer HTTP/2 with each request; whoever looks up something
/// sends nothing behind it.
fn changes_protocol(head: &RequestHead, operation: Operation) -> bool {
    realtime::is_websocket(head) || head.protocol.is_some() && operation != Operation::Lookup
}

/// Whether later requests may name an answer of this operation to go on from it.
const fn continues(operation: Operation) -> bool {
    matches!(operation, Operation::Responses | Operation::Realtime)
}

/// Whether a request of this transport comes through the gateway.
const fn is_gateway(transport: EntryKind) -> bool {
    matches!(transport, EntryKind::Gateway)
}
