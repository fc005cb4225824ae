//! Host patterns, with one meaning wherever hosts are listed: access rules, approvals, `no_proxy`, interception lists,
//! rules and routes.
//!
//! | pattern | matches |
//! |---|---|
//! | `example.com` | this name only |
//! | `*.example.com` | its subdomains at any depth, not the name itself |
//! | `.example.com` | the name and its subdomains |
//! | `api-*.example.com`, `10.*`, `*` | `*` any characters, dots included; `?` one character |
//! | `192.0.2.7`, `2001:db8::1` | this address |
//! | `10.0.0.0/8`, `2001:db8::/32` | the addresses of this network |
//! | any of these and `:443` | the same on this port only; an IPv6 address then needs brackets: `[::1]:443` |
//!
//! Case and a final dot do not count, on either side. Internationalized names may be written in Unicode: what is compared
//! is their ASCII form, the only one in which hosts appear on the wire. An IPv4 address mapped into IPv6 is the IPv4
//! address, and so is every other spelling of it ([`Host::parse`]). The unspecified address leads to this machine, and
//! matches where its loopback address does.

use std::collections::HashMap;
use std::fmt;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;

use crate::Host;
use crate::messages::authority::parse_ipv4;

/// A host pattern; see the [module](self) for its syntax.
///
/// ```
/// use interflow_types::{Host, HostPattern};
///
/// let pattern: HostPattern = "*.example.com".parse().unwrap();
/// assert!(pattern.matches(&Host::parse("api.example.com").unwrap(), 443));
/// assert!(!pattern.matches(&Host::parse("example.com").unwrap(), 443));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    pub host: HostMatch,
    /// The only port; `None`: every port.
    pub port: Option<u16>,
}

/// What a [`HostPattern`] requires of the host. Names are in lower case, ASCII, and without a final dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostMatch {
    Any,
    /// This name.
    Name(Box<str>),
    /// The subdomains of this name.
    Below(Box<str>),
    /// This name and its subdomains.
    NameAndBelow(Box<str>),
    /// A name, or an address as text, with `*` and `?` in it.
    Wildcard(Box<str>),
    Ip(IpAddr),
    Net(IpNet),
}

/// The text is not a host pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a host pattern: {why}")]
pub struct HostPatternError {
    text: String,
    why: &'static str,
}

const FORMS: &str = "write a name (example.com), its subdomains (*.example.com), both (.example.com), an address or a \
                     network (10.0.0.0/8)";

impl HostPattern {
    /// Whether this host matches on this port.
    pub fn matches(&self, host: &Host, port: u16) -> bool {
        self.port.is_none_or(|only| only == port) && self.host.matches(host)
    }

    /// The pattern that also matches the subdomains of a bare name, as curl reads `NO_PROXY` and other programs their
    /// lists of hosts: for lists that are taken over from them.
    pub fn with_subdomains(mut self) -> Self {
        if let HostMatch::Name(name) = self.host {
            self.host = HostMatch::NameAndBelow(name);
        }
        self
    }
}

