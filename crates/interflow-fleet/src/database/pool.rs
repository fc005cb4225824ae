//! The database of the shared store: its connections, and calls from threads that may block.

use std::pin::pin;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use deadpool_postgres::{Pool, PoolError};
use interflow_store::{RecordConfig, Result, StoreError, Watch};
use interflow_tasks::AbortOnDrop;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Notify, oneshot};
use tokio_postgres::Error;

use crate::database::connect::{Connector, PooledClient, SharedAccess};
use crate::database::dsn::PostgresUrl;
use crate::objects::ObjectStorage;

/// Threads that drive connections. Queries run in the server; these only carry bytes.
const THREADS: usize = 2;
/// How long a statement may take whose result somebody waits for. Longer ones can be stopped instead.
const STATEMENT_LIMIT: Duration = Duration::from_secs(60);
/// How long nothing may happen before an attempt to store flows is given up.
const STALL_LIMIT: Duration = Duration::from_secs(60);
/// How often somebody who waits is asked whether the result is still wanted.
const WATCH_STEP: Duration = Duration::from_millis(50);
/// After a server has not answered, readers get the same error at once for this long, rather than each wait for it.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a server takes to show that it answers at all.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How long a statement may take until the database counts as not answering.
pub(crate) const STATEMENT_PATIENCE: Duration = Duration::from_secs(5);

