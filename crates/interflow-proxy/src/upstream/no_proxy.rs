//! Hosts reached without an upstream proxy, with the `NO_PROXY` semantics of curl and most runtimes.

use interflow_types::{Authority, Host};
use ipnet::IpNet;

#[derive(Clone, Debug, Default)]
pub(crate) struct NoProxyList {
    entries: Vec<(NoProxyEntry, Option<u16>)>,
}

#[derive(Clone, Debug)]
enum NoProxyEntry {
    All,
    /// The name and all its subdomains.
    Name(String),
    Net(IpNet),
}

impl NoProxyList {
    pub fn new(list: &[String]) -> Result<Self, String> {
        Ok(Self { entries: list.iter().map(|text| parse_entry(text.trim())).collect::<Result<_, _>>()? })
    }

    pub fn matches(&self, authority: &Authority) -> bool {
        self.entries.iter().any(|(entry, port)| {
            port.is_none_or(|p| p == authority.port)
                && match (entry, &authority.host) {
                    (NoProxyEntry::All, _) => true,
                    (NoProxyEntry::Name(name), Host::Name(host)) => {
                        let host = host.trim_end_matches('.');
                        host.strip_suffix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
                    }
                    (NoProxyEntry::Net(net), Host::Ip(ip)) => net.contains(&ip.to_canonical()),
                    _ => false,
                }
        })
    }
}

fn parse_entry(text: &str) -> Result<(NoProxyEntry, Option<u16>), String> {
    if text == "*" {
        return Ok((NoProxyEntry::All, None));
    }
    if let Ok(net) = text.parse::<IpNet>() {
        return Ok((NoProxyEntry::Net(net), None));
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<std::net::IpAddr>() {
        return Ok((NoProxyEntry::Net(ip.into()), None));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => {
            (host, Some(port.parse().map_err(|_| format!("`{text}`: the port must be a number from 1 to 65535"))?))
        }
        None => (text, None),
    };
    let host = host.trim_start_matches("*.").trim_start_matches('.');
    match Host::parse(host).map_err(|e| format!("`{text}`: {e}"))? {
        Host::Name(name) => Ok((NoProxyEntry::Name(name.trim_end_matches('.').to_owned()), port)),
        Host::Ip(ip) => Ok((NoProxyEntry::Net(ip.into()), port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cover_their_subdomains_and_addresses_their_blocks() {
        let list = ["localhost", ".corp.test", "*.wild.test", "exact.test:8080", "10.0.0.0/8", "[::1]", "192.0.2.7:81"];
        let list = NoProxyList::new(&list.map(String::from)).unwrap();
        for (authority, direct) in [
            ("localhost:80", true),
            ("a.corp.test:443", true),
            ("corp.test:443", true),
            ("notcorp.test:443", false),
            ("x.wild.test:1", true),
            ("exact.test:8080", true),
            ("exact.test:80", false),
            ("10.200.0.1:80", true),
            ("11.0.0.1:80", false),
            ("[::1]:9", true),
            ("192.0.2.7:81", true),
            ("192.0.2.7:80", false),
        ] {
            assert_eq!(list.matches(&authority.parse().unwrap()), direct, "{authority}");
        }
        assert!(NoProxyList::new(&["*".into()]).unwrap().matches(&"any:1".parse().unwrap()));
        assert!(NoProxyList::new(&["a b".into()]).unwrap_err().contains("`a b`"));
    }
}
