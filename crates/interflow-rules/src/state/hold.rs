//! The queue of held flows, which wait for a decision by API, UI or command line.

use std::sync::Arc;
use std::time::Duration;

use interflow_types::schema::JsonSchema;
use interflow_types::{Phase, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};

/// A flow that waits for a decision.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
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
    /// Whether it continues without a decision.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HeldPart {
    #[default]
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
        method: Option<String>,
        /// New URL.
        url: Option<String>,
        /// New status.
        status: Option<u16>,
        /// Fields to set; an empty value removes the field.
        #[serde(default)]
        headers: Vec<(String, String)>,
        /// New body.
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

impl HeldPart {
    pub(crate) const fn of_phase(phase: Phase) -> Self {
        match phase {
            Phase::Message => Self::Message,
            Phase::ResponseHead | Phase::ResponseBody => Self::Response,
            _ => Self::Request,
        }
    }
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
    pub(crate) async fn wait(self: Arc<Self>, held: HeldFlow, timeout: Duration, most: usize) -> Option<HoldDecision> {
        let (id, decided) = self.insert(held, timeout, most)?;
        // Also removes the entry if this future is dropped.
        let _entry = HeldEntryGuard { holds: &self, id };
        tokio::time::timeout(timeout, decided).await.ok()?.ok()
    }

    fn insert(
        &self,
        mut held: HeldFlow,
        timeout: Duration,
        most: usize,
    ) -> Option<(u64, oneshot::Receiver<HoldDecision>)> {
        let (decide, decided) = oneshot::channel();
        let mut inner = self.inner.lock();
        if inner.closed {
            return None;
        }
        if inner.waiting.len() >= most {
            tracing::warn!("{most} flows are held already, so flow {} is treated as undecided", held.flow);
            return None;
        }
        inner.next += 1;
        let id = inner.next;
        (held.id, held.since) = (id, Timestamp::now());
        held.until = held.since.after(timeout);
        tracing::info!(id, flow = held.flow, rule = held.rule, "held: {}", held.url);
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

    async fn wait(holds: Arc<HoldQueue>, timeout: u64, most: usize) -> Option<HoldDecision> {
        let held = HeldFlow {
            rule: "r".into(),
            phase: "request",
            method: Some("GET".into()),
            url: "http://a/".into(),
            ..HeldFlow::default()
        };
        holds.wait(held, Duration::from_millis(timeout), most).await
    }

    #[tokio::test]
    async fn a_decision_ends_the_wait() {
        let holds = Arc::new(HoldQueue::default());
        let waiting = tokio::spawn(wait(Arc::clone(&holds), 5000, 10));
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
        assert_eq!(wait(Arc::clone(&holds), 10, 10).await, None);
        assert_eq!(wait(Arc::clone(&holds), 10, 0).await, None);
        let waiting = tokio::spawn(wait(Arc::clone(&holds), 5000, 10));
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
        let waiting = tokio::spawn(wait(Arc::clone(&holds), 60_000, 10));
        while holds.list().is_empty() {
            tokio::task::yield_now().await;
        }
        holds.close();
        assert_eq!(waiting.await.unwrap(), None);
        assert_eq!(wait(Arc::clone(&holds), 60_000, 10).await, None);
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
