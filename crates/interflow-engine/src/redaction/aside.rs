//! Requests that are flagged only: what is in them is looked for beside their way, since nothing of it changes them.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use interflow_flow::{BoxFuture, DeferredWork, Flow, Kind};
use interflow_redact::Stop;
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use super::Redaction;
use super::choice::Choice;
use super::prompt::{self, Outcome};

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

impl DeferredWork for Aside {
    fn join<'a>(self: Arc<Self>, flow: &'a mut Flow) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let found = self.found().await;
            put(&self, flow, found);
        })
    }

    /// Of a client that left nothing more is looked at: what was found by then is noted.
    fn finish(self: Arc<Self>, flow: &mut Flow) {
        let found = if flow.failed == Some(Kind::ClientGone) {
            let found = self.take();
            self.abandon();
            found.unwrap_or((None, 0))
        } else {
            self.found_at_once()
        };
        put(&self, flow, found);
    }
}

fn put(aside: &Aside, flow: &mut Flow, (outcome, micros): Found) {
    match outcome {
        Some(outcome) => prompt::note(&aside.room, flow, &aside.choice, &outcome, micros),
        None => flow.tag("redact:unread"),
    }
}
