//! The database of the shared store: its connections, and calls from threads that may block.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use arc_swap::ArcSwap;
use deadpool_postgres::Pool;
use tokio::runtime::{Handle, Runtime};
use tokio::task::AbortHandle;
use tokio_postgres::Error;

use super::connect::{Connector, PooledClient};
use crate::config::RecordConfig;
use crate::error::{Result, StoreError};

/// Threads that drive connections. Queries run in the server; these only carry bytes.
const THREADS: usize = 2;

/// What all parts of a shared store use. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) connector: Connector,
    pool: Pool,
    handle: Handle,
    /// The name of this process among all that write: random, as two may run on one host.
    pub(crate) replica: Arc<str>,
    pub(crate) config: Arc<ArcSwap<RecordConfig>>,
}

/// The runtime of a database's connections. Ended without waiting, as it may be dropped by an asynchronous task.
pub(crate) struct ConnectionRuntime(Option<Runtime>);

impl Drop for ConnectionRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Ends a task whose result nobody waits for any more.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Database {
    pub(crate) fn new(connector: Connector, config: &RecordConfig) -> Result<(Self, ConnectionRuntime)> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("shared-store")
            .enable_all()
            .build()
            .map_err(|e| StoreError::Shared(format!("the threads of the shared store: {e}")))?;
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "replica".into());
        let database = Self {
            pool: connector.pool()?,
            connector,
            handle: runtime.handle().clone(),
            replica: format!("{}-{:08x}", host.replace(char::is_whitespace, "_"), fastrand::u32(..)).into(),
            config: Arc::new(ArcSwap::from_pointee(config.clone())),
        };
        Ok((database, ConnectionRuntime(Some(runtime))))
    }

    /// Runs a task on the threads of the connections, and waits for its result. May be called from any thread that may
    /// block, also from one of another runtime.
    pub(crate) fn wait_for<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = sync_channel(1);
        self.handle.spawn(async move {
            let _ = sender.send(task.await);
        });
        receiver.recv().map_err(|_| StoreError::Closed)?
    }

    /// Runs statements on a pooled connection, and waits for their result.
    pub(crate) fn run<T, F>(&self, job: impl FnOnce(PooledClient) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let database = self.clone();
        self.wait_for(async move {
            let client = database.client().await?;
            job(client).await.map_err(|e| database.connector.explain(&e))
        })
    }

    pub(crate) async fn client(&self) -> Result<PooledClient> {
        self.pool.get().await.map_err(|e| self.connector.explain_pool(&e))
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// As [`spawn`](Self::spawn), for a task that somebody ends.
    pub(crate) fn spawn_abortable(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.handle.spawn(task).abort_handle()
    }

    /// Runs a task on the threads of the connections, for callers of any runtime. The task ends with the caller's wait.
    pub(crate) async fn run_async<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let task = self.handle.spawn(task);
        let _end = AbortOnDrop(task.abort_handle());
        task.await.map_err(|_| StoreError::Closed)?
    }

    /// Runs a task that uses this thread for its own work, such as reading files.
    pub(crate) fn block_on<T>(&self, task: impl Future<Output = T>) -> T {
        self.handle.block_on(task)
    }

    /// The channel of notifications. Channels belong to a database, so the schema is part of the name.
    pub(crate) fn channel(&self) -> String {
        format!("interflow_{}", self.connector.url.schema)
    }
}
