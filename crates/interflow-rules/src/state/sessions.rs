//! Cookies and fields stored per domain, in memory, for the session and sticky actions.

use hashlink::LruCache;
use interflow_types::{Headers, Timestamp};
use parking_lot::Mutex;

/// Maximum number of domains, of which the least recently used ones go, and of cookies and fields of each.
const MAX_ENTRIES: usize = 1024;

/// A stored cookie (RFC 6265 5.3), with the attributes that decide to which requests it is added.
#[derive(Clone, Debug)]
struct SessionCookie {
    name: String,
    value: String,
    path: String,
    /// Whether subdomains receive it too.
    below: bool,
    secure: bool,
    /// In microseconds of a monotonic clock; `None` for a session cookie.
    expires: Option<u64>,
}

/// What is stored for one domain.
#[derive(Debug, Default)]
struct DomainSession {
    cookies: Vec<SessionCookie>,
    headers: Vec<(String, String)>,
}

#[derive(Debug)]
pub(crate) struct DomainSessions {
    domains: Mutex<LruCache<String, DomainSession>>,
}

impl Default for DomainSessions {
    fn default() -> Self {
        Self { domains: Mutex::new(LruCache::new(MAX_ENTRIES)) }
    }
}

impl DomainSessions {
    /// Stores the cookies of a response under their domain. A cookie that is expired already removes the stored one.
    pub fn store_cookies(&self, host: &str, response: &Headers) {
        for line in response.get_all("set-cookie") {
            let Some((domain, cookie)) = std::str::from_utf8(line).ok().and_then(|l| parse_set_cookie(host, l)) else {
                continue;
            };
            self.update_domain(&domain, |kept| {
                kept.cookies.retain(|c| c.name != cookie.name || c.path != cookie.path);
                kept.cookies.push(cookie);
            });
        }
    }

    /// Stores the cookies of a request. Their attributes are unknown, so they apply to all paths and to subdomains.
    pub fn store_request_cookies(&self, host: &str, request: &Headers) {
        for (name, value) in crate::text::cookies::request_cookies(request) {
            let (Ok(name), Ok(value)) = (std::str::from_utf8(name), std::str::from_utf8(value)) else { continue };
            let (name, value) = (name.to_owned(), value.to_owned());
            self.update_domain(host, |kept| {
                kept.cookies.retain(|c| c.name != name);
                kept.cookies.push(SessionCookie {
                    name,
                    value,
                    path: "/".into(),
                    below: true,
                    secure: false,
                    expires: None,
                });
            });
        }
    }

    pub fn store_header(&self, host: &str, name: &str, value: &str) {
        self.update_domain(host, |kept| {
            kept.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
            kept.headers.push((name.to_owned(), value.to_owned()));
        });
    }

    fn update_domain(&self, domain: &str, change: impl FnOnce(&mut DomainSession)) {
        let mut domains = self.domains.lock();
        let session = domains.entry(domain.to_ascii_lowercase()).or_insert_with(DomainSession::default);
        change(session);
        let now = Timestamp::monotonic().micros();
        session.cookies.retain(|c| c.expires.is_none_or(|e| e > now));
        // The oldest go: the last ones are those that were just stored.
        session.cookies.drain(..session.cookies.len().saturating_sub(MAX_ENTRIES));
        session.headers.drain(..session.headers.len().saturating_sub(MAX_ENTRIES));
    }

    /// The cookies for a request, longer paths first (RFC 6265 5.4).
    pub fn cookies(&self, host: &str, path: &str, secure: bool) -> Vec<(String, String)> {
        let now = Timestamp::monotonic().micros();
        let mut domains = self.domains.lock();
        for domain in parent_domains(host) {
            // Marks the domains as used; below they are borrowed together, which `get` does not allow.
            let _used = domains.get(domain);
        }
        let mut cookies: Vec<&SessionCookie> = Vec::new();
        for domain in parent_domains(host) {
            let own = domain == host;
            let of = domains.peek(domain).into_iter().flat_map(|k| &k.cookies);
            cookies.extend(of.filter(|c| {
                (own || c.below)
                    && (secure || !c.secure)
                    && path_matches(path, &c.path)
                    && c.expires.is_none_or(|e| e > now)
            }));
        }
        cookies.sort_by_key(|c| std::cmp::Reverse(c.path.len()));
        let mut out: Vec<(String, String)> = Vec::new();
        // The most specific path comes first, and others of that name would contradict it.
        for c in cookies {
            if !out.iter().any(|(n, _)| *n == c.name) {
                out.push((c.name.clone(), c.value.clone()));
            }
        }
        out
    }

    /// The fields of the nearest domain that has any.
    pub fn headers(&self, host: &str) -> Vec<(String, String)> {
        let mut domains = self.domains.lock();
        parent_domains(host)
            .find_map(|d| domains.get(d).filter(|k| !k.headers.is_empty()).map(|k| k.headers.clone()))
            .unwrap_or_default()
    }

    /// Clears a domain, or everything.
    pub fn clear(&self, domain: Option<&str>) {
        let mut domains = self.domains.lock();
        if let Some(domain) = domain { drop(domains.remove(&domain.to_ascii_lowercase())) } else { domains.clear() }
    }
}

/// The host and its parent domains, without the top-level one: `a.b.test`, `b.test`.
fn parent_domains(host: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(host), |h| h.split_once('.').map(|(_, rest)| rest).filter(|r| r.contains('.')))
}

/// Whether a request path matches a cookie's path (RFC 6265 5.1.4).
fn path_matches(path: &str, cookie: &str) -> bool {
    path == cookie || path.strip_prefix(cookie).is_some_and(|rest| cookie.ends_with('/') || rest.starts_with('/'))
}

