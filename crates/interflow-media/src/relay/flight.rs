//! One fetch that several watch: who waits for its head, what of its body is here, and how it ended.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use interflow_flow::{Kind, ResponseHead, Url};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// One fetch that several may watch.
#[derive(Default)]
pub(super) struct Flight {
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) stage: Stage,
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
pub(super) enum Stage {
    /// Somebody has asked; the head is not there.
    #[default]
    Asked,
    /// Everybody went away before the head came.
    Left,
    /// What came cannot be shared.
    Alone,
    /// Nothing came.
    Failed(Kind, String),
    /// The body is coming.
    Coming(Arc<Started>),
    /// It is whole; it is fresh until then.
    Whole(Arc<Started>, Instant),
    /// It broke off.
    Broken(Arc<Started>, Kind, String),
    /// It is longer than what is shared.
    TooLong(Arc<Started>),
}

pub(super) struct Started {
    pub(super) url: Url,
    pub(super) head: ResponseHead,
}

impl Flight {
    /// Whether it may be joined.
    pub(super) fn is_good(&self) -> bool {
        match &self.state.lock().stage {
            Stage::Asked | Stage::Coming(_) => true,
            Stage::Whole(_, until) => Instant::now() < *until,
            Stage::Left | Stage::Alone | Stage::Failed(..) | Stage::Broken(..) | Stage::TooLong(_) => false,
        }
    }

    pub(super) fn step(&self, change: impl FnOnce(&mut State)) {
        let wakers = {
            let mut state = self.state.lock();
            change(&mut state);
            if !matches!(state.stage, Stage::Asked) {
                state.asking = None;
            }
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Says what asks for the head, so that it can be ended when nobody waits any more.
    pub(super) fn asked_by(&self, task: AbortHandle) {
        let mut state = self.state.lock();
        if matches!(state.stage, Stage::Asked) {
            state.asking = Some(task);
        }
    }

    /// Waits for the head, or for what became of it.
    pub(super) async fn started(&self) -> Outcome {
        std::future::poll_fn(|cx| {
            let mut state = self.state.lock();
            match &state.stage {
                Stage::Asked => {
                    wait(&mut state.wakers, cx);
                    Poll::Pending
                }
                Stage::Left => Poll::Ready(Outcome::Left),
                Stage::Alone => Poll::Ready(Outcome::Alone),
                Stage::Failed(kind, text) => Poll::Ready(Outcome::Failed(*kind, text.clone())),
                Stage::Coming(s) | Stage::Whole(s, _) | Stage::Broken(s, ..) | Stage::TooLong(s) => {
                    Poll::Ready(Outcome::Started(Arc::clone(s)))
                }
            }
        })
        .await
    }
}

/// What those who wait for a head are told.
pub(super) enum Outcome {
    Started(Arc<Started>),
    Left,
    Alone,
    Failed(Kind, String),
}

/// One who waits for a head; when the last one goes away, it is no longer asked for.
pub(super) struct Waiting<'a>(&'a Flight);

impl<'a> Waiting<'a> {
    pub(super) fn new(flight: &'a Flight) -> Self {
        flight.state.lock().waiting += 1;
        Self(flight)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.waiting -= 1;
        if state.waiting == 0
            && matches!(state.stage, Stage::Asked)
            && let Some(asking) = state.asking.take()
        {
            drop(state);
            asking.abort();
        }
    }
}

pub(super) fn wait(wakers: &mut Vec<Waker>, cx: &Context<'_>) {
    if !wakers.iter().any(|w| w.will_wake(cx.waker())) {
        wakers.push(cx.waker().clone());
    }
}
