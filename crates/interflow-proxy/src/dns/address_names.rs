//! Maps addresses to the names they were resolved from, bounded in number and time.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashlink::LinkedHashMap;
use interflow_codec::dns::AddressRecords;
use parking_lot::Mutex;

use super::config::DnsConfig;

/// Names kept per address: one address may host many sites.
const MAX_NAMES_PER_ADDRESS: usize = 32;
/// The longest that a name is kept, whatever its TTL.
const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

/// Each with the time until which it is kept.
type ExpiringNames = Vec<(Arc<str>, Instant)>;

/// Names seen in the DNS listener's responses, by address.
#[derive(Debug)]
pub struct AddressNames {
    keep: Duration,
    most: usize,
    /// The address that was resolved longest ago first.
    addresses: Mutex<LinkedHashMap<IpAddr, ExpiringNames>>,
}

impl AddressNames {
    pub fn new(config: &DnsConfig) -> Self {
        Self { keep: config.min_ttl.0, most: config.max_names.max(1), addresses: Mutex::default() }
    }

    pub fn record_answer(&self, response: &AddressRecords) {
        let now = Instant::now();
        let name: Arc<str> = response.question.name.as_str().into();
        let mut addresses = self.addresses.lock();
        for (address, ttl) in &response.addresses {
            // `min_ttl` is raised to at most `MAX_TTL`, so that the bounds of `clamp` cannot cross, which would
            // panic.
            let until = now + Duration::from_secs((*ttl).into()).clamp(self.keep.min(MAX_TTL), MAX_TTL);
            let address = address.to_canonical();
            if !addresses.contains_key(&address) {
                while addresses.len() >= self.most && addresses.pop_front().is_some() {}
            }
            let names = addresses.entry(address).or_insert_with(Vec::new);
            // Inserted again at the end, so that `names_for` returns the latest name first.
            names.retain(|(n, _)| *n != name);
            if names.len() >= MAX_NAMES_PER_ADDRESS {
                names.remove(0);
            }
            names.push((Arc::clone(&name), until));
        }
    }

    /// The names that resolved to this address, the latest first.
    pub fn names_for(&self, address: IpAddr) -> Vec<Arc<str>> {
        let (addresses, now) = (self.addresses.lock(), Instant::now());
        let names = addresses.get(&address.to_canonical()).into_iter().flatten();
        names.rev().filter(|(_, until)| *until > now).map(|(name, _)| Arc::clone(name)).collect()
    }

    pub fn len(&self) -> usize {
        self.addresses.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_codec::dns::DnsQuestion;
    use interflow_types::units::HumanDuration;

    fn records(name: &str, addresses: &[&str]) -> AddressRecords {
        AddressRecords {
            question: DnsQuestion { id: 1, name: name.into(), kind: 1 },
            addresses: addresses.iter().map(|a| (a.parse().unwrap(), 0)).collect(),
            ..AddressRecords::default()
        }
    }

    fn of(names: &AddressNames, address: &str) -> Vec<String> {
        names.names_for(address.parse().unwrap()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn address_keeps_all_its_dns_names_latest_first() {
        let names = AddressNames::new(&DnsConfig::default());
        for name in ["a.test", "b.test", "a.test"] {
            names.record_answer(&records(name, &["192.0.2.1"]));
        }
        assert_eq!(of(&names, "::ffff:192.0.2.1"), ["a.test", "b.test"]);
        assert!(of(&names, "192.0.2.2").is_empty());
    }

    #[test]
    fn dns_names_of_addresses_are_bounded_and_expire() {
        let names = AddressNames::new(&DnsConfig { max_names: 3, ..DnsConfig::default() });
        for i in 0..10 {
            names.record_answer(&records(&format!("n{i}.test"), &[&format!("192.0.2.{i}")]));
        }
        assert_eq!(names.len(), 3);
        assert!(of(&names, "192.0.2.6").is_empty() && of(&names, "192.0.2.9") == ["n9.test"]);
        for i in 0..100 {
            names.record_answer(&records(&format!("n{i}.test"), &["192.0.2.9"]));
        }
        assert_eq!(of(&names, "192.0.2.9").len(), MAX_NAMES_PER_ADDRESS);
        let short = AddressNames::new(&DnsConfig { min_ttl: HumanDuration::from_secs(0), ..DnsConfig::default() });
        short.record_answer(&records("a.test", &["192.0.2.1"]));
        assert!(of(&short, "192.0.2.1").is_empty(), "its time to live is over");
    }
}
