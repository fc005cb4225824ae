//! Credentials for a program started with `interflow exec`, valid while it runs. Only their digests are kept, in
//! memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use interflow_types::random_bytes;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::BasicCredentials;

/// Bound on valid credentials; the least recently used are dropped first.
const MAX_CREDENTIALS: usize = 1_000;
/// Unused for this long, credentials expire: the program's `interflow exec` was killed before it could revoke them.
const IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 3_600);

/// Issued credentials, as what authenticated with them keeps them.
#[derive(Debug, Default)]
pub(crate) struct EphemeralCredential {
    ended: AtomicBool,
}

impl EphemeralCredential {
    /// Whether they were neither revoked nor dropped.
    pub fn is_valid(&self) -> bool {
        // Relaxed suffices, because the flag guards no other data.
        !self.ended.load(Ordering::Relaxed)
    }
}

struct IssuedCredential {
    credential: Arc<EphemeralCredential>,
    last_used: Instant,
}

impl IssuedCredential {
    fn is_idle(&self, now: Instant) -> bool {
        // A connection or tunnel that holds them uses them.
        now.saturating_duration_since(self.last_used) >= IDLE_TIMEOUT && Arc::strong_count(&self.credential) == 1
    }
}

impl Drop for IssuedCredential {
    fn drop(&mut self) {
        self.credential.ended.store(true, Ordering::Relaxed);
    }
}

/// The valid credentials by their digest.
#[derive(Default)]
pub(crate) struct EphemeralCredentials(Mutex<HashMap<[u8; 32], IssuedCredential>>);

impl EphemeralCredentials {
    /// Issues credentials for this name; returns the password.
    pub fn issue(&self, name: &str, now: Instant) -> String {
        let password = hex::encode(random_bytes::<24>());
        let mut issued = self.0.lock();
        // Expired entries are removed only here, so that checking a password never scans the map.
        issued.retain(|_, one| !one.is_idle(now));
        if issued.len() >= MAX_CREDENTIALS
            && let Some(oldest) = issued.iter().min_by_key(|(_, one)| one.last_used).map(|(digest, _)| *digest)
        {
            issued.remove(&oldest);
        }
        issued.insert(digest(name, &password), IssuedCredential { credential: Arc::default(), last_used: now });
        password
    }

    pub fn revoke(&self, name: &str, password: &str) {
        self.0.lock().remove(&digest(name, password));
    }

    /// These credentials, if they were issued and are still valid. A successful check renews them.
    pub fn accepts(&self, credentials: &BasicCredentials, now: Instant) -> Option<Arc<EphemeralCredential>> {
        let mut issued = self.0.lock();
        let one = issued.get_mut(&digest(&credentials.name, &credentials.password)).filter(|one| !one.is_idle(now))?;
        one.last_used = now;
        Some(Arc::clone(&one.credential))
    }
}

fn digest(name: &str, password: &str) -> [u8; 32] {
    // The length prefix keeps the name `ab` with password `c` apart from `a` with `bc`.
    Sha256::new()
        .chain_update((name.len() as u64).to_le_bytes())
        .chain_update(name)
        .chain_update(password)
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(name: &str, password: &str) -> BasicCredentials {
        BasicCredentials { name: name.into(), password: password.into() }
    }

    #[test]
    fn ephemeral_credential_is_valid_for_its_user_until_revoked_or_idle() {
        let (issued, now) = (EphemeralCredentials::default(), Instant::now());
        let password = issued.issue("exec", now);
        assert_eq!(password.len(), 48);
        let accepts = |name: &str, password: &str, now: Instant| issued.accepts(&basic(name, password), now).is_some();
        assert!(accepts("exec", &password, now));
        assert!(!accepts("ann", &password, now) && !accepts("exec", "guess", now));
        let later = now + IDLE_TIMEOUT - Duration::from_secs(1);
        assert!(accepts("exec", &password, later), "what is used stays good");
        assert!(accepts("exec", &password, later + IDLE_TIMEOUT - Duration::from_secs(1)));
        assert!(!accepts("exec", &password, later + IDLE_TIMEOUT * 2));
        issued.revoke("exec", &password);
        assert!(!accepts("exec", &password, now));
    }

    #[test]
    fn what_holds_a_credential_keeps_it_in_use_and_learns_of_its_end() {
        let (issued, now) = (EphemeralCredentials::default(), Instant::now());
        let password = issued.issue("exec", now);
        let held = issued.accepts(&basic("exec", &password), now).unwrap();
        drop(issued.issue("other", now + IDLE_TIMEOUT * 2));
        assert!(held.is_valid(), "a tunnel that is open for days uses it");
        issued.revoke("exec", &password);
        assert!(!held.is_valid());
    }

    #[test]
    fn ephemeral_credentials_are_bounded() {
        let (issued, now) = (EphemeralCredentials::default(), Instant::now());
        let first = issued.issue("first", now);
        (0..MAX_CREDENTIALS).for_each(|_| drop(issued.issue("exec", now + Duration::from_secs(1))));
        assert_eq!(issued.0.lock().len(), MAX_CREDENTIALS);
        assert!(issued.accepts(&basic("first", &first), now).is_none());
    }
}
