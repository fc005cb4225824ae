//! The origins that a secret is bound to: scheme, host or host pattern, and port.

use std::fmt;

use interflow_types::{Authority, Host, HostMatch, HostPattern, HostPatternError, Scheme};

#[derive(Clone, Debug)]
pub(super) struct SecretOrigin {
    /// The required scheme; `None` if both are allowed.
    scheme: Option<Scheme>,
    host: HostMatch,
    port: u16,
    /// The port was given, not implied.
    names_port: bool,
}

impl SecretOrigin {
    /// Parses `host`, `host:port`, `https://host` or `http://host:port`. Without a scheme it is HTTPS, and also HTTP
    /// if `plain_http` is set or the host is this machine; without a port, the scheme's default.
    ///
    /// # Errors
    /// The origin is invalid.
    pub fn parse(text: &str, plain_http: bool) -> Result<Vec<Self>, String> {
        let wrong = |why: &str| format!("`{text}`: {why}");
        let lower = text.trim().to_ascii_lowercase();
        let (scheme, rest) = match lower.split_once("://") {
            None => (None, lower.as_str()),
            Some(("https" | "wss", rest)) => (Some(Scheme::Https), rest),
            Some(("http" | "ws", rest)) => (Some(Scheme::Http), rest),
            Some(_) => return Err(wrong("the scheme of an origin must be https or http")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let HostPattern { host, port } = rest.parse().map_err(|e: HostPatternError| e.to_string())?;
        if host == HostMatch::Any {
            return Err(wrong("`*` would allow every host: name those that need it"));
        }
        // This machine's services often have no TLS, and plain text does not leave the machine.
        let both = plain_http || is_loopback_pattern(&host) && port.is_some();
        let schemes = match (scheme, port) {
            (Some(scheme), _) => vec![Some(scheme)],
            (None, Some(_)) if both => vec![None],
            (None, None) if both => vec![Some(Scheme::Https), Some(Scheme::Http)],
            (None, _) => vec![Some(Scheme::Https)],
        };
        let of = |scheme: Option<Scheme>| Self {
            scheme,
            host: host.clone(),
            port: port.or_else(|| scheme.map(Scheme::default_port)).unwrap_or_default(),
            names_port: port.is_some(),
        };
        Ok(schemes.into_iter().map(of).collect())
    }

    /// Whether it is this machine without a port, which new secrets must have.
    pub fn lacks_port(&self) -> bool {
        is_loopback_pattern(&self.host) && !self.names_port
    }

    /// Whether a request with this scheme and authority matches. This machine has many services, so its port must be
    /// given.
    pub fn matches(&self, scheme: Scheme, authority: &Authority) -> bool {
        self.scheme.is_none_or(|s| s == scheme)
            && self.port == authority.port
            && (self.names_port || !is_loopback_host(&authority.host))
            && self.matches_host(&authority.host)
    }

    /// Whether the host matches, regardless of scheme and port.
    pub fn matches_host(&self, host: &Host) -> bool {
        self.host.matches(host)
    }
}

impl fmt::Display for SecretOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scheme) = self.scheme {
            write!(f, "{}://", scheme.as_str())?;
        }
        HostPattern { host: self.host.clone(), port: Some(self.port) }.fmt(f)
    }
}

fn is_loopback_host(host: &Host) -> bool {
    match host {
        Host::Ip(ip) => ip.to_canonical().is_loopback(),
        Host::Name(name) => is_loopback_name(name.trim_end_matches('.')),
    }
}

fn is_loopback_name(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether a pattern matches only this machine.
fn is_loopback_pattern(pattern: &HostMatch) -> bool {
    match pattern {
        HostMatch::Ip(ip) => ip.is_loopback(),
        HostMatch::Net(net) => net.network().is_loopback(),
        HostMatch::Name(name) | HostMatch::Below(name) | HostMatch::NameAndBelow(name) => is_loopback_name(name),
        HostMatch::Any | HostMatch::Wildcard(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_binding_matches_scheme_host_and_port() {
        for (text, plain, scheme, authority, bound) in [
            ("api.test", false, "https", "api.test:443", true),
            ("api.test", false, "https", "api.test:8443", false),
            ("api.test", false, "http", "api.test:80", false),
            ("api.test", true, "http", "api.test:80", true),
            ("api.test", true, "http", "api.test:8080", false),
            ("api.test:8443", false, "https", "api.test:8443", true),
            ("api.test:8443", false, "http", "api.test:8443", false),
            ("api.test:8443", true, "http", "api.test:8443", true),
            ("https://API.test/", false, "https", "api.test:443", true),
            ("http://api.test:8080", false, "http", "api.test:8080", true),
            ("http://api.test:8080", false, "https", "api.test:8080", false),
            ("*.example.com:8443", false, "https", "a.example.com:8443", true),
            ("10.0.0.0/8", false, "https", "10.1.2.3:443", true),
            ("[2001:db8::1]:8443", false, "https", "[2001:db8::1]:8443", true),
            ("2001:db8::1", false, "https", "[2001:db8::1]:443", true),
            ("127.0.0.1:3000", false, "http", "127.0.0.1:3000", true),
            ("127.0.0.1:3000", false, "https", "127.0.0.1:3000", true),
            ("127.0.0.1:3000", false, "http", "127.0.0.1:3001", false),
            ("localhost:3000", false, "http", "localhost:3000", true),
            ("local*", false, "https", "localhost:443", false),
        ] {
            let origins = SecretOrigin::parse(text, plain).unwrap();
            let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
            let authority: Authority = authority.parse().unwrap();
            let matches = origins.iter().any(|o| o.matches(scheme, &authority));
            assert_eq!(matches, bound, "{text} {authority}");
        }
        for bad in ["", "*", "https://*", "ftp://a.test", "a.test:0", "a.test:x", "a.test/path"] {
            assert!(SecretOrigin::parse(bad, false).is_err(), "{bad}");
        }
        assert!(SecretOrigin::parse("localhost", false).unwrap()[0].lacks_port());
    }

    #[test]
    fn a_binding_is_formatted_in_full_and_parses_back() {
        for (text, plain, shown) in [
            ("api.test", false, "https://api.test:443"),
            ("api.test", true, "https://api.test:443 http://api.test:80"),
            ("[::1]:3000", false, "[::1]:3000"),
            ("*.a.test:8443", false, "https://*.a.test:8443"),
            ("http://a.test:81", false, "http://a.test:81"),
        ] {
            let of = |text: &str| -> Vec<String> {
                SecretOrigin::parse(text, plain).unwrap().iter().map(ToString::to_string).collect()
            };
            assert_eq!(of(text).join(" "), shown);
            for one in of(text) {
                assert_eq!(of(&one), std::slice::from_ref(&one));
            }
        }
    }
}
