//! Ends the work on a text for which nobody waits any longer.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static CURRENT: RefCell<Option<StopFlag>> = const { RefCell::new(None) };
}

/// A flag that detection looks at between pieces of a text. Once it is set, redaction under it ends with
/// [`RedactError::Stopped`](crate::RedactError::Stopped), and nothing of what was found by then is kept.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

/// Sets the flag when it is dropped, as a future is whose client left.
#[derive(Debug)]
pub struct StopOnDrop(StopFlag);

impl StopFlag {
    /// Sets the flag.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// A guard that sets the flag at its end.
    pub fn on_drop(&self) -> StopOnDrop {
        StopOnDrop(self.clone())
    }

    /// Does work on this thread that the flag ends.
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

/// Puts the flag back that was there before, also when the work panics.
struct PreviousStopGuard(Option<StopFlag>);

impl Drop for PreviousStopGuard {
    fn drop(&mut self) {
        CURRENT.replace(self.0.take());
    }
}

/// Whether the work on this thread is to end.
pub(crate) fn is_stop_requested() -> bool {
    CURRENT.with_borrow(|c| c.as_ref().is_some_and(StopFlag::is_set))
}
