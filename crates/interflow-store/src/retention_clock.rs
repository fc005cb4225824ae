//! The clock by which retention judges the age of flows.
//!
//! A clock that jumps forward makes every flow too old at once. Retention therefore follows a clock only as long as it
//! moves on in small steps. After a large one, which may also be a long time without a process, it keeps the time of the
//! last look until the new time has been seen for a day of running. All times are in microseconds since the Unix epoch.

use std::time::Duration;

use serde::{Deserialize, Serialize};

const DAY: u64 = 86_400_000_000;
/// How much of the time between two looks counts as time of running: nobody looked in between.
const LONGEST_STEP: u64 = 30 * 60_000_000;

/// The time of retention, and what the clock showed at the last look. They differ while retention waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetentionClock {
    pub time: u64,
    pub seen: u64,
    /// How long the clock has been watched since it jumped.
    pub watched: u64,
}

impl RetentionClock {
    pub const fn at(time: u64) -> Self {
        Self { time, seen: time, watched: 0 }
    }

    /// Takes over what the clock shows, for flows that are kept for `age`. Says in the log when retention begins or ends
    /// to wait.
    pub fn look(&mut self, clock: u64, age: Duration) {
        let was_waiting = self.is_waiting();
        // A step that makes a small part of the flows too old does no harm, and machines are switched off at night.
        let tolerance = (age.as_micros() as u64 / 4).max(DAY);
        let step = clock.saturating_sub(self.seen);
        self.watched = if step > tolerance { 0 } else { self.watched + step.min(LONGEST_STEP) };
        self.seen = clock;
        if clock.saturating_sub(self.time) <= tolerance || (was_waiting && self.watched >= DAY) {
            *self = Self::at(clock);
        }
        match (was_waiting, self.waits_because()) {
            (false, Some(why)) => tracing::warn!("{why}"),
            (true, None) => tracing::info!("retention by age goes on: it follows the clock again"),
            _ => {}
        }
    }

    pub const fn is_waiting(&self) -> bool {
        self.seen > self.time
    }

    /// Why retention by age waits, if it does.
    pub fn waits_because(&self) -> Option<String> {
        let hours = (self.seen.checked_sub(self.time)? / 3_600_000_000) as f64;
        self.is_waiting().then(|| {
            format!(
                "retention by age waits: the clock has moved forward by {:.1} days since it was last seen; if it is wrong, set \
                 it; if it is right, retention goes on after a day of running ({:.1} hours are left), and `interflow flows \
                 prune` deletes flows now",
                hours / 24.0,
                DAY.saturating_sub(self.watched) as f64 / 3_600_000_000.0
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = DAY / 24;
    const MONTH: Duration = Duration::from_secs(30 * 86_400);

    /// Looks every ten minutes for this long.
    fn run(clock: &mut RetentionClock, from: u64, time: u64) -> u64 {
        let end = from + time;
        (from..=end).step_by(600_000_000).for_each(|at| clock.look(at, MONTH));
        end
    }

    #[test]
    fn a_clock_that_moves_on_or_back_is_followed() {
        let mut clock = RetentionClock::at(100 * DAY);
        let now = run(&mut clock, 100 * DAY, 3 * DAY);
        assert_eq!((clock.time, clock.is_waiting()), (now, false));
        // A night, a weekend.
        clock.look(now + 3 * DAY, MONTH);
        assert_eq!(clock.time, now + 3 * DAY);
        clock.look(now, MONTH);
        assert_eq!((clock.time, clock.is_waiting()), (now, false));
    }

    #[test]
    fn a_jump_is_followed_after_a_day_of_running() {
        let mut clock = RetentionClock::at(100 * DAY);
        let now = run(&mut clock, 140 * DAY, DAY - HOUR);
        assert_eq!(clock.time, 100 * DAY);
        assert!(clock.waits_because().unwrap().contains("41.0 days"), "{clock:?}");
        let now = run(&mut clock, now, HOUR);
        assert_eq!((clock.time, clock.waits_because()), (now, None));
    }

    #[test]
    fn a_clock_that_is_set_right_again_is_followed_at_once() {
        let mut clock = RetentionClock::at(100 * DAY);
        run(&mut clock, 140 * DAY, HOUR);
        clock.look(100 * DAY + 2 * HOUR, MONTH);
        assert_eq!(clock, RetentionClock::at(100 * DAY + 2 * HOUR));
    }

    #[test]
    fn time_in_which_nobody_looked_is_not_counted_and_a_second_jump_begins_anew() {
        let mut clock = RetentionClock::at(100 * DAY);
        let now = run(&mut clock, 140 * DAY, 20 * HOUR);
        // Off over night.
        clock.look(now + 16 * HOUR, MONTH);
        assert!(clock.is_waiting());
        run(&mut clock, 180 * DAY, 10 * HOUR);
        assert_eq!(clock.time, 100 * DAY);
    }

    #[test]
    fn what_a_jump_may_be_depends_on_how_long_flows_are_kept() {
        for (age_days, jump_days, waits) in [(1, 2, true), (2, 1, false), (30, 7, false), (30, 8, true)] {
            let mut clock = RetentionClock::at(100 * DAY);
            clock.look((100 + jump_days) * DAY, Duration::from_secs(age_days * 86_400));
            assert_eq!(clock.is_waiting(), waits, "{age_days} {jump_days}");
        }
    }
}