impl HostMatch {
    pub fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            // An index may call this for any host, so the cheap kinds come first.
            (Self::Any, _) => true,
            (_, Host::Ip(_)) => addresses_of(host).any(|ip| self.matches_ip(ip)),
            (_, Host::Name(name)) => self.matches_name(name.strip_suffix('.').unwrap_or(name)),
        }
    }

    fn matches_ip(&self, host: IpAddr) -> bool {
        match self {
            Self::Ip(ip) => *ip == host,
            Self::Net(net) => net.contains(&host),
            Self::Wildcard(pattern) => {
                // An address has at most 45 characters, so this needs no allocation.
                let mut text = [0; 45];
                let mut rest = &mut text[..];
                let written = write!(rest, "{host}");
                let remaining = rest.len();
                // The length of what was written.
                written.is_ok() && is_wildcard_match(pattern.as_bytes(), &text[..45 - remaining])
            }
            Self::Any => true,
            Self::Name(_) | Self::Below(_) | Self::NameAndBelow(_) => false,
        }
    }

    fn matches_name(&self, host: &str) -> bool {
        let ends = |name: &str| host.strip_suffix(name);
        match self {
            Self::Any => true,
            Self::Name(name) => **name == *host,
            // More than one byte: `.example.com` itself has no label before the dot.
            Self::Below(name) => ends(name).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            Self::NameAndBelow(name) => ends(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
            Self::Wildcard(pattern) => is_wildcard_match(pattern.as_bytes(), host.as_bytes()),
            Self::Ip(_) | Self::Net(_) => false,
        }
    }

    /// How narrow the pattern is: of two that match a host, the larger is the more specific one. An exact name or address
    /// beats all others, then the longest name or network, then the wildcard with the most literal characters.
    pub fn specificity(&self) -> u32 {
        match self {
            Self::Any => 0,
            // Far above any sum of lengths below.
            Self::Name(_) | Self::Ip(_) => 100_000,
            Self::Below(name) | Self::NameAndBelow(name) => 1000 + name.len() as u32 * 10,
            Self::Net(net) => 1000 + u32::from(net.prefix_len()) * 10,
            Self::Wildcard(text) => 10 + text.bytes().filter(|b| !matches!(b, b'*' | b'?')).count() as u32 * 10,
        }
    }

    /// Where an index finds the pattern.
    pub fn index_key(&self) -> HostIndexKey<'_> {
        match self {
            Self::Name(name) => HostIndexKey::Name(name),
            Self::Below(name) | Self::NameAndBelow(name) => HostIndexKey::Domain(name),
            Self::Ip(ip) => HostIndexKey::Ip(*ip),
            Self::Any | Self::Wildcard(_) | Self::Net(_) => HostIndexKey::None,
        }
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("it is empty");
        }
        // Brackets are the usual way to write an IPv6 address with a port.
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        let plain = inner.unwrap_or(text);
        if plain == "*" || plain == "**" {
            return Ok(Self::Any);
        }
        // Mapped addresses are stored as IPv4, in which form hosts are compared.
        if let Ok(ip) = plain.parse::<IpAddr>() {
            return Ok(Self::Ip(ip.to_canonical()));
        }
        if let Some(ip) = parse_ipv4(plain) {
            return Ok(Self::Ip(ip.into()));
        }
        if let Ok(net) = plain.parse::<IpNet>() {
            return Ok(Self::Net(canonical_net(net)));
        }
        if inner.is_some() {
            return Err("only an IPv6 address or network stands in brackets; for several hosts, list them");
        }
        // Refused rather than taken literally, where they would silently match nothing.
        if plain.contains(['[', ']', '{', '}', '\\', '!']) {
            return Err(
                "classes and alternatives of shell globs are not supported: use `*` and `?`, or list the hosts",
            );
        }
        if plain.contains('/') {
            return Err("neither a path nor a URL belongs here, and this is not a network such as 10.0.0.0/8");
        }
        let name = ascii(plain)?;
        let name = name.strip_suffix('.').unwrap_or(&name);
        let is_wild = |t: &str| t.contains(['*', '?']);
        // What ends in a number can only match addresses, as text.
        let of_addresses = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
        let domain = |rest: &str| !rest.is_empty() && !is_wild(rest) && !rest.starts_with('.') && !of_addresses;
        let below = name.strip_prefix("**.").or_else(|| name.strip_prefix("*."));
        if let Some(rest) = below.filter(|r| domain(r)) {
            return Ok(Self::Below(rest.into()));
        }
        if let Some(rest) = name.strip_prefix('.').filter(|r| domain(r)) {
            return Ok(Self::NameAndBelow(rest.into()));
        }
        if name.is_empty() || name.starts_with('.') || name.contains("..") {
            return Err(FORMS);
        }
        if is_wild(name) { Ok(Self::Wildcard(name.into())) } else { Ok(Self::Name(name.into())) }
    }
}

