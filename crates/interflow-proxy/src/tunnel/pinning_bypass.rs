//! Tracks clients that refuse issued leaves. Those that do not trust the CA continue to be refused; those that pin a
//! host are passed through without inspection for a time.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use hashlink::LruCache;
use interflow_types::schema::JsonSchema;
use interflow_types::{ByteStr, ClientInfo, Host};
use parking_lot::Mutex;

/// A program, identified by its address, its TLS fingerprint and, if known, its process name. Two programs with the
/// same TLS library on one machine cannot be told apart without the process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientProgram {
    address: IpAddr,
    ja4: ByteStr,
    process: Option<ByteStr>,
}

impl ClientProgram {
    /// The program behind a connection whose ClientHello has this fingerprint.
    pub fn from_client(client: &ClientInfo, ja4: Option<&ByteStr>) -> Self {
        Self {
            address: client.peer.ip().to_canonical(),
            ja4: ja4.cloned().unwrap_or_default(),
            process: client.process.as_ref().map(|p| p.name.clone()),
        }
    }
}

/// Which programs trust the CA, what they refused, and which bypasses are active.
#[derive(Debug, Default)]
pub struct PinningBypass {
    state: Mutex<PinningState>,
}

#[derive(Debug)]
struct PinningState {
    /// Programs that accepted a leaf for some host: they trust the CA, so a refusal by them means pinning.
    trusting: LruCache<ClientProgram, ()>,
    seen: LruCache<(ClientProgram, Host), PinningHistory>,
}

impl Default for PinningState {
    fn default() -> Self {
        Self { trusting: LruCache::new(MAX_ENTRIES), seen: LruCache::new(MAX_ENTRIES) }
    }
}

#[derive(Debug, Default)]
struct PinningHistory {
    /// It accepted a leaf for this host: it does not pin it.
    took_it: bool,
    /// Consecutive refusals since the last bypass or the last long pause.
    failures: u32,
    pass_until: Option<Instant>,
    last: Option<Instant>,
}

/// The meaning of a refused leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafRefusal {
    /// The program never accepted a leaf for any host: it does not trust the CA.
    Untrusting,
    /// The program accepted a leaf for this host before: it does not pin it.
    TookItBefore,
    /// The program accepts leaves for other hosts: it pins this one.
    Pins {
        /// The bypass threshold is reached.
        bypassed: bool,
    },
}

/// A program with an active bypass.
#[derive(Debug, Clone, serde::Serialize, JsonSchema)]
pub struct BypassedClient {
    pub client: IpAddr,
    pub ja4: String,
    /// The name of its process, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    pub host: String,
    /// Seconds until it is intercepted again.
    pub seconds_left: u64,
}

/// Bound on programs, and on pairs of programs and hosts, that are remembered; the least recently used ones go.
const MAX_ENTRIES: usize = 10_000;

impl PinningBypass {
    /// Whether this program's TLS to this host is passed through at present.
    pub fn is_bypassed(&self, program: &ClientProgram, host: &Host) -> bool {
        let mut state = self.state.lock();
        // Fast path: usually nobody has refused anything.
        !state.seen.is_empty()
            && state
                .seen
                .get(&(program.clone(), host.clone()))
                .and_then(|s| s.pass_until)
                .is_some_and(|until| until > Instant::now())
    }

    /// Whether this program has accepted a leaf for this host.
    pub fn accepted_leaf(&self, program: &ClientProgram, host: &Host) -> bool {
        self.state.lock().seen.get(&(program.clone(), host.clone())).is_some_and(|s| s.took_it)
    }

    /// Records a refusal. After `failures` consecutive ones by a program that trusts the CA, its connections to the
    /// host are passed through for `pass`; 0 disables this.
    pub fn record_refusal(&self, program: &ClientProgram, host: &Host, failures: u32, pass: Duration) -> LeafRefusal {
        let mut state = self.state.lock();
        if state.trusting.get(program).is_none() {
            return LeafRefusal::Untrusting;
        }
        let now = Instant::now();
        // Per host: a program pins some hosts and not others.
        let entry = state.seen.entry((program.clone(), host.clone())).or_insert_with(PinningHistory::default);
        if entry.took_it {
            return LeafRefusal::TookItBefore;
        }
        if failures == 0 {
            return LeafRefusal::Pins { bypassed: false };
        }
        // Refusals far apart are unrelated.
        if entry.last.is_some_and(|last| now - last > pass) {
            entry.failures = 0;
        }
        entry.last = Some(now);
        entry.failures += 1;
        let bypassed = entry.failures >= failures;
        if bypassed {
            // Counting starts again, so that the bypass has to be earned anew when it ends.
            entry.failures = 0;
            entry.pass_until = Some(now + pass);
        }
        LeafRefusal::Pins { bypassed }
    }

