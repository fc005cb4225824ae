//! What the workers share about upstreams: caps on connections per host, and which protocol an origin speaks.
//! Neither is touched by a request that finds a connection of its own worker idle, unless a cap is set.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use interflow_flow::{Authority, Error, Kind, Retry, Version};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Caps and memory of all workers together.
pub struct EgressShared {
    cap: Option<u32>,
    hosts: Mutex<HashMap<Authority, Weak<HostCap>>>,
    alpn: Mutex<AlpnMemory>,
}

impl EgressShared {
    /// At most `max_per_host` connections to one authority over all workers, idle ones included; `None` for no cap.
    pub fn new(max_per_host: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            cap: max_per_host.map(|cap| cap.max(1)),
            hosts: Mutex::default(),
            alpn: Mutex::new(AlpnMemory::default()),
        })
    }

    /// The cap of this authority, when there is one.
    pub(crate) fn cap(&self, authority: &Authority) -> Option<Arc<HostCap>> {
        let max = self.cap? as usize;
        let mut hosts = self.hosts.lock();
        if let Some(cap) = hosts.get(authority).and_then(Weak::upgrade) {
            return Some(cap);
        }
        // Hosts that no worker knows any more are let go whenever the list has doubled since it was last looked at.
        if hosts.len() == hosts.capacity() {
            hosts.retain(|_, cap| cap.strong_count() > 0);
        }
        let cap = Arc::new(HostCap {
            max,
            permits: Arc::new(Semaphore::new(max)),
            open: AtomicUsize::new(0),
            idle: Mutex::default(),
        });
        hosts.insert(authority.clone(), Arc::downgrade(&cap));
        Some(cap)
    }

    /// What the origin was seen to speak over TLS with that profile, when that is not too long ago.
    pub(crate) fn alpn(&self, authority: &Authority, profile: u64) -> Option<Version> {
        self.alpn.lock().get(authority, profile, Instant::now())
    }

    /// Remembers what the origin spoke.
    pub(crate) fn learn_alpn(&self, authority: &Authority, profile: u64, version: Version) {
        self.alpn.lock().put(authority, profile, version, Instant::now());
    }
}

/// Somebody who keeps idle connections and can be asked to close one.
pub(crate) trait Evict: Send + Sync {
    /// Closes the connection that has been idle longest; false when there is none.
    fn evict(&self) -> bool;
}

/// The cap on one host's connections.
pub(crate) struct HostCap {
    max: usize,
    permits: Arc<Semaphore>,
    open: AtomicUsize,
    idle: Mutex<Vec<Weak<dyn Evict>>>,
}

impl HostCap {
    /// Takes part in the cap: idle connections kept by `keeper` are closed when others need the room.
    pub(crate) fn join(&self, keeper: Weak<dyn Evict>) {
        let mut idle = self.idle.lock();
        idle.retain(|k| k.strong_count() > 0);
        idle.push(keeper);
    }

    /// Waits in line for the right to use a connection, first come first served.
    ///
    /// # Errors
    /// [`Kind::PoolTimeout`] when the turn does not come within `timeout`.
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
                Kind::PoolTimeout,
                format!(
                    "all {} connections to {authority} stayed in use for {timeout:?}; raise the cap per host or the \
                     time to wait",
                    self.max
                ),
            )
            .retry_if(Retry::Yes)),
        }
    }

    /// Counts a new connection, after closing an idle one elsewhere if that is needed to stay within the cap.
    pub(crate) fn open(self: &Arc<Self>) -> OpenConnection {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.max {
            let keepers: Vec<_> = self.idle.lock().iter().filter_map(Weak::upgrade).collect();
            keepers.iter().any(|k| k.evict());
        }
        OpenConnection(self.clone())
    }
}

/// A connection that counts against its host's cap until this is dropped.
pub(crate) struct OpenConnection(Arc<HostCap>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long an origin's choice is believed.
const ALPN_TTL: Duration = Duration::from_secs(600);
/// How many origins are remembered.
const ALPN_MAX: usize = 4096;

/// Which protocol origins chose, oldest out first.
#[derive(Default)]
struct AlpnMemory {
    known: HashMap<(Authority, u64), (Version, Instant)>,
    order: VecDeque<(Authority, u64)>,
}

impl AlpnMemory {
    fn get(&self, authority: &Authority, profile: u64, now: Instant) -> Option<Version> {
        let (version, at) = self.known.get(&(authority.clone(), profile))?;
        (now.saturating_duration_since(*at) < ALPN_TTL).then_some(*version)
    }

    fn put(&mut self, authority: &Authority, profile: u64, version: Version, now: Instant) {
        let key = (authority.clone(), profile);
        if self.known.insert(key.clone(), (version, now)).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > ALPN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_flow::Host;

    fn authority(n: usize) -> Authority {
        Authority::new(Host::parse(&format!("h{n}.test")).unwrap(), 443)
    }

    struct Keeper(AtomicUsize, Mutex<Vec<OpenConnection>>);

    impl Evict for Keeper {
        fn evict(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            self.1.lock().pop().is_some()
        }
    }

    #[test]
    fn a_remembered_protocol_is_forgotten_with_time_and_by_number() {
        let mut m = AlpnMemory::default();
        let t = Instant::now();
        m.put(&authority(0), 1, Version::H2, t);
        assert_eq!(m.get(&authority(0), 1, t + ALPN_TTL / 2), Some(Version::H2));
        assert_eq!(m.get(&authority(0), 2, t), None, "another profile may be given another answer");
        assert_eq!(m.get(&authority(0), 1, t + ALPN_TTL), None);
        for n in 1..=ALPN_MAX {
            m.put(&authority(n), 1, Version::Http11, t);
        }
        assert_eq!((m.known.len(), m.get(&authority(0), 1, t)), (ALPN_MAX, None));
    }

    #[test]
    fn without_a_cap_nothing_is_counted() {
        assert!(EgressShared::new(None).cap(&authority(0)).is_none());
    }

    #[tokio::test]
    async fn the_queue_is_first_come_first_served_and_ends_in_a_timeout() {
        let shared = EgressShared::new(Some(1));
        let cap = shared.cap(&authority(0)).unwrap();
        let held = cap.acquire(&authority(0), Duration::ZERO).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..4)
            .map(|n| {
                let (cap, order) = (shared.cap(&authority(0)).unwrap(), order.clone());
                tokio::spawn(async move {
                    let permit = cap.acquire(&authority(0), Duration::from_secs(5)).await.unwrap();
                    order.lock().push(n);
                    drop(permit);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        let error = cap.acquire(&authority(0), Duration::from_millis(10)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::PoolTimeout);
        drop(held);
        for w in waiters {
            w.await.unwrap();
        }
        assert_eq!(*order.lock(), [0, 1, 2, 3]);
    }

    #[test]
    fn an_idle_connection_elsewhere_gives_way() {
        let shared = EgressShared::new(Some(2));
        let cap = shared.cap(&authority(0)).unwrap();
        let keeper = Arc::new(Keeper(AtomicUsize::new(0), Mutex::new(vec![cap.open()])));
        let as_dyn: Arc<dyn Evict> = keeper.clone();
        cap.join(Arc::downgrade(&as_dyn));
        let _second = cap.open();
        assert_eq!(keeper.0.load(Ordering::Relaxed), 0);
        let _third = cap.open();
        assert_eq!((keeper.0.load(Ordering::Relaxed), cap.open.load(Ordering::Relaxed)), (1, 2));
    }
}
