//! The ledger in a Redis server: one script per step, atomic there, by the server's clock.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use interflow_flow::{BoxFuture, Timestamp};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ClientTlsConfig, RedisError, Script, TlsCertificates};

use super::{Ask, Counter, Ledger, LedgerError, Level, Period, Refusal};

/// Where the server is and how it is asked.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RedisOptions {
    /// `redis://…` or `rediss://…`.
    pub url: String,
    /// What the names of all keys begin with.
    pub prefix: String,
    /// How long one answer may take, connecting included.
    pub timeout: Duration,
    /// How long a slot is held at the most.
    pub lease: Duration,
    /// How often this process says that its slots are still held; one that is silent three times loses them.
    pub heartbeat: Duration,
    /// The authority of the server's certificate (PEM), in place of the system's.
    pub ca: Option<Vec<u8>>,
    /// Certificate and key (PEM) to show the server.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for RedisOptions {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisOptions").field("prefix", &self.prefix).field("timeout", &self.timeout).finish()
    }
}

/// How long a server that could not be reached is left alone.
const PAUSE: Duration = Duration::from_millis(500);

/// Slots renewed by one call.
const RENEWED_AT_ONCE: usize = 500;

/// Counters in a Redis server.
pub struct RedisLedger(Arc<Inner>);

/// What the ledger and its heartbeat share.
pub struct Inner {
    client: Client,
    options: RedisOptions,
    connection: Mutex<Connection>,
    scripts: Scripts,
    /// Requests of this process that hold slots, by lease.
    held: Mutex<HashMap<String, Holding>>,
    /// Whether a task renews them.
    beating: AtomicBool,
}

/// The slots of one request.
struct Holding {
    keys: Vec<String>,
    since: Instant,
}

/// The heartbeat's end, also when its runtime ends first.
struct Beating(Weak<Inner>);

impl Drop for Beating {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.beating.store(false, SeqCst);
        }
    }
}

impl Deref for RedisLedger {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

enum Connection {
    None,
    Open(MultiplexedConnection),
    Failed(Instant, String),
}

struct Scripts {
    take: Script,
    settle: Script,
    read: Script,
    renew: Script,
    give_back: Script,
}

impl RedisLedger {
    /// A ledger there. It is not asked yet.
    ///
    /// # Errors
    /// A URL or certificate that cannot be used.
    pub fn new(options: RedisOptions) -> Result<Self, LedgerError> {
        let wrong = |e: RedisError| LedgerError(format!("quota.shared.redis cannot be used: {e}"));
        let tls = options.ca.is_some() || options.identity.is_some();
        let client = if tls {
            let client_tls =
                options.identity.clone().map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
            Client::build_with_tls(options.url.as_str(), TlsCertificates { client_tls, root_cert: options.ca.clone() })
        } else {
            Client::open(options.url.as_str())
        };
        let scripts = Scripts {
            take: Script::new(include_str!("take.lua")),
            settle: Script::new(include_str!("settle.lua")),
            read: Script::new(include_str!("read.lua")),
            renew: Script::new(include_str!("renew.lua")),
            give_back: Script::new(include_str!("drop.lua")),
        };
        Ok(Self(Arc::new(Inner {
            client: client.map_err(wrong)?,
            options,
            connection: Mutex::new(Connection::None),
            scripts,
            held: Mutex::default(),
            beating: AtomicBool::new(false),
        })))
    }

    /// Remembers the slots that a request took, and sees to it that they are renewed.
    fn hold(&self, asks: &[Ask], lease: &str) {
        let slots = asks.iter().filter(|a| matches!(a.counter, Counter::Slots { .. }));
        let keys: Vec<String> = slots.map(|ask| self.key(ask)).collect();
        if keys.is_empty() {
            return;
        }
        self.held.lock().insert(lease.to_owned(), Holding { keys, since: Instant::now() });
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !self.beating.swap(true, SeqCst) {
            let beating = Beating(Arc::downgrade(&self.0));
            runtime.spawn(beat(beating, self.options.heartbeat));
        }
    }
}

/// Renews slots until none is held.
async fn beat(mut beating: Beating, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(inner) = beating.0.upgrade() else { return };
        inner.renew().await;
        let held = inner.held.lock();
        if held.is_empty() {
            // Under the lock: whoever takes a slot from now on begins a new heartbeat.
            inner.beating.store(false, SeqCst);
            beating.0 = Weak::new();
            return;
        }
    }
}

