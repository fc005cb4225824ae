//! Redaction of LLM traffic: applies the detectors of `interflow-redact` to the texts that `interflow-llm` locates in
//! bodies.
//!
//! Requests are redacted after the rules, where responses are optionally scanned, too. Originals are restored last, for the
//! client alone: the recorder never sees them.

mod effective_policy;
mod endpoint;
mod form_body;
mod one_text;
mod policy_files;
pub(crate) mod request_body;
pub(crate) mod response_body;
mod rewriters;
mod sessions;
#[cfg(test)]
mod tests;
mod upload;
mod url_and_headers;
pub(crate) mod websocket;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use interflow_llm::{LlmCall, LlmRefusal, Operation, realtime};
use interflow_redact::{FindingCache, OutboundMode, RedactConfig, RedactMode, SharedSession};
use interflow_types::schema::JsonSchema;
use interflow_types::{Body, Direction, EarlyExit, EntryKind, Flow, HttpClient, RequestHead, Result};
use parking_lot::Mutex;
use serde::Serialize;

pub(crate) use effective_policy::EffectivePolicy;
pub use effective_policy::RedactSettings;
pub use endpoint::RedactionMount;
pub use one_text::RedactedText;
pub use policy_files::{PolicyFileView, PolicyUpdateError, RouteView};
pub(crate) use sessions::HashedParts;
use sessions::{SessionCache, SessionOwner};

/// Whether this flow's request is redacted, or would be; `None` if the redaction stage has not seen it.
pub(crate) fn redacts_flow(flow: &Flow) -> Option<bool> {
    Some(flow.extension::<RedactionState>()?.choice.as_ref()?.mode == RedactMode::Redact)
}

/// A request to a provider that ended before it was inspected is treated as redacted: what was not inspected must not be
/// recorded.
pub(crate) fn withholds_originals(flow: &Flow) -> bool {
    redacts_flow(flow).unwrap_or_else(|| flow.extension::<LlmCall>().is_some())
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

/// The state on a flow, from the choice of a policy to the end of the response.
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

    pub(crate) fn settings(&self) -> Arc<RedactSettings> {
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
        crate::llm_telemetry::refuse(flow, refusal)
    }

    /// A WebSocket's messages are redacted one by one; its handshake has no body, so the decision is made here.
    pub(crate) fn request_head(
        &self,
        flow: &mut Flow,
        head: &mut RequestHead,
        call: &LlmCall,
    ) -> Result<(), EarlyExit> {
        if changes_protocol(head, call.operation) { websocket::open(self, flow, head, call) } else { Ok(()) }
    }

    /// By which policy a response is scanned.
    pub(crate) fn scanning_policy(flow: &Flow, body: &Body) -> Option<Arc<EffectivePolicy>> {
        // No choice was made if the request was not an LLM call, or was rejected before it was inspected.
        let choice = flow.extension::<RedactionState>()?.choice.as_ref()?;
        (choice.outbound != OutboundMode::Off && !body.is_empty()).then(|| Arc::clone(choice))
    }

    /// The session, if there is something to restore: the policy restores, and the request contained findings.
    pub(crate) fn restored_session(flow: &Flow) -> Option<SharedSession> {
        let note = flow.extension::<RedactionState>()?;
        let (choice, session) = (note.choice.as_ref()?, note.session.as_ref()?);
        let holds = session.lock().vault().is_some_and(|v| !v.is_empty());
        (choice.restore && holds).then(|| Arc::clone(session))
    }

    /// The client may ask the provider to continue from this response, or the conversation that it is in, by its id alone.
    pub(crate) fn remember_response(&self, flow: &Flow) {
        let Some(exchange) = flow.extension::<LlmCall>().filter(|e| continues(e.operation)) else { return };
        if let Some(session) = Self::restored_session(flow)
            && let Some(owner) = flow.extension::<RedactionState>().and_then(|state| state.owner)
        {
            for id in exchange.summary().id.iter().chain(&exchange.continues) {
                self.kept.insert(owner, id, Arc::clone(&session), self.settings().conversations);
            }
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
