//! Verifies virtual keys with bcrypt hashes off the worker threads: limited concurrency, fair between clients, and
//! once for all concurrent requests with the same key.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use interflow_limits::VirtualKeyRing;
use parking_lot::Mutex;

use interflow_limits::{LoginQueue, LoginQueueFull};

/// Verifications in progress. bcrypt takes tens of milliseconds or more, which would block every connection of a
/// worker.
pub(super) struct SlowKeyChecks {
    queue: Arc<LoginQueue>,
    /// Requests with the same key wait for the first of them. The map is keyed by digest, so it holds no presented
    /// key.
    running: Mutex<HashMap<[u8; 32], Weak<tokio::sync::Mutex<()>>>>,
}

impl Default for SlowKeyChecks {
    fn default() -> Self {
        // Half the cores, so that guessing keys cannot take the whole machine.
        let hashing = std::thread::available_parallelism().map_or(1, |n| n.get().div_ceil(2));
        Self { queue: LoginQueue::new(hashing), running: Mutex::default() }
    }
}

impl SlowKeyChecks {
    /// Returns once the key ring has the result for this key. Cancel-safe: a dropped caller lets the next one with
    /// the same key take over.
    ///
    /// # Errors
    /// Too many keys of this client are waiting.
    pub async fn check(&self, ring: Arc<VirtualKeyRing>, shown: String, client: IpAddr) -> Result<(), LoginQueueFull> {
        let same = self.same(ring.digest(&shown));
        // Only the first caller hashes. The others find the cached result when they get the lock.
        let _first = same.lock().await;
        if !ring.needs_check(&shown) {
            return Ok(());
        }
        let slot = self.queue.acquire(client).await.ok_or(LoginQueueFull)?;
        let check = move || {
            // The slot is held while the hashes are computed, even if the client disconnects.
            let _slot = slot;
            ring.check(&shown);
        };
        // If the verification was cut short, the key stays unknown and is rejected.
        let _ = tokio::task::spawn_blocking(check).await;
        Ok(())
    }

    fn same(&self, digest: [u8; 32]) -> Arc<tokio::sync::Mutex<()>> {
        let mut running = self.running.lock();
        // Finished verifications leave dead entries; they are removed by the next one, so the map stays as small as
        // the number in progress.
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
    async fn key_check_flood_is_bounded_and_equal_keys_share_one_check() {
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
        // Eight wait, one of them with the right key.
        assert_eq!(refused, 13);
        for right in rights {
            assert_eq!(right.await.unwrap(), Ok(()));
        }
        assert!(ring.find_now("right").is_ok() && ring.find_now("guess 19").is_err());
    }
}
