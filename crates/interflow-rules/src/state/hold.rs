//! The queue of held flows, which wait for a decision by API, UI or command line.

use std::sync::Arc;
use std::time::Duration;

use interflow_types::schema::JsonSchema;
use interflow_types::{ClientInfo, FlowId, Phase, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};

/// A flow that waits for a decision.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HeldFlow {
    /// The number by which it is decided.
    pub id: u64,
    /// The flow.
    pub flow: String,
    /// The rule that holds it.
    pub rule: String,
    /// The phase in which it is held.
    pub phase: &'static str,
    pub what: HeldPart,
    /// The rule author's note.
    pub note: Option<String>,
    /// The client's address.
    pub client: String,
    /// The user of the proxy.
    pub user: Option<String>,
    /// The client's process.
    pub process: Option<String>,
    /// When the hold began.
    pub since: Timestamp,
    /// When the hold times out.
    pub until: Timestamp,
    /// Whether it continues if nobody decides.
    pub continue_on_timeout: bool,
    /// Method of the request.
    pub method: Option<String>,
    /// URL of the request.
    pub url: String,
    /// Status of the response.
    pub status: Option<u16>,
    /// Fields of the held head.
    pub headers: Vec<(String, String)>,
    /// The held body or message, if the phase has it and it is text.
    pub body: Option<String>,
}

/// The part of a flow that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HeldPart {
    Request,
    Response,
    Message,
}

/// The operator's decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, tag = "action", rename_all = "snake_case")]
pub enum HoldDecision {
    /// Continue unchanged.
    #[default]
    Continue,
    /// Continue with these changes.
    Change {
        /// New method.
        #[serde(default)]
        method: Option<String>,
        /// New URL.
        #[serde(default)]
        url: Option<String>,
        /// New status.
        #[serde(default)]
        status: Option<u16>,
        /// Fields to set; an empty value removes the field.
        #[serde(default)]
        headers: Vec<(String, String)>,
        /// New body.
        #[serde(default)]
        body: Option<String>,
    },
    /// Respond in the origin's place.
    Answer {
        /// The status.
        status: u16,
        /// Fields.
        #[serde(default)]
        headers: Vec<(String, String)>,
        /// The body.
        #[serde(default)]
        body: String,
    },
    /// Deny the flow.
    Deny {
        /// The reason.
        #[serde(default)]
        reason: Option<String>,
    },
    /// Drop the message.
    Drop,
}

/// A held flow and the channel for its decision.
struct HeldEntry {
    held: HeldFlow,
    decide: oneshot::Sender<HoldDecision>,
}

/// All held flows of the process.
#[derive(Default)]
pub struct HoldQueue {
    inner: Mutex<HoldQueueState>,
    /// Incremented with each change, so that observers learn of it without polling.
    version: watch::Sender<u64>,
}

#[derive(Default)]
struct HoldQueueState {
    next: u64,
    waiting: Vec<HeldEntry>,
    /// Interflow is shutting down: nothing is held any more.
    closed: bool,
}

/// Details of a flow to be held, as the operator sees it.
pub(crate) struct HoldRequest {
    pub flow: FlowId,
    pub rule: String,
    pub phase: Phase,
    pub client: Arc<ClientInfo>,
    pub user: Option<String>,
    pub note: Option<String>,
    pub timeout: Duration,
    pub pass: bool,
    pub method: Option<String>,
    pub url: String,
    pub status: Option<u16>,
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
}

impl HoldQueue {
    /// All held flows, the oldest first.
    pub fn list(&self) -> Vec<HeldFlow> {
        self.inner.lock().waiting.iter().map(|w| w.held.clone()).collect()
    }

    /// Decides a held flow.
    ///
    /// # Errors
    /// No flow is held under this number any more.
    pub fn decide(&self, id: u64, decision: HoldDecision) -> Result<HeldFlow, String> {
        let mut inner = self.inner.lock();
        let at = inner.waiting.iter().position(|w| w.held.id == id);
        let waiting = at.map(|at| inner.waiting.remove(at));
        let gone = || format!("nothing is held under {id}: it was decided, timed out, or its client went away");
        // Not while the lock is held: observers would list the queue.
        drop(inner);
        let waiting = waiting.ok_or_else(gone)?;
        self.notify_changed();
        waiting.decide.send(decision).map_err(|_| gone())?;
        Ok(waiting.held)
    }

