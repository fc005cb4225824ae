//! The permissions contained in a link.

use std::net::IpAddr;

use interflow_types::{Authority, HostPattern, Method};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Parameters in order, named as in a query; values are decoded.
pub type QueryPairs = Vec<(String, String)>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkGrant {
    /// The parameters of the request: `d`, `h_…`, `key` and so on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub q: QueryPairs,
    /// Expiry in seconds since 1970; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp: Option<u64>,
    /// The client address or network it is bound to; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// The endpoint it was created for, as named by [`endpoint_of`]. A link without one (of another program) only
    /// allows reading.
    #[serde(default, rename = "ep", skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The allowed methods; GET and HEAD if empty.
    #[serde(default, rename = "m", skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Only endpoints whose path has this prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Only these hosts upstream, as host patterns: `cdn.test`, `*.cdn.test`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The user of the link, whose limits apply to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// It belongs to a playlist: only queries signed for it are served, so that it cannot be used for other
    /// destinations.
    #[serde(default, skip_serializing_if = "is_false")]
    pub child: bool,
    /// Child URLs are encrypted, so that they do not reveal their destination.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hide: bool,
}

fn is_false(b: &bool) -> bool {
    !b
}

/// Why a link does not apply to a request. The text goes to the client; it reveals nothing about the link's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantRefusal {
    #[error("the link has expired")]
    Expired,
    #[error("the link was made for another client address")]
    OtherClient,
    #[error("the link does not hold for this path")]
    OtherPath,
    #[error("the link was made for another endpoint")]
    OtherEndpoint,
    #[error("the link does not allow this method: it was made for reading (GET and HEAD)")]
    OtherMethod,
    #[error("the link does not hold for this host")]
    OtherHost,
}

impl LinkGrant {
    /// The first value of a parameter; `None` if it is absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.q.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Checks expiry (seconds since 1970), client, method and path.
    ///
    /// The queries below a child grant are signed together with their path, so it needs no endpoint of its own.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn check(&self, now: u64, client: IpAddr, method: &Method, path: &str) -> Result<(), GrantRefusal> {
        if self.exp.is_some_and(|exp| now >= exp) {
            return Err(GrantRefusal::Expired);
        }
        if self.ip.as_deref().is_some_and(|ip| !matches_client(ip, client)) {
            return Err(GrantRefusal::OtherClient);
        }
        if self.path.as_deref().is_some_and(|scope| !path.starts_with(scope)) {
            return Err(GrantRefusal::OtherPath);
        }
        let endpoint_name = endpoint_of(path);
        let bound = match &self.endpoint {
            _ if self.child => true,
            Some(endpoint) => endpoint_name == endpoint_of(endpoint),
            // Links of other programs name no endpoint; they must not be used to send requests or to make further
            // links.
            None => !endpoint_name.starts_with("/proxy/forward") && !endpoint_name.contains("/generate_"),
        };
        if !bound {
            return Err(GrantRefusal::OtherEndpoint);
        }
        let reads = [Method::GET, Method::HEAD].contains(method);
        let allowed = if self.methods.is_empty() { reads } else { self.methods.iter().any(|m| m == method.as_str()) };
        if allowed { Ok(()) } else { Err(GrantRefusal::OtherMethod) }
    }

    /// Checks that this host may be fetched from. Called for each redirect too.
    ///
    /// # Errors
    /// [`GrantRefusal::OtherHost`].
    pub fn check_host(&self, to: &Authority) -> Result<(), GrantRefusal> {
        let matches = |text: &String| text.parse::<HostPattern>().is_ok_and(|p| p.matches(&to.host, to.port));
        if self.hosts.is_empty() || self.hosts.iter().any(matches) { Ok(()) } else { Err(GrantRefusal::OtherHost) }
    }
}

/// The endpoint of a path: without a file name and without an extension meant for players, which may be added or left
/// out.
pub fn endpoint_of(path: &str) -> &str {
    const ENDPOINTS: [(&str, char); 4] =
        [("/proxy/stream", '/'), ("/xtream", '/'), ("/proxy/hls/segment", '.'), ("/proxy/mpd/segment", '.')];
    let is_below = |rest: &str, separator: char| rest.is_empty() || rest.starts_with(separator);
    let of = |(name, end): &(&str, char)| path.strip_prefix(name).is_some_and(|rest| is_below(rest, *end));
    if let Some((name, _)) = ENDPOINTS.iter().find(|endpoint| of(endpoint)) {
        return name;
    }
    path.strip_suffix(".m3u8").or_else(|| path.strip_suffix(".mp4")).unwrap_or(path)
}

