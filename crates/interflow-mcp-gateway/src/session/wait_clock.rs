//! The time during which calls do not go on, because the client is asked something.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Measures for how long a client is asked something, during which the time limits of its calls do not run.
#[derive(Default)]
pub(crate) struct WaitClock(Mutex<WaitState>);

#[derive(Default)]
struct WaitState {
    open: u32,
    since: Option<Instant>,
    before: Duration,
}

pub(crate) struct Waiting<'c>(&'c WaitClock);

impl WaitClock {
    pub fn begin(&self) -> Waiting<'_> {
        let mut state = self.0.lock();
        state.open += 1;
        state.since.get_or_insert_with(Instant::now);
        Waiting(self)
    }

    /// All the time so far.
    pub fn total(&self) -> Duration {
        let state = self.0.lock();
        state.before + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.open -= 1;
        if state.open == 0
            && let Some(since) = state.since.take()
        {
            state.before += since.elapsed();
        }
    }
}