/// The key of a pattern in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostIndexKey<'p> {
    /// Matches this name only.
    Name(&'p str),
    /// Matches only this name or its subdomains.
    Domain(&'p str),
    /// Matches this address only.
    Ip(IpAddr),
    /// Must be tried for every host.
    None,
}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<Self, HostPatternError> {
        let wrong = |why| HostPatternError { text: text.to_owned(), why };
        let (host, port) = split_port(text.trim());
        let port = match port {
            None => None,
            // Port 0 cannot be connected to.
            Some(digits) => match digits.parse() {
                Ok(port) if port != 0 => Some(port),
                _ if host.ends_with("http") || host.ends_with("https") => {
                    return Err(wrong("it is a URL; write its host, with `:port` if need be"));
                }
                _ => return Err(wrong("the port must be a number from 1 to 65535")),
            },
        };
        Ok(Self { host: HostMatch::parse(host).map_err(wrong)?, port })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            HostMatch::Any => f.write_str("*"),
            HostMatch::Name(text) | HostMatch::Wildcard(text) => f.write_str(text),
            HostMatch::Below(name) => write!(f, "*.{name}"),
            HostMatch::NameAndBelow(name) => write!(f, ".{name}"),
            HostMatch::Ip(ip) if ip.is_ipv6() && self.port.is_some() => write!(f, "[{ip}]"),
            HostMatch::Ip(ip) => ip.fmt(f),
            HostMatch::Net(net) if net.addr().is_ipv6() && self.port.is_some() => write!(f, "[{net}]"),
            HostMatch::Net(net) => net.fmt(f),
        }?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Splits off the port; an IPv6 address without brackets has none.
fn split_port(text: &str) -> (&str, Option<&str>) {
    if text.starts_with('[')
        && let Some((host, port)) = text.rsplit_once("]:")
    {
        // The bracket belongs to the host.
        return (&text[..=host.len()], Some(port));
    }
    match text.split_once(':') {
        // More than one colon: an IPv6 address.
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        _ => (text, None),
    }
}

/// The ASCII form of a name in lower case.
fn ascii(name: &str) -> Result<String, &'static str> {
    let odd = |b: u8| !(b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'*' | b'?'));
    if name.is_ascii() {
        return if name.bytes().any(odd) { Err(FORMS) } else { Ok(name.to_ascii_lowercase()) };
    }
    // Label by label, because wildcards are not part of any name.
    let label = |label: &str| match label {
        l if l.is_ascii() => Ok(l.to_ascii_lowercase()),
        l if l.contains(['*', '?']) => Err("a label with a wildcard must be in ASCII"),
        l => idna::domain_to_ascii(l).map_err(|_| "it is not a valid internationalized name"),
    };
    // U+3002 is the ideographic full stop, which IDNA treats as a dot.
    let all = name.split(['.', '\u{3002}']).map(label).collect::<Result<Vec<_>, _>>()?.join(".");
    if all.bytes().any(odd) { Err(FORMS) } else { Ok(all) }
}

fn canonical_net(net: IpNet) -> IpNet {
    // `::ffff:0:0/96` and longer are networks of mapped IPv4 addresses.
    match (net.addr().to_canonical(), net.prefix_len().checked_sub(96)) {
        (IpAddr::V4(ip), Some(prefix)) if net.addr().is_ipv6() => IpNet::new(ip.into(), prefix).unwrap_or(net),
        _ => net.trunc(),
    }
}

/// Whether the whole text matches, `*` being any characters and `?` one.
fn is_wildcard_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where the last `*` stands, and how much of the text it has taken.
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(b) if *b == b'?' || *b == text[t] => (p, t) = (p + 1, t + 1),
            _ => {
                // No star to extend: the text does not match.
                let Some((at, taken)) = star else { return false };
                // The last star takes one character more, and the rest is tried again; earlier stars need not change.
                star = Some((at, taken + 1));
                (p, t) = (at + 1, taken + 1);
            }
        }
    }
    // The text is used up, so only stars may remain.
    pattern[p..].iter().all(|b| *b == b'*')
}

