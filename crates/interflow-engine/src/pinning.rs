//! Clients that refuse our leaf for an authority, again and again: they pin, and are let through unseen for a time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use interflow_flow::Host;
use parking_lot::Mutex;

/// A client and an authority's host.
type Key = (IpAddr, Host);

/// Who refused what, and who passes until when.
#[derive(Debug, Default)]
pub struct Pinning {
    seen: Mutex<HashMap<Key, Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// It has taken our leaf before: it trusts our CA.
    trusts: bool,
    failures: u32,
    pass_until: Option<Instant>,
    last: Option<Instant>,
}

/// A client that passes unseen now.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Passing {
    /// The client.
    pub client: IpAddr,
    /// The host.
    pub host: String,
    /// Seconds until it is looked into again.
    pub seconds_left: u64,
}

/// Bound on what is remembered.
const MOST: usize = 10_000;

impl Pinning {
    /// Whether this client's TLS to this host passes unseen now.
    pub fn passes(&self, client: IpAddr, host: &Host) -> bool {
        let seen = self.seen.lock();
        // Usually nobody has refused anything, and the lookup costs nothing.
        !seen.is_empty()
            && seen.get(&(client, host.clone())).and_then(|s| s.pass_until).is_some_and(|until| until > Instant::now())
    }

    /// The client refused our leaf, or (`silently`) went away when it saw it. `true` when from now on it passes unseen.
    ///
    /// A client that is known to trust our CA goes away for reasons of its own: that must not open a way around
    /// interception, and around all that rests on it.
    pub fn refused(&self, client: IpAddr, host: &Host, silently: bool, failures: u32, pass: Duration) -> bool {
        if failures == 0 {
            return false;
        }
        let now = Instant::now();
        let mut seen = self.seen.lock();
        if seen.len() >= MOST {
            seen.retain(|_, s| s.pass_until.is_some_and(|until| until > now));
            if seen.len() >= MOST {
                seen.clear();
            }
        }
        let entry = seen.entry((client, host.clone())).or_default();
        if silently && entry.trusts {
            return false;
        }
        // Failures far apart are different stories.
        if entry.last.is_some_and(|last| now - last > pass) {
            entry.failures = 0;
        }
        entry.last = Some(now);
        entry.failures += 1;
        let passes = entry.failures >= failures;
        if passes {
            entry.failures = 0;
            entry.pass_until = Some(now + pass);
        }
        passes
    }

    /// The client took our leaf: what it refused before no longer counts.
    pub fn accepted(&self, client: IpAddr, host: &Host) {
        let mut seen = self.seen.lock();
        if seen.len() < MOST || seen.contains_key(&(client, host.clone())) {
            seen.insert((client, host.clone()), Seen { trusts: true, ..Seen::default() });
        }
    }

    /// Everybody who passes unseen now.
    pub fn passing(&self) -> Vec<Passing> {
        let now = Instant::now();
        let left = |s: &Seen| s.pass_until.and_then(|until| until.checked_duration_since(now));
        self.seen
            .lock()
            .iter()
            .filter_map(|((client, host), s)| {
                let seconds_left = left(s)?.as_secs();
                Some(Passing { client: *client, host: host.to_string(), seconds_left })
            })
            .collect()
    }

    /// Looks into everybody again.
    pub fn forget(&self) {
        self.seen.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_enough_refusals_in_a_row_the_client_passes_for_a_time() {
        let p = Pinning::default();
        let client: IpAddr = [127, 0, 0, 1].into();
        let host = Host::parse("pinned.test").unwrap();
        let refuse = || p.refused(client, &host, false, 2, Duration::from_secs(60));
        assert!(!refuse());
        p.accepted(client, &host);
        assert!(!refuse() && !p.passes(client, &host));
        assert!(refuse() && p.passes(client, &host));
        assert!(!p.passes([127, 0, 0, 2].into(), &host));
        assert_eq!(p.passing().len(), 1);
        p.forget();
        assert!(!p.passes(client, &host));
    }

    #[test]
    fn the_pass_ends_and_zero_turns_it_off() {
        let p = Pinning::default();
        let host = Host::parse("pinned.test").unwrap();
        let client: IpAddr = [127, 0, 0, 1].into();
        assert!(!p.refused(client, &host, false, 0, Duration::from_secs(60)));
        assert!(p.refused(client, &host, false, 1, Duration::ZERO));
        assert!(!p.passes(client, &host));
    }

    #[test]
    fn a_client_that_trusts_us_does_not_pass_by_going_away() {
        let p = Pinning::default();
        let host = Host::parse("a.test").unwrap();
        let client: IpAddr = [127, 0, 0, 1].into();
        let leave = || p.refused(client, &host, true, 1, Duration::from_secs(60));
        p.accepted(client, &host);
        assert!(!leave() && !leave() && !p.passes(client, &host));
        p.forget();
        assert!(leave() && p.passes(client, &host));
    }
}
