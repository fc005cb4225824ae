//! Finds the HTTP/1 messages in the two byte streams of a connection (RFC 9112 6).

use interflow_types::Headers;

use crate::import_support;

/// Longer heads are not HTTP.
const MAX_HEAD: usize = 1 << 20;

/// Where a message is in its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MessageSpan {
    pub start: usize,
    /// The end of the head, behind the empty line.
    pub head_end: usize,
    pub end: usize,
    /// Announced bytes of the body that the capture does not have.
    pub missing: Option<usize>,
}

impl MessageSpan {
    fn words<'a>(&self, stream: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let line = stream[self.start..self.head_end].split(|b| *b == b'\n').next().unwrap_or_default();
        line.trim_ascii_end().splitn(3, |b| *b == b' ')
    }

    pub fn method<'a>(&self, stream: &'a [u8]) -> &'a [u8] {
        self.words(stream).next().unwrap_or_default()
    }

    pub fn target<'a>(&self, stream: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(self.words(stream).nth(1)?).ok()
    }

    fn status<'a>(&self, stream: &'a [u8]) -> &'a [u8] {
        self.words(stream).nth(1).unwrap_or_default()
    }

    pub fn is_success(&self, stream: &[u8]) -> bool {
        self.status(stream).starts_with(b"2")
    }
}

/// The responses of a stream.
#[derive(Default)]
pub(super) struct Responses {
    /// One for each request, in order, as far as they were captured.
    pub finals: Vec<MessageSpan>,
    /// 1xx responses, with the number of the request that they belong to.
    pub interim: Vec<(usize, MessageSpan)>,
}

/// The requests of a stream. It ends with a CONNECT or an upgrade, behind which other bytes may follow.
pub(super) fn requests(stream: &[u8]) -> Vec<MessageSpan> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((start, head_end, headers)) = head(stream, at) {
        let line = stream[start..].split(|b| *b == b'\n').next().unwrap_or_default().trim_ascii_end();
        let version = line.rsplit(|b| *b == b' ').next().unwrap_or_default();
        if !version.starts_with(b"HTTP/1.") {
            break;
        }
        let (end, missing) = body_end(stream, head_end, &headers, false);
        let span = MessageSpan { start, head_end, end, missing };
        let is_last = span.method(stream) == b"CONNECT" || headers.get("upgrade").is_some();
        found.push(span);
        if is_last {
            break;
        }
        at = end;
    }
    found
}

/// The responses to requests with these methods.
pub(super) fn responses(stream: &[u8], methods: &[&[u8]]) -> Responses {
    let mut found = Responses::default();
    let mut at = 0;
    while found.finals.len() < methods.len() {
        let Some((start, head_end, headers)) = head(stream, at) else { break };
        if !stream[start..].starts_with(b"HTTP/1.") {
            break;
        }
        let index = found.finals.len();
        let mut span = MessageSpan { start, head_end, end: head_end, missing: None };
        let status = span.status(stream);
        let has_body = !(status.starts_with(b"1")
            || matches!(status, b"204" | b"304")
            || methods[index] == b"HEAD"
            || (methods[index] == b"CONNECT" && status.starts_with(b"2")));
        if has_body {
            (span.end, span.missing) = body_end(stream, head_end, &headers, true);
        }
        at = span.end;
        if status.starts_with(b"1") && status != b"101" {
            found.interim.push((index, span));
        } else {
            found.finals.push(span);
        }
    }
    found
}

/// The next head: its start, its end and its fields.
fn head(stream: &[u8], from: usize) -> Option<(usize, usize, Headers)> {
    // Empty lines before a message are ignored (RFC 9112 2.2).
    let skipped = stream.get(from..)?.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
    let start = from + skipped;
    let window = &stream[start..stream.len().min(start + MAX_HEAD)];
    let head_end = start + memchr::memmem::find(window, b"\r\n\r\n")? + 4;
    let message = import_support::message(&stream[start..head_end], &mut Vec::new()).ok()?;
    Some((start, head_end, message.headers))
}

/// The end of a body, and how many bytes of it are missing.
fn body_end(stream: &[u8], from: usize, headers: &Headers, is_response: bool) -> (usize, Option<usize>) {
    let body = &stream[from..];
    if headers.has_token("transfer-encoding", "chunked") {
        return match chunked_len(body) {
            Some(length) => (from + length, None),
            // How much is missing is not known; that something is, is.
            None => (stream.len(), Some(1)),
        };
    }
    let announced = headers.get_str("content-length").and_then(|l| l.trim().parse::<usize>().ok());
    match announced {
        Some(length) if length <= body.len() => (from + length, None),
        Some(length) => (stream.len(), Some(length - body.len())),
        // Until the connection is closed.
        None if is_response => (stream.len(), None),
        None => (from, None),
    }
}

/// The length of a chunked body with its trailers (RFC 9112 7.1); `None` if its end is missing.
fn chunked_len(body: &[u8]) -> Option<usize> {
    let line = |at: usize| Some(at + memchr::memmem::find(body.get(at..)?, b"\r\n")?);
    let mut at = 0;
    loop {
        let end = line(at)?;
        let digits = body[at..end].split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
        let size = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        at = end + 2;
        if size > 0 {
            at = at.checked_add(size)?.checked_add(2)?;
            continue;
        }
        // Trailers, up to the empty line.
        while line(at)? != at {
            at = line(at)? + 2;
        }
        return Some(at + 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelined_requests_and_their_responses_are_found() {
        let sent =
            b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc\r\nHEAD /b HTTP/1.1\r\n\r\nGET /c HTTP/1.1\r\n\r\n";
        let asked = requests(sent);
        let methods: Vec<&[u8]> = asked.iter().map(|m| m.method(sent)).collect();
        assert_eq!(methods, [&b"POST"[..], b"HEAD", b"GET"]);
        assert_eq!(asked[2].target(sent), Some("/c"));
        let came = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nok\r\n0\r\nT: 1\r\n\r\n\
HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.0 200 OK\r\n\r\nto the end";
        let found = responses(came, &methods);
        assert_eq!((found.finals.len(), found.interim.len(), found.interim[0].0), (3, 1, 0));
        assert_eq!(&came[found.finals[2].head_end..found.finals[2].end], b"to the end");
    }

    #[test]
    fn truncated_bodies_say_what_is_missing() {
        let came = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf";
        assert_eq!(responses(came, &[b"GET"]).finals[0].missing, Some(5));
        let came = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal";
        assert!(responses(came, &[b"GET"]).finals[0].missing.is_some());
    }

    #[test]
    fn other_protocols_have_no_messages() {
        for bytes in [&b"SSH-2.0-OpenSSH\r\n\r\n"[..], b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\nHost"] {
            assert!(requests(bytes).is_empty(), "{bytes:?}");
        }
    }
}