/// A cookie and its domain; `None` if it is malformed or not for this host.
fn parse_set_cookie(host: &str, line: &str) -> Option<(String, SessionCookie)> {
    let mut parts = line.split(';');
    let (name, value) = parts.next()?.split_once('=')?;
    let mut cookie = SessionCookie {
        name: name.trim().to_owned(),
        value: value.trim().to_owned(),
        path: "/".into(),
        below: false,
        secure: false,
        expires: None,
    };
    let mut domain = host.to_owned();
    let now = Timestamp::monotonic().micros();
    for part in parts {
        let (key, value) = part.split_once('=').map_or((part.trim(), ""), |(k, v)| (k.trim(), v.trim()));
        match key.to_ascii_lowercase().as_str() {
            "domain" if !value.is_empty() => {
                let cookie_domain = value.trim_start_matches('.').to_ascii_lowercase();
                // A host may set cookies for its parent domains, except a top-level one.
                if !parent_domains(host).any(|d| d == cookie_domain) {
                    return None;
                }
                (domain, cookie.below) = (cookie_domain, true);
            }
            "path" if value.starts_with('/') => cookie.path = value.to_owned(),
            "secure" => cookie.secure = true,
            "max-age" => {
                let seconds: i64 = value.parse().ok()?;
                cookie.expires = Some(now.saturating_add_signed(seconds.saturating_mul(1_000_000)));
            }
            // `Max-Age` prevails over `Expires` (RFC 6265 5.3).
            "expires" if cookie.expires.is_none() => {
                let at = |seconds| u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000);
                cookie.expires = crate::text::dates::parse_http_date(value)
                    .map(|s| Timestamp::from_micros(at(s)).to_monotonic().micros());
            }
            _ => {}
        }
    }
    Some((domain, cookie))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(sessions: &DomainSessions, host: &str, path: &str, secure: bool) -> String {
        let all: Vec<_> = sessions.cookies(host, path, secure).into_iter().map(|(n, v)| format!("{n}={v}")).collect();
        all.join("; ")
    }

    fn kept(lines: &[&str]) -> DomainSessions {
        let sessions = DomainSessions::default();
        let headers: Headers = lines.iter().map(|l| ("Set-Cookie", *l)).collect();
        sessions.store_cookies("www.a.test", &headers);
        sessions
    }

    #[test]
    fn cookies_are_sent_only_to_matching_hosts_and_paths() {
        let s = kept(&[
            "own=1",
            "wide=2; Domain=.a.test",
            "deep=3; Path=/x",
            "tls=4; Secure",
            "evil=5; Domain=b.test",
            "top=6; Domain=test",
            "gone=7; Max-Age=0",
            "past=8; Expires=Wed, 21 Oct 2015 07:28:00 GMT",
        ]);
        assert_eq!(sent(&s, "www.a.test", "/x/y", true), "deep=3; own=1; tls=4; wide=2");
        assert_eq!(sent(&s, "www.a.test", "/xy", false), "own=1; wide=2");
        assert_eq!(sent(&s, "other.a.test", "/x", true), "wide=2");
        assert_eq!(sent(&s, "b.test", "/", true), "");
    }

    #[test]
    fn cookie_is_replaced_and_cleared() {
        let s = kept(&["a=1", "a=2"]);
        assert_eq!(sent(&s, "www.a.test", "/", false), "a=2");
        s.clear(Some("other.test"));
        assert_eq!(sent(&s, "www.a.test", "/", false), "a=2");
        s.clear(None);
        assert_eq!(sent(&s, "www.a.test", "/", false), "");
    }

    #[test]
    fn the_oldest_of_too_many_cookies_go_and_expired_ones_first() {
        let s = kept(&["first=1", "short=2; Max-Age=1"]);
        let stored = |s: &DomainSessions| s.domains.lock().get("www.a.test").unwrap().cookies.len();
        for i in 0..MAX_ENTRIES {
            s.store_cookies("www.a.test", &[("Set-Cookie", format!("n{i}=1").as_str())].into_iter().collect());
        }
        let sent = s.cookies("www.a.test", "/", false);
        let has = |name: &str| sent.iter().any(|(n, _)| n == name);
        assert!(has(&format!("n{}", MAX_ENTRIES - 1)) && !has("first"), "{}", sent.len());
        assert_eq!(stored(&s), MAX_ENTRIES);
        let s = kept(&["short=2; Max-Age=1"]);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        s.store_header("www.a.test", "X", "1");
        assert_eq!(stored(&s), 0, "an expired cookie is not kept");
    }

    #[test]
    fn a_session_in_use_outlives_many_that_are_not() {
        let s = kept(&["a=1"]);
        s.store_header("once.test", "X", "1");
        for i in 0..2 * MAX_ENTRIES {
            s.store_header(&format!("{i}.test"), "X", "1");
            if i % 500 == 0 {
                assert_eq!(sent(&s, "www.a.test", "/", false), "a=1", "after {i} others");
            }
        }
        assert!(s.headers("once.test").is_empty());
        assert!(s.domains.lock().len() <= MAX_ENTRIES + 1);
    }

    #[test]
    fn headers_are_stored_per_host_and_inherited_by_subdomains() {
        let s = DomainSessions::default();
        s.store_header("a.test", "Authorization", "x");
        s.store_header("a.test", "authorization", "y");
        assert_eq!(s.headers("www.a.test"), [("authorization".into(), "y".into())]);
        assert!(s.headers("b.test").is_empty());
    }
}
