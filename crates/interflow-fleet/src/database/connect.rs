//! Connections to PostgreSQL: a pool, TLS by whoever has it, and errors with their remedy.

use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use deadpool_postgres::{Connect, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod};
use interflow_store::{Result, StoreError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{AsyncMessage, CancelToken, Client, Config, Connection, Error, Socket};

use crate::database::dsn::{PostgresTls, PostgresUrl};
use crate::database::row_key::RowKey;
use crate::objects::ObjectStorage;

/// The remedy if a server takes no writes.
pub(crate) const STANDBY: &str = "this server is a standby: name the primary, or all servers as HOST1:PORT,HOST2:PORT";
/// Connections of one process for readers.
const READERS: usize = 8;
/// Connections on which flows are written, so that no reader keeps them waiting.
const WRITERS: usize = 2;
/// The server ends a reader's statement after this time, also if the reader is gone.
const READER_STATEMENT: &str = "-c statement_timeout=10min";
/// How long a request for a connection waits for another one to be given back.
const POOL_WAIT: Duration = Duration::from_secs(30);
/// How long the server is asked to end a statement that nobody waits for.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);

/// A byte stream in both directions.
pub trait AsyncStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> AsyncStream for T {}

pub type BoxedStream = Box<dyn AsyncStream>;
pub type TlsHandshake = Pin<Box<dyn Future<Output = io::Result<BoxedStream>> + Send>>;

/// Does TLS handshakes with a server. The store has no TLS of its own: the program hands it in.
pub trait TlsClient: Send + Sync {
    /// Encrypts a connection with the server of this name.
    fn handshake(&self, host: &str, stream: BoxedStream) -> TlsHandshake;
}

/// Makes a [`TlsClient`] for these options; an error names the file that cannot be used.
pub type TlsClientFactory = fn(&PostgresTls) -> Result<Arc<dyn TlsClient>, String>;

/// How the servers of a shared store are reached. The program hands it in: the store has neither TLS nor an HTTP client.
#[derive(Clone)]
pub struct SharedAccess {
    pub tls: TlsClientFactory,
    /// Where bodies are (`record.objects`); in the database if absent.
    pub objects: Option<Arc<ObjectStorage>>,
    /// What rows of replicas are recognised by; who migrates the tables of an earlier version needs it.
    pub row_key: Option<RowKey>,
}

/// Makes connections of one URL.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) url: Arc<PostgresUrl>,
    pub(crate) row_key: Option<RowKey>,
    tls: TlsSetup,
}

#[derive(Clone)]
struct TlsSetup(Arc<dyn TlsClient>);

struct Handshake {
    client: Arc<dyn TlsClient>,
    host: String,
}

impl Connector {
    pub(crate) fn new(url: PostgresUrl, tls: TlsClientFactory, row_key: Option<RowKey>) -> Result<Self> {
        let client = tls(&url.tls).map_err(|e| StoreError::Shared(format!("record.store: {e}")))?;
        Ok(Self { url: Arc::new(url), row_key, tls: TlsSetup(client) })
    }

    /// Connections for readers.
    pub(crate) fn pool(&self) -> Result<Pool> {
        let hosts = self.url.hosts.iter().map(|config| {
            let mut config = config.clone();
            let options = config.get_options().unwrap_or_default().to_owned();
            config.options(format!("{READER_STATEMENT} {options}"));
            config
        });
        self.make_pool(hosts.collect(), READERS)
    }

    /// Connections on which flows are written.
    pub(crate) fn writers(&self) -> Result<Pool> {
        self.make_pool(self.url.hosts.clone(), WRITERS)
    }

    fn make_pool(&self, hosts: Vec<Config>, size: usize) -> Result<Pool> {
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let limit: Duration = hosts.iter().filter_map(Config::get_connect_timeout).sum();
        let connect = PoolConnect { hosts, tls: self.tls.clone() };
        let manager = Manager::from_connect(self.url.config().clone(), connect, config);
        Pool::builder(manager)
            .max_size(size)
            .runtime(deadpool_postgres::Runtime::Tokio1)
            .wait_timeout(Some(POOL_WAIT))
            .create_timeout(Some(limit))
            .build()
            .map_err(|e| StoreError::Shared(e.to_string()))
    }

    /// A connection outside the pool; the caller drives it.
    pub(crate) async fn connect(&self) -> Result<(Client, Connection<Socket, BoxedStream>)> {
        match connect_first(&self.url.hosts, &self.tls).await {
            Ok(connected) => Ok(connected),
            Err(Some(e)) => Err(self.explain(&e)),
            Err(None) => Err(self.no_answer()),
        }
    }

