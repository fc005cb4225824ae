//! The authority of an origin: scheme, host and port.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::labelled_enum;
use crate::schema::JsonSchema;

labelled_enum! {
    // Stored by number and by name: neither may change.
    /// `http` or `https`; `ws` and `wss` are the same on the wire.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Scheme {
        Http "http",
        Https "https",
    }
}

impl Scheme {
    /// The port used if the authority has none (RFC 9110 4.2).
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// Parses `http`, `https`, `ws` or `wss`, ignoring case.
    pub fn parse(s: &str) -> Option<Self> {
        if s.eq_ignore_ascii_case("http") || s.eq_ignore_ascii_case("ws") {
            Some(Self::Http)
        } else if s.eq_ignore_ascii_case("https") || s.eq_ignore_ascii_case("wss") {
            Some(Self::Https)
        } else {
            None
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A registered name in lower case, or an IP address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A DNS name in lower case. A trailing dot is kept.
    Name(Arc<str>),
    Ip(IpAddr),
}

impl Host {
    /// Parses the host of an authority: a name, an IPv4 address, or an IPv6 address in brackets (RFC 3986 3.2.2).
    /// Percent-encoded and non-ASCII names are refused, because parsers disagree on them.
    pub fn parse(s: &str) -> Result<Self, AuthorityError> {
        if let Some(inner) = s.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(AuthorityError::Brackets)?;
            // Zone identifiers (`fe80::1%eth0`) are refused: they mean something only on the client's machine.
            let v6: Ipv6Addr = inner.parse().map_err(|_| AuthorityError::Host)?;
            return Ok(Self::Ip(IpAddr::V6(v6)));
        }
        if s.is_empty() {
            return Err(AuthorityError::Empty);
        }
        // Whatever connects to the name would take it for this address, so access rules must see it as that.
        if let Some(v4) = parse_ipv4(s) {
            return Ok(Self::Ip(IpAddr::V4(v4)));
        }
        let (mut odd, mut upper) = (false, false);
        for b in s.bytes() {
            // One pass decides both questions; most names need neither.
            odd |= !is_name_byte(b);
            upper |= b.is_ascii_uppercase();
        }
        if s.len() > 255 || odd {
            return Err(AuthorityError::Host);
        }
        if upper { Ok(Self::Name(s.to_ascii_lowercase().into())) } else { Ok(Self::Name(s.into())) }
    }

    /// The host as patterns and rules compare it: no final dot, a mapped IPv4 address as such (RFC 4291 2.5.5.2).
    pub fn canonical(&self) -> Cow<'_, Self> {
        let other = match self {
            Self::Name(name) => name.strip_suffix('.').map(|name| Self::Name(name.into())),
            Self::Ip(ip) => Some(ip.to_canonical()).filter(|canonical| canonical != ip).map(Self::Ip),
        };
        other.map_or(Cow::Borrowed(self), Cow::Owned)
    }

    /// The canonical host as a text, without brackets.
    pub fn canonical_text(&self) -> String {
        match &*self.canonical() {
            Self::Name(name) => name.to_string(),
            Self::Ip(ip) => ip.to_string(),
        }
    }

    pub const fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(*ip),
            Self::Name(_) => None,
        }
    }

    /// Appends the host as written in a URL. Faster than `Display`.
    pub fn push_to(&self, text: &mut String) {
        match self {
            Self::Name(name) => text.push_str(name),
            Self::Ip(IpAddr::V4(ip)) => {
                text.extend(write_ipv4(*ip, &mut [0; 15]).iter().map(|b| char::from(*b)));
            }
            Self::Ip(IpAddr::V6(ip)) => {
                let _ = fmt::Write::write_fmt(text, format_args!("[{ip}]"));
            }
        }
    }

    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Ip(_) => None,
        }
    }
}

/// Reads an IPv4 address in any spelling that programs and resolvers accept in its place: one to four numbers, decimal,
/// octal (`0177.1`) or hexadecimal (`0x7f000001`), the last of which fills the rest (WHATWG URL, "IPv4 parser";
/// inet_aton(3)).
pub(crate) fn parse_ipv4(s: &str) -> Option<Ipv4Addr> {
    let text = s.strip_suffix('.').unwrap_or(s);
    // Decides nearly all names by one byte: only a text whose last label begins with a digit can be an address.
    let last = text.as_bytes().rsplit(|b| *b == b'.').next()?;
    if !last.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    if let Ok(dotted) = text.parse() {
        return Some(dotted);
    }
    let mut address = 0_u64;
    let parts = text.split('.').count();
    for (i, part) in text.split('.').enumerate() {
        let number = parse_ipv4_number(part)?;
        // The last number fills the bytes that the others leave: all four, or three, two, one.
        let bytes = if i + 1 == parts { 4_usize.checked_sub(i).filter(|n| *n > 0)? } else { 1 };
        if number >= 1 << (8 * bytes) {
            return None;
        }
        address = address << (8 * bytes) | number;
    }
    u32::try_from(address).ok().map(Ipv4Addr::from)
}

