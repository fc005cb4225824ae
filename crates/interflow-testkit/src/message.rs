//! Received requests and responses, and the strict HTTP/1 head parser.

use std::net::SocketAddr;

use bytes::Bytes;
use interflow_types::Headers;

/// A request that an origin received.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// Request target as sent: origin-form, absolute-form, authority-form or `*`; for HTTP/2 the `:path`.
    pub target: String,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
    pub version: String,
    /// HTTP/2's `:authority`, or the `Host` field.
    pub authority: String,
    /// Fields in original order and spelling.
    pub headers: Headers,
    /// The body without its framing; content coding is kept.
    pub body: Bytes,
    pub trailers: Headers,
    /// The raw HTTP/1 head; empty for HTTP/2.
    pub raw_head: Bytes,
    /// The index of its connection at this origin, from 0.
    pub connection: usize,
    pub peer: SocketAddr,
    /// The SNI, if received over TLS.
    pub sni: Option<String>,
}

impl Request {
    /// First value of a field as text; `None` also if it is not UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get_str(name)
    }

    /// The target's path without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A query parameter's value, as sent, without percent-decoding.
    pub fn query(&self, name: &str) -> Option<&str> {
        let query = self.target.split_once('?')?.1;
        query.split('&').filter_map(|p| p.split_once('=')).find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// A query parameter, or else the header `x-NAME`, read as a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.query(name).or_else(|| self.header(&format!("x-{name}"))).and_then(|v| v.parse().ok())
    }
}

/// A response that a client received.
#[derive(Clone, Debug)]
pub struct Answer {
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
    pub version: String,
    /// Status code of the final response.
    pub status: u16,
    /// Reason phrase; empty for HTTP/2.
    pub reason: String,
    /// Fields in original order and spelling.
    pub headers: Headers,
    /// The body without its framing; content coding is kept.
    pub body: Bytes,
    pub trailers: Headers,
    /// The preceding interim (1xx) responses.
    pub informational: Vec<(u16, Headers)>,
    /// The raw HTTP/1 head; empty for HTTP/2.
    pub raw_head: Bytes,
}

impl Answer {
    /// First value of a field as text; `None` also if it is not UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get_str(name)
    }

    /// The body as text, with invalid bytes replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {}", self.text()))
    }
}

/// Body framing (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    None,
    Length(usize),
    Chunked,
    /// A response that lasts until the connection closes.
    UntilClose,
}

impl Framing {
    /// Framing of a request.
    ///
    /// # Errors
    /// Both framings at once, several lengths, or an invalid length.
    pub fn of_request(headers: &Headers) -> Result<Self, String> {
        Ok(Self::declared(headers)?.unwrap_or(Self::None))
    }

    /// Framing of a response that has a body.
    ///
    /// # Errors
    /// As for requests.
    pub fn of_response(headers: &Headers) -> Result<Self, String> {
        Ok(Self::declared(headers)?.unwrap_or(Self::UntilClose))
    }

    fn declared(headers: &Headers) -> Result<Option<Self>, String> {
        let mut lengths = headers.get_all("content-length");
        let length = lengths.next();
        // Several lengths, even equal ones: a proxy must not forward them.
        if lengths.next().is_some() {
            return Err("more than one Content-Length".into());
        }
        match (headers.contains("transfer-encoding"), length) {
            // Both at once may be read differently by different receivers (RFC 9112 section 6.3).
            (true, Some(_)) => Err("Transfer-Encoding and Content-Length at once".into()),
            (true, None) if headers.has_token("transfer-encoding", "chunked") => Ok(Some(Self::Chunked)),
            (true, None) => Err("a transfer coding that is not chunked".into()),
            (false, None) => Ok(None),
            (false, Some(v)) => {
                let digits = std::str::from_utf8(v).ok().filter(|s| s.bytes().all(|b| b.is_ascii_digit()));
                let n = digits.and_then(|s| s.parse().ok()).ok_or_else(|| format!("Content-Length {v:?}"))?;
                Ok(Some(Self::Length(n)))
            }
        }
    }
}

/// Splits a head into its start line and fields. Strict: bare LF, folding, and space before the colon are errors, since
/// a proxy must not send them.
///
/// # Errors
/// The offending line.
pub fn parse_head(raw: &[u8]) -> Result<(String, Headers), String> {
    let text = raw.strip_suffix(b"\r\n\r\n").ok_or("a head without its empty line")?;
    let mut lines = split_crlf(text);
    let first = lines.next().unwrap_or_default();
    let mut headers = Headers::new();
    for line in lines {
        let shown = || String::from_utf8_lossy(line).into_owned();
        let colon = line.iter().position(|&b| b == b':').ok_or_else(|| format!("field line {:?}", shown()))?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || name.iter().any(u8::is_ascii_whitespace) || value.contains(&b'\n') {
            return Err(format!("field line {:?}", shown()));
        }
        headers.append_unchecked(name, value);
    }
    Ok((String::from_utf8_lossy(first).into_owned(), headers))
}

/// Version, status and reason of a status line.
///
/// # Errors
/// If it is malformed.
pub fn parse_status_line(line: &str) -> Result<(String, u16, String), String> {
    let mut parts = line.splitn(3, ' ');
    let version = parts.next().filter(|v| v.starts_with("HTTP/1.")).ok_or_else(|| format!("status line {line:?}"))?;
    let status = parts.next().and_then(|s| s.parse().ok()).ok_or_else(|| format!("status line {line:?}"))?;
    Ok((version.into(), status, parts.next().unwrap_or_default().into()))
}

fn split_crlf(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut over = false;
    std::iter::from_fn(move || {
        if over {
            return None;
        }
        let line = match crate::wire::find(text, b"\r\n") {
            Some(at) => {
                let line = &text[..at];
                text = &text[at + 2..];
                line
            }
            None => {
                over = true;
                text
            }
        };
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_keeps_order_case_and_repetition() {
        let (first, headers) = parse_head(b"GET / HTTP/1.1\r\nHost: a\r\nx-B: 1\r\nX-b:2 \r\n\r\n").unwrap();
        assert_eq!(first, "GET / HTTP/1.1");
        let mut out = Vec::new();
        headers.write_to(&mut out);
        assert_eq!(out, b"Host: a\r\nx-B: 1\r\nX-b: 2\r\n");
    }

    #[test]
    fn malformed_heads_are_errors() {
        for raw in [
            &b"GET / HTTP/1.1\r\nHost a\r\n\r\n"[..],
            b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
            b"GET / HTTP/1.1\r\n: b\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b",
        ] {
            assert!(parse_head(raw).is_err(), "{:?}", String::from_utf8_lossy(raw));
        }
    }

    #[test]
    fn ambiguous_framing_is_an_error() {
        let of = |fields: &[(&str, &str)]| Framing::of_request(&fields.iter().copied().collect());
        assert_eq!(of(&[]), Ok(Framing::None));
        assert_eq!(of(&[("content-length", "5")]), Ok(Framing::Length(5)));
        assert_eq!(of(&[("Transfer-Encoding", "chunked")]), Ok(Framing::Chunked));
        for wrong in [
            &[("Content-Length", "5"), ("content-length", "5")][..],
            &[("Content-Length", "+5")],
            &[("Content-Length", "5"), ("Transfer-Encoding", "chunked")],
            &[("Transfer-Encoding", "gzip")],
        ] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }
}
