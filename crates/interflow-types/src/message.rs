//! Heads of messages, and messages.

use std::fmt;

use bytes::Bytes;

use crate::{Authority, Body, ByteStr, Headers, Scheme};

pub use http::{Method, StatusCode};

/// The protocol version of one leg's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HttpVersion {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2.
    H2,
}

impl HttpVersion {
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::H2 => "HTTP/2",
        }
    }

    /// Whether it is one of the two that frame by text.
    pub const fn is_http1(self) -> bool {
        matches!(self, Self::Http10 | Self::Http11)
    }
}

impl fmt::Display for HttpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request's target as it stood on the wire (RFC 9112 3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget {
    /// `/path?query`: the authority is the Host field's, or the tunnel's.
    Origin(ByteStr),
    /// `http://host/path`, or the pseudo-header fields of HTTP/2.
    Absolute(Url),
    /// `host:port`, for CONNECT.
    Authority(Authority),
    /// `*`, for OPTIONS.
    Asterisk,
}

/// What a request asks for, resolved: never without an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The scheme.
    pub scheme: Scheme,
    /// Host and port.
    pub authority: Authority,
    /// Path and query exactly as the client wrote them; `*` for a server-wide OPTIONS. Never empty.
    pub path: ByteStr,
}

impl Url {
    /// The path without the query.
    pub fn path_only(&self) -> &str {
        let p = self.path.as_str();
        p.split_once('?').map_or(p, |(path, _)| path)
    }

    /// The query without `?`, when there is one.
    pub fn query(&self) -> Option<&str> {
        self.path.as_str().split_once('?').map(|(_, q)| q)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.as_str() == "*" { "" } else { self.path.as_str() };
        write!(f, "{}://{}{}", self.scheme, self.authority.to_host_header(self.scheme), path)
    }
}

/// The head of a request, its target resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// The method, case as sent.
    pub method: Method,
    /// Where it goes.
    pub url: Url,
    /// The version on the leg it came by.
    pub version: HttpVersion,
    /// The fields. HTTP/2's pseudo-header fields are not among them; a `Host` field is.
    pub headers: Headers,
    /// HTTP/2's `:protocol` (RFC 8441), or the protocol of an HTTP/1.1 `Upgrade` that may go through: `websocket`.
    pub protocol: Option<ByteStr>,
}

/// The head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code.
    pub status: StatusCode,
    /// The reason phrase as it stood on the wire; empty over HTTP/2.
    pub reason: Bytes,
    /// The version on the leg it came by.
    pub version: HttpVersion,
    /// The fields.
    pub headers: Headers,
}

impl ResponseHead {
    /// A head of our own making, with the status's usual reason phrase.
    pub fn new(status: StatusCode) -> Self {
        Self {
            status,
            reason: Bytes::from_static(status.canonical_reason().unwrap_or_default().as_bytes()),
            version: HttpVersion::Http11,
            headers: Headers::new(),
        }
    }

    /// The same with one more field of constants or checked text.
    ///
    /// # Panics
    /// When the field is malformed: an invariant of the code that writes it.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.append(name, value).expect("fields of our own responses are well formed");
        self
    }
}

/// A request on its way.
#[derive(Debug)]
pub struct Request {
    /// Its head.
    pub head: RequestHead,
    /// Its body.
    pub body: Body,
}

/// A response on its way.
#[derive(Debug)]
pub struct Response {
    /// Its head.
    pub head: ResponseHead,
    /// Its body.
    pub body: Body,
}

impl Response {
    /// A response of our own making with a whole body of the given media type; framing is the codec's business.
    pub fn full(status: StatusCode, media_type: &str, body: impl Into<Bytes>) -> Self {
        Self { head: ResponseHead::new(status).with_header("Content-Type", media_type), body: Body::from(body.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shown_as_people_write_them() {
        let url = |scheme, a: &str, path: &'static str| {
            Url { scheme, authority: a.parse().unwrap(), path: ByteStr::from_static(path) }.to_string()
        };
        assert_eq!(url(Scheme::Https, "a.b:443", "/x?y"), "https://a.b/x?y");
        assert_eq!(url(Scheme::Http, "[::1]:8080", "/"), "http://[::1]:8080/");
        assert_eq!(url(Scheme::Http, "a:80", "*"), "http://a");
    }

    #[test]
    fn path_and_query_come_apart_at_the_first_question_mark() {
        let url =
            Url { scheme: Scheme::Http, authority: "a:80".parse().unwrap(), path: ByteStr::from_static("/p?a=?&b") };
        assert_eq!((url.path_only(), url.query()), ("/p", Some("a=?&b")));
    }
}
