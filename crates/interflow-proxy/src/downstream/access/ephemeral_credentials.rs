//! Credentials for a program started with `interflow exec`, valid while it runs. Only their digests are kept, in
//! memory.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use interflow_types::random_bytes;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::BasicCredentials;

/// Bound on valid credentials; the least recently used are dropped first.
const MAX_CREDENTIALS: usize = 1_000;
/// Unused for this long, credentials expire: the program's `interflow exec` was killed before it could revoke them.
const IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 3_600);

/// The valid credentials: digest and time of last use.
#[derive(Default)]
pub(crate) struct EphemeralCredentials(Mutex<HashMap<[u8; 32], Instant>>);

impl EphemeralCredentials {
    /// Issues credentials for this name; returns the password.
    pub fn issue(&self, name: &str, now: Instant) -> String {
        let password = hex::encode(random_bytes::<24>());
        let mut issued = self.0.lock();
        // Expired entries are removed only here, so that checking a password never scans the map.
        issued.retain(|_, last_used| now.saturating_duration_since(*last_used) < IDLE_TIMEOUT);
        if issued.len() >= MAX_CREDENTIALS
            && let Some(oldest) = issued.iter().min_by_key(|(_, last_used)| **last_used).map(|(digest, _)| *digest)
        {
            issued.remove(&oldest);
        }
        issued.insert(digest(name, &password), now);
        password
    }

    pub fn revoke(&self, name: &str, password: &str) {
        self.0.lock().remove(&digest(name, password));
    }

    /// Whether these credentials were issued and are still valid. A successful check renews them.
    pub fn accepts(&self, credentials: &BasicCredentials, now: Instant) -> bool {
        let mut issued = self.0.lock();
        let last_used = issued.get_mut(&digest(&credentials.name, &credentials.password));
        let Some(last_used) = last_used.filter(|last_used| now.saturating_duration_since(**last_used) < IDLE_TIMEOUT)
        else {
            return false;
        };
        *last_used = now;
        true
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
        assert!(issued.accepts(&basic("exec", &password), now));
        assert!(!issued.accepts(&basic("ann", &password), now) && !issued.accepts(&basic("exec", "guess"), now));
        let later = now + IDLE_TIMEOUT - Duration::from_secs(1);
        assert!(issued.accepts(&basic("exec", &password), later), "what is used stays good");
        assert!(issued.accepts(&basic("exec", &password), later + IDLE_TIMEOUT - Duration::from_secs(1)));
        assert!(!issued.accepts(&basic("exec", &password), later + IDLE_TIMEOUT * 2));
        issued.revoke("exec", &password);
        assert!(!issued.accepts(&basic("exec", &password), now));
    }

    #[test]
    fn ephemeral_credentials_are_bounded() {
        let (issued, now) = (EphemeralCredentials::default(), Instant::now());
        let first = issued.issue("first", now);
        (0..MAX_CREDENTIALS).for_each(|_| drop(issued.issue("exec", now + Duration::from_secs(1))));
        assert_eq!(issued.0.lock().len(), MAX_CREDENTIALS);
        assert!(!issued.accepts(&basic("first", &first), now));
    }
}