/// A list of patterns. Names and domains are looked up, so a long list costs no more than a short one.
#[derive(Clone, Debug, Default)]
pub struct HostPatterns {
    /// Lists no longer than this are simply tried.
    all: Vec<HostPattern>,
    index: Option<Box<HostPatternIndex>>,
}

#[derive(Clone, Debug, Default)]
struct HostPatternIndex {
    names: HashMap<Box<str>, Vec<usize>>,
    domains: HashMap<Box<str>, Vec<usize>>,
    addresses: HashMap<IpAddr, Vec<usize>>,
    rest: Vec<usize>,
}

/// From this many patterns on, a lookup in an index is faster than trying them all.
const INDEXED_FROM: usize = 8;

impl HostPatterns {
    /// Compiles a list.
    ///
    /// # Errors
    /// Names the invalid pattern and what is wrong with it.
    pub fn parse<S: AsRef<str>>(list: &[S]) -> Result<Self, HostPatternError> {
        Ok(list.iter().map(|text| text.as_ref().parse()).collect::<Result<Vec<_>, _>>()?.into())
    }

    /// Compiles a list for hosts whose port is always the same, such as the names of a listener.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and for a pattern with a port.
    pub fn parse_without_ports<S: AsRef<str>>(list: &[S]) -> Result<Self, HostPatternError> {
        let patterns = Self::parse(list)?;
        match patterns.all.iter().find(|p| p.port.is_some()) {
            Some(p) => Err(HostPatternError { text: p.to_string(), why: "a port does not count here; leave it out" }),
            None => Ok(patterns),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether one of the patterns matches this host on this port.
    pub fn matches(&self, host: &Host, port: u16) -> bool {
        self.matches_where(host, |pattern| pattern.matches(host, port))
    }

    /// Whether one of the patterns matches this host on some port.
    pub fn matches_host(&self, host: &Host) -> bool {
        self.matches_where(host, |pattern| pattern.host.matches(host))
    }

    fn matches_where(&self, host: &Host, matches: impl Fn(&HostPattern) -> bool) -> bool {
        match &self.index {
            None => self.all.iter().any(matches),
            // The index narrows the list; each candidate is still compared, with its port.
            Some(index) => index.candidates(host).any(|i| matches(&self.all[*i])),
        }
    }
}

impl From<Vec<HostPattern>> for HostPatterns {
    fn from(all: Vec<HostPattern>) -> Self {
        let index = (all.len() >= INDEXED_FROM).then(|| {
            let mut index = HostPatternIndex::default();
            for (i, pattern) in all.iter().enumerate() {
                match pattern.host.index_key() {
                    HostIndexKey::Name(name) => index.names.entry(name.into()).or_default().push(i),
                    HostIndexKey::Domain(name) => index.domains.entry(name.into()).or_default().push(i),
                    HostIndexKey::Ip(ip) => index.addresses.entry(ip).or_default().push(i),
                    HostIndexKey::None => index.rest.push(i),
                }
            }
            Box::new(index)
        });
        Self { all, index }
    }
}

impl HostPatternIndex {
    fn candidates<'i>(&'i self, host: &'i Host) -> impl Iterator<Item = &'i usize> {
        // The empty name is in no index.
        let name = host.name().map(|name| name.strip_suffix('.').unwrap_or(name)).unwrap_or_default();
        let ip = addresses_of(host).filter_map(|ip| self.addresses.get(&ip));
        let domains = domains_of(name).filter_map(|domain| self.domains.get(domain));
        let exact = self.names.get(name).into_iter().chain(ip);
        // Wildcards and networks cannot be looked up, and are always tried.
        exact.chain(domains).flatten().chain(&self.rest)
    }
}

/// The addresses that a pattern for a host may name: its own, and the loopback address that a connection to the
/// unspecified one reaches.
pub fn addresses_of(host: &Host) -> impl Iterator<Item = IpAddr> {
    let own = host.ip().map(|ip| ip.to_canonical());
    let loopback = own.filter(IpAddr::is_unspecified).map(|ip| match ip {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    });
    own.into_iter().chain(loopback)
}

/// The name and all domains that it is in: `a.b.c`, `b.c`, `c`.
pub fn domains_of(name: &str) -> impl Iterator<Item = &str> {
    std::iter::once(name).chain(name.match_indices('.').map(|(at, _)| &name[at + 1..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Authority;

    fn pattern(text: &str) -> HostPattern {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn each_form_matches_what_the_table_says() {
        for (text, authority, matches) in [
            ("example.com", "example.com:80", true),
            ("EXAMPLE.com.", "example.com:80", true),
            ("example.com", "example.com.:80", true),
            ("example.com", "a.example.com:80", false),
            ("*.example.com", "example.com:80", false),
            ("*.example.com", "a.b.example.com:80", true),
            ("*.example.com", "badexample.com:80", false),
            ("**.example.com", "a.example.com:80", true),
            (".example.com", "example.com:80", true),
            (".example.com", "a.example.com.:80", true),
            (".example.com", "badexample.com:80", false),
            ("*", "anything:1", true),
            ("*", "[::1]:1", true),
            ("api-*.test", "api-1.eu.test:1", true),
            ("api-?.test", "api-1.test:1", true),
            ("api-?.test", "api-10.test:1", false),
            ("*example.com", "example.com:1", true),
            ("10.*", "10.1.2.3:1", true),
            ("10.*", "110.1.2.3:1", false),
            ("*.0.0.1", "127.0.0.1:1", true),
            ("10.0.0.0/8", "10.1.2.3:1", true),
            ("10.9.9.9/8", "10.1.2.3:1", true),
            ("10.0.0.0/8", "11.1.2.3:1", false),
            ("10.0.0.0/8", "[::ffff:10.1.2.3]:1", true),
            ("127.0.0.0/8", "2130706433:1", true),
            ("127.0.0.0/8", "0x7f.1:1", true),
            ("127.0.0.0/8", "0:1", true),
            ("127.0.0.1", "0.0.0.0:1", true),
            ("::1", "[::]:1", true),
            ("0.0.0.0", "0:1", true),
            ("0.0.0.0", "127.0.0.1:1", false),
            ("127.1", "127.0.0.1:1", true),
            ("10.0.0.0/8", "0:1", false),
            ("::ffff:10.0.0.0/104", "10.1.2.3:1", true),
            ("192.0.2.7", "[::ffff:192.0.2.7]:1", true),
            ("::1", "[::1]:1", true),
            ("[::1]", "[::1]:1", true),
            ("[::1]:443", "[::1]:443", true),
            ("[::1]:443", "[::1]:80", false),
            ("[2001:db8::/32]:443", "[2001:db8:1::1]:443", true),
            ("example.com:8080", "example.com:8080", true),
            ("example.com:8080", "example.com:80", false),
            ("*:25", "any.test:25", true),
            ("10.0.0.0/8:25", "10.0.0.1:24", false),
            ("bücher.example", "xn--bcher-kva.example:1", true),
            ("*.BÜCHER.example", "a.xn--bcher-kva.example:1", true),
        ] {
            let authority: Authority = authority.parse().unwrap();
            assert_eq!(pattern(text).matches(&authority.host, authority.port), matches, "{text} {authority}");
            let shown = pattern(text).to_string();
            assert_eq!(pattern(&shown), pattern(text), "{shown}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_a_remedy() {
        for (text, why) in [
            ("", "empty"),
            ("a[bc].test", "list the hosts"),
            ("{a,b}.test", "list the hosts"),
            ("[ab]", "list them"),
            ("https://a.test", "URL"),
            ("https://a.test:443/x", "URL"),
            ("a.test/x", "URL"),
            ("10.0.0.0/33", "network"),
            ("a.test:0", "1 to 65535"),
            ("a.test:http", "1 to 65535"),
            ("a b", "example.com"),
            ("a..b", "example.com"),
            (".", "example.com"),
            ("..a", "example.com"),
            ("bü*.test", "ASCII"),
        ] {
            let error = text.parse::<HostPattern>().unwrap_err().to_string();
            assert!(error.contains(why) && error.starts_with(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn a_narrower_pattern_is_more_specific() {
        let mut last = u32::MAX;
        for text in ["api.example.com", "*.example.com", "*.com", "a*", "*"] {
            let specificity = pattern(text).host.specificity();
            assert!(specificity < last, "{text}");
            last = specificity;
        }
    }

    #[test]
    fn lists_of_other_programs_include_subdomains() {
        let matches =
            |text: &str, host: &str| pattern(text).with_subdomains().host.matches(&Host::parse(host).unwrap());
        for text in ["corp.test", ".corp.test"] {
            assert!(
                matches(text, "corp.test") && matches(text, "a.corp.test") && !matches(text, "xcorp.test"),
                "{text}"
            );
        }
        assert!(!matches("*.corp.test", "corp.test"));
        assert!(matches("10.0.0.0/8", "10.1.1.1"));
    }

    /// By recursion, as the table defines it.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|at| naive(rest, &text[at..])),
            [b'?', rest @ ..] => !text.is_empty() && naive(rest, &text[1..]),
            [b, rest @ ..] => text.first() == Some(b) && naive(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn wildcards_match_as_the_naive_matcher_does(pattern in "[ab.*?]{0,8}", text in "[ab.]{0,10}") {
            prop_assert_eq!(is_wildcard_match(pattern.as_bytes(), text.as_bytes()), naive(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn patterns_match_as_the_naive_matcher_does(
            start in prop::sample::select(vec!["", "*.", ".", "*", "a*."]),
            name in "[ab]{1,2}(\\.[ab]{1,2}){0,2}",
            host in "[ab]{1,2}(\\.[ab]{1,2}){0,3}\\.?",
        ) {
            let pattern: HostPattern = format!("{start}{name}").parse().unwrap();
            let plain = host.trim_end_matches('.').as_bytes();
            let like = |p: String| naive(p.as_bytes(), plain);
            let expected = match start {
                "." => like(name.clone()) || like(format!("*.{name}")),
                _ => like(format!("{start}{name}")),
            };
            prop_assert_eq!(pattern.host.matches(&Host::parse(&host).unwrap()), expected);
        }

        #[test]
        fn a_list_matches_if_one_of_its_patterns_does(
            list in prop::collection::vec("(\\*\\.|\\.|\\*)?[ab]{1,2}(\\.[ab]){0,2}(:8[01])?|10\\.0\\.0\\.[01]|10\\.0\\.0\\.0/31|127\\.0\\.0\\.1", 0..20),
            host in "[ab]{1,2}(\\.[ab]{1,2}){0,3}|10\\.0\\.0\\.[0-3]|0\\.0\\.0\\.0",
            port in 80u16..82,
        ) {
            let authority = Authority::parse(&host, Some(port)).unwrap();
            let patterns: Vec<HostPattern> = list.iter().map(|p| p.parse().unwrap()).collect();
            let expected = patterns.iter().any(|p| p.matches(&authority.host, port));
            let on_some_port = patterns.iter().any(|p| p.host.matches(&authority.host));
            let compiled = HostPatterns::from(patterns);
            prop_assert_eq!(compiled.matches(&authority.host, port), expected);
            prop_assert_eq!(compiled.matches_host(&authority.host), on_some_port);
        }
    }

    #[test]
    fn a_port_is_refused_where_it_cannot_count() {
        assert!(HostPatterns::parse_without_ports(&["a.test", "10.0.0.0/8"]).is_ok());
        let error = HostPatterns::parse_without_ports(&["a.test", "b.test:80"]).unwrap_err().to_string();
        assert!(error.contains("`b.test:80`") && error.contains("leave it out"), "{error}");
    }

    #[test]
    fn nothing_makes_a_pattern_panic() {
        proptest!(|(text in ".{0,40}")| { let _ = text.parse::<HostPattern>(); });
    }
}
