//! Virtual keys with bcrypt hashes are checked beside the workers: so many at a time, clients in turn, and once for all
//! requests that show the same key.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use interflow_limits::VirtualKeyRing;
use parking_lot::Mutex;

use interflow_limits::{LoginQueue, LoginQueueFull};

/// The checks under way.
pub(super) struct SlowKeyChecks {
    queue: Arc<LoginQueue>,
    /// Requests that show the same key wait for the first of them.
    running: Mutex<HashMap<[u8; 32], Weak<tokio::sync::Mutex<()>>>>,
}

impl Default for SlowKeyChecks {
    fn default() -> Self {
        let hashing = std::thread::available_parallelism().map_or(1, |n| n.get().div_ceil(2));
        Self { queue: LoginQueue::new(hashing), running: Mutex::default() }
    }
}

impl SlowKeyChecks {
    /// Returns once the ring knows what this key is.
    ///
    /// # Errors
    /// This client has too many keys waiting.
    pub async fn check(&self, ring: Arc<VirtualKeyRing>, shown: String, client: IpAddr) -> Result<(), LoginQueueFull> {
        let same = self.same(ring.digest(&shown));
        let _first = same.lock().await;
        if !ring.needs_check(&shown) {
            return Ok(());
        }
        let slot = self.queue.acquire(client).await.ok_or(LoginQueueFull)?;
        let check = move || {
            // Held for as long as the hashes take, even if the client goes away meanwhile.
            let _slot = slot;
            ring.check(&shown);
        };
        // A check that was cut short leaves the key unknown, and so refused.
        let _ = tokio::task::spawn_blocking(check).await;
        Ok(())
    }

    fn same(&self, digest: [u8; 32]) -> Arc<tokio::sync::Mutex<()>> {
        let mut running = self.running.lock();
        running.retain(|_, check| check.strong_count() > 0);
        if let Some(check) = running.get(&digest).and_then(Weak::upgrade) {
            return check;
        }
        let check = Arc::default();
        running.insert(digest, Arc::downgrade(&check));
        check
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUESSER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[tokio::test]
    async fn a_flood_of_keys_is_bounded_and_requests_with_one_key_wait_for_one_check() {
        let hash = bcrypt::hash("right", 4).unwrap();
        let ring = Arc::new(VirtualKeyRing::parse(&format!("[[key]]\nid = 'a'\nhash = '{hash}'\n")).unwrap());
        let checks = Arc::new(SlowKeyChecks { queue: LoginQueue::new(1), running: Mutex::default() });
        let busy = checks.queue.acquire(OTHER).await.unwrap();
        let check = |key: String| {
            let (checks, ring) = (Arc::clone(&checks), Arc::clone(&ring));
            tokio::spawn(async move { checks.check(ring, key, GUESSER).await })
        };
        let guesses: Vec<_> = (0..20).map(|i| check(format!("guess {i}"))).collect();
        let rights: Vec<_> = (0..20).map(|_| check("right".into())).collect();
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        drop(busy);
        let mut refused = 0;
        for guess in guesses {
            refused += usize::from(guess.await.unwrap().is_err());
        }
        // Eight wait, and the right key is one of them.
        assert_eq!(refused, 13);
        for right in rights {
            assert_eq!(right.await.unwrap(), Ok(()));
        }
        assert!(ring.find_now("right").is_ok() && ring.find_now("guess 19").is_err());
    }
}
