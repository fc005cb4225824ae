//! A timer that is moved often and rarely fires.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// Wakes its task at a deadline. Moving the deadline later, as every request does, is free: the runtime's timer is
/// left alone, and set again only if it fires too early.
#[derive(Default)]
pub(crate) struct DeadlineTimer {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl DeadlineTimer {
    /// Ready once `deadline` has passed; otherwise the task is woken then, or sooner.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= deadline || Instant::now() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn it_fires_at_the_latest_deadline() {
        let start = Instant::now();
        let mut alarm = DeadlineTimer::default();
        for (ask, later) in [(60, 100), (200, 120), (150, 130)] {
            let first = start + Duration::from_secs(ask);
            assert!(poll_fn(|cx| Poll::Ready(alarm.poll(cx, first))).await.is_pending());
            let at = start + Duration::from_secs(later);
            poll_fn(|cx| alarm.poll(cx, at)).await;
            assert_eq!(start.elapsed().as_secs(), later);
        }
    }
}
