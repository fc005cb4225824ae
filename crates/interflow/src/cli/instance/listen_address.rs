//! Addresses of listeners on the command line: `HOST:PORT`, or a port alone, which means loopback.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};

/// Parses the value of `--listen-…`. Host names are resolved; IPv4 is preferred.
///
/// # Errors
/// The value has no valid port, an IPv6 address without brackets, no host, or a host name that does not resolve.
pub fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    const FORMS: &str = "use HOST:PORT, [IPv6]:PORT, or a port alone for 127.0.0.1";
    let parse_port = |port: &str| {
        port.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| port.parse::<u16>().ok())
            .flatten()
            .ok_or_else(|| format!("`{port}` is not a port (0 to 65535); {FORMS}"))
    };
    let Some((host, port)) = text.rsplit_once(':') else {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, parse_port(text)?)));
    };
    let port = parse_port(port)?;
    if let Ok(addr) = text.parse::<SocketAddr>() {
        return Ok(addr);
    }
    if host.is_empty() {
        return Err(format!(
            "the host is missing: 127.0.0.1:{port} for this machine only, 0.0.0.0:{port} for every interface"
        ));
    }
    if host.contains([':', '[', ']']) {
        return Err(format!("`{host}` is not an IPv6 address in brackets; {FORMS}"));
    }
    let addresses: Vec<SocketAddr> =
        (host, port).to_socket_addrs().map_err(|e| format!("cannot resolve `{host}`: {e}; {FORMS}"))?.collect();
    let first = addresses.iter().find(|a| a.is_ipv4()).or(addresses.first());
    first.copied().ok_or_else(|| format!("`{host}` resolves to no address; {FORMS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_means_loopback_and_ipv6_needs_brackets() {
        for (text, expected) in [
            ("7070", "127.0.0.1:7070"),
            ("0", "127.0.0.1:0"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:7070", "[::1]:7070"),
            ("[::]:0", "[::]:0"),
            ("localhost:7070", "127.0.0.1:7070"),
        ] {
            assert_eq!(parse_listen_address(text), Ok(expected.parse().unwrap()), "{text}");
        }
        for (text, reason) in [
            ("", "is not a port"),
            ("70000", "is not a port"),
            ("+1", "is not a port"),
            ("127.0.0.1", "is not a port"),
            ("127.0.0.1:", "is not a port"),
            ("127.0.0.1:x", "is not a port"),
            (":7070", "0.0.0.0:7070 for every interface"),
            ("::1:7070", "in brackets"),
            ("[1.2.3.4]:1", "in brackets"),
        ] {
            let error = parse_listen_address(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
