//! Requests pending a decision. Flows with the same question share one entry, which is removed when the last of them
//! goes away.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use interflow_types::schema::JsonSchema;
use interflow_types::{Flow, FlowId, Host, Timestamp};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

use super::config::ApprovalAction;
use super::request_preview::RequestPreview;

/// Bound on the history of decisions.
const MAX_HISTORY: usize = 1000;
/// Bound on flows that wait for one decision.
const MAX_WAITERS: usize = 10_000;
/// Bound on flow ids listed with a pending request.
const MAX_LISTED_FLOWS: usize = 20;

/// What the operator decides on. Flows with equal questions wait together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, JsonSchema)]
pub struct PendingQuestion {
    pub user: Option<String>,
    pub process: Option<String>,
    pub container: Option<String>,
    pub client: String,
    /// The sessions that the flow belongs to.
    pub sessions: Vec<String>,
    pub host: String,
    pub port: u16,
    /// The method; `None` for a tunnel.
    pub method: Option<String>,
    /// The path without its query; `None` for a tunnel.
    pub path: Option<String>,
    /// The query, with secrets masked. Rules ignore it, but the operator sees it.
    #[serde(skip)]
    pub query: Option<String>,
    /// Why a person is asked, if it is not a rule or the mode: what a guardrail found. Such a question is decided once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The flow, if its request has a body: a decision on one body must not apply to another.
    #[serde(skip)]
    pub alone: Option<FlowId>,
}

impl PendingQuestion {
    /// A question about this flow.
    pub(super) fn about(flow: &Flow, sessions: &[Arc<str>], host: &Host, port: u16) -> Self {
        Self {
            user: flow.user.as_deref().map(str::to_owned),
            process: flow.client.process.as_deref().map(|p| p.name.to_string()),
            container: flow.client.container.as_deref().map(str::to_owned),
            client: flow.client.peer.ip().to_canonical().to_string(),
            sessions: sessions.iter().map(ToString::to_string).collect(),
            host: host.canonical_text(),
            port,
            ..Self::default()
        }
    }

    /// Whether rules and the mode can decide it. A guardrail's question is about one text, and only a person decides.
    pub(super) const fn is_about_host(&self) -> bool {
        self.reason.is_none()
    }
}

/// A pending request.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PendingRequest {
    /// The id by which it is resolved.
    pub id: u64,
    #[serde(flatten)]
    pub question: PendingQuestion,
    pub waiting: usize,
    /// The first of the waiting flows.
    pub flows: Vec<String>,
    pub since: Timestamp,
    /// When its last flow times out.
    pub until: Timestamp,
    /// The first request; `None` for a tunnel.
    #[serde(skip)]
    pub asked: Option<RequestPreview>,
}

/// A pending request that has ended.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResolvedQuestion {
    #[serde(flatten)]
    pub held: PendingRequest,
    /// The decision; `None` if there was none.
    pub action: Option<ApprovalAction>,
    /// What decided it: `once`, a rule's id, `timeout`, `gone`, `stopped`.
    pub by: String,
    pub at: Timestamp,
}

impl super::Approvals {
    /// Ends every wait and accepts no more: Interflow is shutting down.
    pub fn close(&self) {
        self.waiting.close();
    }
}

struct PendingEntry {
    held: PendingRequest,
    answer: watch::Sender<Option<ApprovalAction>>,
}

#[derive(Default)]
struct PendingState {
    open: HashMap<u64, PendingEntry>,
    by_question: HashMap<PendingQuestion, u64>,
    history: VecDeque<ResolvedQuestion>,
    /// All that ended, by how.
    outcomes: BTreeMap<&'static str, u64>,
    /// Interflow is shutting down: nothing may wait any more.
    closed: bool,
}

pub struct PendingRequests {
    inner: Mutex<PendingState>,
    next: AtomicU64,
    /// Increases with each change, for watchers.
    version: watch::Sender<u64>,
}

impl PendingRequests {
    pub(crate) fn new() -> Self {
        Self { inner: Mutex::default(), next: AtomicU64::new(1), version: watch::Sender::new(1) }
    }

    /// Waits for a decision. `None`: it timed out, or too many are pending. Cancel-safe: dropping the future removes
    /// the flow from the entry.
    pub(crate) async fn wait_for_decision(
        &self,
        question: PendingQuestion,
        asker: PendingRequester,
        patience: Duration,
        most: usize,
    ) -> Option<ApprovalAction> {
        let mut ticket = self.register(question, asker, patience, most)?;
        let answered = tokio::time::timeout(patience, ticket.answer.wait_for(Option::is_some)).await;
        let action = match &answered {
            Ok(Ok(action)) => **action,
            // The sender was dropped: Interflow is stopping.
            Ok(Err(_)) => None,
            Err(_) => {
                ticket.end = "timeout";
                None
            }
        };
        // The borrow of the channel's value must end before the guard is dropped.
        drop(answered);
        action
    }

