//! Protects the gateway port from other sites' web pages: a browser on this machine or network would otherwise send
//! their requests, and the gateway would add the operator's provider key.

use interflow_net::egress::dial::is_loopback_name;
use interflow_types::{Authority, Headers, Host, HostPatterns, Response, StatusCode};

use crate::config::GatewayConfig;

/// Which host names the gateway answers to, and which web origins may send requests to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct WebPagePolicy {
    hosts: HostPatterns,
    route_hosts: HostPatterns,
    origins: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebPageRefusal {
    /// Not one of the gateway's names: a page may have bound its own name to this address (DNS rebinding).
    UnknownHost,
    /// Sent by a page of another origin.
    ForeignOrigin,
}

impl WebPagePolicy {
    /// Compiles `gateway.hosts`, `gateway.origins` and the hosts of the routes.
    ///
    /// # Errors
    /// What is wrong, with its configuration key.
    pub fn new(config: &GatewayConfig) -> Result<Self, String> {
        let hosts = HostPatterns::parse_without_ports(&config.hosts).map_err(|e| format!("gateway.hosts: {e}"))?;
        let all: Vec<&String> = config.route.iter().flat_map(|r| &r.hosts).collect();
        let route_hosts = HostPatterns::parse_without_ports(&all).map_err(|e| format!("gateway.route.hosts: {e}"))?;
        for origin in &config.origins {
            // An origin has a scheme, a host and an optional port, but no path (RFC 6454), not even a trailing slash.
            let whole = origin.split_once("://").is_some_and(|(_, host)| !host.is_empty() && !host.contains('/'));
            if origin != "*" && !whole {
                return Err(format!(
                    "gateway.origins: `{origin}` is not an origin; write it as https://app.example.com, or * for any"
                ));
            }
        }
        let origins = config.origins.iter().map(|o| o.to_ascii_lowercase()).collect();
        Ok(Self { hosts, route_hosts, origins })
    }

    /// Checks a request; `named` is the host it names, `unreadable` whether that cannot be parsed, `is_page` whether it is
    /// for a page to which other sites may lead the browser (Fetch Metadata, section 2).
    pub fn check(
        &self,
        named: Option<&Authority>,
        unreadable: bool,
        is_page: bool,
        headers: &Headers,
    ) -> Result<(), WebPageRefusal> {
        // Browsers always send a host; HTTP/1.0 clients may not.
        if unreadable || named.is_some_and(|a| !self.is_known_host(&a.host)) {
            return Err(WebPageRefusal::UnknownHost);
        }
        let foreign = match headers.get("origin") {
            Some(origin) => !std::str::from_utf8(origin).is_ok_and(|o| self.allows_origin(o, named)),
            // Browsers send no `Origin` with GETs that load images or follow links, but they send `Sec-Fetch-Site`.
            None => {
                let says =
                    |field: &str, value: &[u8]| headers.get(field).is_some_and(|v| v.eq_ignore_ascii_case(value));
                let is_opened = says("sec-fetch-mode", b"navigate") && says("sec-fetch-dest", b"document");
                says("sec-fetch-site", b"cross-site") && !(is_page && is_opened)
            }
        };
        if foreign && !self.allows_any_origin() { Err(WebPageRefusal::ForeignOrigin) } else { Ok(()) }
    }

    pub fn is_known_host(&self, host: &Host) -> bool {
        match host {
            // An address, unlike a name, cannot be rebound.
            Host::Ip(_) => true,
            Host::Name(name) => {
                // No public site has a name without a dot, so a page cannot have bound one to this address:
                // `interflow` is a name on the operator's own network.
                !name.trim_end_matches('.').contains('.')
                    || is_loopback_name(name)
                    || self.hosts.matches_host(host)
                    || self.route_hosts.matches_host(host)
            }
        }
    }

    fn allows_any_origin(&self) -> bool {
        self.origins.iter().any(|o| o == "*")
    }

    /// Pages of this machine, of the gateway itself, and of the configured origins.
    fn allows_origin(&self, origin: &str, named: Option<&Authority>) -> bool {
        let origin = origin.to_ascii_lowercase();
        if self.origins.contains(&origin) {
            return true;
        }
        let (port, from) = match origin.split_once("://") {
            Some(("http", from)) => (80, from),
            Some(("https", from)) => (443, from),
            _ => return false,
        };
        let Ok(from) = Authority::parse(from, Some(port)) else { return false };
        let local = match &from.host {
            // Pages served from this machine are trusted like its programs.
            Host::Ip(ip) => ip.to_canonical().is_loopback(),
            Host::Name(name) => is_loopback_name(name),
        };
        // Behind a TLS terminator, `Host` has no port, which is then assumed to be 80.
        local || named.is_some_and(|n| n.host == from.host && (n.port == from.port || n.port == 80 && from.port == 443))
    }
}

