//! Ends what a client authenticated for when its login ends before it: the user was removed, the password changed, the
//! program's `interflow exec` ended.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use interflow_types::{Error, ErrorKind};
use tokio::sync::watch;

use crate::downstream::access::Login;
use crate::state::ProxyWorker;

/// A login, watched while something that it allowed lasts.
#[derive(Clone)]
pub(crate) struct LoginWatch {
    login: Login,
    worker: Arc<ProxyWorker>,
}

impl LoginWatch {
    /// `None` for listeners that ask for no credentials.
    pub fn new(worker: &Arc<ProxyWorker>, login: Login) -> Option<Self> {
        (!matches!(login, Login::NotAsked(_))).then(|| Self { login, worker: Arc::clone(worker) })
    }

    /// As [`new`](Self::new), for a single request: one without a user costs nothing.
    pub fn of_revocable(worker: &Arc<ProxyWorker>, login: Login) -> Option<Self> {
        login.is_revocable().then(|| Self { login, worker: Arc::clone(worker) })
    }

    pub fn is_ended(&self) -> bool {
        !self.worker.active_config().settings.accepts_login(&self.login)
    }

    /// Waits until the login has ended. Cancel-safe.
    pub async fn ended(&self) -> Error {
        let mut changes = self.worker.login_changes();
        // Subscribed before the first look, so that no change is missed.
        while !self.is_ended() {
            if next_change(&mut changes).await.is_err() {
                // The worker is gone, and with it the last that could change.
                std::future::pending::<()>().await;
            }
        }
        login_ended()
    }

    /// As [`ended`](Self::ended); never without a login.
    pub async fn ended_if(login: Option<&Self>) -> Error {
        if let Some(login) = login { login.ended().await } else { std::future::pending().await }
    }

    /// Waits until the login has been ended for so long.
    pub async fn ended_for(&self, time: Duration) {
        self.ended().await;
        tokio::time::sleep(time).await;
    }
}

/// Waits for a change. A busy tunnel polls this with all it relays, so that a poll without one takes only a load.
async fn next_change(changes: &mut watch::Receiver<()>) -> Result<(), watch::error::RecvError> {
    let seen = changes.clone();
    // Without the task's budget: pending means that the waker is registered.
    let mut changed = pin!(tokio::task::unconstrained(changes.changed()));
    let mut registered: Option<Waker> = None;
    poll_fn(|cx| {
        let is_registered = registered.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if is_registered && matches!(seen.has_changed(), Ok(false)) {
            return Poll::Pending;
        }
        registered = Some(cx.waker().clone());
        changed.as_mut().poll(cx)
    })
    .await
}

pub(crate) fn login_ended() -> Error {
    let text = "the login that this was allowed for is no longer valid: the user was removed, the password changed, or \
                the session ended";
    Error::new(ErrorKind::Unauthorized, text)
}
