//! What ends an instance: signals, and the closing of the terminal that it was started from.

#[cfg(unix)]
use std::sync::Arc;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

#[cfg(unix)]
use crate::instance::restart::Successor;
#[cfg(unix)]
use crate::instance::terminal::StartTerminal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// Ctrl-C, or the end of the terminal.
    Interrupt,
    /// SIGTERM, which service managers send.
    Terminate,
    /// SIGUSR2: the installed binary takes over the listening sockets.
    Restart,
}

/// Receives SIGTERM, SIGINT and SIGHUP from its creation on.
pub struct ShutdownSignal {
    #[cfg(unix)]
    signals: Option<(Signal, Signal)>,
    /// SIGHUP, and the terminal that it may be about.
    #[cfg(unix)]
    hangup: Option<(Signal, StartTerminal)>,
    /// SIGUSR2, and who takes over.
    #[cfg(unix)]
    restart: Option<(Signal, Arc<Successor>)>,
}

impl ShutdownSignal {
    #[cfg_attr(not(unix), expect(clippy::missing_const_for_fn, reason = "as on Unix"))]
    pub fn listen() -> Self {
        Self {
            #[cfg(unix)]
            signals: signal(SignalKind::terminate()).ok().zip(signal(SignalKind::interrupt()).ok()),
            #[cfg(unix)]
            hangup: signal(SignalKind::hangup()).ok().map(|signal| (signal, StartTerminal::find())),
            #[cfg(unix)]
            restart: None,
        }
    }

    /// As [`Self::listen`], and SIGUSR2 restarts.
    #[cfg(unix)]
    pub fn with_restart(successor: &Arc<Successor>) -> Self {
        let restart = signal(SignalKind::user_defined2()).ok().map(|signal| (signal, Arc::clone(successor)));
        Self { restart, ..Self::listen() }
    }

    /// Waits for the first signal that is obeyed: a restart is not if the successor could not start. The end of the
    /// terminal counts as a signal.
    pub async fn recv_accepted(&mut self) -> StopSignal {
        #[cfg(unix)]
        loop {
            let Self { signals, hangup, restart } = self;
            tokio::select! {
                stop = recv_stop(signals) => return stop,
                () = recv_terminal_end(hangup) => {
                    tracing::warn!("the terminal was closed");
                    return StopSignal::Interrupt;
                }
                () = recv_restart(restart) => {}
            }
            let Some((_, successor)) = restart else { continue };
            let check = Arc::clone(successor);
            // It may take seconds, in which a stop is obeyed.
            let checked = tokio::select! {
                checked = check.check() => checked,
                stop = recv_stop(signals) => return stop,
            };
            match checked {
                Ok(()) => return StopSignal::Restart,
                Err(reason) => {
                    tracing::error!("restart failed, this process continues: {reason}");
                    check.announce_refusal(&reason);
                }
            }
        }
        #[cfg(not(unix))]
        self.recv().await
    }

    /// Waits for the next signal. Forever if the handlers could not be installed.
    pub async fn recv(&mut self) -> StopSignal {
        #[cfg(unix)]
        tokio::select! {
            stop = recv_stop(&mut self.signals) => stop,
            () = recv_restart(&mut self.restart) => StopSignal::Restart,
        }
        #[cfg(not(unix))]
        {
            let _ = tokio::signal::ctrl_c().await;
            StopSignal::Interrupt
        }
    }
}

#[cfg(unix)]
async fn recv_stop(signals: &mut Option<(Signal, Signal)>) -> StopSignal {
    let Some((terminate, interrupt)) = signals else { return std::future::pending().await };
    tokio::select! {
        _ = terminate.recv() => StopSignal::Terminate,
        _ = interrupt.recv() => StopSignal::Interrupt,
    }
}

#[cfg(unix)]
async fn recv_restart(restart: &mut Option<(Signal, Arc<Successor>)>) {
    match restart {
        Some((signal, _)) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// A SIGHUP without such an end is left to the reload.
#[cfg(unix)]
async fn recv_terminal_end(hangup: &mut Option<(Signal, StartTerminal)>) {
    let Some((signal, terminal)) = hangup else { return std::future::pending().await };
    loop {
        signal.recv().await;
        if terminal.was_closed() {
            return;
        }
    }
}
