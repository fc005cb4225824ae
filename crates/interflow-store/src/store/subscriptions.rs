//! Event subscriptions for flows as they begin, change and end. Events without a subscriber are not built.

use std::sync::Arc;

use interflow_types::Timestamp;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::FlowFilterFn;
use crate::model::{FlowRecord, FlowSummary};

/// Batches that a slow subscriber may lag behind before it misses some.
const BATCHES: usize = 256;

type FlowSender = broadcast::Sender<Arc<[FlowSummary]>>;
type FlowReceiver = broadcast::Receiver<Arc<[FlowSummary]>>;

pub(crate) struct Subscriptions {
    all: FlowSender,
    chosen: Mutex<Vec<(FlowFilterFn, FlowSender)>>,
}

/// Events being collected: for subscribers of everything, and for each filtered subscriber.
#[derive(Default)]
pub(crate) struct Notification {
    all: Vec<FlowSummary>,
    chosen: Vec<Vec<FlowSummary>>,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self { all: broadcast::channel(BATCHES).0, chosen: Mutex::default() }
    }
}

impl Subscriptions {
    pub(crate) fn subscribe(&self) -> FlowReceiver {
        self.all.subscribe()
    }

    /// Subscribes to the flows that `wanted` accepts.
    pub(crate) fn subscribe_to(&self, wanted: FlowFilterFn) -> FlowReceiver {
        let (sender, receiver) = broadcast::channel(BATCHES);
        self.chosen.lock().push((wanted, sender));
        receiver
    }

    /// Adds a flow in its current state.
    pub(crate) fn add(&self, row: &FlowRecord, told: &mut Notification) {
        let summary = || row.summary(Timestamp::now());
        // A summary is built only for somebody: it clones strings of the row.
        if self.all.receiver_count() > 0 {
            told.all.push(summary());
        }
        for (i, (wanted, _)) in self.chosen.lock().iter_mut().enumerate() {
            if wanted(row) {
                told.chosen.resize_with(told.chosen.len().max(i + 1), Vec::new);
                told.chosen[i].push(summary());
            }
        }
    }

    /// Sends the collected events. Only the writer thread may call this, after its previous additions.
    pub(crate) fn notify(&self, told: Notification) {
        if !told.all.is_empty() {
            // An error means that the last subscriber has gone since the summary was built.
            let _ = self.all.send(told.all.into());
        }
        let mut chosen = self.chosen.lock();
        // Positions match: entries are appended by `subscribe_to`, and removed only below by this thread.
        for ((_, sender), summaries) in chosen.iter().zip(told.chosen).filter(|(_, s)| !s.is_empty()) {
            let _ = sender.send(summaries.into());
        }
        // Filters of subscribers that have gone would be called for every flow.
        chosen.retain(|(_, sender)| sender.receiver_count() > 0);
    }

    /// Whether anybody would see an event.
    pub(crate) fn has_subscribers(&self) -> bool {
        self.all.receiver_count() > 0 || !self.chosen.lock().is_empty()
    }

    /// Sends flows of other replicas. Any thread may call this: unlike [`notify`](Self::notify) it removes no
    /// subscriber, so that the positions of the writer stay right.
    pub(crate) fn publish(&self, rows: &[FlowRecord]) {
        let now = Timestamp::now();
        if self.all.receiver_count() > 0 && !rows.is_empty() {
            let _ = self.all.send(rows.iter().map(|row| row.summary(now)).collect());
        }
        for (wanted, sender) in self.chosen.lock().iter_mut() {
            let summaries: Arc<[FlowSummary]> =
                rows.iter().filter(|row| wanted(row)).map(|row| row.summary(now)).collect();
            if !summaries.is_empty() {
                let _ = sender.send(summaries);
            }
        }
    }

    /// Tells all subscribers that they missed something.
    pub(crate) fn publish_gap(&self) {
        let gap: Arc<[FlowSummary]> = Arc::new([]);
        let _ = self.all.send(gap.clone());
        for (_, sender) in self.chosen.lock().iter() {
            let _ = sender.send(gap.clone());
        }
    }

    pub(crate) fn notify_row(&self, row: &FlowRecord) {
        let mut notification = Notification::default();
        self.add(row, &mut notification);
        self.notify(notification);
    }
}