    /// A connection outside the pool, driven by a task of its own.
    pub(crate) async fn client(&self) -> Result<Client> {
        let (client, connection) = self.connect().await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Asks the server to end what a connection is doing.
    pub(crate) fn cancel(&self, token: CancelToken) {
        let tls = self.tls.clone();
        tokio::spawn(async move { tokio::time::timeout(CANCEL_LIMIT, token.cancel_query(tls)).await });
    }

    /// What went wrong, and what can be done about it.
    pub(crate) fn explain(&self, error: &Error) -> StoreError {
        let text = format!("the shared store {}: {}", self.url, describe(error, &self.url));
        if is_about_data(error) { StoreError::Refused(text) } else { StoreError::Shared(text) }
    }

    /// An error that is not one of the server.
    pub(crate) fn failure(&self, what: impl std::fmt::Display) -> StoreError {
        StoreError::Shared(format!("the shared store {}: {what}", self.url))
    }

    pub(crate) fn no_answer(&self) -> StoreError {
        self.failure("no answer within the time limit; check that the server is up and reachable")
    }

    pub(crate) fn explain_pool(&self, error: &PoolError) -> StoreError {
        match error {
            PoolError::Backend(e) => self.explain(e),
            PoolError::Timeout(_) => self.no_answer(),
            other => self.failure(other),
        }
    }
}

/// Whether an error is about the values of a statement, so that the same statement fails again: they cannot be represented
/// (class 22), violate a constraint (23), or are longer than an index takes (54).
pub(crate) fn is_about_data(error: &Error) -> bool {
    error.code().is_some_and(|code| ["22", "23", "54"].iter().any(|class| code.code().starts_with(class)))
}

/// Connects to the first of these servers that answers as demanded. Without an error, the last one did not answer in time:
/// the limit is for the connection with its TLS and login, and for each server of its own.
async fn connect_first(
    hosts: &[Config],
    tls: &TlsSetup,
) -> Result<(Client, Connection<Socket, BoxedStream>), Option<Error>> {
    let mut failed = None;
    for config in hosts {
        let limit = config.get_connect_timeout().copied().unwrap_or_default();
        match tokio::time::timeout(limit, config.connect(tls.clone())).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(e)) => failed = Some(e),
            Err(_) => failed = None,
        }
    }
    Err(failed)
}

type PoolConnection = Result<(Client, JoinHandle<()>), Error>;

/// The pool's way to a new connection: as its own, without demanding that streams can be shared between threads.
struct PoolConnect {
    hosts: Vec<Config>,
    tls: TlsSetup,
}

impl Connect for PoolConnect {
    fn connect(&self, _: &Config) -> Pin<Box<dyn Future<Output = PoolConnection> + Send + '_>> {
        Box::pin(async move {
            let (client, connection) = match connect_first(&self.hosts, &self.tls).await {
                Ok(connected) => connected,
                Err(Some(e)) => return Err(e),
                // The pool has the same time limit, and an error for it.
                Err(None) => std::future::pending().await,
            };
            let driver = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to the shared store ended");
                }
            });
            Ok((client, driver))
        })
    }
}

/// A pooled connection. It goes back to the pool unless it was given up while a statement was running.
pub(crate) struct PooledClient {
    object: Option<Object>,
    abandoned: Arc<AtomicBool>,
}

impl PooledClient {
    pub(crate) fn new(object: Object) -> Self {
        Self { object: Some(object), abandoned: Arc::default() }
    }

    /// Set this before dropping whoever uses the connection, and it is closed instead of being used again.
    pub(crate) fn abandoned(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.abandoned)
    }
}

impl Drop for PooledClient {
    fn drop(&mut self) {
        if self.abandoned.load(SeqCst)
            && let Some(object) = self.object.take()
        {
            drop(Object::take(object));
        }
    }
}

impl Deref for PooledClient {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.object.as_ref().expect("it is there until it is dropped")
    }
}

impl DerefMut for PooledClient {
    fn deref_mut(&mut self) -> &mut Object {
        self.object.as_mut().expect("it is there until it is dropped")
    }
}

impl MakeTlsConnect<Socket> for TlsSetup {
    type Stream = BoxedStream;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        Ok(Handshake { client: Arc::clone(&self.0), host: host.to_owned() })
    }
}

impl TlsConnect<Socket> for Handshake {
    type Stream = BoxedStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<BoxedStream>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move { self.client.handshake(&self.host, Box::new(stream)).await })
    }
}

impl TlsStream for BoxedStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

/// Whether a message of a connection is a notification, with its payload.
pub(crate) fn notification(message: AsyncMessage) -> Option<String> {
    match message {
        AsyncMessage::Notification(n) => Some(n.payload().to_owned()),
        _ => None,
    }
}

/// An error with everything below it, and the remedy for the usual ones.
fn describe(error: &Error, url: &PostgresUrl) -> String {
    let mut text = error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned());
    let mut below = std::error::Error::source(error).filter(|_| error.as_db_error().is_none());
    while let Some(cause) = below {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        below = cause.source();
    }
    let role = url.config().get_user().unwrap_or("the user");
    let database = url.config().get_dbname().unwrap_or(role);
    let schema = &url.schema;
    let remedy = match error.code() {
        Some(&SqlState::INVALID_PASSWORD) => "check user and password in record.store".to_owned(),
        Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
            "check the user in record.store, sslmode, and the server's pg_hba.conf".to_owned()
        }
        Some(&SqlState::INVALID_CATALOG_NAME) => format!("create it: CREATE DATABASE \"{database}\" OWNER \"{role}\""),
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => format!(
            "grant the rights: GRANT CREATE ON DATABASE \"{database}\" TO \"{role}\", or CREATE SCHEMA \"{schema}\" \
             AUTHORIZATION \"{role}\""
        ),
        Some(&SqlState::TOO_MANY_CONNECTIONS) => "raise max_connections of the server".to_owned(),
        Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => STANDBY.to_owned(),
        Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            "another session holds it: it ends with that session's transaction, or by pg_terminate_backend".to_owned()
        }
        Some(_) => return text,
        None if text.contains("does not allow writes") => STANDBY.to_owned(),
        None => "check that the server is up, that host and port are right, and that sslmode fits it".to_owned(),
    };
    format!("{text}; {remedy}")
}
