//! Requests that are flagged only: what is in them is looked for beside their way, since nothing of it changes them.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use interflow_flow::{BoxFuture, Flow, Kind};
use interflow_redact::Stop;
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use super::choice::Choice;
use super::prompt::{self, Outcome};
use super::{Note, Redaction};

/// Bodies larger than this are looked at by another thread; smaller ones by the worker's own while the origin works.
const SMALL: usize = 16 << 10;

/// What was found, and how long that took in microseconds; nothing for a body that could not be read.
pub(super) type Found = (Option<Outcome>, u64);

/// The look at one request's body.
pub(super) struct Aside {
    room: Arc<Redaction>,
    choice: Arc<Choice>,
    state: Mutex<State>,
    done: Condvar,
    told: Notify,
    /// Set when the client left.
    stop: Stop,
}

enum State {
    Waiting(Box<dyn FnOnce() -> Option<Outcome> + Send>),
    Running,
    Done(Found),
    Taken,
}

impl Aside {
    /// Has a body of `size` bytes looked at.
    pub(super) fn begin(
        room: Arc<Redaction>,
        choice: Arc<Choice>,
        size: usize,
        look: impl FnOnce() -> Option<Outcome> + Send + 'static,
    ) -> Arc<Self> {
        let aside = Arc::new(Self {
            room,
            choice,
            state: Mutex::new(State::Waiting(Box::new(look))),
            done: Condvar::new(),
            told: Notify::new(),
            stop: Stop::default(),
        });
        let other = Arc::clone(&aside);
        if size > SMALL {
            tokio::task::spawn_blocking(move || other.run());
        } else {
            tokio::spawn(async move { other.run() });
        }
        aside
    }

    /// Does it, unless somebody else has begun.
    fn run(&self) {
        let look = {
            let mut state = self.state.lock();
            match mem::replace(&mut *state, State::Running) {
                State::Waiting(look) => look,
                other => return *state = other,
            }
        };
        let mut end = End { of: self, begun: Instant::now(), found: None };
        end.found = self.stop.during(look);
    }

    /// Ends the look, whether it has begun or not: nobody waits for what it would find.
    pub(super) fn abandon(&self) {
        self.stop.stop();
        let mut state = self.state.lock();
        if matches!(*state, State::Waiting(_)) {
            *state = State::Taken;
        }
    }

    fn take(&self) -> Option<Found> {
        let mut state = self.state.lock();
        match mem::replace(&mut *state, State::Taken) {
            State::Done(found) => Some(found),
            other => {
                *state = other;
                None
            }
        }
    }

    pub(super) async fn found(&self) -> Found {
        self.run();
        loop {
            if let Some(found) = self.take() {
                return found;
            }
            self.told.notified().await;
        }
    }

    /// The same where nothing can be awaited: another thread, if one has begun, needs no more than a few milliseconds.
    pub(super) fn found_at_once(&self) -> Found {
        self.run();
        let mut state = self.state.lock();
        while matches!(*state, State::Running) {
            self.done.wait(&mut state);
        }
        match mem::replace(&mut *state, State::Taken) {
            State::Done(found) => found,
            _ => (None, 0),
        }
    }
}

/// Tells the end of a look, also when it came by a panic.
struct End<'a> {
    of: &'a Aside,
    begun: Instant,
    found: Option<Outcome>,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        *self.of.state.lock() = State::Done((self.found.take(), self.begun.elapsed().as_micros() as u64));
        self.of.done.notify_all();
        self.of.told.notify_one();
    }
}

/// Puts what was found into the flow, for whoever asks about it from here on; `None` where there is nothing to wait for.
pub(crate) fn settled(flow: &mut Flow) -> Option<BoxFuture<'_, ()>> {
    let aside = taken(flow)?;
    Some(Box::pin(async move {
        let found = aside.found().await;
        put(&aside, flow, found);
    }))
}

/// The same at the flow's end. Of a client that left nothing more is looked at: what was found by then is noted.
pub(crate) fn settle(flow: &mut Flow) {
    if let Some(aside) = taken(flow) {
        if flow.failed == Some(Kind::ClientGone) {
            let found = aside.take();
            aside.abandon();
            return put(&aside, flow, found.unwrap_or((None, 0)));
        }
        let found = aside.found_at_once();
        put(&aside, flow, found);
    }
}

fn taken(flow: &mut Flow) -> Option<Arc<Aside>> {
    flow.note::<Note>()?.aside.as_ref()?;
    flow.note_mut::<Note>().aside.take()
}

fn put(aside: &Aside, flow: &mut Flow, (outcome, micros): Found) {
    match outcome {
        Some(outcome) => prompt::note(&aside.room, flow, &aside.choice, &outcome, micros),
        None => flow.tag("redact:unread"),
    }
}
