//! What a link allows.

use std::net::IpAddr;

use interflow_flow::Host;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Parameters in their order, names as in a query.
pub type Pairs = Vec<(String, String)>;

/// What a link allows, and for whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The parameters of the request: `d`, `h_…`, `key` and so on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub q: Pairs,
    /// Until when, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp: Option<u64>,
    /// From which address, or network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// Only endpoints whose path begins with this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Only these hosts upstream: `cdn.test`, `*.cdn.test`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Whose link it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// It belongs to a playlist: only queries signed for it are served.
    #[serde(default, skip_serializing_if = "is_false")]
    pub child: bool,
    /// Child URLs do not show where they lead.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hide: bool,
}

fn is_false(b: &bool) -> bool {
    !b
}

/// Why a link does not hold for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its time is over.
    #[error("the link has expired")]
    Expired,
    /// It was made for another address.
    #[error("the link was made for another client address")]
    OtherClient,
    /// It was made for other endpoints.
    #[error("the link does not hold for this path")]
    OtherPath,
    /// It was made for other hosts.
    #[error("the link does not hold for this host")]
    OtherHost,
}

impl Grant {
    /// The first parameter of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.q.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Whether it holds now, for this client and this path.
    ///
    /// # Errors
    /// The first thing that it does not hold for.
    pub fn check(&self, now: u64, client: IpAddr, path: &str) -> Result<(), Refusal> {
        if self.exp.is_some_and(|exp| now >= exp) {
            return Err(Refusal::Expired);
        }
        if self.ip.as_deref().is_some_and(|ip| !holds(ip, client)) {
            return Err(Refusal::OtherClient);
        }
        if self.path.as_deref().is_some_and(|scope| !path.starts_with(scope)) {
            return Err(Refusal::OtherPath);
        }
        Ok(())
    }

    /// Whether this host may be fetched from.
    ///
    /// # Errors
    /// [`Refusal::OtherHost`].
    pub fn check_host(&self, host: &Host) -> Result<(), Refusal> {
        let host = host.to_string();
        let matches = |pattern: &String| match pattern.strip_prefix("*.") {
            Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
            None => *pattern == host,
        };
        if self.hosts.is_empty() || self.hosts.iter().any(matches) { Ok(()) } else { Err(Refusal::OtherHost) }
    }
}

/// A link bound to something that is no address holds for nobody.
fn holds(bound: &str, client: IpAddr) -> bool {
    let client = client.to_canonical();
    match (bound.trim().parse::<IpAddr>(), bound.trim().parse::<IpNet>()) {
        (Ok(ip), _) => ip.to_canonical() == client,
        (_, Ok(net)) => net.contains(&client),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_holds_for_what_it_says() {
        let grant = Grant {
            exp: Some(100),
            ip: Some("10.0.0.0/8".into()),
            path: Some("/proxy/hls/".into()),
            hosts: vec!["*.cdn.test".into(), "a.test".into()],
            ..Grant::default()
        };
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        for (now, client, path, result) in [
            (99, "10.1.2.3", "/proxy/hls/x", Ok(())),
            (99, "::ffff:10.1.2.3", "/proxy/hls/x", Ok(())),
            (100, "10.1.2.3", "/proxy/hls/x", Err(Refusal::Expired)),
            (99, "11.1.2.3", "/proxy/hls/x", Err(Refusal::OtherClient)),
            (99, "10.1.2.3", "/proxy/stream", Err(Refusal::OtherPath)),
        ] {
            assert_eq!(grant.check(now, ip(client), path), result, "{now} {client} {path}");
        }
        let hosts = [("a.test", true), ("x.cdn.test", true), ("cdn.test", false), ("xcdn.test", false), ("b", false)];
        for (host, holds) in hosts {
            assert_eq!(grant.check_host(&Host::parse(host).unwrap()).is_ok(), holds, "{host}");
        }
        assert!(Grant { ip: Some("nonsense".into()), ..Grant::default() }.check(0, ip("::1"), "/").is_err());
    }
}
