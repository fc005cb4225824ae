//! The counter store in Redis: one Lua script per operation, atomic on the server and timed by its clock, so that the
//! clocks of the processes need not agree.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use interflow_types::{BoxFuture, Timestamp};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ClientTlsConfig, RedisError, Script, TlsCertificates};

use super::{
    BudgetPeriod, CounterLimit, CounterRejection, CounterRequest, CounterStore, CounterStoreError, CounterValue,
};

/// Connection and timing of a [`RedisCounterStore`]. `timeout` is that of one command, connecting included; `lease` is
/// the maximum time for which a slot is held; `prefix` that of all key names. `identity` is the client certificate with
/// its key, in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RedisOptions {
    pub url: String,
    pub prefix: String,
    pub timeout: Duration,
    pub lease: Duration,
    /// How often this process renews its slots; they expire after three missed renewals.
    pub heartbeat: Duration,
    /// The CA of the server's certificate (PEM), in place of the system's.
    pub ca: Option<Vec<u8>>,
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for RedisOptions {
    /// Omits the URL, which may contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisOptions").field("prefix", &self.prefix).field("timeout", &self.timeout).finish()
    }
}

/// Pause before reconnecting to a server that could not be reached. Requests in between fail at once.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// Slots renewed by one script call; bounds the time for which the single-threaded server is blocked.
const RENEWAL_BATCH: usize = 500;

pub struct RedisCounterStore(Arc<RedisStoreInner>);

/// State shared by the store and its heartbeat task.
pub struct RedisStoreInner {
    client: Client,
    options: RedisOptions,
    connection: Mutex<RedisConnection>,
    scripts: RedisScripts,
    /// Requests of this process that hold slots, by lease. The lock is never held across an await.
    held: Mutex<HashMap<String, HeldSlots>>,
    // Whether a heartbeat task runs; it ends when no slot is held.
    beating: AtomicBool,
}

struct HeldSlots {
    keys: Vec<String>,
    since: Instant,
}

/// Clears `beating` when the heartbeat task ends, also if its runtime shuts down first.
struct HeartbeatGuard(Weak<RedisStoreInner>);

impl Drop for HeartbeatGuard {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.beating.store(false, SeqCst);
        }
    }
}

impl Deref for RedisCounterStore {
    type Target = RedisStoreInner;

    fn deref(&self) -> &RedisStoreInner {
        &self.0
    }
}

enum RedisConnection {
    None,
    Open(MultiplexedConnection),
    Failed(Instant, String),
}

struct RedisScripts {
    take: Script,
    settle: Script,
    read: Script,
    renew: Script,
    give_back: Script,
}

impl RedisCounterStore {
    /// Creates the store without connecting.
    ///
    /// # Errors
    /// An invalid URL or certificate.
    pub fn new(options: RedisOptions) -> Result<Self, CounterStoreError> {
        let wrong = |e: RedisError| CounterStoreError(format!("quota.shared.redis cannot be used: {e}"));
        let tls = options.ca.is_some() || options.identity.is_some();
        let client = if tls {
            let client_tls =
                options.identity.clone().map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
            Client::build_with_tls(options.url.as_str(), TlsCertificates { client_tls, root_cert: options.ca.clone() })
        } else {
            Client::open(options.url.as_str())
        };
        // The scripts are sent by hash (`EVALSHA`), and in full only if the server does not know them.
        let scripts = RedisScripts {
            take: Script::new(include_str!("take.lua")),
            settle: Script::new(include_str!("settle.lua")),
            read: Script::new(include_str!("read.lua")),
            renew: Script::new(include_str!("renew.lua")),
            give_back: Script::new(include_str!("drop.lua")),
        };
        Ok(Self(Arc::new(RedisStoreInner {
            client: client.map_err(wrong)?,
            options,
            connection: Mutex::new(RedisConnection::None),
            scripts,
            held: Mutex::default(),
            beating: AtomicBool::new(false),
        })))
    }

    /// Remembers the slots of a request and starts their renewal, unless a heartbeat is already running.
    fn track_slots(&self, asks: &[CounterRequest], lease: &str) {
        let slots = asks.iter().filter(|a| matches!(a.counter, CounterLimit::Slots { .. }));
        let keys: Vec<String> = slots.map(|ask| self.counter_key(ask)).collect();
        if keys.is_empty() {
            return;
        }
        self.held.lock().insert(lease.to_owned(), HeldSlots { keys, since: Instant::now() });
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !self.beating.swap(true, SeqCst) {
            let beating = HeartbeatGuard(Arc::downgrade(&self.0));
            runtime.spawn(run_heartbeat(beating, self.options.heartbeat));
        }
    }
}

