//! The receiving side of the PROXY protocol, versions 1 and 2: a load balancer sends the addresses of the connection
//! that it accepted before the connection's bytes (HAProxy, "The PROXY protocol", 2020).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::cursor::Cursor;

/// The longest accepted header. Version 2 allows 64 KiB of extensions, of which senders use a few hundred bytes.
pub const MAX_BYTES: usize = 16 << 10;

const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V1_SIGNATURE: &[u8; 6] = b"PROXY ";
/// The longest version 1 line, CRLF included (section 2.1).
const V1_MAX: usize = 107;

/// The addresses of the connection that the sender accepted: the client's, and the one that the client connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    pub source: SocketAddr,
    pub destination: SocketAddr,
}

/// Why the first bytes of a connection are not a usable PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    #[error("the connection does not begin with a PROXY protocol header")]
    Missing,
    #[error("the PROXY protocol header is malformed")]
    Malformed,
    #[error("the PROXY protocol header is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// The header is for a UNIX socket or a datagram.
    #[error("the PROXY protocol header does not describe a TCP connection")]
    Unsupported,
}

/// Parses a header at the start of `buf` and returns the addresses and its length. The outer `None` means incomplete.
/// The inner `None` means that the sender speaks for itself (`LOCAL`, a health check) or does not know the addresses
/// (`UNKNOWN`), so the connection's own addresses apply.
///
/// # Errors
/// Anything else. The protocol requires the receiver to close the connection then, never to guess.
pub fn parse(buf: &[u8]) -> Result<Option<(Option<ProxyHeader>, usize)>, ProxyHeaderError> {
    // The first byte decides, because the signatures differ there.
    if matches_signature(buf, V2_SIGNATURE) {
        parse_v2(buf)
    } else if matches_signature(buf, V1_SIGNATURE) {
        parse_v1(buf)
    } else {
        Err(ProxyHeaderError::Missing)
    }
}

/// Whether `buf` and the signature agree on their common length. The beginning of a signature matches as well; the
/// parser then finds the header incomplete.
fn matches_signature(buf: &[u8], signature: &[u8]) -> bool {
    buf.iter().zip(signature).all(|(a, b)| a == b)
}

fn parse_v1(buf: &[u8]) -> Result<Option<(Option<ProxyHeader>, usize)>, ProxyHeaderError> {
    let within = buf.get(..V1_MAX).unwrap_or(buf);
    let Some(lf) = memchr::memchr(b'\n', within) else {
        // The longest valid line has been exceeded without an end.
        return if within.len() == V1_MAX { Err(ProxyHeaderError::Malformed) } else { Ok(None) };
    };
    let line = within.get(..lf).and_then(|l| l.strip_suffix(b"\r")).ok_or(ProxyHeaderError::Malformed)?;
    let line = std::str::from_utf8(line).map_err(|_| ProxyHeaderError::Malformed)?;
    let words: Vec<&str> = line.split(' ').collect();
    let header = match words[..] {
        // What follows `UNKNOWN` must be ignored (section 2.1).
        ["PROXY", "UNKNOWN", ..] => None,
        ["PROXY", "TCP4", source, destination, from, to] => {
            Some(v1_addresses::<Ipv4Addr>([source, destination], [from, to])?)
        }
        ["PROXY", "TCP6", source, destination, from, to] => {
            Some(v1_addresses::<Ipv6Addr>([source, destination], [from, to])?)
        }
        _ => return Err(ProxyHeaderError::Malformed),
    };
    Ok(Some((header, lf + 1)))
}

