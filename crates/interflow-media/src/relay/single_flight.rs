//! One fetch shared by several readers: waiting for its head, the part of the body received, and its end.
//!
//! The first request for a resource (the leader) performs the fetch in a task of its own, and all others wait for its
//! head. Each of them, the leader included, holds a [`HeadWaiter`]: only when the last client has gone is the task
//! aborted. Once the head has arrived the fetch no longer depends on any client; how far its body is read is decided by
//! the task that fills the cache.
//!
//! Locks are taken in the order cache index, then the state of a fetch.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use interflow_types::{Body, ErrorKind, ResponseHead, Url};
use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinError};

use super::cookie_jar::CookieJar;

#[derive(Default)]
pub(super) struct SharedFetch {
    pub(super) state: Mutex<SharedFetchState>,
}

/// What has arrived of a fetch, guarded by its lock. Changes go through [`SharedFetch::update`], which wakes everyone
/// who waits.
#[derive(Default)]
pub(super) struct SharedFetchState {
    pub(super) stage: FetchStage,
    pub(super) chunks: Vec<Bytes>,
    pub(super) length: u64,
    /// Position of the fastest reader, in bytes; limits how far the origin is read ahead.
    pub(super) read: u64,
    // Readers of the body; the task that fills the cache may stop when there are none.
    pub(super) readers: usize,
    pub(super) wakers: Vec<Waker>,
    /// What follows the chunks of a body that is too long, for the first reader that gets there.
    pub(super) rest: Option<Body>,
    /// Number of requests waiting for the head.
    waiting: usize,
    // Aborts the fetch; only set until the head has arrived.
    asking: Option<AbortHandle>,
}

/// How far a fetch is. `Asked` is left exactly once; `Whole`, `Broken` and `TooLong` follow `Coming`, and the other
/// stages are final.
#[derive(Default, Clone)]
pub(super) enum FetchStage {
    /// Requested; the head has not arrived.
    #[default]
    Asked,
    /// All clients disconnected before the head arrived. A request that joined in this moment starts over as leader.
    Left,
    /// The response cannot be shared (its status, or a length that is unknown or too large): every waiting request
    /// fetches for itself.
    Alone,
    /// The fetch failed before its head arrived; every waiting request gets the error.
    Failed(ErrorKind, String),
    /// The head has arrived, and the body is being read.
    Coming(Arc<FetchHead>),
    /// Complete, and fresh until the given time.
    Whole(Arc<FetchHead>, Instant),
    /// The body was cut off: readers get what has arrived, then the error.
    Broken(Arc<FetchHead>, ErrorKind, String),
    /// The body exceeds the sharing limit: one reader continues with it, the others with a request for the rest.
    TooLong(Arc<FetchHead>),
}

pub(super) struct FetchHead {
    pub(super) url: Url,
    pub(super) head: ResponseHead,
    pub(super) cookies: CookieJar,
}

impl SharedFetch {
    /// Whether further readers may join; otherwise a new fetch replaces this one.
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

    /// Changes the state and wakes everyone who waits. The wakers run after the lock is released, since a woken task
    /// may take it at once.
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

    /// Runs the fetch in a task of its own, so that it goes on for others if the first client disconnects. Until the head
    /// has arrived, it is aborted when no client waits any more.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        fetch: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, JoinError> {
        let task = tokio::spawn(fetch);
        {
            let mut state = self.state.lock();
            // The task may have finished already.
            if matches!(state.stage, FetchStage::Asked) {
                state.asking = Some(task.abort_handle());
            }
        }
        task.await
    }

    /// Waits for the head or another outcome; the result is not [`FetchStage::Asked`]. Cancel-safe; hold a [`HeadWaiter`]
    /// while waiting.
    pub(super) async fn wait_for_head(&self) -> FetchStage {
        std::future::poll_fn(|cx| {
            let mut state = self.state.lock();
            if matches!(state.stage, FetchStage::Asked) {
                register_waker(&mut state.wakers, cx);
                return Poll::Pending;
            }
            Poll::Ready(state.stage.clone())
        })
        .await
    }
}

/// A request waiting for the head; when the last one is dropped, the fetch is aborted.
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
            // The aborted task drops its `FetchLeader`, which takes this lock.
            drop(state);
            asking.abort();
        }
    }
}

/// Registers a waker once: a task polled repeatedly must not fill the list.
pub(super) fn register_waker(wakers: &mut Vec<Waker>, cx: &Context<'_>) {
    if !wakers.iter().any(|w| w.will_wake(cx.waker())) {
        wakers.push(cx.waker().clone());
    }
}
