//! Connection limits: in total, per client address, and accepted per second.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::TokenBucket;

/// The limits; 0 means unlimited. `total` is the number of open connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    pub total: usize,
    /// Connections from one client address (IPv6: from one /64, the smallest block usually assigned to one subscriber).
    pub per_client: usize,
    /// New connections per second in total, with a burst of one second's worth.
    pub accept_per_second: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionRejection {
    #[error("the limit of connections in all is reached (limits.connections)")]
    Total,
    #[error("the limit of connections from one client is reached (limits.connections_per_client)")]
    PerClient,
    #[error("the limit of new connections per second is reached (limits.accept_rate)")]
    Rate,
}

/// Counts connections and rejects them at the limits. All operations are synchronous and short: they run in the
/// accept loop.
#[derive(Debug)]
pub struct ConnectionLimiter {
    limits: Mutex<ConnectionLimits>,
    open: AtomicUsize,
    clients: Mutex<HashMap<IpAddr, usize>>,
    rate: Mutex<Option<TokenBucket>>,
}

impl ConnectionLimiter {
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        let new = Self {
            limits: Mutex::new(limits),
            open: AtomicUsize::new(0),
            clients: Mutex::new(HashMap::new()),
            rate: Mutex::new(None),
        };
        new.replace_limits(limits);
        Arc::new(new)
    }

    /// Replaces the limits; open connections are kept, even if there are more of them than the new limits allow.
    pub fn replace_limits(&self, limits: ConnectionLimits) {
        *self.limits.lock() = limits;
        let per_second = f64::from(limits.accept_per_second);
        *self.rate.lock() =
            (limits.accept_per_second > 0).then(|| TokenBucket::new(per_second, per_second, Instant::now()));
    }

    pub fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Admits a connection from this address. The permit must be held as long as the connection lives.
    ///
    /// # Errors
    /// The limit that was reached. A connection rejected by `total` or `per_client` has still used a token of the
    /// accept rate.
    pub fn admit(self: &Arc<Self>, client: IpAddr) -> Result<ClientConnectionPermit, ConnectionRejection> {
        let limits = *self.limits.lock();
        // The rate comes first: a connection that is rejected by it must cost as little as possible.
        if self.rate.lock().as_mut().is_some_and(|bucket| !bucket.take(1.0, Instant::now())) {
            return Err(ConnectionRejection::Rate);
        }
        // Counted before it is compared, so that concurrent callers cannot pass the limit together.
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        if limits.total > 0 && before >= limits.total {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(ConnectionRejection::Total);
        }
        let client = client_block(client);
        let mut clients = self.clients.lock();
        let held = clients.entry(client).or_default();
        if limits.per_client > 0 && *held >= limits.per_client {
            drop(clients);
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(ConnectionRejection::PerClient);
        }
        *held += 1;
        drop(clients);
        Ok(ClientConnectionPermit { connections: Arc::clone(self), client })
    }
}

/// Releases the connection's slot when dropped.
#[derive(Debug)]
pub struct ClientConnectionPermit {
    connections: Arc<ConnectionLimiter>,
    client: IpAddr,
}

impl Drop for ClientConnectionPermit {
    fn drop(&mut self) {
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
        let mut clients = self.connections.clients.lock();
        if let Some(held) = clients.get_mut(&self.client) {
            *held -= 1;
            // Removed at zero, so that the table holds only clients that are connected now.
            if *held == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

/// The address under which a client is counted: IPv4 as it is, also if mapped into IPv6 (RFC 4291 2.5.5.2), and IPv6
/// by its /64.
fn client_block(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(total: usize, per_client: usize, accept_per_second: u32) -> ConnectionLimits {
        ConnectionLimits { total, per_client, accept_per_second }
    }

    #[test]
    fn total_connection_limit_holds_and_slots_are_released() {
        let c = ConnectionLimiter::new(limits(2, 0, 0));
        let a = c.admit([127, 0, 0, 1].into()).unwrap();
        let _b = c.admit([127, 0, 0, 2].into()).unwrap();
        assert_eq!(c.admit([127, 0, 0, 3].into()).unwrap_err(), ConnectionRejection::Total);
        drop(a);
        assert!(c.admit([127, 0, 0, 3].into()).is_ok());
        assert_eq!(c.open_count(), 1);
    }

    #[test]
    fn per_client_limit_keeps_slots_for_other_clients() {
        let c = ConnectionLimiter::new(limits(0, 1, 0));
        let one: IpAddr = "2001:db8::1".parse().unwrap();
        let same_block: IpAddr = "2001:db8::ffff".parse().unwrap();
        let other: IpAddr = "2001:db8:0:1::1".parse().unwrap();
        let held = c.admit(one).unwrap();
        assert_eq!(c.admit(same_block).unwrap_err(), ConnectionRejection::PerClient);
        assert!(c.admit(other).is_ok());
        drop(held);
        assert!(c.admit(same_block).is_ok());
        assert!(c.clients.lock().is_empty(), "a client without connections is forgotten");
    }

    #[test]
    fn mapped_addresses_count_as_the_address_they_map() {
        let c = ConnectionLimiter::new(limits(0, 1, 0));
        let _held = c.admit("::ffff:10.0.0.1".parse().unwrap()).unwrap();
        assert_eq!(c.admit("10.0.0.1".parse().unwrap()).unwrap_err(), ConnectionRejection::PerClient);
    }

    #[test]
    fn accept_rate_is_limited() {
        let c = ConnectionLimiter::new(limits(0, 0, 5));
        let taken = (0..20).filter(|_| c.admit([127, 0, 0, 1].into()).is_ok()).count();
        assert!((5..=6).contains(&taken), "{taken}");
    }
}