    /// Called at shutdown: present and future waiters return without a decision.
    pub fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        inner.waiting.clear();
        drop(inner);
        self.notify_changed();
    }

    /// Whether the queue is closed, which means that Interflow is shutting down.
    pub fn is_closed(&self) -> bool {
        self.inner.lock().closed
    }

    /// Incremented with each change of the list.
    pub fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// Waits until the version differs. Cancel-safe.
    pub async fn changed_since(&self, version: u64) {
        let _ = self.version.subscribe().wait_for(|v| *v != version).await;
    }

    fn notify_changed(&self) {
        self.version.send_modify(|v| *v += 1);
    }

    /// Waits for a decision; `None` on timeout, if `most` flows are held already, or if the queue is closed.
    /// Cancel-safe: the flow is no longer held then.
    pub(crate) async fn wait(self: Arc<Self>, ask: HoldRequest, most: usize) -> Option<HoldDecision> {
        let timeout = ask.timeout;
        let (id, decided) = self.insert(ask, most)?;
        // Also removes the entry if this future is dropped.
        let _entry = HeldEntryGuard { holds: &self, id };
        tokio::time::timeout(timeout, decided).await.ok()?.ok()
    }

    fn insert(&self, ask: HoldRequest, most: usize) -> Option<(u64, oneshot::Receiver<HoldDecision>)> {
        let (decide, decided) = oneshot::channel();
        let mut inner = self.inner.lock();
        if inner.closed {
            return None;
        }
        if inner.waiting.len() >= most {
            tracing::warn!("{most} flows are held already, so flow {} is treated as undecided", ask.flow);
            return None;
        }
        inner.next += 1;
        let id = inner.next;
        let since = Timestamp::now();
        let held = HeldFlow {
            id,
            flow: ask.flow.to_string(),
            rule: ask.rule,
            phase: crate::compiled::phase_names::name(ask.phase),
            what: match ask.phase {
                Phase::Message => HeldPart::Message,
                Phase::ResponseHead | Phase::ResponseBody => HeldPart::Response,
                _ => HeldPart::Request,
            },
            note: ask.note,
            client: ask.client.peer.ip().to_canonical().to_string(),
            user: ask.user,
            process: ask.client.process.as_deref().map(|p| p.name.to_string()),
            since,
            until: since.after(ask.timeout),
            continue_on_timeout: ask.pass,
            method: ask.method,
            url: ask.url,
            status: ask.status,
            headers: ask.headers,
            body: ask.body,
        };
        tracing::info!(id, flow = %ask.flow, rule = held.rule, "held: {}", held.url);
        inner.waiting.push(HeldEntry { held, decide });
        drop(inner);
        self.notify_changed();
        Some((id, decided))
    }
}

/// Removes a flow from the queue when it was cancelleds decision any more.
struct HeldEntryGuard<'a> {
    holds: &'a HoldQueue,
    id: u64,
}

impl Drop for HeldEntryGuard<'_> {
    fn drop(&mut self) {
        let mut inner = self.holds.inner.lock();
        let before = inner.waiting.len();
        inner.waiting.retain(|w| w.held.id != self.id);
        let gone = inner.waiting.len() < before;
        drop(inner);
        if gone {
            self.holds.notify_changed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(timeout: u64) -> HoldRequest {
        let flow = crate::flow::fixture::FlowFixture::for_get("http://a/").flow;
        HoldRequest {
            flow: flow.id,
            client: Arc::clone(&flow.client),
            user: None,
            rule: "r".into(),
            phase: Phase::RequestHead,
            note: None,
            timeout: Duration::from_millis(timeout),
            pass: false,
            method: Some("GET".into()),
            url: "http://a/".into(),
            status: None,
            headers: Vec::new(),
            body: None,
        }
    }

    #[tokio::test]
    async fn a_decision_ends_the_wait() {
        let holds = Arc::new(HoldQueue::default());
        let waiting = tokio::spawn(Arc::clone(&holds).wait(ask(5000), 10));
        while holds.list().is_empty() {
            tokio::task::yield_now().await;
        }
        let held = &holds.list()[0];
        assert_eq!((held.rule.as_str(), held.phase, held.what), ("r", "request", HeldPart::Request));
        holds.decide(held.id, HoldDecision::Deny { reason: None }).unwrap();
        assert_eq!(waiting.await.unwrap(), Some(HoldDecision::Deny { reason: None }));
        assert!(holds.list().is_empty() && holds.decide(1, HoldDecision::Continue).is_err());
    }

    #[tokio::test]
    async fn timed_out_and_cancelled_holds_are_removed() {
        let holds = Arc::new(HoldQueue::default());
        assert_eq!(Arc::clone(&holds).wait(ask(10), 10).await, None);
        assert_eq!(Arc::clone(&holds).wait(ask(10), 0).await, None);
        let waiting = tokio::spawn(Arc::clone(&holds).wait(ask(5000), 10));
        while holds.list().is_empty() {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        let _ = waiting.await;
        assert!(holds.list().is_empty());
    }

    #[tokio::test]
    async fn closing_the_queue_releases_all_holds() {
        let holds = Arc::new(HoldQueue::default());
        let waiting = tokio::spawn(Arc::clone(&holds).wait(ask(60_000), 10));
        while holds.list().is_empty() {
            tokio::task::yield_now().await;
        }
        holds.close();
        assert_eq!(waiting.await.unwrap(), None);
        assert_eq!(Arc::clone(&holds).wait(ask(60_000), 10).await, None);
        assert!(holds.is_closed() && holds.list().is_empty());
    }

    #[test]
    fn hold_decisions_are_parsed() {
        let read = |t: &str| serde_json::from_str::<HoldDecision>(t);
        assert_eq!(read(r#"{"action":"continue"}"#).unwrap(), HoldDecision::Continue);
        assert!(matches!(read(r#"{"action":"change","body":"x"}"#).unwrap(), HoldDecision::Change { .. }));
        assert!(read(r#"{"action":"contineu"}"#).is_err());
    }
}
