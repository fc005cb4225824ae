//! The connection to a Redis server, which is replaced when it fails: one for everything of this process that keeps
//! something on that server.

use std::time::{Duration, Instant};

use interflow_limits::{RedisServer, RedisValues};
use interflow_types::BoxFuture;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, FromRedisValue, RedisError, TlsCertificates};

/// Pause before reconnecting to a server that could not be reached. Commands in between fail at once.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// A client with one connection, which all commands share.
pub struct RedisClient {
    client: Client,
    /// The server as errors name it: `the Redis server of the limits`.
    name: &'static str,
    timeout: Duration,
    connection: Mutex<RedisConnection>,
}

impl std::fmt::Debug for RedisClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

enum RedisConnection {
    None,
    Open(MultiplexedConnection),
    Failed(Instant, String),
}

/// A failed command, and whether the connection was lost.
struct CommandFailure {
    why: String,
    dropped: bool,
}

impl RedisClient {
    /// Creates the client without connecting.
    ///
    /// # Errors
    /// An invalid URL or certificate.
    pub fn new(server: &RedisServer, name: &'static str) -> Result<Self, String> {
        let client = if server.ca.is_some() || server.identity.is_some() {
            let client_tls =
                server.identity.clone().map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
            Client::build_with_tls(server.url.as_str(), TlsCertificates { client_tls, root_cert: server.ca.clone() })
        } else {
            Client::open(server.url.as_str())
        };
        let client = client.map_err(|e| e.to_string())?;
        Ok(Self { client, name, timeout: server.timeout, connection: Mutex::new(RedisConnection::None) })
    }

    /// What the server says about itself (`INFO`).
    ///
    /// # Errors
    /// The server cannot be reached, or rejects the command.
    pub async fn info(&self) -> Result<String, String> {
        self.query(&redis::cmd("INFO")).await
    }

    async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, String> {
        self.run(|mut connection| async move { command.query_async(&mut connection).await }).await
    }

    /// Runs a command over the shared connection. `send` may be called twice.
    pub(crate) async fn run<T, F>(&self, send: impl Fn(MultiplexedConnection) -> F) -> Result<T, String>
    where
        F: Future<Output = Result<T, RedisError>>,
    {
        let (connection, kept) = self.connection().await?;
        match self.run_on(send(connection)).await {
            // Servers close idle connections; the client notices only at the next command.
            Err(CommandFailure { dropped: true, .. }) if kept => {
                let (connection, _) = self.connection().await?;
                self.run_on(send(connection)).await.map_err(|e| e.why)
            }
            answer => answer.map_err(|e| e.why),
        }
    }

    async fn run_on<T>(&self, command: impl Future<Output = Result<T, RedisError>>) -> Result<T, CommandFailure> {
        match tokio::time::timeout(self.timeout, command).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(e)) => {
                let dropped = e.is_io_error() || e.is_connection_dropped() || e.is_unrecoverable_error();
                if dropped {
                    *self.connection.lock() = RedisConnection::None;
                }
                Err(CommandFailure { why: format!("{}: {e}", self.name), dropped })
            }
            Err(_) => {
                let why = format!("{} gave no answer within {:?}", self.name, self.timeout);
                // The connection is replaced after the pause: until then, other requests fail at once instead of each
                // waiting for the timeout.
                *self.connection.lock() = RedisConnection::Failed(Instant::now(), why.clone());
                Err(CommandFailure { why, dropped: false })
            }
        }
    }

    /// The connection, and whether it already existed: only then is a lost connection worth another attempt.
    async fn connection(&self) -> Result<(MultiplexedConnection, bool), String> {
        match &*self.connection.lock() {
            RedisConnection::Open(connection) => return Ok((connection.clone(), true)),
            // For a moment, requests fail at once instead of each waiting for the timeout.
            RedisConnection::Failed(at, why) if at.elapsed() < RECONNECT_PAUSE => return Err(why.clone()),
            RedisConnection::Failed(..) | RedisConnection::None => {}
        }
        // The lock is not held while connecting; two requests may connect at the same time, and the last one is kept.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        // This timeout also covers name resolution, which the client's own does not.
        let connect = self.client.get_multiplexed_async_connection_with_config(&config);
        let connected = match tokio::time::timeout(self.timeout, connect).await {
            Ok(connected) => connected.map_err(|e| e.to_string()),
            Err(_) => Err(format!("no connection within {:?}", self.timeout)),
        };
        let mut cached_connection = self.connection.lock();
        match connected {
            Ok(connection) => {
                *cached_connection = RedisConnection::Open(connection.clone());
                Ok((connection, false))
            }
            Err(why) => {
                let why = format!("{} cannot be reached: {why}", self.name);
                *cached_connection = RedisConnection::Failed(Instant::now(), why.clone());
                Err(why)
            }
        }
    }
}

impl RedisValues for RedisClient {
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<Vec<u8>>, String>> {
        Box::pin(async move {
            let mut command = redis::cmd("GET");
            self.query(command.arg(key)).await
        })
    }

    fn set<'a>(&'a self, key: &'a [u8], value: &'a [u8], ttl: Duration) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let mut command = redis::cmd("SET");
            // A time of 0 is an error of the command.
            self.query(command.arg(key).arg(value).arg("PX").arg((ttl.as_millis() as u64).max(1))).await
        })
    }
}
