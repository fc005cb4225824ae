//! URLs as written by users and playlists, and reference resolution (RFC 3986 5).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interflow_types::percent::{self, AsciiSet, CONTROLS};
use interflow_types::{Authority, ByteStr, Error, ErrorKind, Result, Scheme, Url};

/// Maximum length of a URL, in bytes; RFC 9110 4.1 recommends to support at least 8000.
pub const MAX_URL_LEN: usize = 16 * 1024;

/// A URL to fetch. Credentials and fragment are not part of `url`: the former become a field, the latter is never
/// sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaAddress {
    pub url: Url,
    /// The `Authorization` value for credentials in the URL (RFC 7617).
    pub basic: Option<String>,
}

/// Parses an `http` or `https` URL. Characters not allowed in a request line (spaces, non-ASCII, quotes) are
/// percent-encoded, the fragment is dropped, credentials become a header field.
///
/// # Errors
/// [`ErrorKind::BadRequest`] with the reason.
pub fn parse(text: &str) -> Result<MediaAddress> {
    let wrong = |why: &str| {
        Error::new(ErrorKind::BadRequest, format!("`{}` is not an address to fetch: {why}", shortened(text)))
    };
    let text = text.trim();
    if text.len() > MAX_URL_LEN {
        return Err(wrong("it is longer than 16 KiB"));
    }
    let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it must begin with http:// or https://"))?;
    let scheme = match Scheme::parse(scheme) {
        // `ws` and `wss` are shorter; they are schemes too, but nothing that can be fetched.
        Some(s) if scheme.len() >= 4 => s,
        _ => return Err(wrong("only http and https are fetched")),
    };
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // The last `@` ends the credentials, which may contain one.
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let authority = Authority::parse(host, Some(scheme.default_port())).map_err(|e| wrong(&e.to_string()))?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let out = format!("{slash}{}", percent::encoded_as(path, NOT_IN_TARGET));
    let basic = user.map(|u| format!("Basic {}", STANDARD.encode(percent::decoded_bytes(u.as_bytes()))));
    Ok(MediaAddress { url: Url { scheme, authority, path: ByteStr::from(out) }, basic })
}

impl MediaAddress {
    /// The credentials as in a URL (`user:password@`), if this one has any and the other URL is of the same origin.
    pub fn userinfo_for(&self, url: &Url) -> Option<String> {
        let is_same = url.scheme == self.url.scheme && url.authority == self.url.authority;
        let basic = self.basic.as_deref().filter(|_| is_same)?.strip_prefix("Basic ")?;
        let plain = String::from_utf8(STANDARD.decode(basic).ok()?).ok()?;
        let (user, password) = plain.split_once(':').map_or((plain.as_str(), None), |(u, p)| (u, Some(p)));
        let encoded = |text: &str| percent::encoded_as(text, NOT_IN_USERINFO).to_string();
        let password = password.map(|p| format!(":{}", encoded(p))).unwrap_or_default();
        Some(format!("{}{password}@", encoded(user)))
    }

    /// The URL with its credentials.
    pub fn text(&self) -> String {
        with_userinfo(&self.url.to_string(), self.userinfo_for(&self.url).as_deref())
    }
}

/// A URL with credentials (`user:password@`) before its host.
fn with_userinfo(url: &str, userinfo: Option<&str>) -> String {
    let Some(((scheme, rest), userinfo)) = url.split_once("://").zip(userinfo) else { return url.to_owned() };
    format!("{scheme}://{userinfo}{rest}")
}

/// What separates the parts of a URL, and what is not allowed in it.
const NOT_IN_USERINFO: &AsciiSet =
    &NOT_IN_TARGET.add(b'/').add(b'?').add(b'#').add(b'@').add(b':').add(b'%').add(b'[').add(b']').add(b'\'');

/// The beginning of a URL for messages, without its query, which often contains a token.
fn shortened(text: &str) -> &str {
    let end = text.find('?').unwrap_or(text.len()).min(200);
    &text[..text.floor_char_boundary(end)]
}