impl WebPageRefusal {
    /// The response, in the error format that provider SDKs parse.
    pub fn response(self) -> Response {
        let (status, code, message) = match self {
            Self::UnknownHost => (
                StatusCode::MISDIRECTED_REQUEST,
                "unknown_host",
                "this gateway does not answer to the name in Host: add it to gateway.hosts, or use an address",
            ),
            Self::ForeignOrigin => (
                StatusCode::FORBIDDEN,
                "foreign_origin",
                "web pages of other sites may not use this gateway: gateway.origins lists those that may",
            ),
        };
        let error = serde_json::json!({ "message": message, "type": "permission_error", "param": null, "code": code });
        let mut response =
            Response::full(status, "application/json", serde_json::json!({ "error": error }).to_string());
        response.head.headers.append_unchecked(b"Cache-Control", b"no-store");
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GatewayRoute;

    fn policy() -> WebPagePolicy {
        let route = GatewayRoute {
            path: "/".into(),
            hosts: vec!["shop.test".into()],
            to: "http://a".into(),
            strip_path: false,
            preserve_host: false,
        };
        WebPagePolicy::new(&GatewayConfig {
            hosts: vec!["*.corp.test".into()],
            origins: vec!["https://App.test".into(), "app://tool".into()],
            route: vec![route],
            ..GatewayConfig::default()
        })
        .unwrap()
    }

    fn checked(policy: &WebPagePolicy, host: &str, fields: &[(&str, &str)]) -> Option<WebPageRefusal> {
        checked_for(policy, host, false, fields)
    }

    fn checked_for(
        policy: &WebPagePolicy,
        host: &str,
        is_page: bool,
        fields: &[(&str, &str)],
    ) -> Option<WebPageRefusal> {
        let named = Authority::parse(host, Some(80)).ok();
        policy.check(named.as_ref(), named.is_none(), is_page, &fields.iter().copied().collect()).err()
    }

    #[test]
    fn links_of_other_sites_lead_to_pages_only() {
        let (policy, host) = (policy(), "127.0.0.1:7071");
        let opened = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        assert_eq!(checked_for(&policy, host, true, &opened), None);
        assert_eq!(checked_for(&policy, host, false, &opened), Some(WebPageRefusal::ForeignOrigin));
        // An image, a frame, a script, and a form of another site.
        for (at, value) in [(2, "image"), (2, "iframe"), (1, "no-cors")] {
            let mut fields = opened;
            fields[at].1 = value;
            assert_eq!(checked_for(&policy, host, true, &fields), Some(WebPageRefusal::ForeignOrigin), "{value}");
        }
        let form = [&opened[..], &[("origin", "https://evil.test")]].concat();
        assert_eq!(checked_for(&policy, host, true, &form), Some(WebPageRefusal::ForeignOrigin));
        assert_eq!(checked_for(&policy, "evil.test", true, &opened), Some(WebPageRefusal::UnknownHost));
    }

    #[test]
    fn cross_site_requests_are_refused_for_any_host_name_of_the_gateway() {
        use WebPageRefusal::{ForeignOrigin, UnknownHost};
        let policy = policy();
        for (host, fields, refused) in [
            ("127.0.0.1:7071", &[][..], None),
            ("localhost:7071", &[], None),
            ("gw.localhost", &[], None),
            ("interflow:7071", &[], None),
            ("[::1]:7071", &[], None),
            ("10.1.2.3:7071", &[], None),
            ("gw.corp.test", &[], None),
            ("shop.test", &[], None),
            ("evil.test", &[], Some(UnknownHost)),
            ("localhost.evil.test", &[], Some(UnknownHost)),
            ("not a host", &[], Some(UnknownHost)),
            ("evil.test:7071", &[("origin", "http://evil.test:7071")], Some(UnknownHost)),
            ("127.0.0.1:7071", &[("Origin", "http://evil.test")], Some(ForeignOrigin)),
            ("127.0.0.1:7071", &[("origin", "null")], Some(ForeignOrigin)),
            ("127.0.0.1:7071", &[("origin", "http://127.0.0.1.evil.test")], Some(ForeignOrigin)),
            ("127.0.0.1:7071", &[("origin", "http://localhost@evil.test")], Some(ForeignOrigin)),
            ("127.0.0.1:7071", &[("origin", "")], Some(ForeignOrigin)),
            ("127.0.0.1:7071", &[("origin", "chrome-extension://abc")], Some(ForeignOrigin)),
            ("127.0.0.1:7071", &[("sec-fetch-site", "cross-site")], Some(ForeignOrigin)),
            ("127.0.0.1:7071", &[("sec-fetch-site", "none")], None),
            ("127.0.0.1:7071", &[("origin", "http://localhost:3000"), ("sec-fetch-site", "cross-site")], None),
            ("127.0.0.1:7071", &[("origin", "https://app.test")], None),
            ("127.0.0.1:7071", &[("origin", "app://tool")], None),
            ("gw.corp.test", &[("origin", "https://gw.corp.test")], None),
            ("gw.corp.test", &[("origin", "https://other.corp.test")], Some(ForeignOrigin)),
        ] {
            assert_eq!(checked(&policy, host, fields), refused, "{host} {fields:?}");
        }
        let open = GatewayConfig { origins: vec!["*".into()], hosts: vec!["*".into()], ..GatewayConfig::default() };
        let open = WebPagePolicy::new(&open).unwrap();
        assert_eq!(checked(&open, "evil.test", &[("origin", "null")]), None);
    }

    #[test]
    fn invalid_gateway_origin_is_reported_with_its_key() {
        for origin in ["app.test", "https://app.test/", "https://"] {
            let config = GatewayConfig { origins: vec![origin.into()], ..GatewayConfig::default() };
            assert!(WebPagePolicy::new(&config).unwrap_err().contains("gateway.origins"), "{origin}");
        }
    }
}
