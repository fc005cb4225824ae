//! The database of the shared store: its connections, and calls from threads that may block.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use arc_swap::ArcSwap;
use deadpool_postgres::Pool;
use interflow_objects::ObjectStorage;
use tokio::runtime::{Handle, Runtime};
use tokio_postgres::Error;

use super::connect::{Connector, PooledClient, SharedAccess};
use super::dsn::PostgresUrl;
use super::{migrate, objects};
use crate::config::RecordConfig;
use crate::error::{Result, StoreError};

/// Threads that drive connections. Queries run in the server; these only carry bytes.
const THREADS: usize = 2;

/// What all parts of a shared store use. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) connector: Connector,
    /// Where bodies are put that are not part of their rows; in the database if absent.
    pub(crate) objects: Option<Arc<ObjectStorage>>,
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

impl Database {
    pub(crate) fn new(
        url: &PostgresUrl,
        access: SharedAccess,
        config: &RecordConfig,
    ) -> Result<(Self, ConnectionRuntime)> {
        let connector = Connector::new(url.clone(), access.tls)?;
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
            objects: access.objects,
            handle: runtime.handle().clone(),
            replica: format!("{}-{:08x}", host.replace(char::is_whitespace, "_"), fastrand::u32(..)).into(),
            config: Arc::new(ArcSwap::from_pointee(config.clone())),
        };
        Ok((database, ConnectionRuntime(Some(runtime))))
    }

    /// Makes or migrates the tables, and tries the place of bodies.
    pub(crate) fn prepare(&self) -> Result<()> {
        let database = self.clone();
        self.wait_for(async move {
            migrate::migrate(&database.connector).await?;
            let storage = database.objects.as_deref();
            objects::check_place(&database.connector, storage, true).await?;
            match storage {
                Some(storage) => objects::try_out(storage).await,
                None => Ok(()),
            }
        })
    }

    /// Makes sure that the tables are those of this version, and bodies where they are looked for.
    pub(crate) fn require_prepared(&self) -> Result<()> {
        let database = self.clone();
        self.wait_for(async move {
            migrate::require_current(&database.connector).await?;
            objects::check_place(&database.connector, database.objects.as_deref(), false).await
        })
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

    /// Runs a task that uses this thread for its own work, such as reading files.
    pub(crate) fn block_on<T>(&self, task: impl Future<Output = T>) -> T {
        self.handle.block_on(task)
    }

    /// The channel of notifications. Channels belong to a database, so the schema is part of the name.
    pub(crate) fn channel(&self) -> String {
        format!("interflow_{}", self.connector.url.schema)
    }
}
