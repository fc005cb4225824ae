//! Which sessions are put together again, and when: those with calls that became visible out of order.
//!
//! Replicas deliver their calls in batches, so in a session over several of them nearly every call may be out of order. To
//! read the whole session for each would cost the square of its calls. Calls are therefore added as they come, and the
//! session is put together again once it is quiet, or has grown by as many calls as it had: what that costs in all is in
//! proportion to its calls.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A session without calls for this long is quiet.
const QUIET: Duration = Duration::from_secs(2);
/// After this time without calls a session is put in order however few of its calls are new.
const LONG_QUIET: Duration = Duration::from_secs(30);
/// A part of the calls of a quiet session that is worth reading them all: a quarter.
const NEW_PART: usize = 4;
/// A session that is not quiet is put in order after this many calls at the earliest.
const MIN_CALLS: usize = 16;
/// What is known of a session in order is forgotten after this time.
const FORGET: Duration = Duration::from_secs(600);

/// The sessions of the process that indexes.
#[derive(Default)]
pub struct LateSessions(HashMap<String, SessionOrder>);

struct SessionOrder {
    is_late: bool,
    /// Its flows when it was put together last; 0 if it was not.
    flows: usize,
    /// Calls since then.
    new_calls: usize,
    last_call: Instant,
    /// It has too many flows to be put together again.
    is_too_long: bool,
}

impl LateSessions {
    /// Notes that a call was added, and whether it ended before another one of its session. Returns whether the session is
    /// out of order from now on.
    pub fn add_call(&mut self, session: &str, is_late: bool, now: Instant) -> bool {
        if !is_late && !self.0.contains_key(session) {
            return false;
        }
        let order = self.entry(session, now);
        order.new_calls += 1;
        order.last_call = now;
        let is_news = is_late && !order.is_late && !order.is_too_long;
        order.is_late |= is_news;
        is_news
    }

    /// Notes a session that another process left out of order.
    pub fn add_session(&mut self, session: &str, now: Instant) {
        self.entry(session, now).is_late = true;
    }

    fn entry(&mut self, session: &str, now: Instant) -> &mut SessionOrder {
        let new = SessionOrder { is_late: false, flows: 0, new_calls: 0, last_call: now, is_too_long: false };
        self.0.entry(session.to_owned()).or_insert(new)
    }

    /// A session that is to be put in order now; with `any`, each that is out of order.
    pub fn due(&mut self, any: bool, now: Instant) -> Option<String> {
        self.0.retain(|_, order| order.is_late || now.duration_since(order.last_call) < FORGET);
        let is_due = |order: &SessionOrder| {
            let quiet = now.duration_since(order.last_call);
            let is_worth_it = order.new_calls * NEW_PART >= order.flows || quiet >= LONG_QUIET;
            order.new_calls >= order.flows.max(MIN_CALLS) || quiet >= QUIET && is_worth_it
        };
        self.0.iter().find(|(_, order)| order.is_late && (any || is_due(order))).map(|(session, _)| session.clone())
    }

    /// Notes that a session was put in order; `None` says that it has too many flows for that.
    pub fn set_in_order(&mut self, session: &str, flows: Option<usize>) {
        if let Some(order) = self.0.get_mut(session) {
            order.is_late = false;
            order.new_calls = 0;
            order.is_too_long = flows.is_none();
            order.flows = flows.unwrap_or_default();
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds this many calls at intervals, each out of order; returns how many flows were read.
    fn read_flows(calls: usize, interval: Duration) -> usize {
        let (mut sessions, mut now, mut read) = (LateSessions::default(), Instant::now(), 0);
        for call in 1..=calls {
            now += interval;
            sessions.add_call("s", call > 1, now);
            while let Some(session) = sessions.due(false, now) {
                sessions.set_in_order(&session, Some(call));
                read += call;
            }
        }
        now += LONG_QUIET;
        while let Some(session) = sessions.due(false, now) {
            sessions.set_in_order(&session, Some(calls));
            read += calls;
        }
        read
    }

    #[test]
    fn the_flows_read_for_a_session_are_in_proportion_to_its_calls() {
        for interval in [1, 100, 2500] {
            let read = read_flows(450, Duration::from_millis(interval));
            assert!((450..450 * 6).contains(&read), "{read} at {interval} ms");
        }
    }

    #[test]
    fn a_quiet_session_is_put_in_order_and_one_that_is_in_order_is_left_alone() {
        let (mut sessions, now) = (LateSessions::default(), Instant::now());
        assert!(!sessions.add_call("in order", false, now));
        assert!(sessions.add_call("late", true, now));
        assert!(!sessions.add_call("late", true, now), "it is known already");
        assert_eq!(sessions.due(false, now), None);
        assert_eq!(sessions.due(false, now + QUIET).as_deref(), Some("late"));
        sessions.set_in_order("late", Some(2));
        assert_eq!(sessions.due(true, now + QUIET), None);
        assert!(sessions.add_call("late", true, now));
        assert_eq!(sessions.due(true, now).as_deref(), Some("late"));
        sessions.set_in_order("late", None);
        assert!(!sessions.add_call("late", true, now), "it is too long");
        assert_eq!(sessions.due(true, now + LONG_QUIET), None);
        sessions.add_session("of another process", now);
        assert_eq!(sessions.due(true, now).as_deref(), Some("of another process"));
    }
}
