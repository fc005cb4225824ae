//! What the workers share about upstreams: caps on connections per host, and which protocol an origin speaks.
//! Neither is touched by a request that finds a connection of its own worker idle, unless a cap is set.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use interflow_types::{Authority, Error, ErrorKind, HttpVersion, Retryable};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Caps and memory of all workers together.
pub struct EgressShared {
    cap: Option<u32>,
    hosts: Mutex<HashMap<Authority, Weak<HostLimit>>>,
    alpn: Mutex<AlpnCache>,
}

impl EgressShared {
    /// At most `max_per_host` connections to one authority over all workers, idle ones included; `None` for no cap.
    pub fn new(max_per_host: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            cap: max_per_host.map(|cap| cap.max(1)),
            hosts: Mutex::default(),
            alpn: Mutex::new(AlpnCache::default()),
        })
    }

    /// The cap of this authority, when there is one.
    pub(crate) fn host_limit(&self, authority: &Authority) -> Option<Arc<HostLimit>> {
        let max = self.cap? as usize;
        let mut hosts = self.hosts.lock();
        if let Some(cap) = hosts.get(authority).and_then(Weak::upgrade) {
            return Some(cap);
        }
        // Hosts that no worker knows any more are let go whenever the list has doubled since it was last looked at.
        if hosts.len() == hosts.capacity() {
            hosts.retain(|_, cap| cap.strong_count() > 0);
        }
        let cap = Arc::new(HostLimit {
            max,
            permits: Arc::new(Semaphore::new(max)),
            open: AtomicUsize::new(0),
            idle: Mutex::default(),
        });
        hosts.insert(authority.clone(), Arc::downgrade(&cap));
        Some(cap)
    }

    /// What the origin was seen to speak over TLS with that profile, when that is not too long ago.
    pub(crate) fn alpn(&self, authority: &Authority, profile: u64) -> Option<HttpVersion> {
        self.alpn.lock().get(authority, profile, Instant::now())
    }

    /// Remembers what the origin spoke.
    pub(crate) fn remember_alpn(&self, authority: &Authority, profile: u64, version: HttpVersion) {
        self.alpn.lock().insert(authority, profile, version, Instant::now());
    }
}

/// Somebody who keeps idle connections and can be asked to close one.
pub(crate) trait EvictIdle: Send + Sync {
    /// Closes the connection that has been idle longest; false when there is none.
    fn evict(&self) -> bool;
}

/// The cap on one host's connections.
pub(crate) struct HostLimit {
    max: usize,
    permits: Arc<Semaphore>,
    open: AtomicUsize,
    idle: Mutex<Vec<Weak<dyn EvictIdle>>>,
}

impl HostLimit {
    /// Takes part in the cap: idle connections kept by `keeper` are closed when others need the room.
    pub(crate) fn register_keeper(&self, keeper: Weak<dyn EvictIdle>) {
        let mut idle = self.idle.lock();
        idle.retain(|k| k.strong_count() > 0);
        idle.push(keeper);
    }

    /// Waits in line for the right to use a connection, first come first served.
    ///
    /// # Errors
    /// [`ErrorKind::PoolTimeout`] when the turn does not come within `timeout`.
    pub(crate) async fn acquire(
        &self,
        authority: &Authority,
        timeout: Duration,
    ) -> Result<OwnedSemaphorePermit, Error> {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return Ok(permit);
        }
        match tokio::time::timeout(timeout, self.permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Error::new(
                ErrorKind::PoolTimeout,
                format!(
                    "all {} connections to {authority} stayed in use for {timeout:?}; raise the cap per host or the \
                     time to wait",
                    self.max
                ),
            )
            .with_retryable(Retryable::Yes)),
        }
    }

    /// Counts a new connection, after closing an idle one elsewhere if that is needed to stay within the cap.
    pub(crate) fn open(self: &Arc<Self>) -> ConnectionPermit {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.max {
            let keepers: Vec<_> = self.idle.lock().iter().filter_map(Weak::upgrade).collect();
            keepers.iter().any(|k| k.evict());
        }
        ConnectionPermit(self.clone())
    }
}

