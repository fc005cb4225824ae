//! The counter store in Redis: one Lua script per operation, atomic on the server and timed by its clock, so that the
//! clocks of the processes need not agree.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use interflow_limits::{
    BudgetPeriod, CounterFuture, CounterLimit, CounterRejection, CounterRequest, CounterStore, CounterStoreError,
    CounterValue, RedisOptions, Spent, TakeResult,
};
use interflow_types::Timestamp;
use parking_lot::Mutex;
use redis::{FromRedisValue, Script};

use crate::counters::redis_client::RedisClient;

/// How long the server remembers that a lease took from its counters, or ended. Scripts are repeated, and leases of lost
/// answers ended, within a few timeouts.
const LEASE_STATE: Duration = Duration::from_secs(60);

/// When a lease without an answer is ended: after the pause in which a server that gave none is not asked.
const LOST_LEASE_PAUSE: Duration = Duration::from_secs(1);

/// Slots renewed by one script call; bounds the time for which the single-threaded server is blocked.
const RENEWAL_BATCH: usize = 500;

pub struct RedisCounterStore(Arc<RedisStoreInner>);

/// State shared by the store and its heartbeat task.
pub struct RedisStoreInner {
    client: RedisClient,
    options: RedisOptions,
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
    pub fn new(options: RedisOptions) -> Result<Self, String> {
        let client = RedisClient::new(&options.server, "the Redis server of the limits")?;
        // The scripts are sent by hash (`EVALSHA`), and in full only if the server does not know them.
        let scripts = RedisScripts {
            take: Script::new(concat!(include_str!("month_of.lua"), include_str!("take.lua"))),
            settle: Script::new(concat!(include_str!("month_of.lua"), include_str!("settle.lua"))),
            read: Script::new(include_str!("read.lua")),
            renew: Script::new(include_str!("renew.lua")),
            give_back: Script::new(include_str!("drop.lua")),
        };
        Ok(Self(Arc::new(RedisStoreInner {
            client,
            options,
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

    /// Runs a script; over a new connection a second time, if the server had closed the first. The server remembers what a
    /// lease did, so that nothing is taken or settled twice if the first was executed after all.
    async fn run_script<T: FromRedisValue>(&self, script: &Script, call: &ScriptCall) -> Result<T, CounterStoreError> {
        let run = |mut connection| async move {
            let mut prepared = script.prepare_invoke();
            call.keys.iter().for_each(|k| {
                prepared.key(k);
            });
            call.args.iter().for_each(|a| {
                prepared.arg(a);
            });
            prepared.invoke_async(&mut connection).await
        };
        self.client.run(run).await.map_err(CounterStoreError)
    }

    fn script_call(
        &self,
        asks: &[CounterRequest],
        lease: Option<&str>,
        first: Vec<String>,
        more: impl Fn(usize, &CounterRequest) -> Vec<String>,
    ) -> ScriptCall {
        let mut call = ScriptCall { keys: Vec::with_capacity(asks.len() + 1), args: first };
        // No counter has such a name: those of rules begin otherwise, and a lease is hexadecimal.
        call.keys.extend(lease.map(|lease| format!("{{{}}}:lease:{lease}", self.options.prefix)));
        for (i, ask) in asks.iter().enumerate() {
            call.keys.push(self.counter_key(ask));
            call.args.extend(script_args(&ask.counter));
            call.args.extend(more(i, ask));
        }
        call
    }
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

impl RedisStoreInner {
    /// Replaces what was taken by what was used. `is_unknown`: the answer to the taking was lost.
    async fn settle(
        &self,
        asks: &[CounterRequest],
        lease: &str,
        spent: Spent<'_>,
        is_unknown: bool,
    ) -> Result<(), CounterStoreError> {
        let used_of = |i: usize| spent.used.get(i).copied().unwrap_or_default().to_string();
        let is_unknown = if is_unknown { "1" } else { "0" };
        let first = vec![lease.to_owned(), spent.age.as_secs().to_string(), lease_state_ttl(), is_unknown.to_owned()];
        let call = self.script_call(asks, Some(lease), first, |i, ask| vec![ask.cost.to_string(), used_of(i)]);
        self.run_script::<i64>(&self.scripts.settle, &call).await.map(|_| ())
    }
}

fn lease_state_ttl() -> String {
    LEASE_STATE.as_millis().to_string()
}

impl RedisCounterStore {
    /// Ends a lease whose taking has no answer, in the background: the server may have taken, or may still do so.
    fn end_lost_lease(&self, asks: &[CounterRequest], lease: &str) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (inner, asks, lease) = (Arc::clone(&self.0), asks.to_vec(), lease.to_owned());
        runtime.spawn(async move {
            // While the server is not asked at all, after a timeout, it would be refused here.
            tokio::time::sleep(LOST_LEASE_PAUSE).await;
            let nothing = Spent { used: &[], age: LOST_LEASE_PAUSE };
            if let Err(e) = inner.settle(&asks, &lease, nothing, true).await {
                tracing::debug!("limits: the estimate of a refused request cannot be given back: {e}");
            }
        });
    }
}

impl CounterStore for RedisCounterStore {
    fn take<'a>(&'a self, asks: &'a [CounterRequest], lease: &'a str) -> CounterFuture<'a, TakeResult> {
        Box::pin(async move {
            let first = vec![lease.to_owned(), self.slot_ttl().as_micros().to_string(), lease_state_ttl()];
            let call =
                self.script_call(asks, Some(lease), first, |_, ask| vec![ask.cost.to_string(), ask.least.to_string()]);
            let answer = self.run_script::<Vec<redis::Value>>(&self.scripts.take, &call).await;
            let answer = answer.inspect_err(|_| self.end_lost_lease(asks, lease))?;
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
                        is_reserved: number(2) == Some(1.0),
                    }))
                }
                _ => Err(CounterStoreError("the Redis server of the limits answers what it should not".into())),
            }
        })
    }

    fn commit<'a>(&'a self, asks: &'a [CounterRequest], lease: &'a str, spent: Spent<'a>) -> CounterFuture<'a, ()> {
        Box::pin(async move {
            // First, so that a heartbeat in progress does not renew the slots after they were freed.
            self.held.lock().remove(lease);
            self.settle(asks, lease, spent, false).await
        })
    }

    fn read<'a>(&'a self, asks: &'a [CounterRequest]) -> CounterFuture<'a, Vec<CounterValue>> {
        Box::pin(async move {
            // This process's clock, for display only: admission uses the server's.
            let seconds = Timestamp::now().micros() / 1_000_000;
            let number = |counter: &CounterLimit| match counter {
                CounterLimit::TokenBudget { period, .. } | CounterLimit::MoneyBudget { period, .. } => {
                    period.period_at(seconds).0
                }
                _ => 0,
            };
            let call = self.script_call(asks, None, Vec::new(), |_, ask| vec![number(&ask.counter).to_string()]);
            let levels: Vec<f64> = self.run_script(&self.scripts.read, &call).await?;
            let values = levels.chunks_exact(2).map(|pair| CounterValue { level: pair[0], reserved: pair[1] });
            Ok(values.collect())
        })
    }
}
