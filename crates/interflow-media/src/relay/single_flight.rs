//! One fetch that several watch: who waits for its head, what of its body is here, and how it ended.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use interflow_types::{ErrorKind, ResponseHead, Url};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// One fetch that several may watch.
#[derive(Default)]
pub(super) struct SharedFetch {
    pub(super) state: Mutex<SharedFetchState>,
}

#[derive(Default)]
pub(super) struct SharedFetchState {
    pub(super) stage: FetchStage,
    pub(super) chunks: Vec<Bytes>,
    pub(super) length: u64,
    /// How far the fastest reader is.
    pub(super) read: u64,
    pub(super) readers: usize,
    pub(super) wakers: Vec<Waker>,
    /// How many wait for the head.
    waiting: usize,
    /// What asks for the head.
    asking: Option<AbortHandle>,
}

#[derive(Default, Clone)]
pub(super) enum FetchStage {
    /// Somebody has asked; the head is not there.
    #[default]
    Asked,
    /// Everybody went away before the head came.
    Left,
    /// What came cannot be shared.
    Alone,
    /// Nothing came.
    Failed(ErrorKind, String),
    /// The body is coming.
    Coming(Arc<FetchHead>),
    /// It is whole; it is fresh until then.
    Whole(Arc<FetchHead>, Instant),
    /// It broke off.
    Broken(Arc<FetchHead>, ErrorKind, String),
    /// It is longer than what is shared.
    TooLong(Arc<FetchHead>),
}

pub(super) struct FetchHead {
    pub(super) url: Url,
    pub(super) head: ResponseHead,
}

impl SharedFetch {
    /// Whether it may be joined.
    pub(super) fn is_joinable(&self) -> bool {
        match &self.state.lock().stage {
            FetchStage::Asked | FetchStage::Coming(_) => true,
            FetchStage::Whole(_, until) => Instant::now() < *until,
            FetchStage::Left
            | FetchStage::Alone
            | FetchStage::Failed(..)
            | FetchStage::Broken(..)
            | FetchStage::TooLong(_) => false,
        }
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut SharedFetchState)) {
        let wakers = {
            let mut state = self.state.lock();
            change(&mut state);
            if !matches!(state.stage, FetchStage::Asked) {
                state.asking = None;
            }
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Says what asks for the head, so that it can be ended when nobody waits any more.
    pub(super) fn set_task(&self, task: AbortHandle) {
        let mut state = self.state.lock();
        if matches!(state.stage, FetchStage::Asked) {
            state.asking = Some(task);
        }
    }

    /// Waits for the head, or for what became of it.
    pub(super) async fn wait_for_head(&self) -> FetchOutcome {
        std::future::poll_fn(|cx| {
            let mut state = self.state.lock();
            match &state.stage {
                FetchStage::Asked => {
                    register_waker(&mut state.wakers, cx);
                    Poll::Pending
                }
                FetchStage::Left => Poll::Ready(FetchOutcome::Left),
                FetchStage::Alone => Poll::Ready(FetchOutcome::Alone),
                FetchStage::Failed(kind, text) => Poll::Ready(FetchOutcome::Failed(*kind, text.clone())),
                FetchStage::Coming(s)
                | FetchStage::Whole(s, _)
                | FetchStage::Broken(s, ..)
                | FetchStage::TooLong(s) => Poll::Ready(FetchOutcome::Started(Arc::clone(s))),
            }
        })
        .await
    }
}

/// What those who wait for a head are told.
pub(super) enum FetchOutcome {
    Started(Arc<FetchHead>),
    Left,
    Alone,
    Failed(ErrorKind, String),
}

/// One who waits for a head; when the last one goes away, it is no longer asked for.
pub(super) struct HeadWaiter<'a>(&'a SharedFetch);

impl<'a> HeadWaiter<'a> {
    pub(super) fn new(flight: &'a SharedFetch) -> Self {
        flight.state.lock().waiting += 1;
        Self(flight)
    }
}

impl Drop for HeadWaiter<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.waiting -= 1;
        if state.waiting == 0
            && matches!(state.stage, FetchStage::Asked)
            && let Some(asking) = state.asking.take()
        {
            drop(state);
            asking.abort();
        }
    }
}

pub(super) fn register_waker(wakers: &mut Vec<Waker>, cx: &Context<'_>) {
    if !wakers.iter().any(|w| w.will_wake(cx.waker())) {
        wakers.push(cx.waker().clone());
    }
}