/// A connection that counts against its host's cap until this is dropped.
pub(crate) struct ConnectionPermit(Arc<HostLimit>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long an origin's choice is believed.
const ALPN_TTL: Duration = Duration::from_secs(600);
/// How many origins are remembered.
const MAX_ALPN_ENTRIES: usize = 4096;

/// Which protocol origins chose, oldest out first.
#[derive(Default)]
struct AlpnCache {
    known: HashMap<(Authority, u64), (HttpVersion, Instant)>,
    order: VecDeque<(Authority, u64)>,
}

impl AlpnCache {
    fn get(&self, authority: &Authority, profile: u64, now: Instant) -> Option<HttpVersion> {
        let (version, at) = self.known.get(&(authority.clone(), profile))?;
        (now.saturating_duration_since(*at) < ALPN_TTL).then_some(*version)
    }

    fn insert(&mut self, authority: &Authority, profile: u64, version: HttpVersion, now: Instant) {
        let key = (authority.clone(), profile);
        if self.known.insert(key.clone(), (version, now)).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > MAX_ALPN_ENTRIES
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_types::Host;

    fn authority(n: usize) -> Authority {
        Authority::new(Host::parse(&format!("h{n}.test")).unwrap(), 443)
    }

    struct Keeper(AtomicUsize, Mutex<Vec<ConnectionPermit>>);

    impl EvictIdle for Keeper {
        fn evict(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            self.1.lock().pop().is_some()
        }
    }

    #[test]
    fn a_remembered_protocol_is_forgotten_with_time_and_by_number() {
        let mut m = AlpnCache::default();
        let t = Instant::now();
        m.insert(&authority(0), 1, HttpVersion::H2, t);
        assert_eq!(m.get(&authority(0), 1, t + ALPN_TTL / 2), Some(HttpVersion::H2));
        assert_eq!(m.get(&authority(0), 2, t), None, "another profile may be given another answer");
        assert_eq!(m.get(&authority(0), 1, t + ALPN_TTL), None);
        for n in 1..=MAX_ALPN_ENTRIES {
            m.insert(&authority(n), 1, HttpVersion::Http11, t);
        }
        assert_eq!((m.known.len(), m.get(&authority(0), 1, t)), (MAX_ALPN_ENTRIES, None));
    }

    #[test]
    fn without_a_cap_nothing_is_counted() {
        assert!(EgressShared::new(None).host_limit(&authority(0)).is_none());
    }

    #[tokio::test]
    async fn the_queue_is_first_come_first_served_and_ends_in_a_timeout() {
        let shared = EgressShared::new(Some(1));
        let cap = shared.host_limit(&authority(0)).unwrap();
        let held = cap.acquire(&authority(0), Duration::ZERO).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..4)
            .map(|n| {
                let (cap, order) = (shared.host_limit(&authority(0)).unwrap(), order.clone());
                tokio::spawn(async move {
                    let permit = cap.acquire(&authority(0), Duration::from_secs(5)).await.unwrap();
                    order.lock().push(n);
                    drop(permit);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        let error = cap.acquire(&authority(0), Duration::from_millis(10)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PoolTimeout);
        drop(held);
        for w in waiters {
            w.await.unwrap();
        }
        assert_eq!(*order.lock(), [0, 1, 2, 3]);
    }

    #[test]
    fn an_idle_connection_elsewhere_gives_way() {
        let shared = EgressShared::new(Some(2));
        let cap = shared.host_limit(&authority(0)).unwrap();
        let keeper = Arc::new(Keeper(AtomicUsize::new(0), Mutex::new(vec![cap.open()])));
        let as_dyn: Arc<dyn EvictIdle> = keeper.clone();
        cap.register_keeper(Arc::downgrade(&as_dyn));
        let _second = cap.open();
        assert_eq!(keeper.0.load(Ordering::Relaxed), 0);
        let _third = cap.open();
        assert_eq!((keeper.0.load(Ordering::Relaxed), cap.open.load(Ordering::Relaxed)), (1, 2));
    }
}