/// A link bound to an invalid address matches no client.
fn matches_client(bound: &str, client: IpAddr) -> bool {
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
    fn grant_is_checked_for_expiry_client_path_and_host() {
        let grant = LinkGrant {
            exp: Some(100),
            ip: Some("10.0.0.0/8".into()),
            path: Some("/proxy/hls/".into()),
            hosts: vec!["*.cdn.test".into(), "a.test".into()],
            ..LinkGrant::default()
        };
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        for (now, client, path, result) in [
            (99, "10.1.2.3", "/proxy/hls/x", Ok(())),
            (99, "::ffff:10.1.2.3", "/proxy/hls/x", Ok(())),
            (100, "10.1.2.3", "/proxy/hls/x", Err(GrantRefusal::Expired)),
            (99, "11.1.2.3", "/proxy/hls/x", Err(GrantRefusal::OtherClient)),
            (99, "10.1.2.3", "/proxy/stream", Err(GrantRefusal::OtherPath)),
        ] {
            assert_eq!(grant.check(now, ip(client), &Method::GET, path), result, "{now} {client} {path}");
        }
        let hosts = [("a.test", true), ("x.cdn.test", true), ("cdn.test", false), ("xcdn.test", false), ("b", false)];
        for (host, holds) in hosts {
            assert_eq!(grant.check_host(&Authority::parse(host, Some(443)).unwrap()).is_ok(), holds, "{host}");
        }
        assert!(
            LinkGrant { ip: Some("nonsense".into()), ..LinkGrant::default() }
                .check(0, ip("::1"), &Method::GET, "/")
                .is_err()
        );
    }

    #[test]
    fn link_is_bound_to_its_endpoint_and_to_read_methods() {
        let ip: IpAddr = "::1".parse().unwrap();
        let link = |endpoint: Option<&str>, methods: &[&str]| LinkGrant {
            endpoint: endpoint.map(str::to_owned),
            methods: methods.iter().map(|m| (*m).to_owned()).collect(),
            ..LinkGrant::default()
        };
        for (endpoint, methods, method, path, result) in [
            (Some("/proxy/stream"), &[][..], Method::GET, "/proxy/stream", Ok(())),
            (Some("/proxy/stream"), &[], Method::HEAD, "/proxy/stream/a.mp4", Ok(())),
            (Some("/proxy/stream/a.mp4"), &[], Method::GET, "/proxy/stream/b.mp4", Ok(())),
            (Some("/proxy/hls/manifest.m3u8"), &[], Method::GET, "/proxy/hls/manifest", Ok(())),
            (Some("/proxy/stream"), &[], Method::POST, "/proxy/stream", Err(GrantRefusal::OtherMethod)),
            (Some("/proxy/stream"), &[], Method::GET, "/proxy/forward", Err(GrantRefusal::OtherEndpoint)),
            (Some("/proxy/stream"), &[], Method::DELETE, "/proxy/forward", Err(GrantRefusal::OtherEndpoint)),
            (Some("/proxy/stream"), &[], Method::GET, "/proxy/streams", Err(GrantRefusal::OtherEndpoint)),
            (Some("/proxy/stream"), &[], Method::GET, "/proxy/hls/manifest.m3u8", Err(GrantRefusal::OtherEndpoint)),
            (Some("/proxy/stream"), &[], Method::POST, "/generate_url", Err(GrantRefusal::OtherEndpoint)),
            (
                Some("/proxy/mpd/manifest.m3u8"),
                &[],
                Method::GET,
                "/proxy/mpd/manifest.mpd",
                Err(GrantRefusal::OtherEndpoint),
            ),
            (Some("/proxy/forward"), &[], Method::GET, "/proxy/forward", Ok(())),
            (Some("/proxy/forward"), &[], Method::POST, "/proxy/forward", Err(GrantRefusal::OtherMethod)),
            (Some("/proxy/forward"), &["POST"], Method::POST, "/proxy/forward", Ok(())),
            (Some("/proxy/forward"), &["POST"], Method::PUT, "/proxy/forward", Err(GrantRefusal::OtherMethod)),
            (None, &[], Method::GET, "/proxy/hls/manifest.m3u8", Ok(())),
            (None, &[], Method::GET, "/proxy/forward", Err(GrantRefusal::OtherEndpoint)),
            (None, &[], Method::GET, "/proxy/generate_urls", Err(GrantRefusal::OtherEndpoint)),
            (None, &[], Method::PUT, "/proxy/stream", Err(GrantRefusal::OtherMethod)),
        ] {
            assert_eq!(link(endpoint, methods).check(0, ip, &method, path), result, "{endpoint:?} {method} {path}");
        }
    }
}