    fn register(
        &self,
        question: PendingQuestion,
        asker: PendingRequester,
        patience: Duration,
        most: usize,
    ) -> Option<PendingGuard<'_>> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return None;
        }
        let now = Timestamp::now();
        let id = match inner.by_question.get(&question) {
            Some(id) => *id,
            // The bound counts questions: a flow with a known one always joins it, up to MAX_WAITERS.
            None if inner.open.len() >= most => return None,
            None => {
                let id = self.next.fetch_add(1, Relaxed);
                inner.by_question.insert(question.clone(), id);
                let (flows, asked) = (Vec::new(), asker.asked);
                let held = PendingRequest { id, question, waiting: 0, flows, since: now, until: now, asked };
                inner.open.insert(id, PendingEntry { held, answer: watch::Sender::new(None) });
                id
            }
        };
        let open = inner.open.get_mut(&id)?;
        if open.held.waiting >= MAX_WAITERS {
            return None;
        }
        open.held.waiting += 1;
        // A flow that joins later extends the display, not the patience of those before.
        open.held.until = now.after(patience);
        if open.held.flows.len() < MAX_LISTED_FLOWS {
            open.held.flows.push(asker.flow.to_string());
        }
        let answer = open.answer.subscribe();
        drop(inner);
        self.notify_watchers();
        // "gone" unless the wait ends in another way: a dropped future cannot say why.
        Some(PendingGuard { waiting: self, id, answer, end: "gone" })
    }

    /// Resolves a pending request, possibly with another body; returns the number of flows that waited, or `None` if it is
    /// not pending.
    pub(crate) fn resolve(&self, id: u64, action: ApprovalAction, by: &str, body: Option<String>) -> Option<usize> {
        let mut inner = self.inner.lock();
        // Removed under the lock, so that of several resolvers only the first decides; the others get `None`.
        let open = inner.open.remove(&id)?;
        inner.by_question.remove(&open.held.question);
        // Before the flows are woken, which then send the body.
        if let (Some(body), Some(asked)) = (body, &open.held.asked) {
            asked.edit(body);
        }
        let waited = open.held.waiting;
        inner.push_history(open.held, Some(action), by);
        drop(inner);
        // After the lock is released: the woken flows drop their guards, which take it again.
        open.answer.send_replace(Some(action));
        self.notify_watchers();
        Some(waited)
    }

    /// For shutdown: every wait ends without a decision, and so does every later one.
    pub(crate) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        inner.by_question.clear();
        let open: Vec<PendingEntry> = inner.open.drain().map(|(_, open)| open).collect();
        for PendingEntry { held, answer } in open {
            inner.push_history(held, None, "stopped");
            // Dropping the sender ends the waits.
            drop(answer);
        }
        drop(inner);
        self.notify_watchers();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.inner.lock().closed
    }

    pub fn list(&self) -> Vec<PendingRequest> {
        let mut list: Vec<PendingRequest> = self.inner.lock().open.values().map(|o| o.held.clone()).collect();
        list.sort_by_key(|h| h.id);
        list
    }

    /// Past decisions, the latest first.
    pub fn history(&self) -> Vec<ResolvedQuestion> {
        self.inner.lock().history.iter().rev().cloned().collect()
    }

    /// How many requests ended since the start, by how: `allow`, `deny`, `timeout`, `client_gone`, `shutdown`.
    pub fn outcomes(&self) -> BTreeMap<&'static str, u64> {
        self.inner.lock().outcomes.clone()
    }

    /// Increases with every change of rules, secrets, sessions or pending requests.
    pub fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// Waits until the version differs from this one. Cancel-safe.
    pub async fn changed_since(&self, version: u64) {
        let _ = self.version.subscribe().wait_for(|v| *v != version).await;
    }

    pub(crate) fn notify_watchers(&self) {
        self.version.send_modify(|v| *v += 1);
    }
}

impl PendingState {
    fn push_history(&mut self, held: PendingRequest, action: Option<ApprovalAction>, by: &str) {
        let outcome = match (action, by) {
            (Some(ApprovalAction::Allow), _) => "allow",
            (Some(ApprovalAction::Deny), _) => "deny",
            (None, "timeout") => "timeout",
            (None, "gone") => "client_gone",
            (None, _) => "shutdown",
        };
        *self.outcomes.entry(outcome).or_default() += 1;
        if self.history.len() >= MAX_HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(ResolvedQuestion { held, action, by: by.to_owned(), at: Timestamp::now() });
    }
}

