//! Requests and responses: heads, targets and URLs, and heads with their bodies.

use std::fmt;

use bytes::Bytes;

use crate::labelled_enum;
use crate::{Authority, AuthorityError, Body, ByteStr, Headers, Scheme};

pub use http::{Method, StatusCode};

labelled_enum! {
    /// The HTTP version of a message on one side (downstream or upstream).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum HttpVersion {
        Http10 "HTTP/1.0",
        Http11 "HTTP/1.1",
        H2 "HTTP/2",
    }
}

impl HttpVersion {
    pub const fn is_http1(self) -> bool {
        matches!(self, Self::Http10 | Self::Http11)
    }
}

impl fmt::Display for HttpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The request target in the form in which it was received (RFC 9112 3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget {
    /// `/path?query`; the authority comes from the `Host` field or the tunnel.
    Origin(ByteStr),
    /// `http://host/path` as sent to a proxy, or the HTTP/2 pseudo-header fields.
    Absolute(Url),
    /// `host:port`, for CONNECT.
    Authority(Authority),
    /// `*`, for OPTIONS.
    Asterisk,
}

/// The effective URL of a request (RFC 9110 7.1); always has an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    pub scheme: Scheme,
    pub authority: Authority,
    /// Path and query exactly as received; `*` for a server-wide OPTIONS. Never empty.
    pub path: ByteStr,
}

/// Why a text is not an absolute `http` or `https` URL, in words that follow "the URL is wrong: ".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("it has no scheme")]
    NoScheme,
    #[error("its scheme is neither http nor https")]
    Scheme,
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error("a path that begins with / must follow the host")]
    Path,
}

impl Url {
    /// Splits an absolute URL into scheme, authority with its port, and the rest: empty, or a text that begins with `/`,
    /// `?` or `#` (RFC 3986 3).
    ///
    /// # Errors
    /// What is wrong with scheme or authority.
    pub fn split(text: &str) -> Result<(Scheme, Authority, &str), UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::NoScheme)?;
        let scheme = Scheme::parse(scheme).ok_or(UrlError::Scheme)?;
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        Ok((scheme, Authority::parse(authority, Some(scheme.default_port()))?, rest))
    }

    /// As [`split`](Self::split), for the address of a service: the rest is empty or begins with `/`.
    ///
    /// # Errors
    /// Also for a query or a fragment right behind the authority.
    pub fn split_service(text: &str) -> Result<(Scheme, Authority, &str), UrlError> {
        let (scheme, authority, path) = Self::split(text)?;
        if path.is_empty() || path.starts_with('/') { Ok((scheme, authority, path)) } else { Err(UrlError::Path) }
    }

    /// The address of a service, which has the path `/` if it names none.
    ///
    /// # Errors
    /// As for [`split_service`](Self::split_service).
    pub fn of_service(text: &str) -> Result<Self, UrlError> {
        let (scheme, authority, path) = Self::split_service(text)?;
        Ok(Self { scheme, authority, path: ByteStr::from(if path.is_empty() { "/" } else { path }) })
    }

    pub fn path_only(&self) -> &str {
        let p = self.path.as_str();
        p.split_once('?').map_or(p, |(path, _)| path)
    }

    /// The query without `?`, if there is one.
    pub fn query(&self) -> Option<&str> {
        self.path.as_str().split_once('?').map(|(_, q)| q)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A server-wide OPTIONS has no path in its URL.
        let path = if self.path.as_str() == "*" { "" } else { self.path.as_str() };
        write!(f, "{}://{}{}", self.scheme, self.authority.to_host_header(self.scheme), path)
    }
}