/// What is not allowed in a request line; existing escapes are kept, so that encoding twice changes nothing.
const NOT_IN_TARGET: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`');

/// Bytes that need no encoding in a query's value. Slashes and colons are legal there (RFC 3986 3.4), and keep nested
/// URLs readable.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut b = 0;
    while b < 256 {
        let c = b as u8;
        plain[b] = c.is_ascii_alphanumeric()
            || matches!(c, b'-' | b'.' | b'_' | b'~' | b'/' | b':' | b',' | b'@' | b'!' | b'*');
        b += 1;
    }
    plain
};

/// Appends a query's value, percent-encoded where it must be, in runs rather than byte by byte.
pub fn push_value(value: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut rest = value;
    while !rest.is_empty() {
        let run = plain_run(rest);
        let (plain, tail) = rest.split_at(run);
        out.extend_from_slice(plain);
        rest = tail;
        if let [b, tail @ ..] = rest {
            out.extend_from_slice(&[b'%', HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]);
            rest = tail;
        }
    }
}

/// Length of the prefix that needs no encoding. URLs are long and mostly plain, so eight bytes are tested at once.
fn plain_run(bytes: &[u8]) -> usize {
    let is_plain = |b: &u8| PLAIN[usize::from(*b)];
    let eights = bytes.chunks_exact(8).take_while(|c| c.iter().fold(true, |all, b| all & is_plain(b))).count() * 8;
    let rest = bytes.get(eights..).unwrap_or_default();
    eights + rest.iter().position(|b| !is_plain(b)).unwrap_or(rest.len())
}

/// The reference's own scheme (`http:`, `data:`, `skd:`), if it has one (RFC 3986 3.1).
pub fn scheme_of(reference: &str) -> Option<&str> {
    let in_scheme = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    let end = reference.bytes().position(|b| !in_scheme(b))?;
    let (scheme, rest) = reference.split_at(end);
    (rest.starts_with(':') && scheme.starts_with(|c: char| c.is_ascii_alphabetic())).then_some(scheme)
}

/// Whether it begins with `http://` or `https://`, case-insensitively.
pub fn is_http(reference: &[u8]) -> bool {
    let starts = |p: &[u8]| reference.get(..p.len()).is_some_and(|r| r.eq_ignore_ascii_case(p));
    starts(b"http://") || starts(b"https://")
}

/// The base URL of a document, parsed once for resolving references: a playlist has thousands of them.
#[derive(Clone, Debug)]
pub struct BaseUrl {
    scheme: String,
    origin: String,
    directory: String,
    whole: String,
    path: String,
}

impl BaseUrl {
    pub fn from_url(url: &Url) -> Self {
        let origin = format!("{}://{}", url.scheme, url.authority.to_host_header(url.scheme));
        let path = url.path_only().to_owned();
        let directory = format!("{origin}{}", &path[..path.rfind('/').map_or(0, |at| at + 1)]);
        Self { scheme: url.scheme.to_string(), origin, directory, whole: url.to_string(), path }
    }

    /// From an absolute URL; `None` if invalid. References to the same authority keep its credentials (RFC 3986 5.2.2).
    pub fn parse(text: &str) -> Option<Self> {
        parse(text).ok().map(|a| Self::from_url(&a.url).with_userinfo(a.userinfo_for(&a.url).as_deref()))
    }

    /// With the credentials of the document's URL (`user:password@`).
    pub fn with_userinfo(mut self, userinfo: Option<&str>) -> Self {
        for text in [&mut self.origin, &mut self.directory, &mut self.whole] {
            *text = with_userinfo(text, userinfo);
        }
        self
    }

    /// The reference as an absolute URL; one with its own scheme is returned unchanged. An empty one means the
    /// document itself.
    pub fn resolve(&self, reference: &str) -> String {
        let reference = reference.trim();
        if scheme_of(reference).is_some() {
            return reference.to_owned();
        }
        let mut out = String::with_capacity(self.directory.len() + reference.len());
        self.join(reference, &mut out);
        out
    }

