//! Telling every connection that the proxy is shutting down: finish what is under way, take nothing new.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// The end that says when. Dropping it starts nothing.
#[derive(Clone, Default)]
pub struct DrainSignal(Arc<DrainState>);

/// The end that is told. A clone is cheap.
pub struct Drain {
    shared: Arc<DrainState>,
    place: Option<WakerSlot>,
}

/// Where this end is woken, and whom.
struct WakerSlot {
    key: usize,
    waker: Waker,
}

#[derive(Default)]
struct DrainState {
    started: AtomicBool,
    waiting: Mutex<WakerSlab>,
}

/// Wakers in numbered places; a free place holds none and stands in `free`.
#[derive(Default)]
struct WakerSlab {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl DrainSignal {
    /// A signal that has not been given.
    pub fn new() -> Self {
        Self::default()
    }

    /// An end to be told.
    pub fn drain(&self) -> Drain {
        Drain { shared: self.0.clone(), place: None }
    }

    /// Gives the signal, once and for all.
    pub fn start(&self) {
        self.0.started.store(true, Ordering::SeqCst);
        let wakers: Vec<Waker> = self.0.waiting.lock().wakers.iter_mut().filter_map(Option::take).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drain {
    /// One that is never told.
    pub fn never() -> Self {
        DrainSignal::new().drain()
    }

    /// Whether the signal has been given. Costs one load.
    pub fn is_draining(&self) -> bool {
        self.shared.started.load(Ordering::Relaxed)
    }

    /// Waits for the signal. Cancel-safe.
    pub async fn drained(&self) {
        let mut own = self.clone();
        poll_fn(|cx| own.poll_drained(cx)).await;
    }

    /// As [`drained`](Self::drained). The lock between workers is taken only when another task asks than before.
    pub(crate) fn poll_drained(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_draining() {
            return Poll::Ready(());
        }
        if !self.place.as_ref().is_some_and(|p| p.waker.will_wake(cx.waker())) {
            self.register(cx.waker());
        }
        if self.shared.started.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }

    fn register(&mut self, waker: &Waker) {
        let mut waiting = self.shared.waiting.lock();
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
            waiting.wakers[place.key] = None;
            waiting.free.push(place.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_ends_are_told_once_for_all() {
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
    async fn places_of_ends_that_are_gone_are_used_again() {
        let signal = DrainSignal::new();
        for _ in 0..100 {
            let mut drain = signal.drain();
            assert!(poll_fn(|cx| Poll::Ready(drain.poll_drained(cx))).await.is_pending());
        }
        assert_eq!(signal.0.waiting.lock().wakers.len(), 1);
    }
}