    /// The program accepted the leaf and sent data: it trusts the CA, and its refusals for this host are reset.
    pub fn record_acceptance(&self, program: &ClientProgram, host: &Host) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(seen) = state.seen.get(&(program.clone(), host.clone()))
            && seen.took_it
            // The common case, without an insert: this runs for every intercepted connection.
            && state.trusting.get(program).is_some()
        {
            return;
        }
        state.trusting.insert(program.clone(), ());
        state
            .seen
            .insert((program.clone(), host.clone()), PinningHistory { took_it: true, ..PinningHistory::default() });
    }

    pub fn bypassed_clients(&self) -> Vec<BypassedClient> {
        let now = Instant::now();
        let remaining = |s: &PinningHistory| s.pass_until.and_then(|until| until.checked_duration_since(now));
        self.state
            .lock()
            .seen
            .iter()
            .filter_map(|((program, host), s)| {
                Some(BypassedClient {
                    client: program.address,
                    ja4: program.ja4.to_string(),
                    process: program.process.as_ref().map(ToString::to_string),
                    host: host.to_string(),
                    seconds_left: remaining(s)?.as_secs(),
                })
            })
            .collect()
    }

    /// Ends all bypasses, or those for one host. Returns how many there were.
    pub fn clear(&self, host: Option<&Host>) -> usize {
        let now = Instant::now();
        let mut state = self.state.lock();
        let mut passed = 0;
        state.seen.retain(|(_, of), seen| {
            // Only refusals are forgotten; that a program accepted a leaf stays known.
            let forgotten = !seen.took_it && host.is_none_or(|host| host == of);
            passed += usize::from(forgotten && seen.pass_until.is_some_and(|until| until > now));
            !forgotten
        });
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: Duration = Duration::from_secs(60);

    fn program(address: u8, ja4: &'static str) -> ClientProgram {
        ClientProgram { address: [127, 0, 0, address].into(), ja4: ja4.into(), process: None }
    }

    fn host(name: &str) -> Host {
        Host::parse(name).unwrap()
    }

    #[test]
    fn program_that_never_accepted_a_leaf_is_not_bypassed() {
        let p = PinningBypass::default();
        let (curl, a) = (program(1, "curl"), host("a.test"));
        for _ in 0..10 {
            assert_eq!(p.record_refusal(&curl, &a, 2, PASS), LeafRefusal::Untrusting);
        }
        assert!(!p.is_bypassed(&curl, &a) && p.bypassed_clients().is_empty());
    }

    #[test]
    fn only_a_program_that_trusts_the_ca_elsewhere_is_bypassed_as_pinning() {
        let p = PinningBypass::default();
        let (app, other) = (program(1, "app"), program(1, "other"));
        let pinned = host("pinned.test");
        p.record_acceptance(&app, &host("a.test"));
        p.record_acceptance(&other, &host("a.test"));
        assert_eq!(p.record_refusal(&app, &pinned, 2, PASS), LeafRefusal::Pins { bypassed: false });
        assert_eq!(p.record_refusal(&app, &pinned, 2, PASS), LeafRefusal::Pins { bypassed: true });
        assert!(p.is_bypassed(&app, &pinned));
        let mut elsewhere = app.clone();
        elsewhere.address = [127, 0, 0, 2].into();
        let mut process = app.clone();
        process.process = Some("curl".into());
        for stranger in [&other, &elsewhere, &process] {
            assert!(!p.is_bypassed(stranger, &pinned), "{stranger:?}");
        }
        assert!(!p.is_bypassed(&app, &host("b.test")));
        assert_eq!(p.bypassed_clients().len(), 1);
    }

    #[test]
    fn refusal_after_an_accepted_leaf_of_the_host_is_not_pinning() {
        let p = PinningBypass::default();
        let (app, a) = (program(1, "app"), host("a.test"));
        p.record_acceptance(&app, &a);
        for _ in 0..5 {
            assert_eq!(p.record_refusal(&app, &a, 1, PASS), LeafRefusal::TookItBefore);
        }
        assert!(p.accepted_leaf(&app, &a) && !p.is_bypassed(&app, &a));
    }

    #[test]
    fn zero_failures_or_duration_disables_the_pinning_bypass() {
        let p = PinningBypass::default();
        let (app, pinned) = (program(1, "app"), host("pinned.test"));
        p.record_acceptance(&app, &host("a.test"));
        assert_eq!(p.record_refusal(&app, &pinned, 0, PASS), LeafRefusal::Pins { bypassed: false });
        assert_eq!(p.record_refusal(&app, &pinned, 1, Duration::ZERO), LeafRefusal::Pins { bypassed: true });
        assert!(!p.is_bypassed(&app, &pinned));
    }

    #[test]
    fn cleared_or_accepting_clients_are_intercepted_again() {
        let p = PinningBypass::default();
        let app = program(1, "app");
        p.record_acceptance(&app, &host("a.test"));
        for name in ["one.test", "two.test", "three.test"] {
            p.record_refusal(&app, &host(name), 1, PASS);
        }
        assert_eq!(p.clear(Some(&host("two.test"))), 1);
        assert!(!p.is_bypassed(&app, &host("two.test")) && p.is_bypassed(&app, &host("one.test")));
        p.record_acceptance(&app, &host("one.test"));
        assert!(!p.is_bypassed(&app, &host("one.test")), "a leaf that was taken ends the bypass");
        assert_eq!(p.clear(None), 1);
        assert_eq!(p.record_refusal(&app, &host("three.test"), 2, PASS), LeafRefusal::Pins { bypassed: false });
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_is_used_stays() {
        let p = PinningBypass::default();
        let (app, pinned) = (program(2, "app"), host("pinned.test"));
        p.record_acceptance(&app, &host("a.test"));
        p.record_refusal(&app, &pinned, 1, PASS);
        for i in 0..MAX_ENTRIES + 50 {
            let one = ClientProgram { ja4: format!("{i}").into(), ..program(1, "") };
            p.record_acceptance(&one, &host("a.test"));
            if i % 1000 == 0 {
                assert!(p.is_bypassed(&app, &pinned), "a bypass in use, after {i} others");
                p.record_acceptance(&app, &host("a.test"));
            }
        }
        assert_ne!(p.record_refusal(&app, &pinned, 1, PASS), LeafRefusal::Untrusting);
        let state = p.state.lock();
        assert!(state.trusting.len() <= MAX_ENTRIES && state.seen.len() <= MAX_ENTRIES);
    }
}
