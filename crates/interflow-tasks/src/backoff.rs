//! Growing pauses between attempts.

use std::time::Duration;

/// The pauses before something that ended, or could not begin, is begun again: each is twice as long as the one before.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    healthy_after: Duration,
    next: Duration,
}

impl Backoff {
    /// What lasted for `healthy_after` or longer makes the pauses begin with the first one again.
    pub const fn new(first: Duration, longest: Duration, healthy_after: Duration) -> Self {
        Self { first, longest, healthy_after, next: first }
    }

    /// The pause before the next attempt. `lasted` is how long the last one held once it had begun; `None` if it did not
    /// begin, however long that took.
    pub fn pause(&mut self, lasted: Option<Duration>) -> Duration {
        if lasted.is_some_and(|lasted| lasted >= self.healthy_after) {
            self.next = self.first;
        }
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_only_what_lasted_resets_them() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(1), seconds(5), seconds(30));
        for (lasted, pause) in
            [(None, 1), (None, 2), (Some(seconds(29)), 4), (None, 5), (None, 5), (Some(seconds(30)), 1), (None, 2)]
        {
            assert_eq!(backoff.pause(lasted), seconds(pause), "{lasted:?}");
        }
    }
}