    /// Appends the resolution of a reference without its own scheme. Cases in the order of RFC 3986 5.2.2.
    pub fn join(&self, reference: &str, out: &mut String) {
        let mut put = |parts: &[&str]| parts.iter().for_each(|part| out.push_str(part));
        match reference.as_bytes() {
            [] => put(&[&self.whole]),
            [b'/', b'/', ..] => put(&[&self.scheme, ":", reference]),
            [b'/', ..] => put(&[&self.origin, &without_dots(reference)]),
            [b'?', ..] => put(&[&self.origin, &self.path, reference]),
            bytes => {
                // Most references have no dot segments, and are appended without another allocation.
                let dots = || memchr::memchr_iter(b'.', bytes).any(|at| bytes.get(at + 1).is_none_or(|b| *b == b'/'));
                if !dots() {
                    return put(&[&self.directory, reference]);
                }
                let directory = self.directory.get(self.origin.len()..).unwrap_or("/");
                put(&[&self.origin, &without_dots(&format!("{directory}{reference}"))]);
            }
        }
    }
}

/// Removes dot segments from a path (RFC 3986 5.2.4); the query is kept.
fn without_dots(reference: &str) -> String {
    let end = reference.find(['?', '#']).unwrap_or(reference.len());
    let (path, tail) = reference.split_at(end);
    if !path.contains("/.") {
        return reference.to_owned();
    }
    let mut segments: Vec<&str> = Vec::new();
    let mut last_is_dots = false;
    for segment in path.split('/').skip(1) {
        last_is_dots = matches!(segment, "." | "..");
        match segment {
            "." => {}
            ".." => {
                segments.pop();
            }
            other => segments.push(other),
        }
    }
    let end = if last_is_dots && !segments.is_empty() { "/" } else { "" };
    format!("/{}{end}{tail}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_leniently() {
        for (text, url, basic) in [
            ("http://a.test/x?y=1#z", "http://a.test/x?y=1", None),
            ("HTTPS://A.test:8443", "https://a.test:8443/", None),
            (" http://a.test?q=a b ", "http://a.test/?q=a%20b", None),
            ("http://a.test/\u{fc}/%20", "http://a.test/%C3%BC/%20", None),
            ("http://u:p%40x@[::1]:8080/live", "http://[::1]:8080/live", Some("Basic dTpwQHg=")),
        ] {
            let address = parse(text).unwrap();
            assert_eq!((address.url.to_string().as_str(), address.basic.as_deref()), (url, basic), "{text}");
        }
        for bad in ["a.test/x", "ftp://a/x", "file:///etc/passwd", "http://", "http://a b/", "ws://", "http://a:0/"] {
            assert_eq!(parse(bad).unwrap_err().kind(), ErrorKind::BadRequest, "{bad}");
        }
    }

    #[test]
    fn references_resolve_as_in_rfc_3986() {
        let base = BaseUrl::parse("http://a/b/c/d?q").unwrap();
        for (reference, becomes) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g"),
            ("?y", "http://a/b/c/d?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("g?y/./x", "http://a/b/c/g?y/./x"),
            ("", "http://a/b/c/d?q"),
            (".", "http://a/b/c/"),
            ("./", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../../g", "http://a/g"),
            ("../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g;x=1/../y", "http://a/b/c/y"),
            ("skd://key", "skd://key"),
            ("data:text/plain,x", "data:text/plain,x"),
            ("https://o/x/../y", "https://o/x/../y"),
        ] {
            assert_eq!(base.resolve(reference), becomes, "{reference}");
        }
    }

    #[test]
    fn encoded_query_values_round_trip() {
        let text = "http://a.test/x y?b=c&d=%20+\u{fc}#e";
        let mut out = Vec::new();
        push_value(text.as_bytes(), &mut out);
        let encoded = String::from_utf8(out).unwrap();
        assert!(!encoded.contains(['&', '+', ' ', '#', '?']), "{encoded}");
        assert_eq!(*percent::decoded_bytes(encoded.as_bytes()), *text.as_bytes());
    }
}
