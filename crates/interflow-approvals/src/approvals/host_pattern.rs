//! Host patterns: an exact name, all subdomains of a name, an address or network, or a glob.

use globset::{GlobBuilder, GlobMatcher};
use interflow_types::Host;
use ipnet::IpNet;

#[derive(Clone, Debug)]
pub(super) enum HostPattern {
    Any,
    Exact(String),
    /// `*.example.com`, stored as `example.com`.
    Below(String),
    Net(IpNet),
    Glob(GlobMatcher, usize),
}

impl HostPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The pattern is invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = text.trim().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if plain.is_empty() {
            return Err("an empty host".to_owned());
        }
        if plain == "*" || plain == "**" {
            return Ok(Self::Any);
        }
        if let Ok(ip) = plain.parse::<std::net::IpAddr>() {
            return Ok(Self::Exact(ip.to_canonical().to_string()));
        }
        if let Ok(net) = plain.parse::<IpNet>() {
            return Ok(Self::Net(net));
        }
        let below = plain.strip_prefix("**.").or_else(|| plain.strip_prefix("*."));
        let wild = |t: &str| t.contains(['*', '?', '[', '{', '\\']);
        if let Some(rest) = below.filter(|r| !wild(r)) {
            return Ok(Self::Below(rest.to_owned()));
        }
        if !wild(&plain) {
            return Ok(Self::Exact(plain));
        }
        let glob =
            GlobBuilder::new(&plain).build().map_err(|e| format!("`{text}` is not a host glob: {}", e.kind()))?;
        Ok(Self::Glob(glob.compile_matcher(), literal_chars(&plain)))
    }

    /// The specificity of a match (larger is more specific); `None` if it does not match.
    pub fn matches(&self, host: &str, ip: Option<std::net::IpAddr>) -> Option<u32> {
        const EXACT: u32 = 100_000;
        match self {
            Self::Any => Some(0),
            Self::Exact(name) => (name == host).then_some(EXACT),
            Self::Below(name) => is_below(host, name).then_some(1000 + name.len() as u32 * 10),
            Self::Net(net) => ip.is_some_and(|ip| net.contains(&ip)).then_some(1000 + u32::from(net.prefix_len()) * 10),
            Self::Glob(glob, literals) => glob.is_match(host).then_some(10 + *literals as u32 * 10),
        }
    }
}

fn is_below(host: &str, name: &str) -> bool {
    host.strip_suffix(name).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

/// The number of literal characters in a glob.
pub(super) fn literal_chars(glob: &str) -> usize {
    glob.chars().filter(|c| !matches!(c, '*' | '?' | '[' | ']' | '{' | '}')).count()
}

/// The host in the form that patterns match: lower case, without a trailing dot, addresses in canonical form.
pub(super) fn normalize_host(host: &Host) -> (String, Option<std::net::IpAddr>) {
    match host {
        Host::Name(name) => (name.trim_end_matches('.').to_ascii_lowercase(), None),
        Host::Ip(ip) => (ip.to_canonical().to_string(), Some(ip.to_canonical())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_and_say_how_much() {
        let mut last = u32::MAX;
        for pattern in ["api.example.com", "*.example.com", "*.com", "a*", "*"] {
            let said = HostPattern::parse(pattern).unwrap().matches("api.example.com", None).unwrap();
            assert!(said < last, "{pattern}");
            last = said;
        }
        for (pattern, host, matches) in [
            ("*.example.com", "example.com", false),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "badexample.com", false),
            ("**.example.com", "a.b.example.com", true),
            ("EXAMPLE.com", "example.com", true),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("[::1]", "::1", true),
            ("::ffff:127.0.0.1", "127.0.0.1", true),
            ("api-?.x.test", "api-1.x.test", true),
        ] {
            let found = HostPattern::parse(pattern).unwrap().matches(host, host.parse().ok());
            assert_eq!(found.is_some(), matches, "{pattern} {host}");
        }
        for bad in ["", "a[", "x{"] {
            assert!(HostPattern::parse(bad).is_err(), "{bad}");
        }
    }
}
