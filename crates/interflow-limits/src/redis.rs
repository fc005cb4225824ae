//! What the limits and the response cache keep on Redis servers, as they use it. The fleet implements it.

use std::time::Duration;

use interflow_types::BoxFuture;

use crate::counter_store::CounterStore;

/// Connects to Redis servers.
pub trait RedisConnector: Send + Sync {
    /// The counters on a server. Nothing is sent yet.
    ///
    /// # Errors
    /// An invalid URL or certificate.
    fn counters(&self, options: RedisOptions) -> Result<Box<dyn CounterStore>, String>;

    /// The values on a server, which errors call by this name. Nothing is sent yet.
    ///
    /// # Errors
    /// As [`counters`](Self::counters).
    fn values(&self, server: &RedisServer, name: &'static str) -> Result<Box<dyn RedisValues>, String>;
}

/// Values on a server, by their keys.
pub trait RedisValues: Send + Sync {
    /// The value of a key; `None` if there is none.
    ///
    /// # Errors
    /// The server cannot be reached, or rejects the command.
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<Vec<u8>>, String>>;

    /// Sets a key, which expires after `ttl`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn set<'a>(&'a self, key: &'a [u8], value: &'a [u8], ttl: Duration) -> BoxFuture<'a, Result<(), String>>;
}

/// In place of the client that a build without the fleet leaves out.
pub struct NoRedis;

impl NoRedis {
    /// Why nothing that needs it can be used.
    pub const MISSING: &str =
        "it needs the feature `fleet`, which this build leaves out: build with `--features fleet`";
}

impl RedisConnector for NoRedis {
    fn counters(&self, _: RedisOptions) -> Result<Box<dyn CounterStore>, String> {
        Err(Self::MISSING.to_owned())
    }

    fn values(&self, _: &RedisServer, _: &'static str) -> Result<Box<dyn RedisValues>, String> {
        Err(Self::MISSING.to_owned())
    }
}

/// How to reach a server. `timeout` is that of one command, connecting included; `identity` is the client certificate
/// with its key, in PEM.
#[derive(Clone, Default)]
pub struct RedisServer {
    pub url: String,
    pub timeout: Duration,
    /// The CA of the server's certificate (PEM), in place of the system's.
    pub ca: Option<Vec<u8>>,
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for RedisServer {
    /// Omits the URL, which may contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisServer").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Connection and timing of counters on a server. `lease` is the maximum time for which a slot is held; `prefix` that of all
/// key names.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    pub server: RedisServer,
    pub prefix: String,
    pub lease: Duration,
    /// How often this process renews its slots; they expire after three missed renewals.
    pub heartbeat: Duration,
}