/// A flow's membership in a pending entry. Its drop ends the membership however the wait ends: decision, timeout, or
/// a client that goes away.
struct PendingGuard<'a> {
    waiting: &'a PendingRequests,
    id: u64,
    answer: watch::Receiver<Option<ApprovalAction>>,
    end: &'static str,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        let mut inner = self.waiting.inner.lock();
        // A resolved entry has already been removed.
        let Some(open) = inner.open.get_mut(&self.id) else { return };
        open.held.waiting -= 1;
        // The last flow takes the entry with it: nobody is left to decide about.
        if open.held.waiting == 0
            && let Some(open) = inner.open.remove(&self.id)
        {
            inner.by_question.remove(&open.held.question);
            inner.push_history(open.held, None, self.end);
        }
        drop(inner);
        self.waiting.notify_watchers();
    }
}

pub(crate) struct PendingRequester {
    pub flow: FlowId,
    pub asked: Option<RequestPreview>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn question(host: &str) -> PendingQuestion {
        PendingQuestion {
            user: None,
            process: None,
            container: None,
            client: "127.0.0.1".into(),
            sessions: Vec::new(),
            host: host.into(),
            port: 443,
            method: Some("GET".into()),
            path: Some("/".into()),
            ..PendingQuestion::default()
        }
    }

    fn flow() -> PendingRequester {
        PendingRequester { flow: FlowId::new(interflow_types::Timestamp::now()), asked: None }
    }

    #[tokio::test]
    async fn identical_questions_share_one_decision() {
        let waiting = Arc::new(PendingRequests::new());
        let asks: Vec<_> = (0..3)
            .map(|_| {
                let waiting = Arc::clone(&waiting);
                tokio::spawn(async move {
                    waiting.wait_for_decision(question("a"), flow(), Duration::from_secs(60), 10).await
                })
            })
            .collect();
        while waiting.list().first().is_none_or(|h| h.waiting < 3) {
            tokio::task::yield_now().await;
        }
        let held = waiting.list();
        assert_eq!((held.len(), held[0].flows.len()), (1, 3));
        assert_eq!(waiting.resolve(held[0].id, ApprovalAction::Allow, "once", None), Some(3));
        for ask in asks {
            assert_eq!(ask.await.unwrap(), Some(ApprovalAction::Allow));
        }
        assert!(waiting.list().is_empty() && waiting.resolve(held[0].id, ApprovalAction::Deny, "once", None).is_none());
        assert_eq!(waiting.history()[0].action, Some(ApprovalAction::Allow));
        assert_eq!(waiting.outcomes(), [("allow", 1)].into(), "one decision for three flows");
    }

    #[tokio::test]
    async fn a_pending_request_without_a_decision_times_out() {
        let waiting = PendingRequests::new();
        assert_eq!(waiting.wait_for_decision(question("a"), flow(), Duration::from_millis(20), 10).await, None);
        assert!(waiting.list().is_empty());
        assert_eq!(waiting.history()[0].by, "timeout");
        assert_eq!(waiting.outcomes(), [("timeout", 1)].into());
    }

    #[tokio::test]
    async fn shutdown_ends_pending_requests_and_refuses_new_ones() {
        let waiting = PendingRequests::new();
        let ask = waiting.wait_for_decision(question("a"), flow(), Duration::from_secs(60), 10);
        tokio::pin!(ask);
        assert!(futures_util::poll!(&mut ask).is_pending());
        waiting.close();
        assert_eq!(ask.await, None);
        assert_eq!(waiting.wait_for_decision(question("b"), flow(), Duration::from_secs(60), 10).await, None);
        assert!(waiting.is_closed() && waiting.list().is_empty());
        assert_eq!(waiting.history()[0].by, "stopped");
    }

    #[tokio::test]
    async fn client_disconnect_removes_its_pending_request() {
        let waiting = PendingRequests::new();
        let version = waiting.version();
        {
            let ask = waiting.wait_for_decision(question("a"), flow(), Duration::from_secs(60), 10);
            tokio::pin!(ask);
            assert!(futures_util::poll!(&mut ask).is_pending());
            assert_eq!(waiting.list().len(), 1);
        }
        assert!(waiting.list().is_empty());
        assert_eq!(waiting.history()[0].by, "gone");
        waiting.changed_since(version).await;
    }

    #[tokio::test]
    async fn requests_over_the_pending_limit_are_refused_immediately() {
        let waiting = PendingRequests::new();
        let first = waiting.wait_for_decision(question("a"), flow(), Duration::from_secs(60), 1);
        tokio::pin!(first);
        assert!(futures_util::poll!(&mut first).is_pending());
        assert_eq!(waiting.wait_for_decision(question("b"), flow(), Duration::from_secs(60), 1).await, None);
    }
}
