//! A timer that is moved often and rarely fires.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// What stands for a deadline too far away to be represented, for instance a timeout of `u64::MAX` seconds.
const YEAR: Duration = Duration::from_secs(86_400 * 365);

/// Wakes its task at a deadline. Moving the deadline later, as every request does, is free: the runtime's timer is
/// left alone, and set again only if it fires too early.
#[derive(Default)]
pub(crate) struct DeadlineTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    due: Option<Instant>,
}

impl DeadlineTimer {
    /// Sets the deadline to `after` from now.
    pub(crate) fn arm(&mut self, after: Duration) {
        self.arm_from(Instant::now(), after);
    }

    /// Sets the deadline to `after` from `now`.
    pub(crate) fn arm_from(&mut self, now: Instant, after: Duration) {
        self.due = Some(now.checked_add(after).unwrap_or(now + YEAR));
    }

    /// Ready once the deadline has passed; otherwise the task is woken then, or sooner. Never, if it was not armed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(due) = self.due { self.poll_at(cx, due) } else { Poll::Pending }
    }

    /// As [`poll`](Self::poll), for this deadline.
    pub(crate) fn poll_at(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        // Only an earlier deadline touches the runtime's timer at once.
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= deadline || Instant::now() >= deadline {
                return Poll::Ready(());
            }
            // The timer fired for an older deadline, which has moved on meanwhile.
            sleep.as_mut().reset(deadline);
        }
    }
}

/// Polls a transfer, which also tells how much it has written, until its end or a pause of `idle`; whether it succeeded.
pub(crate) async fn while_moving(
    mut timer: DeadlineTimer,
    idle: Duration,
    mut poll: impl FnMut(&mut Context<'_>) -> (Poll<bool>, u64),
) -> bool {
    timer.arm(idle);
    let mut before = 0;
    poll_fn(|cx| {
        let (ended, written) = poll(cx);
        if std::mem::replace(&mut before, written) != written {
            timer.arm(idle);
        }
        if ended.is_ready() { ended } else { timer.poll(cx).map(|()| false) }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[tokio::test(start_paused = true)]
    async fn timer_fires_at_the_latest_deadline() {
        let start = Instant::now();
        let mut timer = DeadlineTimer::default();
        for (ask, later) in [(60, 100), (200, 120), (150, 130)] {
            let first = start + Duration::from_secs(ask);
            assert!(poll_fn(|cx| Poll::Ready(timer.poll_at(cx, first))).await.is_pending());
            let at = start + Duration::from_secs(later);
            poll_fn(|cx| timer.poll_at(cx, at)).await;
            assert_eq!(start.elapsed().as_secs(), later);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rearmed_timer_fires_at_the_new_deadline() {
        let start = Instant::now();
        let mut timer = DeadlineTimer::default();
        assert!(timer.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        for (ask, later, fires_at) in [(20, 60, 60), (100_000, 5, 65)] {
            timer.arm(Duration::from_millis(ask));
            assert!(timer.poll(&mut Context::from_waker(Waker::noop())).is_pending());
            timer.arm(Duration::from_millis(later));
            poll_fn(|cx| timer.poll(cx)).await;
            assert_eq!(start.elapsed().as_millis(), fires_at);
        }
        timer.arm(Duration::MAX);
        assert!(timer.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}
