//! Redaction on the way to LLM providers: joins what `llm` knows of bodies to what `redact` does with texts.
//!
//! Two stages. The first one, behind the rules, takes out what requests hold, and looks at answers when the owner wants
//! that. The second one puts originals back into answers, for the client alone: the recorder never sees them.

mod address;
mod answer;
mod aside;
mod choice;
mod edit;
mod filter;
mod pens;
mod policies;
mod prompt;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use interflow_flow::{
    Body, ByteStr, Direction, Egress, Flow, Interest, Message, Phase, RequestHead, ResponseHead, Result, Scope, Stage,
    Step, Transport, Verdict,
};
use interflow_llm::{Exchange, Operation, Refusal, live};
use interflow_redact::{Memo, OutboundMode, RedactConfig, RedactMode, Session};
use parking_lot::Mutex;

use crate::accounts::Passing;
use choice::Choice;
pub use choice::RedactSettings;
pub use filter::FilterDoor;
pub use policies::{PolicyFileView, PolicyRefused, RouteView};

/// The name of the stage that takes out what requests hold.
pub(crate) const STAGE: &str = "redact";

/// Whether redaction takes something out of this flow's request, or would; `None` when it has not looked at the flow.
fn takes_out(flow: &Flow) -> Option<bool> {
    Some(flow.note::<Note>()?.choice.as_ref()?.mode == RedactMode::Redact)
}

/// The room. One per process; its settings change with the config.
pub struct Redaction {
    settings: ArcSwap<RedactSettings>,
    memo: Arc<Memo>,
    /// The secret that placeholders are made with.
    master: [u8; 32],
    /// The way out to services that give a second opinion; no recorder sees it.
    egress: Arc<dyn Egress>,
    kept: Mutex<Kept>,
    counters: Counters,
    /// Held while a policy's file is changed.
    changing: Mutex<()>,
}

/// A conversation's placeholders and originals, shared by its request and its answer.
pub(crate) type SharedSession = Arc<Mutex<Session>>;

/// Sessions of conversations that the provider continues by an id, the oldest first to go.
#[derive(Default)]
struct Kept {
    sessions: HashMap<ByteStr, SharedSession>,
    order: VecDeque<ByteStr>,
}

