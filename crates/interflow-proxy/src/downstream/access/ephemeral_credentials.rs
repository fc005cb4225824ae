//! Credentials for a program started with `interflow exec`, valid while it runs. Only their digests are kept, in
//! memory.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::BasicCredentials;

/// Bound on valid credentials; the oldest are dropped first.
const MAX_CREDENTIALS: usize = 1_000;
/// Unused for this long, credentials expire: the program's `interflow exec` was killed before it could revoke them.
const IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 3_600);

/// The valid credentials: digest and time of last use.
#[derive(Default)]
pub(crate) struct EphemeralCredentials(Mutex<HashMap<[u8; 32], Instant>>);

impl EphemeralCredentials {
    /// Issues credentials for this name; returns the password.
    pub fn issue(&self, name: &str, now: Instant) -> String {
        let mut secret = [0; 24];
        getrandom::fill(&mut secret).expect("the operating system hands out random bytes");
        let password: String = secret.iter().map(|b| format!("{b:02x}")).collect();
        let mut passes = self.0.lock();
        passes.retain(|_, shown| now.saturating_duration_since(*shown) < IDLE_TIMEOUT);
        if passes.len() >= MAX_CREDENTIALS
            && let Some(oldest) = passes.iter().min_by_key(|(_, shown)| **shown).map(|(digest, _)| *digest)
        {
            passes.remove(&oldest);
        }
        passes.insert(digest(name, &password), now);
        password
    }

    pub fn revoke(&self, name: &str, password: &str) {
        self.0.lock().remove(&digest(name, password));
    }

    /// Whether these credentials were issued and are still valid.
    pub fn accepts(&self, credentials: &BasicCredentials, now: Instant) -> bool {
        let mut passes = self.0.lock();
        let shown = passes.get_mut(&digest(&credentials.name, &credentials.password));
        let Some(shown) = shown.filter(|shown| now.saturating_duration_since(**shown) < IDLE_TIMEOUT) else {
            return false;
        };
        *shown = now;
        true
    }
}

fn digest(name: &str, password: &str) -> [u8; 32] {
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

    fn shown(name: &str, password: &str) -> BasicCredentials {
        BasicCredentials { name: name.into(), password: password.into() }
    }

    #[test]
    fn a_pass_is_good_for_its_name_until_it_is_given_back_or_forgotten() {
        let (passes, now) = (EphemeralCredentials::default(), Instant::now());
        let password = passes.issue("exec", now);
        assert_eq!(password.len(), 48);
        assert!(passes.accepts(&shown("exec", &password), now));
        assert!(!passes.accepts(&shown("ann", &password), now) && !passes.accepts(&shown("exec", "guess"), now));
        let later = now + IDLE_TIMEOUT - Duration::from_secs(1);
        assert!(passes.accepts(&shown("exec", &password), later), "what is used stays good");
        assert!(passes.accepts(&shown("exec", &password), later + IDLE_TIMEOUT - Duration::from_secs(1)));
        assert!(!passes.accepts(&shown("exec", &password), later + IDLE_TIMEOUT * 2));
        passes.revoke("exec", &password);
        assert!(!passes.accepts(&shown("exec", &password), now));
    }

    #[test]
    fn there_are_never_more_than_so_many() {
        let (passes, now) = (EphemeralCredentials::default(), Instant::now());
        let first = passes.issue("first", now);
        (0..MAX_CREDENTIALS).for_each(|_| drop(passes.issue("exec", now + Duration::from_secs(1))));
        assert_eq!(passes.0.lock().len(), MAX_CREDENTIALS);
        assert!(!passes.accepts(&shown("first", &first), now));
    }
}
