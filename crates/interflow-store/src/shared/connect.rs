//! Connections to PostgreSQL: a pool, TLS by whoever has it, and errors with their remedy.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use deadpool_postgres::{Connect, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod};
use interflow_objects::ObjectStorage;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Socket};

use super::dsn::{PostgresTls, PostgresUrl};
use crate::error::{Result, StoreError};

/// Connections of one process. The shipper has one, the rest are for readers.
const POOL_SIZE: usize = 8;

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
}

/// Makes connections of one URL.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) url: Arc<PostgresUrl>,
    tls: TlsSetup,
}

#[derive(Clone)]
struct TlsSetup(Arc<dyn TlsClient>);

struct Handshake {
    client: Arc<dyn TlsClient>,
    host: String,
}

pub(crate) struct EncryptedStream(BoxedStream);

impl Connector {
    pub(crate) fn new(url: PostgresUrl, tls: TlsClientFactory) -> Result<Self> {
        let client = tls(&url.tls).map_err(|e| StoreError::Shared(format!("record.store: {e}")))?;
        Ok(Self { url: Arc::new(url), tls: TlsSetup(client) })
    }

    pub(crate) fn pool(&self) -> Result<Pool> {
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(self.url.config.clone(), PoolConnect(self.tls.clone()), config);
        Pool::builder(manager)
            .max_size(POOL_SIZE)
            .runtime(deadpool_postgres::Runtime::Tokio1)
            .wait_timeout(Some(std::time::Duration::from_secs(30)))
            .create_timeout(Some(std::time::Duration::from_secs(15)))
            .build()
            .map_err(|e| StoreError::Shared(e.to_string()))
    }

    /// A connection outside the pool; the caller drives it.
    pub(crate) async fn connect(&self) -> Result<(Client, Connection<Socket, EncryptedStream>)> {
        self.url.config.connect(self.tls.clone()).await.map_err(|e| self.explain(&e))
    }

    /// A connection outside the pool, driven by a task of its own.
    pub(crate) async fn client(&self) -> Result<Client> {
        let (client, connection) = self.connect().await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// What went wrong, and what can be done about it.
    pub(crate) fn explain(&self, error: &Error) -> StoreError {
        StoreError::Shared(format!("the shared store {}: {}", self.url, describe(error, &self.url)))
    }

    pub(crate) fn explain_pool(&self, error: &PoolError) -> StoreError {
        match error {
            PoolError::Backend(e) => self.explain(e),
            PoolError::Timeout(_) => StoreError::Shared(format!(
                "the shared store {}: no connection within the time limit; check that the server is up and reachable",
                self.url
            )),
            other => StoreError::Shared(format!("the shared store {}: {other}", self.url)),
        }
    }
}

type PoolConnection = Result<(Client, JoinHandle<()>), Error>;

/// The pool's way to a new connection: as its own, without demanding that streams can be shared between threads.
struct PoolConnect(TlsSetup);

impl Connect for PoolConnect {
    fn connect(&self, config: &Config) -> Pin<Box<dyn Future<Output = PoolConnection> + Send + '_>> {
        let (config, tls) = (config.clone(), self.0.clone());
        Box::pin(async move {
            let (client, connection) = config.connect(tls).await?;
            let driver = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to the shared store ended");
                }
            });
            Ok((client, driver))
        })
    }
}

/// A pooled connection.
pub(crate) type PooledClient = Object;

impl MakeTlsConnect<Socket> for TlsSetup {
    type Stream = EncryptedStream;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        Ok(Handshake { client: Arc::clone(&self.0), host: host.to_owned() })
    }
}

impl TlsConnect<Socket> for Handshake {
    type Stream = EncryptedStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedStream>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move { self.client.handshake(&self.host, Box::new(stream)).await.map(EncryptedStream) })
    }
}

impl TlsStream for EncryptedStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for EncryptedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for EncryptedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
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
    let mut text = match error.as_db_error() {
        Some(db) => db.message().to_owned(),
        None => error.to_string(),
    };
    let mut below = std::error::Error::source(error).filter(|_| error.as_db_error().is_none());
    while let Some(cause) = below {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        below = cause.source();
    }
    let role = url.config.get_user().unwrap_or("the user");
    let database = url.config.get_dbname().unwrap_or(role);
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
        Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => "this server is a standby: name the primary".to_owned(),
        Some(_) => return text,
        None => "check that the server is up, that host and port are right, and that sslmode fits it".to_owned(),
    };
    format!("{text}; {remedy}")
}