fn parse_ipv4_number(part: &str) -> Option<u64> {
    let hexadecimal = part.strip_prefix("0x").or_else(|| part.strip_prefix("0X"));
    let (digits, radix) = match (hexadecimal, part.strip_prefix('0')) {
        (Some(""), _) => ("0", 16),
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (part, 10),
    };
    // `from_str_radix` would accept a sign.
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, radix).ok())?
}

/// Bytes of names seen in practice; `_` occurs in many internal names.
const fn is_name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~')
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V4(ip)) => ip.fmt(f),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
        }
    }
}

/// Host and port of an origin, both known: a missing port was replaced by the scheme's default.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema)]
#[schemars(with = "String")]
pub struct Authority {
    pub host: Host,
    pub port: u16,
}

/// Why a text is not an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    #[error("the host is missing")]
    Empty,
    /// A byte that no host name has, or a malformed address.
    #[error("the host is neither a name nor an IP address")]
    Host,
    /// `[` without `]`, or text after `]` that is not `:port`.
    #[error("an IPv6 address must be in brackets: [::1]:443")]
    Brackets,
    /// Not a number from 1 to 65535. Port 0 is not a port that a client could connect to.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// The port is missing and there is no default.
    #[error("the port is missing: write host:port")]
    NoPort,
    /// `user:password@` before the host, which RFC 9110 4.2.4 says to reject.
    #[error("credentials before the host are refused")]
    UserInfo,
}

impl Authority {
    pub fn new(host: Host, port: u16) -> Self {
        Self { host, port }
    }

    /// Parses `host`, `host:port` or `[v6]:port`. A missing or empty port becomes `default` (RFC 3986 6.2.3); if
    /// `default` is `None`, a port is required, as in CONNECT (RFC 9110 9.3.6).
    pub fn parse(s: &str, default: Option<u16>) -> Result<Self, AuthorityError> {
        // Before anything else: parsers disagree on where the host of `a@b:c` begins.
        if s.as_bytes().contains(&b'@') {
            return Err(AuthorityError::UserInfo);
        }
        let (host, port) = if s.starts_with('[') {
            let end = s.find(']').ok_or(AuthorityError::Brackets)?;
            let (host, rest) = s.split_at(end + 1);
            match rest {
                "" => (host, None),
                _ => (host, Some(rest.strip_prefix(':').ok_or(AuthorityError::Brackets)?)),
            }
        } else {
            let (host, rest) = s.split_at(s.bytes().position(|b| b == b':').unwrap_or(s.len()));
            match rest.strip_prefix(':') {
                // A second colon: an IPv6 address without brackets.
                Some(port) if port.as_bytes().contains(&b':') => return Err(AuthorityError::Brackets),
                port => (host, port),
            }
        };
        let host = Host::parse(host)?;
        let port = match port {
            // `host:` is valid and means the default port.
            None | Some("") => default.ok_or(AuthorityError::NoPort)?,
            Some(p) => parse_port(p)?,
        };
        Ok(Self { host, port })
    }

    /// Whether `text` is certainly this authority as [`parse`](Self::parse) would read it with the same `default`.
    /// Avoids parsing in the common case; `false` means that it must be parsed.
    pub fn matches_text(&self, text: &[u8], default: u16) -> bool {
        let mut digits = [0; 15];
        let host = match &self.host {
            Host::Name(name) => name.as_bytes(),
            Host::Ip(IpAddr::V4(ip)) => write_ipv4(*ip, &mut digits),
            // IPv6 addresses have several spellings, so they are compared after parsing.
            Host::Ip(IpAddr::V6(_)) => return false,
        };
        match text.strip_prefix(host) {
            Some(b"") => self.port == default,
            // No leading zeros, and few enough digits that the sum cannot overflow.
            Some([b':', digits @ ..]) if matches!(digits, [b'1'..=b'9', ..]) && digits.len() <= 5 => {
                digits.iter().try_fold(0, |n, d| d.is_ascii_digit().then(|| n * 10 + u32::from(d - b'0')))
                    == Some(u32::from(self.port))
            }
            _ => false,
        }
    }

    /// The value of a `Host` field: without the port if it is the scheme's default.
    pub fn to_host_header(&self, scheme: Scheme) -> String {
        // Some origins do not recognise their own name with a port.
        if self.port == scheme.default_port() { self.host.to_string() } else { self.to_string() }
    }
}

/// Writes the address in dotted form, which is on the path of every request to an IPv4 address.
fn write_ipv4(ip: Ipv4Addr, into: &mut [u8; 15]) -> &[u8] {
    let mut at = 0;
    let mut put = |b| {
        into[at] = b;
        at += 1;
    };
    for (i, octet) in ip.octets().into_iter().enumerate() {
        // At most fifteen characters, which is the size of the buffer.
        if i > 0 {
            put(b'.');
        }
        if octet > 99 {
            put(b'0' + octet / 100);
        }
        if octet > 9 {
            put(b'0' + octet / 10 % 10);
        }
        put(b'0' + octet % 10);
    }
    &into[..at]
}