impl Inner {
    /// How long a slot lasts without a renewal.
    fn slot(&self) -> Duration {
        (self.options.heartbeat * 3).min(self.options.lease)
    }

    fn key(&self, ask: &Ask) -> String {
        // One hash tag for all: on a cluster the counters of a request must lie in one slot.
        format!("{{{}}}{}", self.options.prefix, ask.name())
    }

    /// Says that the slots of all requests under way are still held.
    async fn renew(&self) {
        let mut slots = Vec::new();
        self.held.lock().retain(|lease, holding| {
            let young = holding.since.elapsed() < self.options.lease;
            if young {
                slots.extend(holding.keys.iter().map(|key| (key.clone(), lease.clone())));
            }
            young
        });
        for some in slots.chunks(RENEWED_AT_ONCE) {
            let first = vec![self.slot().as_micros().to_string()];
            if let Err(e) = self.slots(&self.scripts.renew, first, some).await {
                tracing::debug!("limits: slots are not renewed: {e}");
            }
        }
        // What was given back meanwhile must not be held by this.
        let ended: Vec<_> = {
            let held = self.held.lock();
            slots.into_iter().filter(|(_, lease)| !held.contains_key(lease)).collect()
        };
        for some in ended.chunks(RENEWED_AT_ONCE) {
            let _ = self.slots(&self.scripts.give_back, Vec::new(), some).await;
        }
    }

    async fn slots(&self, script: &Script, first: Vec<String>, of: &[(String, String)]) -> Result<(), LedgerError> {
        let mut call = Call { keys: Vec::with_capacity(of.len()), args: first };
        for (key, lease) in of {
            call.keys.push(key.clone());
            call.args.push(lease.clone());
        }
        self.run::<i64>(script, &call).await.map(|_| ())
    }

    /// The connection, and whether it was there already.
    async fn connection(&self) -> Result<(MultiplexedConnection, bool), LedgerError> {
        match &*self.connection.lock() {
            Connection::Open(connection) => return Ok((connection.clone(), true)),
            Connection::Failed(at, why) if at.elapsed() < PAUSE => return Err(LedgerError(why.clone())),
            Connection::Failed(..) | Connection::None => {}
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.options.timeout))
            .set_response_timeout(Some(self.options.timeout));
        // The time limit covers the name's resolution too, which the client's own does not.
        let connect = self.client.get_multiplexed_async_connection_with_config(&config);
        let connected = match tokio::time::timeout(self.options.timeout, connect).await {
            Ok(connected) => connected.map_err(|e| e.to_string()),
            Err(_) => Err(format!("no connection within {:?}", self.options.timeout)),
        };
        let mut kept = self.connection.lock();
        match connected {
            Ok(connection) => {
                *kept = Connection::Open(connection.clone());
                Ok((connection, false))
            }
            Err(why) => {
                let why = format!("the Redis server of the limits cannot be reached: {why}");
                *kept = Connection::Failed(Instant::now(), why.clone());
                Err(LedgerError(why))
            }
        }
    }

    async fn run<T: redis::FromRedisValue>(&self, script: &Script, call: &Call) -> Result<T, LedgerError> {
        let (connection, kept) = self.connection().await?;
        match self.run_on(connection, script, call).await {
            // Servers close connections that rest for long; that they did so shows at the next question only.
            Err(Unanswered { dropped: true, .. }) if kept => {
                let (connection, _) = self.connection().await?;
                self.run_on(connection, script, call).await.map_err(|e| e.error)
            }
            answer => answer.map_err(|e| e.error),
        }
    }

    async fn run_on<T: redis::FromRedisValue>(
        &self,
        mut connection: MultiplexedConnection,
        script: &Script,
        call: &Call,
    ) -> Result<T, Unanswered> {
        let mut prepared = script.prepare_invoke();
        call.keys.iter().for_each(|k| {
            prepared.key(k);
        });
        call.args.iter().for_each(|a| {
            prepared.arg(a);
        });
        let invoked = prepared.invoke_async(&mut connection);
        match tokio::time::timeout(self.options.timeout, invoked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(e)) => {
                let dropped = e.is_io_error() || e.is_connection_dropped() || e.is_unrecoverable_error();
                if dropped {
                    *self.connection.lock() = Connection::None;
                }
                Err(Unanswered { error: LedgerError(format!("the Redis server of the limits: {e}")), dropped })
            }
            Err(_) => {
                let why = format!("the Redis server of the limits gave no answer within {:?}", self.options.timeout);
                *self.connection.lock() = Connection::Failed(Instant::now(), why.clone());
                Err(Unanswered { error: LedgerError(why), dropped: false })
            }
        }
    }

    fn call(&self, asks: &[Ask], first: Vec<String>, more: impl Fn(usize, &Ask) -> Vec<String>) -> Call {
        let mut call = Call { keys: Vec::with_capacity(asks.len()), args: first };
        for (i, ask) in asks.iter().enumerate() {
            call.keys.push(self.key(ask));
            call.args.extend(shape(&ask.counter));
            call.args.extend(more(i, ask));
        }
        call
    }
}

