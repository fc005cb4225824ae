//! Graceful shutdown: connections finish requests in progress and accept no new ones.
//!
//! A broadcast that thousands of idle connections wait for. Each connection keeps one slot for its waker and registers
//! again only if its task changes, so that the lock shared by all workers is not taken for each request.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Triggers a graceful shutdown. Dropping it does not.
#[derive(Clone, Default)]
pub struct DrainSignal(Arc<DrainState>);

/// Observes a graceful shutdown; cheap to clone.
pub struct Drain {
    shared: Arc<DrainState>,
    place: Option<WakerSlot>,
}

/// This observer's waker slot, and the task it wakes.
struct WakerSlot {
    key: usize,
    waker: Waker,
}

#[derive(Default)]
struct DrainState {
    started: AtomicBool,
    waiting: Mutex<WakerSlab>,
}

/// Wakers by index; free slots are listed in `free`.
#[derive(Default)]
struct WakerSlab {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl DrainSignal {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn drain(&self) -> Drain {
        Drain { shared: self.0.clone(), place: None }
    }

    /// Triggers the shutdown, irrevocably.
    pub fn start(&self) {
        // Before the wakers are taken: an observer that registers afterwards sees the flag in its second check.
        self.0.started.store(true, Ordering::SeqCst);
        // Woken after the lock is released, because a waker may run the task at once.
        let wakers: Vec<Waker> = self.0.waiting.lock().wakers.iter_mut().filter_map(Option::take).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drain {
    pub fn never() -> Self {
        DrainSignal::new().drain()
    }

    /// Whether shutdown was triggered. Costs one atomic load.
    pub fn is_draining(&self) -> bool {
        self.shared.started.load(Ordering::Relaxed)
    }

    /// Waits for the shutdown. Cancel-safe; may be called any number of times.
    pub async fn drained(&self) {
        let mut own = self.clone();
        poll_fn(|cx| own.poll_drained(cx)).await;
    }

    /// As [`drained`](Self::drained). The lock shared by workers is taken only if another task polls than before.
    pub(crate) fn poll_drained(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_draining() {
            return Poll::Ready(());
        }
        // A connection polls this for each request, but from the same task.
        if !self.place.as_ref().is_some_and(|p| p.waker.will_wake(cx.waker())) {
            self.register(cx.waker());
        }
        // Checked again after registering, otherwise a shutdown between the two would be missed.
        if self.shared.started.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }

    fn register(&mut self, waker: &Waker) {
        let mut waiting = self.shared.waiting.lock();
        // The slot is kept for the observer's lifetime, so re-registering allocates nothing.
        let key = self.place.take().map(|p| p.key).unwrap_or_else(|| {
            waiting.free.pop().unwrap_or_else(|| {
                waiting.wakers.push(None);
                waiting.wakers.len() - 1
            })
        });
        waiting.wakers[key] = Some(waker.clone());
        self.place = Some(WakerSlot { key, waker: waker.clone() });
    }
}

impl Clone for Drain {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), place: None }
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            let mut waiting = self.shared.waiting.lock();
            // The slot may hold the waker of a task that has ended.
            waiting.wakers[place.key] = None;
            waiting.free.push(place.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_observers_are_notified() {
        let signal = DrainSignal::new();
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let drain = signal.drain();
                tokio::spawn(async move { drain.drained().await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(!signal.drain().is_draining());
        signal.start();
        for t in tasks {
            t.await.unwrap();
        }
        let late = signal.drain().clone();
        assert!(late.is_draining());
        late.drained().await;
    }

    #[tokio::test]
    async fn slots_of_dropped_observers_are_reused() {
        let signal = DrainSignal::new();
        for _ in 0..100 {
            let mut drain = signal.drain();
            assert!(poll_fn(|cx| Poll::Ready(drain.poll_drained(cx))).await.is_pending());
        }
        assert_eq!(signal.0.waiting.lock().wakers.len(), 1);
    }
}
