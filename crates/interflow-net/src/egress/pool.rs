//! Idle connections for reuse: one pool per worker, so that no request waits for a lock held by another worker.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::BytesMut;
use interflow_types::HttpVersion;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::http1::Http1Connection;
use super::http2::Http2Connection;
use super::route::{PoolKey, UpstreamProtocol, UpstreamRoute};
use super::shared_limits::{EgressShared, EvictIdle, HostLimit};

options! {
    /// The limits of a pool. Each worker has its own pool, so they apply per worker. Zero for either HTTP/1 number disables
    /// reuse; a connection older than `max_lifetime` finishes its exchange and is closed then. HTTP/2 connections are
    /// opened up to `http2_per_host` as the streams of the existing ones are used up.
    #[derive(Clone, Debug)]
    pub struct PoolLimits {
        pub idle_per_host: usize = 64,
        pub idle_total: usize = 1024,
        pub idle_timeout: Duration = Duration::from_secs(60),
        pub max_lifetime: Duration = Duration::from_secs(3600),
        pub http2_per_host: usize = 4,
    }
}

/// The initial size of a read buffer.
pub(crate) const READ_BUFFER_SIZE: usize = 16 * 1024;
/// How many read buffers a worker keeps for reuse.
const SPARE_BUFFERS: usize = 32;

/// One worker's connections. Locks are taken in the order `hosts`, then a host's `idle`, then its `h2`, and none is
/// held across an await. All are uncontended: only tasks of this worker take them, except for evictions by other
/// workers.
pub(crate) struct ConnectionPool {
    pub(crate) limits: PoolLimits,
    shared: Arc<EgressShared>,
    hasher: RandomState,
    hosts: Mutex<HashMap<u64, Vec<Arc<HostPool>>, BuildHasherDefault<IdentityHasher>>>,
    /// The pool that was used last, which is often the next one needed.
    last: Mutex<Weak<HostPool>>,
    idle: Arc<AtomicUsize>,
    buffers: Mutex<Vec<BytesMut>>,
    sweeping: AtomicBool,
}

/// The connections of one [`PoolKey`]: everything that makes two connections interchangeable.
pub(crate) struct HostPool {
    key: PoolKey,
    /// The limit across all workers, if one is configured.
    pub(crate) cap: Option<Arc<HostLimit>>,
    idle: Mutex<VecDeque<Box<Http1Connection>>>,
    h2: Mutex<Vec<Arc<Http2Connection>>>,
    /// Held while opening a connection that may turn out to be HTTP/2, so that other requests wait for it and share
    /// it.
    pub(crate) flight: tokio::sync::Mutex<()>,
    /// How often such an attempt failed. A request that waited for `flight` compares it with the value before, and thus
    /// knows that the attempt it waited for has failed.
    pub(crate) failed_attempts: AtomicU64,
    /// The protocol negotiated last: 0 unknown, 1 HTTP/1.1, 2 HTTP/2.
    version: AtomicU8,
    /// The origin rejected HTTP/1.1 when it alone was offered.
    pub(crate) only_http2: AtomicBool,
    idle_in_pool: Arc<AtomicUsize>,
}

pub(crate) struct ConnectionLease {
    pub(crate) conn: Box<Http1Connection>,
    pub(crate) host: Arc<HostPool>,
    pub(crate) pool: Arc<ConnectionPool>,
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

/// An HTTP/1 connection in use. Dropping it closes the connection; [`release`](Self::release) returns it to its pool.
impl ConnectionLease {
    pub(crate) fn release(self) {
        let Self { conn, host, pool, permit } = self;
        pool.put_idle(&host, conn);
        // After the connection is idle, so that whoever gets the permit finds it.
        drop(permit);
    }
}

impl ConnectionPool {
    pub(crate) fn new(limits: PoolLimits, shared: Arc<EgressShared>) -> Arc<Self> {
        Arc::new(Self {
            limits,
            shared,
            hasher: RandomState::new(),
            hosts: Mutex::default(),
            last: Mutex::default(),
            idle: Arc::default(),
            buffers: Mutex::default(),
            sweeping: AtomicBool::new(false),
        })
    }

    pub(crate) fn idle(&self) -> usize {
        self.idle.load(Ordering::Relaxed)
    }

