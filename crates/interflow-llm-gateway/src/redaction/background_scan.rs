//! Scans requests whose findings are only flagged, concurrently with the request, because the scan cannot change it.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use interflow_redact::StopFlag;
use interflow_types::{BoxFuture, DeferredWork, ErrorKind, Flow};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::exchange::{is_inline, off_worker};

use super::RedactionService;
use super::effective_policy::EffectivePolicy;
use super::request_body::{self, RedactionOutcome};

/// The findings and the scan time in microseconds; `None` if the body could not be parsed.
pub(super) type ScanOutcome = (Option<RedactionOutcome>, u64);

/// The scan of one request body. It is joined when the flow ends, so that its findings are in the record.
pub(super) struct BackgroundScan {
    service: Arc<RedactionService>,
    choice: Arc<EffectivePolicy>,
    state: Mutex<ScanProgress>,
    /// Whether it runs on the worker, by whoever comes first: the spawned task, or the flow that waits for it.
    inline: bool,
    told: Notify,
    /// Set when the client disconnects.
    stop: StopFlag,
}

/// `Waiting` becomes `Running`, then `Done`, then `Taken`. A cancelled scan that has not begun goes to `Taken`
/// directly.
enum ScanProgress {
    Waiting(Box<dyn FnOnce() -> Option<RedactionOutcome> + Send>),
    Running,
    Done(ScanOutcome),
    Taken,
}

impl BackgroundScan {
    /// Schedules the scan of a body of `size` bytes, and returns at once.
    pub(super) fn start(
        service: Arc<RedactionService>,
        choice: Arc<EffectivePolicy>,
        size: usize,
        look: impl FnOnce() -> Option<RedactionOutcome> + Send + 'static,
    ) -> Arc<Self> {
        let aside = Arc::new(Self {
            service,
            choice,
            state: Mutex::new(ScanProgress::Waiting(Box::new(look))),
            inline: is_inline(size),
            told: Notify::new(),
            stop: StopFlag::default(),
        });
        let other = Arc::clone(&aside);
        tokio::spawn(off_worker(size, move || other.run()));
        aside
    }

    /// Runs the scan, unless another thread has begun it. The lock is released before the work starts.
    fn run(&self) {
        let look = {
            let mut state = self.state.lock();
            match mem::replace(&mut *state, ScanProgress::Running) {
                ScanProgress::Waiting(look) => look,
                other => return *state = other,
            }
        };
        let mut end = ScanEndGuard { of: self, begun: Instant::now(), found: None };
        end.found = self.stop.run(look);
    }

    /// Cancels the scan, even if it has begun: its result is not needed any more. The stop flag ends a scan in
    /// progress at its next check.
    pub(super) fn cancel(&self) {
        self.stop.stop();
        let mut state = self.state.lock();
        if matches!(*state, ScanProgress::Waiting(_)) {
            *state = ScanProgress::Taken;
        }
    }

    /// The outcome, if the scan is done and nobody has taken it.
    fn take_outcome(&self) -> Option<ScanOutcome> {
        let mut state = self.state.lock();
        match mem::replace(&mut *state, ScanProgress::Taken) {
            ScanProgress::Done(found) => Some(found),
            other => {
                *state = other;
                None
            }
        }
    }

    /// The outcome, once; a long scan is left to its own thread. Cancel-safe: nothing is lost if the future is
    /// dropped.
    pub(super) async fn wait(&self) -> ScanOutcome {
        if self.inline {
            self.run();
        }
        loop {
            if let Some(found) = self.take_outcome() {
                return found;
            }
            // Cancelled, or taken by `finish`: no notification will follow.
            if matches!(*self.state.lock(), ScanProgress::Taken) {
                return (None, 0);
            }
            self.told.notified().await;
        }
    }
}

/// Signals the end of a scan, even after a panic: a flow would otherwise wait for ever.
struct ScanEndGuard<'a> {
    of: &'a BackgroundScan,
    begun: Instant,
    found: Option<RedactionOutcome>,
}

impl Drop for ScanEndGuard<'_> {
    fn drop(&mut self) {
        *self.of.state.lock() = ScanProgress::Done((self.found.take(), self.begun.elapsed().as_micros() as u64));
        self.of.told.notify_one();
    }
}

impl DeferredWork for BackgroundScan {
    fn join<'a>(self: Arc<Self>, flow: &'a mut Flow) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let outcome = self.wait().await;
            record_outcome(&self, flow, outcome);
        })
    }

    /// If the client has disconnected, the scan stops; findings up to then are recorded.
    fn finish(self: Arc<Self>, flow: &mut Flow) -> bool {
        let outcome = match self.take_outcome() {
            Some(outcome) => outcome,
            None if flow.error_kind == Some(ErrorKind::ClientGone) => {
                self.cancel();
                (None, 0)
            }
            None => return false,
        };
        record_outcome(&self, flow, outcome);
        true
    }
}

fn record_outcome(aside: &BackgroundScan, flow: &mut Flow, (outcome, micros): ScanOutcome) {
    match outcome {
        Some(outcome) => request_body::record_outcome(&aside.service, flow, &aside.choice, &outcome, micros),
        None => flow.tag("redact:unread"),
    }
}