/// A question without an answer, and whether the connection was gone.
struct Unanswered {
    error: LedgerError,
    dropped: bool,
}

struct Call {
    keys: Vec<String>,
    args: Vec<String>,
}

/// A counter as the scripts know it.
fn shape(counter: &Counter) -> [String; 3] {
    let of = |kind: &str, a: f64, b: f64| [kind.to_owned(), a.to_string(), b.to_string()];
    match *counter {
        Counter::Requests { per_second, burst } | Counter::Tokens { per_second, burst } => of("b", per_second, burst),
        Counter::Slots { max } => of("s", f64::from(max), 0.0),
        Counter::TokenBudget { max, period } | Counter::MoneyBudget { max, period } => {
            of(if period == Period::Day { "d" } else { "m" }, max as f64, 0.0)
        }
    }
}

impl Ledger for RedisLedger {
    fn take<'a>(&'a self, asks: &'a [Ask], lease: &'a str) -> BoxFuture<'a, Result<Result<(), Refusal>, LedgerError>> {
        Box::pin(async move {
            let first = vec![lease.to_owned(), self.slot().as_micros().to_string()];
            let call = self.call(asks, first, |_, ask| vec![ask.cost.to_string()]);
            let answer: Vec<redis::Value> = self.run(&self.scripts.take, &call).await?;
            let number = |i: usize| -> Option<f64> { redis::from_redis_value(answer.get(i)?.clone()).ok() };
            match (number(0), number(1)) {
                (Some(0.0), _) => {
                    self.hold(asks, lease);
                    Ok(Ok(()))
                }
                (Some(place), Some(wait)) if place >= 1.0 && (place as usize) <= asks.len() => {
                    Ok(Err(Refusal { index: place as usize - 1, wait: Duration::from_micros(wait.max(0.0) as u64) }))
                }
                _ => Err(LedgerError("the Redis server of the limits answers what it should not".into())),
            }
        })
    }

    fn settle<'a>(
        &'a self,
        asks: &'a [Ask],
        lease: &'a str,
        used: &'a [u64],
        age: Duration,
    ) -> BoxFuture<'a, Result<(), LedgerError>> {
        Box::pin(async move {
            self.held.lock().remove(lease);
            let used_of = |i: usize| used.get(i).copied().unwrap_or_default().to_string();
            let call = self.call(asks, vec![lease.to_owned(), age.as_secs().to_string()], |i, ask| {
                vec![ask.cost.to_string(), used_of(i)]
            });
            self.run::<i64>(&self.scripts.settle, &call).await.map(|_| ())
        })
    }

    fn read<'a>(&'a self, asks: &'a [Ask]) -> BoxFuture<'a, Result<Vec<Level>, LedgerError>> {
        Box::pin(async move {
            let seconds = Timestamp::now().micros() / 1_000_000;
            let number = |counter: &Counter| match counter {
                Counter::TokenBudget { period, .. } | Counter::MoneyBudget { period, .. } => period.at(seconds).0,
                _ => 0,
            };
            let call = self.call(asks, Vec::new(), |_, ask| vec![number(&ask.counter).to_string()]);
            let levels: Vec<f64> = self.run(&self.scripts.read, &call).await?;
            Ok(levels.into_iter().map(Level).collect())
        })
    }
}