/// What goes wrong within a transaction: the server's error, or one of ours.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum Failure {
    Database(#[from] Error),
    Store(#[from] StoreError),
}

/// What all parts of a shared store use. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) connector: Connector,
    /// Where bodies are put that are not part of their rows; in the database if absent.
    pub(crate) objects: Option<Arc<ObjectStorage>>,
    pool: Pool,
    writers: Pool,
    /// When a server last did not answer, if none has since.
    silent: Arc<Mutex<Option<Instant>>>,
    /// Damaged rows that were left out.
    pub(crate) damaged: Arc<AtomicU64>,
    /// Whether the server was a standby when it was opened for reading: one has no unlogged tables.
    pub(crate) is_standby: Arc<AtomicBool>,
    pub(crate) stall_limit: Duration,
    pub(crate) statement_limit: Duration,
    handle: Handle,
    /// The name of this process among all that write: random, as two may run on one host.
    pub(crate) replica: Arc<str>,
    pub(crate) config: Arc<ArcSwap<RecordConfig>>,
    /// The place of the archive, once it is known.
    pub(crate) archive_place: Arc<OnceLock<Box<str>>>,
    /// Wakes whoever applies retention: there may be something to do.
    pub(crate) retention_due: Arc<Notify>,
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
    /// `name` is that of the replica; without one, that of its machine.
    pub(crate) fn new(
        url: &PostgresUrl,
        access: SharedAccess,
        config: &RecordConfig,
        name: Option<&str>,
    ) -> Result<(Self, ConnectionRuntime)> {
        let connector = Connector::new(url.clone(), access.tls, access.row_key)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("shared-store")
            .enable_all()
            .build()
            .map_err(|e| StoreError::Shared(format!("the threads of the shared store: {e}")))?;
        let host = name.map(str::to_owned).or_else(|| std::env::var("HOSTNAME").ok());
        let host = host.unwrap_or_else(|| "replica".into());
        let database = Self {
            pool: connector.pool()?,
            writers: connector.writers()?,
            silent: Arc::default(),
            damaged: Arc::default(),
            is_standby: Arc::default(),
            stall_limit: STALL_LIMIT,
            statement_limit: STATEMENT_LIMIT,
            connector,
            objects: access.objects,
            handle: runtime.handle().clone(),
            replica: format!("{}-{:08x}", host.replace(char::is_whitespace, "_"), fastrand::u32(..)).into(),
            config: Arc::new(ArcSwap::from_pointee(config.clone())),
            archive_place: Arc::default(),
            retention_due: Arc::default(),
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

    /// Runs statements on a pooled connection, and waits for their result, which must come within [`STATEMENT_LIMIT`].
    pub(crate) fn run<T, F>(&self, job: impl FnOnce(PooledClient) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        self.transact(async move |client| Ok(job(client).await?))
    }

    /// As [`run`](Self::run), for work that may fail by itself.
    pub(crate) fn transact<T, F>(&self, job: impl FnOnce(PooledClient) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send,
    {
        let database = self.clone();
        self.wait_for(async move {
            let done = database.complete(database.no_answer_after(database.statement_limit), job).await?;
            done.map_err(|failure| match failure {
                Failure::Database(e) => database.connector.explain(&e),
                Failure::Store(e) => e,
            })
        })
    }

    /// Runs statements of any length; `watch` is asked meanwhile and may stop them.
    pub(crate) fn run_while<T, F>(
        &self,
        watch: &mut Watch<'_>,
        job: impl FnOnce(PooledClient) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let (stop, stopped) = oneshot::channel::<()>();
        let (sender, receiver) = sync_channel(1);
        let database = self.clone();
        self.handle.spawn(async move {
            let end = async {
                let _ = stopped.await;
                StoreError::Cancelled
            };
            let done = database.complete(end, job).await;
            let _ = sender.send(done.and_then(|done| done.map_err(|e| database.connector.explain(&e))));
        });
        loop {
            match receiver.recv_timeout(WATCH_STEP) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Disconnected) => return Err(StoreError::Closed),
                Err(RecvTimeoutError::Timeout) if watch().is_break() => {
                    drop(stop);
                    return Err(StoreError::Cancelled);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Runs statements on a pooled connection until they are done, or `end` is: then they are cancelled at the server, and
    /// their connection is not used again.
    pub(crate) async fn complete<T, E, F>(
        &self,
        end: impl Future<Output = StoreError>,
        job: impl FnOnce(PooledClient) -> F,
    ) -> Result<Result<T, E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let mut end = pin!(end);
        let client = tokio::select! {
            client = self.client() => client?,
            error = &mut end => return Err(error),
        };
        let (abandoned, token) = (client.abandoned(), client.cancel_token());
        let mut work = pin!(job(client));
        tokio::select! {
            done = &mut work => Ok(done),
            error = &mut end => {
                abandoned.store(true, SeqCst);
                self.connector.cancel(token);
                Err(error)
            }
        }
    }

    /// The error of statements that take longer than this.
    pub(crate) async fn no_answer_after(&self, limit: Duration) -> StoreError {
        tokio::time::sleep(limit).await;
        self.connector.no_answer()
    }

    /// Whether the server answers a statement that needs nothing.
    pub(crate) async fn answers(&self) -> bool {
        let end = self.no_answer_after(ANSWER_LIMIT);
        let done = self.complete(end, async |client| client.simple_query("SELECT 1").await).await;
        let answers = matches!(done, Ok(Ok(_)));
        if !answers {
            *self.silent.lock() = Some(Instant::now());
        }
        answers
    }

    /// A connection for a reader.
    pub(crate) async fn client(&self) -> Result<PooledClient> {
        if self.silent.lock().is_some_and(|at| at.elapsed() < SILENCE) {
            return Err(self.connector.no_answer());
        }
        self.take(&self.pool).await
    }

    /// A connection for whoever writes flows.
    pub(crate) async fn writer(&self) -> Result<PooledClient> {
        self.take(&self.writers).await
    }

    async fn take(&self, pool: &Pool) -> Result<PooledClient> {
        match pool.get().await {
            Ok(object) => {
                *self.silent.lock() = None;
                Ok(PooledClient::new(object))
            }
            Err(e) => {
                if matches!(e, PoolError::Timeout(deadpool_postgres::TimeoutType::Create)) {
                    *self.silent.lock() = Some(Instant::now());
                }
                Err(self.connector.explain_pool(&e))
            }
        }
    }

    /// Whether flows in progress can be read.
    pub(crate) fn has_unlogged_tables(&self) -> bool {
        !self.is_standby.load(SeqCst)
    }

    /// Counts a row that was left out.
    pub(crate) fn add_damaged(&self) {
        self.damaged.fetch_add(1, Relaxed);
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// As [`spawn`](Self::spawn), for a task that somebody ends.
    pub(crate) fn spawn_abortable(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop<()> {
        AbortOnDrop(self.handle.spawn(task))
    }

    /// Runs a task on the threads of the connections, for callers of any runtime. The task ends with the caller's wait.
    pub(crate) async fn run_async<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        AbortOnDrop(self.handle.spawn(task)).await.map_err(|_| StoreError::Closed)?
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