    /// The connections of the route's key with this protocol.
    pub(crate) fn host_pool(self: &Arc<Self>, route: &UpstreamRoute, protocol: UpstreamProtocol) -> Arc<HostPool> {
        // A client that stays with one origin skips the hash and the map.
        if let Some(host) = self.last.lock().upgrade().filter(|h| route.has_key(protocol, &h.key)) {
            return host;
        }
        let mut hasher = self.hasher.build_hasher();
        route.hash_for(protocol, &mut hasher);
        let host = self.find_or_create(route, protocol, hasher.finish());
        *self.last.lock() = Arc::downgrade(&host);
        host
    }

    /// As [`host_pool`](Self::host_pool). The hash only narrows the search: keys with equal hashes are compared.
    pub(super) fn find_or_create(
        self: &Arc<Self>,
        route: &UpstreamRoute,
        protocol: UpstreamProtocol,
        hash: u64,
    ) -> Arc<HostPool> {
        let mut hosts = self.hosts.lock();
        // Keys with the same hash are rare, but possible.
        let alike = hosts.entry(hash).or_default();
        if let Some(host) = alike.iter().find(|h| route.has_key(protocol, &h.key)) {
            return host.clone();
        }
        let host = Arc::new(HostPool {
            key: route.key_for(protocol),
            cap: self.shared.host_limit(&route.authority),
            idle: Mutex::default(),
            h2: Mutex::default(),
            flight: tokio::sync::Mutex::new(()),
            failed_attempts: AtomicU64::new(0),
            version: AtomicU8::new(0),
            only_http2: AtomicBool::new(false),
            idle_in_pool: self.idle.clone(),
        });
        if let Some(cap) = &host.cap {
            let keeper: Arc<dyn EvictIdle> = host.clone();
            cap.register_keeper(Arc::downgrade(&keeper));
        }
        alike.push(host.clone());
        // `schedule_sweep` spawns a task; the lock is not needed for it.
        drop(hosts);
        self.schedule_sweep();
        host
    }

    /// The most recently used connection that is still reusable.
    pub(crate) fn take(&self, host: &HostPool, now: Instant) -> Option<Box<Http1Connection>> {
        loop {
            // Last in, first out: the connection used last is the least likely to have been closed, and the surplus
            // expires.
            let mut conn = host.idle.lock().pop_back()?;
            self.idle.fetch_sub(1, Ordering::Relaxed);
            if conn.is_reusable(now, &self.limits) {
                return Some(conn);
            }
        }
    }

    fn put_idle(self: &Arc<Self>, host: &HostPool, mut conn: Box<Http1Connection>) {
        if let Some(buffer) = conn.prepare_idle(Instant::now()) {
            self.return_buffer(buffer);
        }
        // Reuse is disabled: the connection is dropped here.
        if self.limits.idle_per_host == 0 || self.limits.idle_total == 0 {
            return;
        }
        let mut idle = host.idle.lock();
        // The oldest one goes, because it is the most likely to have been closed by the origin.
        if idle.len() >= self.limits.idle_per_host {
            idle.pop_front();
            self.idle.fetch_sub(1, Ordering::Relaxed);
        } else if self.idle.load(Ordering::Relaxed) >= self.limits.idle_total {
            // `evict_oldest` locks the map and each host in turn, so this host must not be locked here.
            drop(idle);
            self.evict_oldest();
            idle = host.idle.lock();
        }
        idle.push_back(conn);
        drop(idle);
        self.idle.fetch_add(1, Ordering::Relaxed);
        self.schedule_sweep();
    }

    /// Stores an HTTP/2 connection for this and further requests.
    pub(crate) fn put_h2(self: &Arc<Self>, host: &HostPool, conn: Arc<Http2Connection>) {
        host.h2.lock().push(conn);
        self.schedule_sweep();
    }

    pub(crate) fn take_buffer(&self) -> BytesMut {
        if let Some(mut buffer) = self.buffers.lock().pop()
            // Fails while pieces of an earlier body still refer to the buffer's memory.
            && buffer.try_reclaim(READ_BUFFER_SIZE)
        {
            return buffer;
        }
        BytesMut::with_capacity(READ_BUFFER_SIZE)
    }

    /// Keeps a buffer for the next read of any connection.
    pub(crate) fn return_buffer(&self, mut buffer: BytesMut) {
        buffer.clear();
        let mut buffers = self.buffers.lock();
        if buffers.len() < SPARE_BUFFERS {
            buffers.push(buffer);
        }
    }

    /// Closes the connection that has been idle longest in the whole pool. Called only when the pool is full.
    fn evict_oldest(&self) {
        let hosts = self.hosts.lock();
        let oldest = hosts
            .values()
            .flatten()
            .filter_map(|h| h.idle.lock().front().map(|c| (c.idle_since, h)))
            .min_by_key(|(since, _)| *since);
        if let Some((_, host)) = oldest {
            host.evict();
        }
    }