#[derive(Default)]
struct Counters {
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
pub(crate) struct Note {
    pub choice: Option<Arc<Choice>>,
    pub session: Option<SharedSession>,
    /// The writers of a WebSocket's messages.
    pub pens: socket::Pens,
}

impl Redaction {
    /// The room by its config. `base` is the folder that relative paths begin in; `egress` carries texts to services that are
    /// asked for a second opinion, and must not be recorded.
    ///
    /// # Errors
    /// A policy that cannot be read, named by its key; no random bytes.
    pub fn new(
        config: &RedactConfig,
        base: &Path,
        master: [u8; 32],
        egress: Arc<dyn Egress>,
    ) -> Result<Arc<Self>, String> {
        let memo = Arc::new(Memo::new(config.memo).map_err(|e| e.to_string())?);
        let settings = RedactSettings::new(config, base, &memo, &egress, None)?;
        let room = Self {
            settings: ArcSwap::from_pointee(settings),
            memo,
            master,
            egress,
            kept: Mutex::default(),
            counters: Counters::default(),
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
    pub fn put(&self, settings: RedactSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// The files of a config's policies; the first one need not be there yet.
    pub fn files(config: &RedactConfig, base: &Path) -> Vec<PathBuf> {
        let routes = config.route.iter().filter_map(|r| r.policy.as_ref()).map(|p| base.join(p));
        let listed = config.policies.values().map(|p| base.join(p));
        std::iter::once(choice::main_file(config, base)).chain(routes).chain(listed).collect()
    }

    /// The stages, in their order.
    pub fn stages(self: &Arc<Self>) -> [Arc<dyn Stage>; 2] {
        [Arc::new(Redact(Arc::clone(self))), Arc::new(Restore(Arc::clone(self)))]
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
    pub fn redacts(&self, transport: Transport) -> bool {
        self.settings.load().redacts(transport)
    }

    fn settings(&self) -> Arc<RedactSettings> {
        self.settings.load_full()
    }

    fn count(&self, found: &BTreeMap<String, u64>) {
        let mut all = self.counters.found.lock();
        for (name, n) in found {
            *all.entry(name.clone()).or_default() += n;
        }
    }

    /// Ends the flow with a refusal in the client's shape.
    fn refuse(&self, flow: &mut Flow, refusal: &Refusal) -> Verdict {
        self.counters.refused.fetch_add(1, Relaxed);
        flow.tag(format!("refused:{}", refusal.code));
        crate::accounts::note_refusal(flow, refusal.kind, refusal.code);
        tracing::info!(flow = %flow.id, code = refusal.code, "refused: {}", refusal.message);
        let provider = flow.note::<Exchange>().map(|e| e.provider).unwrap_or_default();
        Verdict::Answer(Box::new(refusal.answer(provider, flow)))
    }

    fn kept(&self, id: &ByteStr) -> Option<SharedSession> {
        self.kept.lock().sessions.get(id).cloned()
    }

    fn keep(&self, id: ByteStr, session: SharedSession) {
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
struct Redact(Arc<Redaction>);

impl Stage for Redact {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn interest(&self, scope: &Scope<'_>) -> Interest {
        if self.0.settings().wants(scope) {
            Interest::of(Phase::RequestHead)
                .and(Phase::RequestBody)
                .and(Phase::ResponseBody)
                .and(Phase::Message)
                .and(Phase::Done)
        } else {
            Interest::NONE
        }
    }

    fn needs_inspection(&self, scope: &Scope<'_>) -> bool {
        self.0.settings().protects(scope)
    }

    /// A request to a provider that ended before it was inspected counts as one that would have been redacted.
    fn withholds_originals(&self, flow: &Flow) -> bool {
        takes_out(flow).unwrap_or_else(|| flow.note::<Exchange>().is_some())
    }

    fn finish(&self, flow: &mut Flow) {
        Passing::settle(flow);
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> Step<'a, Verdict> {
        let verdict = match flow.note::<Exchange>().cloned() {
            Some(exchange) if changes_protocol(head, exchange.operation) => {
                socket::begin(&self.0, flow, head, &exchange)
            }
            _ => Verdict::Continue,
        };
        Step::Now(verdict)
    }

    fn request_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        let Some(exchange) = flow.note::<Exchange>().cloned() else { return Step::Now(Ok(body)) };
        Step::later(prompt::redact(&self.0, flow, head, exchange, body))
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        _request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        let Some(choice) = flow.note::<Note>().and_then(|n| n.choice.clone()) else { return Step::Now(Ok(body)) };
        if choice.outbound == OutboundMode::Off || body.is_empty() {
            return Step::Now(Ok(body));
        }
        Step::later(answer::scan(&self.0, flow, choice, head, body))
    }

    fn follows(&self, flow: &Flow) -> bool {
        socket::is_followed(flow)
    }

    fn guards_origin(&self) -> bool {
        true
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut Message) -> Step<'a, Verdict> {
        match message.direction {
            Direction::Request => Step::later(socket::said(&self.0, flow, message)),
            Direction::Response => Step::Now(socket::scan(&self.0, flow, message)),
        }
    }
}

/// Puts originals back into answers.
struct Restore(Arc<Redaction>);

impl Restore {
    /// The session, when there is something to put back.
    fn session(flow: &Flow) -> Option<(Arc<Choice>, SharedSession)> {
        let note = flow.note::<Note>()?;
        let (choice, session) = (note.choice.as_ref()?, note.session.as_ref()?);
        let holds = session.lock().vault().is_some_and(|v| !v.is_empty());
        (choice.restore && holds).then(|| (Arc::clone(choice), Arc::clone(session)))
    }
}

impl Stage for Restore {
    fn name(&self) -> &'static str {
        "restore"
    }

    fn interest(&self, scope: &Scope<'_>) -> Interest {
        if self.0.settings().wants(scope) {
            Interest::of(Phase::ResponseBody).and(Phase::Message).and(Phase::Done)
        } else {
            Interest::NONE
        }
    }

    fn keeps_response_private(&self, flow: &Flow) -> bool {
        Self::session(flow).is_some()
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        _request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        let Some((choice, session)) = Self::session(flow) else { return Step::Now(Ok(body)) };
        if body.is_empty() {
            return Step::Now(Ok(body));
        }
        Step::later(answer::restore(&self.0, flow, choice, session, head, body))
    }

    fn follows(&self, flow: &Flow) -> bool {
        socket::is_followed(flow)
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut Message) -> Step<'a, Verdict> {
        Step::Now(match message.direction {
            Direction::Request => Verdict::Continue,
            Direction::Response => socket::restore(flow, message),
        })
    }

    fn done(&self, flow: &Flow) {
        // The provider may be asked to go on from this answer, by its id alone.
        let Some(exchange) = flow.note::<Exchange>().filter(|e| continues(e.operation)) else { return };
        if let Some((_, session)) = Self::session(flow)
            && let Some(id) = exchange.settled().id
        {
            self.0.keep(id, session);
        }
    }
}

/// Whether what follows may be no HTTP any more. Some clients offer HTTP/2 with each request; whoever looks up something
/// sends nothing behind it.
fn changes_protocol(head: &RequestHead, operation: Operation) -> bool {
    live::is_websocket(head) || head.protocol.is_some() && operation != Operation::Lookup
}

/// Whether later requests may name an answer of this operation to go on from it.
const fn continues(operation: Operation) -> bool {
    matches!(operation, Operation::Responses | Operation::Realtime)
}

/// Whether a request of this transport comes through the gateway.
const fn is_gateway(transport: Transport) -> bool {
    matches!(transport, Transport::Gateway)
}