/// The head of a request, with its target resolved to a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// The method, in the case in which it was sent.
    pub method: Method,
    /// The effective URL, which decides the origin.
    pub url: Url,
    /// The version on the side from which the request came.
    pub version: HttpVersion,
    /// The header fields. HTTP/2 pseudo-header fields are not included; a `Host` field is.
    pub headers: Headers,
    /// The protocol to upgrade to, if the upgrade may be forwarded: HTTP/2's `:protocol` (RFC 8441) or the HTTP/1.1
    /// `Upgrade` field, such as `websocket`.
    pub protocol: Option<ByteStr>,
}

/// The head of a response, received or generated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    pub status: StatusCode,
    /// The reason phrase as received; empty over HTTP/2.
    pub reason: Bytes,
    /// The version on the side from which the response came.
    pub version: HttpVersion,
    pub headers: Headers,
}

impl ResponseHead {
    /// A head for a locally generated response, with the status's standard reason phrase.
    pub fn new(status: StatusCode) -> Self {
        Self {
            status,
            reason: Bytes::from_static(status.canonical_reason().unwrap_or_default().as_bytes()),
            version: HttpVersion::Http11,
            headers: Headers::new(),
        }
    }

    /// Appends a field; the caller guarantees that it is well formed.
    ///
    /// # Panics
    /// If name or value is malformed.
    pub fn with_header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.append(name, value).expect("fields of local responses are well formed");
        self
    }
}

/// A request head with its body.
#[derive(Debug)]
pub struct Request {
    pub head: RequestHead,
    pub body: Body,
}

/// A response head with its body.
#[derive(Debug)]
pub struct Response {
    pub head: ResponseHead,
    pub body: Body,
}

impl Response {
    /// A locally generated response with a complete body of this media type. The codec adds the framing fields.
    pub fn full(status: StatusCode, media_type: &str, body: impl Into<Bytes>) -> Self {
        Self { head: ResponseHead::new(status).with_header("Content-Type", media_type), body: Body::from(body.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_urls_are_split_before_path_query_and_fragment() {
        for (text, port, rest) in [
            ("https://a.test", 443, ""),
            ("http://a.test:8080/x?y#z", 8080, "/x?y#z"),
            ("https://a.test?q=/", 443, "?q=/"),
            ("http://[::1]#f", 80, "#f"),
        ] {
            let (_, authority, found) = Url::split(text).unwrap();
            assert_eq!((authority.port, found), (port, rest), "{text}");
            let is_service = rest.is_empty() || rest.starts_with('/');
            assert_eq!(Url::split_service(text).err(), (!is_service).then_some(UrlError::Path), "{text}");
        }
        assert_eq!(Url::of_service("https://a.test").unwrap().to_string(), "https://a.test/");
        assert_eq!(Url::of_service("https://a.test/x?y").unwrap().to_string(), "https://a.test/x?y");
        for (text, error) in [
            ("a.test/x", UrlError::NoScheme),
            ("ftp://a.test/", UrlError::Scheme),
            ("https://", UrlError::Authority(AuthorityError::Empty)),
            ("https://user@a.test/", UrlError::Authority(AuthorityError::UserInfo)),
        ] {
            assert_eq!(Url::split(text), Err(error), "{text}");
        }
    }

    #[test]
    fn urls_are_displayed_without_default_ports() {
        let url = |scheme, a: &str, path: &'static str| {
            Url { scheme, authority: a.parse().unwrap(), path: ByteStr::from_static(path) }.to_string()
        };
        assert_eq!(url(Scheme::Https, "a.b:443", "/x?y"), "https://a.b/x?y");
        assert_eq!(url(Scheme::Http, "[::1]:8080", "/"), "http://[::1]:8080/");
        assert_eq!(url(Scheme::Http, "a:80", "*"), "http://a");
    }

    #[test]
    fn path_and_query_are_split_at_the_first_question_mark() {
        let url =
            Url { scheme: Scheme::Http, authority: "a:80".parse().unwrap(), path: ByteStr::from_static("/p?a=?&b") };
        assert_eq!((url.path_only(), url.query()), ("/p", Some("a=?&b")));
    }
}