async fn run_heartbeat(mut beating: HeartbeatGuard, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(inner) = beating.0.upgrade() else { return };
        inner.renew_slots().await;
        let held = inner.held.lock();
        if held.is_empty() {
            // Under the lock: a slot taken after this starts a new heartbeat.
            inner.beating.store(false, SeqCst);
            beating.0 = Weak::new();
            return;
        }
    }
}

impl RedisStoreInner {
    /// Expiry of a slot that is not renewed: three missed heartbeats, so that one lost packet or a slow server frees
    /// no slot that is in use.
    fn slot_ttl(&self) -> Duration {
        (self.options.heartbeat * 3).min(self.options.lease)
    }

    fn counter_key(&self, ask: &CounterRequest) -> String {
        // One hash tag for all: in a Redis cluster, the keys of one script must be in the same hash slot.
        format!("{{{}}}{}", self.options.prefix, ask.name())
    }

    /// Renews the slots of all requests in flight. A request that exceeds the lease is forgotten here, and its slot
    /// expires on the server.
    async fn renew_slots(&self) {
        let mut slots = Vec::new();
        self.held.lock().retain(|lease, holding| {
            let young = holding.since.elapsed() < self.options.lease;
            if young {
                slots.extend(holding.keys.iter().map(|key| (key.clone(), lease.clone())));
            }
            young
        });
        for some in slots.chunks(RENEWAL_BATCH) {
            let first = vec![self.slot_ttl().as_micros().to_string()];
            if let Err(e) = self.update_slots(&self.scripts.renew, first, some).await {
                tracing::debug!("limits: slots are not renewed: {e}");
            }
        }
        // Slots released during the renewal must not be kept alive by it.
        let ended: Vec<_> = {
            let held = self.held.lock();
            slots.into_iter().filter(|(_, lease)| !held.contains_key(lease)).collect()
        };
        for some in ended.chunks(RENEWAL_BATCH) {
            let _ = self.update_slots(&self.scripts.give_back, Vec::new(), some).await;
        }
    }

    async fn update_slots(
        &self,
        script: &Script,
        first: Vec<String>,
        of: &[(String, String)],
    ) -> Result<(), CounterStoreError> {
        let mut call = ScriptCall { keys: Vec::with_capacity(of.len()), args: first };
        for (key, lease) in of {
            call.keys.push(key.clone());
            call.args.push(lease.clone());
        }
        self.run_script::<i64>(script, &call).await.map(|_| ())
    }

    /// The connection, and whether it already existed: only then is a lost connection worth another attempt.
    async fn connection(&self) -> Result<(MultiplexedConnection, bool), CounterStoreError> {
        match &*self.connection.lock() {
            RedisConnection::Open(connection) => return Ok((connection.clone(), true)),
            // For a moment, requests fail at once instead of each waiting for the timeout.
            RedisConnection::Failed(at, why) if at.elapsed() < RECONNECT_PAUSE => {
                return Err(CounterStoreError(why.clone()));
            }
            RedisConnection::Failed(..) | RedisConnection::None => {}
        }
        // The lock is not held while connecting; two requests may connect at the same time, and the last one is kept.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.options.timeout))
            .set_response_timeout(Some(self.options.timeout));
        // This timeout also covers name resolution, which the client's own does not.
        let connect = self.client.get_multiplexed_async_connection_with_config(&config);
        let connected = match tokio::time::timeout(self.options.timeout, connect).await {
            Ok(connected) => connected.map_err(|e| e.to_string()),
            Err(_) => Err(format!("no connection within {:?}", self.options.timeout)),
        };
        let mut kept = self.connection.lock();
        match connected {
            Ok(connection) => {
                *kept = RedisConnection::Open(connection.clone());
                Ok((connection, false))
            }
            Err(why) => {
                let why = format!("the Redis server of the limits cannot be reached: {why}");
                *kept = RedisConnection::Failed(Instant::now(), why.clone());
                Err(CounterStoreError(why))
            }
        }
    }

    async fn run_script<T: redis::FromRedisValue>(
        &self,
        script: &Script,
        call: &ScriptCall,
    ) -> Result<T, CounterStoreError> {
        let (connection, kept) = self.connection().await?;
        match self.run_script_on(connection, script, call).await {
            // Servers close idle connections; the client notices only at the next command.
            Err(RedisFailure { dropped: true, .. }) if kept => {
                // Repeated once, over a new connection. If the first one was executed after all, its slots are taken
                // for the same lease, which changes nothing, and other counters are charged twice, which errs on the
                // strict side.
                let (connection, _) = self.connection().await?;
                self.run_script_on(connection, script, call).await.map_err(|e| e.error)
            }
            answer => answer.map_err(|e| e.error),
        }
    }

