//! The recording as operations read and change it, with bounds on concurrent work. Work for clients that disconnect is
//! cancelled.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use interflow_store::FlowStore;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{ApiError, Result};

/// Concurrent store queries; more wait.
const MAX_QUERIES: usize = 16;
/// Concurrent exports, imports, searches and raw bodies; more are rejected.
const MAX_TRANSFERS: usize = 32;
/// Maximum size of an upload to an instance, in bytes.
pub(crate) const MAX_UPLOAD: u64 = 8 << 30;

#[derive(Clone)]
pub(crate) struct Records {
    /// `None` if nothing is recorded.
    pub store: Option<Arc<dyn FlowStore>>,
    queries: Arc<Semaphore>,
    transfers: Arc<Semaphore>,
    /// Maximum size of an upload, in bytes.
    pub max_upload: u64,
}

impl Records {
    pub fn new(store: Option<Arc<dyn FlowStore>>, max_upload: u64) -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { store, queries: semaphore(MAX_QUERIES), transfers: semaphore(MAX_TRANSFERS), max_upload }
    }

    /// The store, or an error if nothing is recorded.
    pub fn store(&self) -> Result<Arc<dyn FlowStore>> {
        self.store.clone().ok_or_else(|| ApiError::unavailable("not_recording", "nothing is recorded by this instance"))
    }

    /// Runs a query on a blocking thread. Concurrency is limited; others wait.
    pub async fn query<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn FlowStore, &CancelFlag) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let store = self.store()?;
        // Acquired here and not on the thread, so that waiting requests take up no thread.
        let permit = Arc::clone(&self.queries).acquire_owned().await.map_err(|_| ApiError::busy())?;
        let waiting = CancelOnDrop(CancelFlag::default());
        let cancel = waiting.0.clone();
        // The thread cannot be aborted; it ends when the work reads the flag. The permit is released then, not when the
        // client goes away.
        blocking(move || {
            let _permit = permit;
            work(&*store, &cancel)
        })
        .await?
    }

    /// A permit for one long transfer. Refused at once if too many run, because a transfer may last as long as its client
    /// likes.
    pub fn transfer(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.transfers).try_acquire_owned().map_err(|_| ApiError::busy())
    }
}

/// Runs work on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| ApiError::internal(format!("the work was not finished: {e}")))
}

/// Whether the client has gone away. Clones share the flag; the work reads it between its steps.
#[derive(Clone, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// `Break` once the client has gone away.
    pub fn check(&self) -> ControlFlow<()> {
        if self.0.load(Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Sets the flag when dropped, with the request's future, because the client disconnected.
struct CancelOnDrop(CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Relaxed);
    }
}