fn parse_port(p: &str) -> Result<u16, AuthorityError> {
    // `parse` would accept a sign.
    if p.len() > 5 || !p.bytes().all(|b| b.is_ascii_digit()) {
        return Err(AuthorityError::Port);
    }
    match p.parse() {
        Ok(0) | Err(_) => Err(AuthorityError::Port),
        Ok(port) => Ok(port),
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl From<SocketAddr> for Authority {
    fn from(a: SocketAddr) -> Self {
        Self { host: Host::Ip(a.ip()), port: a.port() }
    }
}

impl FromStr for Authority {
    type Err = AuthorityError;

    fn from_str(s: &str) -> Result<Self, AuthorityError> {
        Self::parse(s, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_text_agrees_with_parse() {
        for text in [
            "a.test",
            "a.test:80",
            "a.test:8080",
            "A.test",
            "a.test:",
            "a.test:08080",
            "a.test:99999",
            "10.0.0.1:1",
            "10.0.0.100:1",
            "010.0.0.1:1",
            "255.200.99.0",
            "[::1]:80",
            "10.1",
            "0x0a000001:1",
        ] {
            for authority in ["a.test:80", "a.test:8080", "10.0.0.1:1", "10.0.0.10:1", "255.200.99.0:80", "[::1]:80"] {
                let authority: Authority = authority.parse().unwrap();
                let right = Authority::parse(text, Some(80)).as_ref() == Ok(&authority);
                assert!(right || !authority.matches_text(text.as_bytes(), 80), "{text} {authority}");
            }
        }
        let authority: Authority = "a.test:8080".parse().unwrap();
        assert!(authority.matches_text(b"a.test:8080", 80) && authority.matches_text(b"a.test", 8080));
        for text in ["0.0.0.0:1", "255.200.99.10:8080", "127.0.0.1:65535"] {
            assert!(text.parse::<Authority>().unwrap().matches_text(text.as_bytes(), 80), "{text}");
        }
    }

    #[test]
    fn hosts_and_ports_are_parsed() {
        for (text, default, displayed) in [
            ("Example.COM:8080", None, "example.com:8080"),
            ("example.com", Some(80), "example.com:80"),
            ("example.com:", Some(80), "example.com:80"),
            ("127.0.0.1:1", None, "127.0.0.1:1"),
            ("[::1]:443", None, "[::1]:443"),
            ("[2001:DB8::1]", Some(443), "[2001:db8::1]:443"),
            ("under_score.local", Some(80), "under_score.local:80"),
            // Every spelling of an address is the address.
            ("2130706433", Some(80), "127.0.0.1:80"),
            ("0x7f000001", Some(80), "127.0.0.1:80"),
            ("0X7F.1", Some(80), "127.0.0.1:80"),
            ("017700000001", Some(80), "127.0.0.1:80"),
            ("0177.1:8080", None, "127.0.0.1:8080"),
            ("127.1", Some(80), "127.0.0.1:80"),
            ("127.0.1", Some(80), "127.0.0.1:80"),
            ("127.0.0.1.", Some(80), "127.0.0.1:80"),
            ("10.65535", Some(80), "10.0.255.255:80"),
            ("0", Some(80), "0.0.0.0:80"),
            ("0x", Some(80), "0.0.0.0:80"),
            ("4294967295", Some(80), "255.255.255.255:80"),
            // What no resolver reads as an address remains a name.
            ("4294967296", Some(80), "4294967296:80"),
            ("1.2.3.4.5", Some(80), "1.2.3.4.5:80"),
            ("127.0.0.256", Some(80), "127.0.0.256:80"),
            ("09.1", Some(80), "09.1:80"),
            ("1..2", Some(80), "1..2:80"),
            ("service.1.9x", Some(80), "service.1.9x:80"),
            ("web.1", Some(80), "web.1:80"),
        ] {
            assert_eq!(Authority::parse(text, default).map(|a| a.to_string()), Ok(displayed.to_owned()), "{text}");
        }
    }

    #[test]
    fn invalid_authorities_are_refused_by_cause() {
        use AuthorityError::*;
        for (text, default, error) in [
            ("", Some(80), Empty),
            (":80", None, Empty),
            ("a", None, NoPort),
            ("a:0", None, Port),
            ("a:65536", None, Port),
            ("a:+80", None, Port),
            ("a:80x", None, Port),
            ("::1", Some(80), Brackets),
            ("[::1", None, Brackets),
            ("[::1]x", None, Brackets),
            ("[::g]:80", None, Host),
            ("a b:80", None, Host),
            ("a%20b:80", None, Host),
            ("a/b", Some(80), Host),
            ("user:pass@host:80", None, UserInfo),
        ] {
            assert_eq!(Authority::parse(text, default), Err(error), "{text}");
        }
    }

    #[test]
    fn host_header_omits_the_default_port() {
        let a: Authority = "[::1]:443".parse().unwrap();
        assert_eq!(a.to_host_header(Scheme::Https), "[::1]");
        assert_eq!(a.to_host_header(Scheme::Http), "[::1]:443");
    }
}
