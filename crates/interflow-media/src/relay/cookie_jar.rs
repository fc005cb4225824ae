//! Cookies that the responses of a fetch set, sent to the targets that they are for (RFC 6265). Some origins redirect to
//! themselves until a cookie comes back, others hand out the cookie for the segments with the playlist. They are kept
//! only in sealed child links.

use interflow_types::{Headers, Host, Scheme, Timestamp, Url};

/// Maximum number of cookies of a fetch; further ones are ignored.
const MAX_COOKIES: usize = 32;
/// Maximum size of a cookie, in bytes (RFC 6265 6.1).
const MAX_COOKIE_LEN: usize = 4096;
/// Maximum size of the cookies in a child link, in bytes: they are part of each of its URLs.
const MAX_CARRIED_LEN: usize = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CookieJar {
    cookies: Vec<Cookie>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cookie {
    name: String,
    value: String,
    host: Host,
    /// Whether it is for the subdomains of its host too.
    is_of_domain: bool,
    path: String,
    /// Whether it is sent over TLS only.
    is_secure: bool,
}

impl CookieJar {
    /// Keeps the cookies of a response from this URL. An expired cookie deletes the one of its name.
    pub fn keep(&mut self, from: &Url, headers: &Headers) {
        for text in headers.get_all("set-cookie").filter_map(|v| std::str::from_utf8(v).ok()) {
            let Some((cookie, is_expired)) = Cookie::read(from, text) else { continue };
            self.cookies.retain(|c| c.name != cookie.name || c.host != cookie.host || c.path != cookie.path);
            if self.cookies.len() < MAX_COOKIES && !is_expired {
                self.cookies.push(cookie);
            }
        }
    }

    /// Adds the cookies for this URL to a request; they replace those of the same name.
    pub fn send(&self, to: &Url, headers: &mut Headers) {
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

    pub fn is_empty(&self) -> bool {
        self.cookies.is_empty()
    }

    /// The cookies as lines of tab-separated fields, for a child link. Those that exceed its limit are left out.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for c in &self.cookies {
            let (domain, secure) = (u8::from(c.is_of_domain), u8::from(c.is_secure));
            let line = format!("{}\t{domain}\t{}\t{secure}\t{}\t{}\n", c.host, c.path, c.name, c.value);
            if out.len() + line.len() <= MAX_CARRIED_LEN {
                out.push_str(&line);
            }
        }
        out
    }

    /// Reads what [`to_text`](Self::to_text) wrote; malformed lines are skipped.
    pub fn from_text(text: &str) -> Self {
        let cookie = |line: &str| {
            let mut fields = line.splitn(6, '\t');
            let mut field = || fields.next();
            Some(Cookie {
                host: Host::parse(field()?).ok()?,
                is_of_domain: field()? == "1",
                path: field()?.to_owned(),
                is_secure: field()? == "1",
                name: field()?.to_owned(),
                value: field()?.to_owned(),
            })
        };
        Self { cookies: text.lines().filter_map(cookie).take(MAX_COOKIES).collect() }
    }
}

impl Cookie {
    /// The cookie of a `Set-Cookie` field, and whether it has expired; `None` if it is to be ignored.
    fn read(from: &Url, text: &str) -> Option<(Self, bool)> {
        let host = &from.authority.host;
        let mut parts = text.split(';');
        let (name, value) = parts.next()?.split_once('=')?;
        let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
        // The directory of the URL's path, if the cookie has none of its own (RFC 6265 5.1.4).
        let path = from.path_only();
        let path = path.rfind('/').filter(|at| *at > 0).map_or("/", |at| &path[..at]).to_owned();
        let mut cookie = Self { name, value, host: host.clone(), is_of_domain: false, path, is_secure: false };
        if cookie.name.is_empty() || text.len() > MAX_COOKIE_LEN || text.bytes().any(|b| b.is_ascii_control()) {
            return None;
        }
        let (mut age, mut expires) = (None, None);
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim();
            match name.trim().to_ascii_lowercase().as_str() {
                "domain" if !value.is_empty() => {
                    let domain = Host::parse(value.trim_start_matches('.')).ok()?;
                    // A host may set cookies for itself and for the domains above it, but not for a top-level domain.
                    let is_wide = domain.name().is_none_or(|d| !d.trim_end_matches('.').contains('.'));
                    if domain != *host && (is_wide || !is_below(host, &domain)) {
                        return None;
                    }
                    (cookie.host, cookie.is_of_domain) = (domain, true);
                }
                "path" if value.starts_with('/') => value.clone_into(&mut cookie.path),
                "secure" => cookie.is_secure = true,
                "max-age" => age = value.parse::<i64>().ok(),
                "expires" => expires = jiff::fmt::rfc2822::parse(&value.replace('-', " ")).ok(),
                _ => {}
            }
        }
        // `Max-Age` precedes `Expires` (RFC 6265 5.3).
        let is_past = || expires.is_some_and(|e| e.timestamp().as_second() <= Timestamp::now().secs() as i64);
        let is_expired = age.map_or_else(is_past, |seconds| seconds <= 0);
        Some((cookie, is_expired))
    }

    fn is_for(&self, to: &Url) -> bool {
        let host = &to.authority.host;
        (self.host == *host || self.is_of_domain && is_below(host, &self.host))
            && is_within(to.path_only(), &self.path)
            && (!self.is_secure || to.scheme == Scheme::Https)
    }
}