fn v1_addresses<A: std::str::FromStr + Into<IpAddr>>(
    [source, destination]: [&str; 2],
    [from, to]: [&str; 2],
) -> Result<ProxyHeader, ProxyHeaderError> {
    let address = |ip: &str, port: &str| {
        // `parse` would also accept a sign.
        let port = Some(port).filter(|p| p.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()?;
        Some(SocketAddr::new(ip.parse::<A>().ok()?.into(), port))
    };
    address(source, from)
        .zip(address(destination, to))
        .map(|(source, destination)| ProxyHeader { source, destination })
        .ok_or(ProxyHeaderError::Malformed)
}

fn parse_v2(buf: &[u8]) -> Result<Option<(Option<ProxyHeader>, usize)>, ProxyHeaderError> {
    const LOCAL: u8 = 0x20;
    const PROXY: u8 = 0x21;
    let mut c = Cursor(buf);
    let Some((command, family, length)) = c.array::<12>().and_then(|_| Some((c.u8()?, c.u8()?, c.u16()?))) else {
        return Ok(None);
    };
    // The high half is version 2, the low half the command.
    if command != LOCAL && command != PROXY {
        return Err(ProxyHeaderError::Malformed);
    }
    let total = 16 + usize::from(length);
    if total > MAX_BYTES {
        return Err(ProxyHeaderError::TooLong);
    }
    let Some(rest) = c.take(length.into()) else { return Ok(None) };
    // A `LOCAL` header may contain addresses, which must be ignored (section 2.2).
    let header = if command == LOCAL { None } else { v2_addresses(family, Cursor(rest))? };
    Ok(Some((header, total)))
}

/// The address block; the extensions (TLVs) after it are ignored.
fn v2_addresses(family: u8, mut c: Cursor<'_>) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let ips: Option<(IpAddr, IpAddr)> = match family {
        // `UNSPEC`: the sender does not know the addresses.
        0x00 => return Ok(None),
        0x11 => c.array::<4>().zip(c.array::<4>()).map(|(a, b)| (a.into(), b.into())),
        0x21 => c.array::<16>().zip(c.array::<16>()).map(|(a, b)| (a.into(), b.into())),
        // Datagrams and UNIX sockets.
        0x12 | 0x22 | 0x31 | 0x32 => return Err(ProxyHeaderError::Unsupported),
        _ => return Err(ProxyHeaderError::Malformed),
    };
    let ports = c.u16().zip(c.u16());
    ips.zip(ports)
        .map(|((source, destination), (from, to))| {
            Some(ProxyHeader { source: SocketAddr::new(source, from), destination: SocketAddr::new(destination, to) })
        })
        .ok_or(ProxyHeaderError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&V2_SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    fn addresses(raw: &[u8]) -> Result<Option<(String, String)>, ProxyHeaderError> {
        let (header, used) = parse(&[raw, b"GET /"].concat())?.expect("the header is whole");
        assert_eq!(used, raw.len());
        Ok(header.map(|h| (h.source.to_string(), h.destination.to_string())))
    }

    fn pair(a: &str, b: &str) -> Option<(String, String)> {
        Some((a.to_owned(), b.to_owned()))
    }

    #[test]
    fn version_1_headers_are_parsed() {
        for (raw, expected) in [
            ("PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n", pair("192.0.2.1:56324", "198.51.100.2:443")),
            ("PROXY TCP6 2001:db8::1 ::1 1 65535\r\n", pair("[2001:db8::1]:1", "[::1]:65535")),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN ff:ff::1 whatever 1 2\r\n", None),
        ] {
            assert_eq!(addresses(raw.as_bytes()), Ok(expected), "{raw}");
        }
    }

    #[test]
    fn malformed_version_1_lines_are_refused() {
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(100));
        for raw in [
            "PROXY TCP4 192.0.2.1 198.51.100.2 1 2\n",
            "PROXY  TCP4 192.0.2.1 198.51.100.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 1\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 1 2 3\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 1 65536\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 ::1 1 2\r\n",
            "PROXY TCP4 192.0.2.01 198.51.100.2 1 2\r\n",
            "PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n",
            "PROXY \r\n",
            long.as_str(),
        ] {
            assert_eq!(parse(raw.as_bytes()), Err(ProxyHeaderError::Malformed), "{raw}");
        }
    }

    #[test]
    fn version_2_headers_are_read_and_extensions_skipped() {
        let v4 = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 4, 1, 0xbb];
        let expected = pair("192.0.2.1:56324", "198.51.100.2:443");
        assert_eq!(addresses(&v2(0x21, 0x11, &v4)), Ok(expected.clone()));
        let extended = [&v4[..], &[4, 0, 1, 0]].concat();
        assert_eq!(addresses(&v2(0x21, 0x11, &extended)), Ok(expected));
        let v6: Vec<u8> = [&Ipv6Addr::LOCALHOST.octets()[..], &[0; 16], &[0, 1, 0, 2]].concat();
        assert_eq!(addresses(&v2(0x21, 0x21, &v6)), Ok(pair("[::1]:1", "[::]:2")));
        assert_eq!(addresses(&v2(0x20, 0x00, &[])), Ok(None));
        assert_eq!(addresses(&v2(0x20, 0x11, &v4)), Ok(None));
        assert_eq!(addresses(&v2(0x21, 0x00, &[1, 2, 3])), Ok(None));
    }

    #[test]
    fn malformed_version_2_headers_are_refused() {
        use ProxyHeaderError::*;
        for (raw, error) in [
            (v2(0x22, 0x11, &[0; 12]), Malformed),
            (v2(0x11, 0x11, &[0; 12]), Malformed),
            (v2(0x21, 0x11, &[0; 11]), Malformed),
            (v2(0x21, 0x21, &[0; 35]), Malformed),
            (v2(0x21, 0x41, &[0; 36]), Malformed),
            (v2(0x21, 0x31, &[0; 216]), Unsupported),
            (v2(0x21, 0x12, &[0; 12]), Unsupported),
            (v2(0x21, 0x11, &[0; MAX_BYTES]), TooLong),
        ] {
            assert_eq!(parse(&raw), Err(error));
        }
    }

    #[test]
    fn a_truncated_header_needs_more_bytes() {
        for raw in [b"PROXY TCP4 192.0.2.1 198.51.100.2 1 2\r\n".to_vec(), v2(0x21, 0x11, &[0; 20])] {
            for end in 0..raw.len() {
                assert_eq!(parse(&raw[..end]), Ok(None), "{end}");
            }
            assert!(parse(&raw).unwrap().is_some());
        }
    }

    #[test]
    fn other_protocols_are_recognised_at_the_first_differing_byte() {
        for raw in [&b"G"[..], b"PROXZ", b"\r\n\r\nG", b"\x16\x03\x01", b"POST / HTTP/1.1\r\n"] {
            assert_eq!(parse(raw), Err(ProxyHeaderError::Missing));
        }
    }
}
