//! State about upstreams that the workers share: connection limits per host, and the protocol that an origin
//! negotiated. Not touched by a request that reuses a connection of its own worker, unless a limit is configured.
//!
//! The limit has two parts. A permit is held while a connection is in use, and waiting for one is how requests queue.
//! The count of open connections includes idle ones; opening one beyond the limit first closes an idle one, of
//! whichever worker.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hashlink::LruCache;
use interflow_types::{Authority, Error, ErrorKind, HttpVersion, Retryable};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a negotiated protocol is remembered.
const ALPN_TTL: Duration = Duration::from_secs(600);
const MAX_ALPN_ENTRIES: usize = 4096;

/// Limits and protocol cache of all workers.
pub struct EgressShared {
    cap: Option<u32>,
    hosts: Mutex<HashMap<Authority, Weak<HostLimit>>>,
    /// The protocols that origins negotiated, by the profile, and when.
    alpn: Mutex<LruCache<(Authority, u64), (HttpVersion, Instant)>>,
}

impl EgressShared {
    /// At most `max_per_host` connections to one authority across all workers, idle ones included; `None` for no
    /// limit.
    pub fn new(max_per_host: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            // 0 would block every request; no limit is `None`.
            cap: max_per_host.map(|cap| cap.max(1)),
            hosts: Mutex::default(),
            alpn: Mutex::new(LruCache::new(MAX_ALPN_ENTRIES)),
        })
    }

    /// The limit of this authority, if there is one.
    pub(crate) fn host_limit(&self, authority: &Authority) -> Option<Arc<HostLimit>> {
        let max = self.cap? as usize;
        let mut hosts = self.hosts.lock();
        if let Some(cap) = hosts.get(authority).and_then(Weak::upgrade) {
            return Some(cap);
        }
        // Hosts that no worker uses any more are removed whenever the map has doubled.
        // `len == capacity` just before a growth makes the cost of the scan amortized.
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

    /// The protocol that the origin negotiated with this profile over TLS, unless that is too long ago.
    pub(crate) fn alpn(&self, authority: &Authority, profile: u64, now: Instant) -> Option<HttpVersion> {
        let mut cache = self.alpn.lock();
        let (version, at) = cache.get(&(authority.clone(), profile))?;
        (now.saturating_duration_since(*at) < ALPN_TTL).then_some(*version)
    }

    pub(crate) fn remember_alpn(&self, authority: &Authority, profile: u64, version: HttpVersion, now: Instant) {
        self.alpn.lock().insert((authority.clone(), profile), (version, now));
    }
}

/// A pool that can be asked to close an idle connection.
pub(crate) trait EvictIdle: Send + Sync {
    /// Closes the connection that has been idle longest; false if there is none.
    fn evict(&self) -> bool;
}

/// The connection limit of one host.
pub(crate) struct HostLimit {
    max: usize,
    permits: Arc<Semaphore>,
    open: AtomicUsize,
    idle: Mutex<Vec<Weak<dyn EvictIdle>>>,
}

impl HostLimit {
    /// Registers a pool whose idle connections are closed when others need the capacity.
    pub(crate) fn register_keeper(&self, keeper: Weak<dyn EvictIdle>) {
        let mut idle = self.idle.lock();
        idle.retain(|k| k.strong_count() > 0);
        idle.push(keeper);
    }

    /// Waits in FIFO order for the right to use a connection.
    ///
    /// # Errors
    /// [`ErrorKind::PoolTimeout`] after `timeout`.
    pub(crate) async fn acquire(
        &self,
        authority: &Authority,
        timeout: Duration,
    ) -> Result<OwnedSemaphorePermit, Error> {
        // The common case, without a timer.
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

    /// Counts a new connection, after closing an idle one elsewhere if the limit requires it.
    pub(crate) fn open(self: &Arc<Self>) -> ConnectionPermit {
        // In-use connections never exceed the limit (permits), so the excess must be idle somewhere, unless it is just
        // being returned.
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.max {
            let keepers: Vec<_> = self.idle.lock().iter().filter_map(Weak::upgrade).collect();
            // One suffices; any worker's pool may give it up.
            keepers.iter().any(|k| k.evict());
        }
        ConnectionPermit(self.clone())
    }
}

/// Counts a connection against its host's limit until dropped.
pub(crate) struct ConnectionPermit(Arc<HostLimit>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
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
    fn remembered_protocols_expire_and_are_bounded() {
        let shared = EgressShared::new(None);
        let t = Instant::now();
        shared.remember_alpn(&authority(0), 1, HttpVersion::H2, t);
        assert_eq!(shared.alpn(&authority(0), 1, t + ALPN_TTL / 2), Some(HttpVersion::H2));
        assert_eq!(shared.alpn(&authority(0), 2, t), None, "another profile may negotiate differently");
        assert_eq!(shared.alpn(&authority(0), 1, t + ALPN_TTL), None);
        for n in 1..=MAX_ALPN_ENTRIES {
            shared.remember_alpn(&authority(n), 1, HttpVersion::Http11, t);
        }
        let count = shared.alpn.lock().len();
        assert_eq!((count, shared.alpn(&authority(0), 1, t)), (MAX_ALPN_ENTRIES, None));
    }

    #[test]
    fn no_host_limit_is_created_without_a_cap() {
        assert!(EgressShared::new(None).host_limit(&authority(0)).is_none());
    }

    #[tokio::test]
    async fn waiters_for_a_connection_permit_are_served_fifo_and_time_out() {
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
    fn idle_connection_of_another_pool_is_evicted_at_the_host_limit() {
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