/// Whether a name is a subdomain of another one.
fn is_below(name: &Host, domain: &Host) -> bool {
    let (Some(name), Some(domain)) = (name.name(), domain.name()) else { return false };
    name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

/// Whether a path is a cookie's path or below it (RFC 6265 5.1.4).
fn is_within(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || directory.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::address::parse;

    #[test]
    fn cookies_go_to_the_urls_that_they_are_for() {
        let url = |text: &str| parse(text).unwrap().url;
        let set: Headers = [
            ("Set-Cookie", "a=1; Path=/"),
            ("Set-Cookie", "b=2; Domain=.tv.test; Path=/"),
            ("Set-Cookie", "c=3; Domain=other.test"),
            ("Set-Cookie", "d=4; Domain=test"),
            ("Set-Cookie", "a=5; HttpOnly; Path=/"),
            ("Set-Cookie", "e=6; Path=/x/"),
            ("Set-Cookie", "f=7"),
            ("Set-Cookie", "g=8; Secure; Path=/"),
            ("Set-Cookie", "h=9; Path=/"),
            ("Set-Cookie", "h=; Path=/; Max-Age=0"),
            ("Set-Cookie", "i=10; Path=/; Expires=Thu, 01-Jan-1970 00:00:00 GMT"),
        ]
        .into_iter()
        .collect();
        let mut jar = CookieJar::default();
        jar.keep(&url("http://www.tv.test/live/a.m3u8?x=/y/z"), &set);
        assert_eq!(CookieJar::from_text(&jar.to_text()), jar);
        for (to, own, sent) in [
            ("http://www.tv.test/", "", Some("b=2; a=5")),
            ("http://www.tv.test/", "x=9; a=0", Some("x=9; b=2; a=5")),
            ("http://www.tv.test/x/s.ts", "", Some("b=2; a=5; e=6")),
            ("http://www.tv.test/live/b/s.ts", "", Some("b=2; a=5; f=7")),
            ("http://www.tv.test/lively", "", Some("b=2; a=5")),
            ("https://www.tv.test/", "", Some("b=2; a=5; g=8")),
            ("http://cdn.tv.test/", "", Some("b=2")),
            ("http://eviltv.test/", "", None),
            ("http://other.test/", "", None),
        ] {
            let mut headers = Headers::new();
            if !own.is_empty() {
                headers.set("Cookie", own).unwrap();
            }
            jar.send(&url(to), &mut headers);
            assert_eq!(headers.get_str("cookie"), sent, "{to}");
        }
    }

    #[test]
    fn cookies_in_links_are_bounded() {
        let mut jar = CookieJar::default();
        let set: Headers =
            ["a", "b", "c"].map(|n| ("Set-Cookie", format!("{n}={}", "x".repeat(1500)))).into_iter().collect();
        jar.keep(&parse("http://o.test/").unwrap().url, &set);
        assert!(jar.to_text().len() <= MAX_CARRIED_LEN);
        assert_eq!(CookieJar::from_text(&jar.to_text()).cookies.len(), 2);
    }
}
