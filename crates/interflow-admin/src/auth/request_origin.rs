//! Where a request comes from: its connection, or what a trusted reverse proxy says about the client before it.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The client of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestOrigin {
    /// `None` if it is not known for this port.
    pub address: Option<IpAddr>,
    /// Whether a trusted proxy received the request over TLS.
    pub is_https: bool,
}

impl RequestOrigin {
    pub fn of(request: &Request, trusted: &[IpNet]) -> Self {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
        Self::behind(peer, request.headers(), trusted)
    }

    fn behind(peer: Option<IpAddr>, headers: &HeaderMap, trusted: &[IpNet]) -> Self {
        let is_trusted = |ip: &IpAddr| trusted.iter().any(|net| net.contains(&ip.to_canonical()));
        let Some(peer) = peer.filter(is_trusted) else { return Self { address: peer, is_https: false } };
        // Each proxy appends whom it got the request from: the last one that is not a trusted proxy is the client, and
        // what stands before it is the client's own word.
        let hops = values(headers, &FORWARDED_FOR);
        let mut client = peer;
        for hop in hops.iter().rev() {
            let Some(ip) = parse_hop(hop) else { break };
            client = ip;
            if !is_trusted(&ip) {
                break;
            }
        }
        let is_https = values(headers, &FORWARDED_PROTO).last().is_some_and(|p| p.eq_ignore_ascii_case("https"));
        Self { address: Some(client), is_https }
    }
}

/// The members of a list field, in order.
fn values<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Vec<&'h str> {
    let fields = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    fields.flat_map(|value| value.split(',')).map(str::trim).filter(|value| !value.is_empty()).collect()
}

/// An address, possibly with a port.
fn parse_hop(hop: &str) -> Option<IpAddr> {
    hop.parse().or_else(|_| hop.parse::<SocketAddr>().map(|address| address.ip())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_fields_count_only_from_trusted_proxies_and_the_clients_own_are_ignored() {
        let trusted: Vec<IpNet> = vec!["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        for (peer, fields, address, is_https) in [
            (
                "192.0.2.1",
                &[("x-forwarded-for", "198.51.100.7"), ("x-forwarded-proto", "https")][..],
                "192.0.2.1",
                false,
            ),
            ("127.0.0.1", &[("x-forwarded-for", "198.51.100.7"), ("x-forwarded-proto", "https")], "198.51.100.7", true),
            ("::ffff:127.0.0.1", &[("x-forwarded-proto", "HTTPS")], "::ffff:127.0.0.1", true),
            ("127.0.0.1", &[("x-forwarded-for", "203.0.113.9, 198.51.100.7, 10.0.0.3")], "198.51.100.7", false),
            (
                "127.0.0.1",
                &[("x-forwarded-for", "203.0.113.9"), ("x-forwarded-for", "198.51.100.7:80")],
                "198.51.100.7",
                false,
            ),
            ("127.0.0.1", &[("x-forwarded-for", "203.0.113.9, unknown")], "127.0.0.1", false),
            ("127.0.0.1", &[("x-forwarded-proto", "https, http")], "127.0.0.1", false),
            ("127.0.0.1", &[], "127.0.0.1", false),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(HeaderName::from_static(name), value.parse().unwrap());
            }
            let found = RequestOrigin::behind(Some(peer.parse().unwrap()), &headers, &trusted);
            assert_eq!(found, RequestOrigin { address: Some(address.parse().unwrap()), is_https }, "{peer} {fields:?}");
        }
    }
}
