//! Derives the client's address from `X-Forwarded-For` behind trusted reverse proxies.

use std::net::{IpAddr, SocketAddr};

use crate::Headers;

/// An extension of a flow: the trusted reverse proxy whose `X-Forwarded-For` was used for the client's address, if
/// any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardedBy(pub Option<SocketAddr>);

/// Fields with which a reverse proxy says that it forwards a request.
pub const FORWARDING_FIELDS: [&str; 5] = ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"];

/// Whether a reverse proxy forwarded a request, by its header: behind one on this machine, every client looks local.
pub fn is_forwarded(headers: &Headers) -> bool {
    FORWARDING_FIELDS.iter().any(|name| headers.contains(name))
}

/// The client's address: if `peer` is trusted, the right-most untrusted address of `X-Forwarded-For`. Addresses
/// further left may have been forged by the client. An entry that is not an address ends the search, since no trusted
/// proxy vouches for the ones before it.
pub fn client_address(headers: &Headers, peer: IpAddr, is_trusted: impl Fn(IpAddr) -> bool) -> IpAddr {
    let mut client = peer.to_canonical();
    // An untrusted peer speaks for itself, whatever it forwards.
    if !is_trusted(client) {
        return client;
    }
    // Each proxy appends the address from which it received the request: from right to left, each entry is as
    // trustworthy as the one to its right.
    let hops: Vec<&[u8]> = headers.list_items("x-forwarded-for").collect();
    for address in hops.iter().rev().map_while(|hop| address(hop)) {
        // If all of them are trusted, the left-most one remains.
        client = address;
        if !is_trusted(client) {
            break;
        }
    }
    client
}

/// Parses an address; some load balancers append the port.
fn address(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?;
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|a| a.ip()))?;
    Some(IpAddr::to_canonical(&ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_most_untrusted_address_is_the_client() {
        let trusted = |ip: IpAddr| ip.to_string().starts_with("10.");
        for (peer, field, client) in [
            ("10.0.0.1", None, "10.0.0.1"),
            ("10.0.0.1", Some("9.9.9.9"), "9.9.9.9"),
            ("10.0.0.1", Some("1.1.1.1, 9.9.9.9"), "9.9.9.9"),
            ("10.0.0.1", Some("1.1.1.1, 9.9.9.9, 10.0.0.2"), "9.9.9.9"),
            ("10.0.0.1", Some("10.0.0.3, 10.0.0.2"), "10.0.0.3"),
            ("10.0.0.1", Some("9.9.9.9:4711"), "9.9.9.9"),
            ("10.0.0.1", Some("[2001:db8::1]:443"), "2001:db8::1"),
            ("10.0.0.1", Some("[2001:db8::1]"), "2001:db8::1"),
            ("10.0.0.1", Some("::ffff:9.9.9.9"), "9.9.9.9"),
            ("::ffff:10.0.0.1", Some("9.9.9.9"), "9.9.9.9"),
            ("10.0.0.1", Some("9.9.9.9, unknown"), "10.0.0.1"),
            ("10.0.0.1", Some("9.9.9.9, unknown, 10.0.0.2"), "10.0.0.2"),
            ("8.8.8.8", Some("9.9.9.9"), "8.8.8.8"),
        ] {
            let headers: Headers = field.map(|f| ("X-Forwarded-For", f)).into_iter().collect();
            let found = client_address(&headers, peer.parse().unwrap(), trusted);
            assert_eq!(found, client.parse::<IpAddr>().unwrap(), "{peer} {field:?}");
        }
    }

    #[test]
    fn repeated_forwarded_headers_are_joined_into_one_list() {
        let headers: Headers = [("X-Forwarded-For", "1.1.1.1"), ("x-forwarded-for", "9.9.9.9")].into_iter().collect();
        let loopback = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(client_address(&headers, loopback, |ip| ip == loopback), IpAddr::from([9, 9, 9, 9]));
    }
}