    /// Ensures that one task checks idle connections as long as there are any.
    fn schedule_sweep(self: &Arc<Self>) {
        // The load comes first because it does not write: nearly every call finds a sweeper running.
        if self.sweeping.load(Ordering::Relaxed) || self.sweeping.swap(true, Ordering::Relaxed) {
            return;
        }
        // A quarter of the timeout keeps the overshoot small; the task ends when the pool is empty, so an idle worker
        // has no timer.
        let every = (self.limits.idle_timeout / 4).clamp(Duration::from_millis(50), Duration::from_secs(5));
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let Some(pool) = pool.upgrade() else { return };
                if pool.sweep(Instant::now()) {
                    // A connection returned between the sweep and this store starts a sweeper of its own.
                    pool.sweeping.store(false, Ordering::Relaxed);
                    return;
                }
            }
        });
    }

    /// Closes dead and expired connections and drops unused hosts; true if none is left.
    fn sweep(&self, now: Instant) -> bool {
        let mut hosts = self.hosts.lock();
        hosts.retain(|_, alike| {
            // A host in use keeps its entry, and with it what it knows about the origin's protocol.
            // A reference outside of the map: a request is using it, or a lease will return to it.
            alike.retain(|host| host.sweep(now, &self.limits) || Arc::strong_count(host) > 1);
            !alike.is_empty()
        });
        hosts.is_empty()
    }
}

impl HostPool {
    /// The HTTP/2 connection for the next request: one with free streams or, if no more connections are allowed, the
    /// one with the fewest streams; with `after`, of those opened after this time. `None` if a connection must be
    /// opened.
    pub(crate) fn h2(&self, now: Instant, after: Option<Instant>, limits: &PoolLimits) -> Option<Arc<Http2Connection>> {
        let mut conns = self.h2.lock();
        conns.retain(|c| c.is_reusable(now, limits));
        let usable = || conns.iter().filter(|c| after.is_none_or(|after| c.born > after));
        if let Some(free) = usable().find(|c| c.has_stream_capacity()) {
            return Some(free.clone());
        }
        if usable().count() < limits.http2_per_host.max(1) {
            // The caller opens one more.
            return None;
        }
        usable().min_by_key(|c| c.streams()).cloned()
    }

    /// The protocol that the origin negotiated earlier over TLS.
    pub(crate) fn version(&self, shared: &EgressShared, profile: u64) -> Option<HttpVersion> {
        match self.version.load(Ordering::Relaxed) {
            1 => Some(HttpVersion::Http11),
            2 => Some(HttpVersion::H2),
            _ => shared.alpn(&self.key.authority, profile, Instant::now().into()),
        }
    }

    /// Remembers the protocol that the origin negotiated.
    pub(crate) fn remember_version(&self, shared: &EgressShared, profile: u64, version: HttpVersion) {
        let new = if version == HttpVersion::H2 { 2 } else { 1 };
        // The map of all workers is locked only if something changed.
        if self.version.swap(new, Ordering::Relaxed) != new {
            shared.remember_alpn(&self.key.authority, profile, version, Instant::now().into());
        }
    }

    /// Closes dead and expired connections; true if some are left.
    fn sweep(&self, now: Instant, limits: &PoolLimits) -> bool {
        let mut idle = self.idle.lock();
        let before = idle.len();
        idle.retain_mut(|c| c.is_reusable(now, limits));
        self.idle_in_pool.fetch_sub(before - idle.len(), Ordering::Relaxed);
        let mut h2 = self.h2.lock();
        h2.retain(|c| c.is_reusable(now, limits));
        !idle.is_empty() || !h2.is_empty()
    }
}

impl EvictIdle for HostPool {
    fn evict(&self) -> bool {
        let oldest = self.idle.lock().pop_front();
        if oldest.is_some() {
            self.idle_in_pool.fetch_sub(1, Ordering::Relaxed);
        }
        oldest.is_some()
    }
}

impl Drop for HostPool {
    fn drop(&mut self) {
        // The connections are closed with the host, and must not stay in the count.
        self.idle_in_pool.fetch_sub(self.idle.get_mut().len(), Ordering::Relaxed);
    }
}

/// Uses a number that is already a hash as its own hash.
#[derive(Default)]
pub(crate) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
        // Only for keys that are not `u64`; the map of this file uses `write_u64`.
    }

    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(b);
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}