    async fn run_script_on<T: redis::FromRedisValue>(
        &self,
        mut connection: MultiplexedConnection,
        script: &Script,
        call: &ScriptCall,
    ) -> Result<T, RedisFailure> {
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
                    *self.connection.lock() = RedisConnection::None;
                }
                Err(RedisFailure { error: CounterStoreError(format!("the Redis server of the limits: {e}")), dropped })
            }
            Err(_) => {
                let why = format!("the Redis server of the limits gave no answer within {:?}", self.options.timeout);
                // The connection is replaced after the pause: until then, other requests fail at once instead of each
                // waiting for the timeout.
                *self.connection.lock() = RedisConnection::Failed(Instant::now(), why.clone());
                Err(RedisFailure { error: CounterStoreError(why), dropped: false })
            }
        }
    }

    fn script_call(
        &self,
        asks: &[CounterRequest],
        first: Vec<String>,
        more: impl Fn(usize, &CounterRequest) -> Vec<String>,
    ) -> ScriptCall {
        let mut call = ScriptCall { keys: Vec::with_capacity(asks.len()), args: first };
        for (i, ask) in asks.iter().enumerate() {
            call.keys.push(self.counter_key(ask));
            call.args.extend(script_args(&ask.counter));
            call.args.extend(more(i, ask));
        }
        call
    }
}

/// A failed command, and whether the connection was lost.
struct RedisFailure {
    error: CounterStoreError,
    dropped: bool,
}

struct ScriptCall {
    keys: Vec<String>,
    args: Vec<String>,
}

/// The counter as arguments of the scripts: its kind, then rate and burst, or the maximum.
fn script_args(counter: &CounterLimit) -> [String; 3] {
    let of = |kind: &str, a: f64, b: f64| [kind.to_owned(), a.to_string(), b.to_string()];
    match *counter {
        CounterLimit::Requests { per_second, burst } | CounterLimit::Tokens { per_second, burst } => {
            of("b", per_second, burst)
        }
        CounterLimit::Slots { max } => of("s", f64::from(max), 0.0),
        CounterLimit::TokenBudget { max, period } | CounterLimit::MoneyBudget { max, period } => {
            of(if period == BudgetPeriod::Day { "d" } else { "m" }, max as f64, 0.0)
        }
    }
}

impl CounterStore for RedisCounterStore {
    fn take<'a>(
        &'a self,
        asks: &'a [CounterRequest],
        lease: &'a str,
    ) -> BoxFuture<'a, Result<Result<(), CounterRejection>, CounterStoreError>> {
        Box::pin(async move {
            let first = vec![lease.to_owned(), self.slot_ttl().as_micros().to_string()];
            let call = self.script_call(asks, first, |_, ask| vec![ask.cost.to_string()]);
            let answer: Vec<redis::Value> = self.run_script(&self.scripts.take, &call).await?;
            // The script numbers counters from 1, because 0 means that all admitted the request.
            let number = |i: usize| -> Option<f64> { redis::from_redis_value(answer.get(i)?.clone()).ok() };
            match (number(0), number(1)) {
                (Some(0.0), _) => {
                    self.track_slots(asks, lease);
                    Ok(Ok(()))
                }
                (Some(place), Some(wait)) if place >= 1.0 && (place as usize) <= asks.len() => {
                    Ok(Err(CounterRejection {
                        index: place as usize - 1,
                        wait: Duration::from_micros(wait.max(0.0) as u64),
                    }))
                }
                _ => Err(CounterStoreError("the Redis server of the limits answers what it should not".into())),
            }
        })
    }

    fn commit<'a>(
        &'a self,
        asks: &'a [CounterRequest],
        lease: &'a str,
        used: &'a [u64],
        age: Duration,
    ) -> BoxFuture<'a, Result<(), CounterStoreError>> {
        Box::pin(async move {
            // First, so that a heartbeat in progress does not renew the slots after they were freed.
            self.held.lock().remove(lease);
            let used_of = |i: usize| used.get(i).copied().unwrap_or_default().to_string();
            let call = self.script_call(asks, vec![lease.to_owned(), age.as_secs().to_string()], |i, ask| {
                vec![ask.cost.to_string(), used_of(i)]
            });
            self.run_script::<i64>(&self.scripts.settle, &call).await.map(|_| ())
        })
    }

    fn read<'a>(&'a self, asks: &'a [CounterRequest]) -> BoxFuture<'a, Result<Vec<CounterValue>, CounterStoreError>> {
        Box::pin(async move {
            // This process's clock, for display only: admission uses the server's.
            let seconds = Timestamp::now().micros() / 1_000_000;
            let number = |counter: &CounterLimit| match counter {
                CounterLimit::TokenBudget { period, .. } | CounterLimit::MoneyBudget { period, .. } => {
                    period.period_at(seconds).0
                }
                _ => 0,
            };
            let call = self.script_call(asks, Vec::new(), |_, ask| vec![number(&ask.counter).to_string()]);
            let levels: Vec<f64> = self.run_script(&self.scripts.read, &call).await?;
            Ok(levels.into_iter().map(CounterValue).collect())
        })
    }
}
