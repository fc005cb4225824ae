//! Cancellation of work on a text whose result nobody waits for any longer.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static CURRENT: RefCell<Option<StopFlag>> = const { RefCell::new(None) };
}

/// A flag that detection checks periodically. Once it is set, redaction under it fails with
/// [`RedactError::Stopped`](crate::RedactError::Stopped), and partial findings are discarded.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

/// Sets the flag when dropped, for example with a cancelled future.
#[derive(Debug)]
pub struct StopOnDrop(StopFlag);

impl StopFlag {
    /// Cancels the work, on whatever thread it runs. Takes effect at the next check.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// A guard that cancels the work when it is dropped.
    pub fn on_drop(&self) -> StopOnDrop {
        StopOnDrop(self.clone())
    }

    /// Runs work on this thread that the flag cancels; a flag around it is masked meanwhile.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let _before = PreviousStopGuard(CURRENT.replace(Some(self.clone())));
        work()
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Restores the previous flag, also on panic.
struct PreviousStopGuard(Option<StopFlag>);

impl Drop for PreviousStopGuard {
    fn drop(&mut self) {
        CURRENT.replace(self.0.take());
    }
}

/// Whether the work on this thread is cancelled.
pub fn is_stop_requested() -> bool {
    CURRENT.with_borrow(|c| c.as_ref().is_some_and(StopFlag::is_set))
}
