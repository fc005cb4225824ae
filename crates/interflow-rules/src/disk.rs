//! File operations of actions, away from the threads that serve connections: a slow or hanging disk delays the flow
//! that needs it, and no other.

use std::io;

use interflow_types::{BoxFuture, Error, Response};
use tokio::sync::Semaphore;

use crate::body::edit::BodyChange;

/// How many threads read and append for actions at once, in the whole process.
const MAX_THREADS: usize = 16;

static SLOTS: Semaphore = Semaphore::const_new(MAX_THREADS);

/// A file operation that an action waits for.
pub(crate) type FileTask = BoxFuture<'static, Result<FileOutcome, Error>>;

/// What a file operation leads to.
pub(crate) enum FileOutcome {
    /// The flow continues.
    Nothing,
    /// The flow is answered with this.
    Response(Box<Response>),
    /// The body is changed, when all rules of the phase have run.
    Body(BodyChange),
    /// The message is changed.
    Message(BodyChange),
}

/// Runs on one of the threads for files; waits while all are taken.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    run_on(&SLOTS, work).await
}

/// Like [`run`], with threads of its own.
pub(crate) async fn run_on<T: Send + 'static>(
    slots: &'static Semaphore,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let slot = slots.acquire().await.map_err(io::Error::other)?;
    let done = tokio::task::spawn_blocking(move || {
        let _slot = slot;
        work()
    });
    done.await.map_err(io::Error::other)?
}
