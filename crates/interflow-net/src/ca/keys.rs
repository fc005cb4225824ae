//! A pool of pregenerated leaf keys.
//!
//! Generating a key is the expensive part of a cache miss; signing is cheap. The pool moves it out of the handshake, to
//! a short-lived thread. A burst that empties the pool costs latency only: the caller then generates its own key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rcgen::KeyPair;
use rustls::sign::SigningKey;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Keys held ready. A page with many hosts needs some dozens at once.
const POOL_SIZE: usize = 64;
/// The pool is refilled when it falls below this size.
const REFILL_THRESHOLD: usize = 32;

/// A P-256 key: its public half for the certificate, its private half for handshakes.
pub(super) struct LeafKey {
    pub(super) pair: KeyPair,
    pub(super) signer: Arc<dyn SigningKey>,
}

impl LeafKey {
    pub(super) fn generate() -> Self {
        let pair = KeyPair::generate().expect("the system gives random bytes for a P-256 key");
        Self::from_pair(pair).expect("a P-256 key that was just made is readable")
    }

    pub(super) fn from_pair(pair: KeyPair) -> Option<Self> {
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pair.serialized_der()));
        let signer = rustls::crypto::aws_lc_rs::sign::any_ecdsa_type(&der).ok()?;
        Some(Self { pair, signer })
    }
}

#[derive(Default)]
pub(super) struct KeyPool {
    ready: Mutex<Vec<LeafKey>>,
    filling: AtomicBool,
}

impl KeyPool {
    pub(super) fn take(pool: &Arc<Self>) -> LeafKey {
        let (key, left) = {
            let mut ready = pool.ready.lock();
            (ready.pop(), ready.len())
        };
        // At half, so that the pool is full again before a second page has used up the rest.
        if left < REFILL_THRESHOLD {
            Self::refill(pool);
        }
        key.unwrap_or_else(LeafKey::generate)
    }

    /// Fills the pool on a separate thread, unless one is running.
    pub(super) fn refill(pool: &Arc<Self>) {
        // One thread at a time; the flag is released by the thread itself.
        if pool.filling.swap(true, Ordering::AcqRel) {
            return;
        }
        let filled = pool.clone();
        let spawned = std::thread::Builder::new().name("leaf-keys".to_owned()).spawn(move || {
            // The lock is not held while generating.
            while filled.ready.lock().len() < POOL_SIZE {
                let key = LeafKey::generate();
                filled.ready.lock().push(key);
            }
            filled.filling.store(false, Ordering::Release);
        });
        if spawned.is_err() {
            // Without a thread, keys are generated when they are needed.
            pool.filling.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_pool_never_hands_out_a_key_twice() {
        let pool = Arc::new(KeyPool::default());
        let mut seen = std::collections::HashSet::new();
        for _ in 0..3 * POOL_SIZE {
            assert!(seen.insert(KeyPool::take(&pool).pair.public_key_raw().to_vec()));
        }
    }
}
