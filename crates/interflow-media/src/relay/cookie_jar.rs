//! Cookies that the responses of a chain of redirects set, sent to the targets that they are for (RFC 6265). Some
//! origins redirect to themselves until a cookie comes back. They are forgotten with the chain.

use interflow_types::{Headers, Host};

/// Maximum number of cookies of a chain; further ones are ignored.
const MAX_COOKIES: usize = 32;
/// Maximum size of a cookie, in bytes (RFC 6265 6.1).
const MAX_COOKIE_LEN: usize = 4096;

#[derive(Default)]
pub struct CookieJar {
    cookies: Vec<Cookie>,
}

struct Cookie {
    name: String,
    value: String,
    host: Host,
    /// Whether it is for the subdomains of its host too.
    is_of_domain: bool,
}

impl CookieJar {
    /// Keeps the cookies of a response from this host.
    pub fn keep(&mut self, from: &Host, headers: &Headers) {
        for text in headers.get_all("set-cookie").filter_map(|v| std::str::from_utf8(v).ok()) {
            let Some(cookie) = Cookie::read(from, text) else { continue };
            self.cookies.retain(|known| known.name != cookie.name || known.host != cookie.host);
            if self.cookies.len() < MAX_COOKIES {
                self.cookies.push(cookie);
            }
        }
    }

    /// Adds the cookies for this host to a request; they replace those of the same name.
    pub fn send(&self, to: &Host, headers: &mut Headers) {
        let ours: Vec<&Cookie> = self.cookies.iter().filter(|cookie| cookie.is_for(to)).collect();
        if ours.is_empty() {
            return;
        }
        let own = headers.get_str("cookie").unwrap_or_default();
        let is_replaced = |pair: &str| {
            let name = pair.split('=').next().unwrap_or_default().trim();
            ours.iter().any(|cookie| cookie.name == name)
        };
        let mut pairs: Vec<String> =
            own.split(';').map(str::trim).filter(|p| !p.is_empty() && !is_replaced(p)).map(str::to_owned).collect();
        pairs.extend(ours.iter().map(|cookie| format!("{}={}", cookie.name, cookie.value)));
        let _ = headers.set("Cookie", pairs.join("; "));
    }
}

impl Cookie {
    fn read(from: &Host, text: &str) -> Option<Self> {
        let mut parts = text.split(';');
        let (name, value) = parts.next()?.split_once('=')?;
        let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
        let mut cookie = Self { name, value, host: from.clone(), is_of_domain: false };
        if cookie.name.is_empty() || text.len() > MAX_COOKIE_LEN {
            return None;
        }
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            if name.trim().eq_ignore_ascii_case("domain") {
                let domain = Host::parse(value.trim().trim_start_matches('.')).ok()?;
                // A host may set cookies for itself and for the domains above it, but not for a top-level domain.
                let is_wide = domain.name().is_none_or(|d| !d.trim_end_matches('.').contains('.'));
                if domain != *from && (is_wide || !is_below(from, &domain)) {
                    return None;
                }
                (cookie.host, cookie.is_of_domain) = (domain, true);
            }
        }
        Some(cookie)
    }

    fn is_for(&self, to: &Host) -> bool {
        self.host == *to || self.is_of_domain && is_below(to, &self.host)
    }
}

/// Whether a name is a subdomain of another one.
fn is_below(name: &Host, domain: &Host) -> bool {
    let (Some(name), Some(domain)) = (name.name(), domain.name()) else { return false };
    name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_go_to_the_hosts_that_they_are_for() {
        let host = |name: &str| Host::parse(name).unwrap();
        let set: Headers = [
            ("Set-Cookie", "a=1; Path=/"),
            ("Set-Cookie", "b=2; Domain=.tv.test"),
            ("Set-Cookie", "c=3; Domain=other.test"),
            ("Set-Cookie", "d=4; Domain=test"),
            ("Set-Cookie", "a=5; HttpOnly"),
        ]
        .into_iter()
        .collect();
        let mut jar = CookieJar::default();
        jar.keep(&host("www.tv.test"), &set);
        for (to, own, sent) in [
            ("www.tv.test", "", Some("b=2; a=5")),
            ("www.tv.test", "x=9; a=0", Some("x=9; b=2; a=5")),
            ("cdn.tv.test", "", Some("b=2")),
            ("eviltv.test", "", None),
            ("other.test", "", None),
        ] {
            let mut headers = Headers::new();
            if !own.is_empty() {
                headers.set("Cookie", own).unwrap();
            }
            jar.send(&host(to), &mut headers);
            assert_eq!(headers.get_str("cookie"), sent, "{to}");
        }
    }
}
