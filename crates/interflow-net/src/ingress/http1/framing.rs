//! The framing of responses to HTTP/1 clients (RFC 9112 6), and connection reuse after them.

use bytes::Bytes;
use interflow_codec::h1::{self, RequestLine};
use interflow_types::{BodyFrame, Headers, HttpVersion, Method, ResponseHead, StatusCode, name};

use super::write_buf::WriteBuf;

/// What the framing of the response depends on in its request. It is kept separately, because the service consumes the
/// request.
pub(super) struct RequestFacts {
    pub method: Method,
    pub version: HttpVersion,
    /// The client allows the connection to be reused.
    pub keep_alive: bool,
    /// The client waits for 100 (Continue) before it sends the body.
    pub expects: bool,
}

impl RequestFacts {
    pub(super) fn new(line: &RequestLine) -> Self {
        let RequestLine { method, version, headers, .. } = line;
        let keep_alive = h1::keeps_alive(*version, headers);
        let expects = *version == HttpVersion::Http11 && headers.has_token(name::EXPECT, "100-continue");
        Self { method: method.clone(), version: *version, keep_alive, expects }
    }
}

/// How the content of a response is framed (RFC 9112 6.3): not at all, by `Content-Length` with this many bytes still
/// to come, in chunks, or by the end of the connection, which only HTTP/1.0 clients get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseFraming {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

/// The body does not have the length that its head states.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LengthMismatch;

impl ResponseFraming {
    /// Chooses the framing for a body with this many bytes to come, if known.
    pub(super) fn choose(asked: &RequestFacts, status: StatusCode, remaining: Option<u64>) -> Self {
        // RFC 9112 6.3: these end with the head, whatever their fields announce.
        if asked.method == Method::HEAD || status.is_informational() || matches!(status.as_u16(), 204 | 304) {
            return Self::None;
        }
        match remaining {
            Some(n) => Self::Length(n),
            // HTTP/1.0 clients do not know the chunked coding.
            None if asked.version == HttpVersion::Http11 => Self::Chunked,
            None => Self::UntilClose,
        }
    }

    /// Sets the framing and connection fields of the head. A `Content-Length` that is correct is left in its
    /// position.
    pub(super) fn write_headers(self, head: &mut ResponseHead, asked: &RequestFacts, keep_alive: bool) {
        let headers = &mut head.headers;
        // The framing of the hop before does not apply to this one.
        if headers.contains(name::TRANSFER_ENCODING) {
            headers.remove(name::TRANSFER_ENCODING);
        }
        match self {
            // RFC 9110 8.6 forbids `Content-Length` in 1xx and 204. HEAD and 304 keep it: there it states the length
            // that GET would have.
            Self::None if head.status == StatusCode::NO_CONTENT || head.status.is_informational() => {
                headers.remove(name::CONTENT_LENGTH);
            }
            Self::None => {}
            Self::Length(n) if has_content_length(headers, n) => {}
            Self::Length(n) => set_header(headers, name::CONTENT_LENGTH, n.to_string().as_bytes()),
            Self::Chunked => {
                headers.remove(name::CONTENT_LENGTH);
                set_header(headers, name::TRANSFER_ENCODING, b"chunked");
            }
            Self::UntilClose => {
                headers.remove(name::CONTENT_LENGTH);
            }
        }
        // HTTP/1.1 connections persist by default, HTTP/1.0 ones only if both sides say so (RFC 9112 9.3).
        match (keep_alive, asked.version) {
            (false, _) if !headers.has_token(name::CONNECTION, "close") => {
                set_header(headers, name::CONNECTION, b"close")
            }
            (true, HttpVersion::Http10) if !headers.has_token(name::CONNECTION, "keep-alive") => {
                set_header(headers, name::CONNECTION, b"keep-alive");
            }
            _ => {}
        }
    }

    pub(super) fn frame(&mut self, out: &mut WriteBuf, frame: BodyFrame) -> Result<(), LengthMismatch> {
        match (self, frame) {
            // Trailers have no place outside of the chunked coding; they are dropped, as RFC 9110 6.5.1 permits.
            (Self::None, _) | (Self::Length(_) | Self::UntilClose, BodyFrame::Trailers(_)) => {}
            (Self::Length(left), BodyFrame::Data(data)) => {
                // A longer body would be read as the beginning of the next response.
                *left = left.checked_sub(data.len() as u64).ok_or(LengthMismatch)?;
                out.append_data(data);
            }
            (Self::UntilClose, BodyFrame::Data(data)) => out.append_data(data),
            (Self::Chunked, BodyFrame::Data(data)) => chunk(out, data),
            (this @ Self::Chunked, BodyFrame::Trailers(trailers)) => {
                out.append_with(|b| h1::write_last_chunk(b, Some(&trailers)));
                // The trailer section is the end: nothing may follow it.
                *this = Self::None;
            }
        }
        Ok(())
    }

    pub(super) fn end(self, out: &mut WriteBuf) -> Result<(), LengthMismatch> {
        match self {
            // A shorter one would leave the client waiting.
            Self::Length(1..) => return Err(LengthMismatch),
            Self::Chunked => out.append_with(|b| h1::write_last_chunk(b, None)),
            Self::None | Self::Length(0) | Self::UntilClose => {}
        }
        Ok(())
    }
}

/// Empty data is skipped, because an empty chunk would be the last one.
fn chunk(out: &mut WriteBuf, data: Bytes) {
    if data.is_empty() {
        return;
    }
    out.append_with(|b| h1::write_chunk_size(b, data.len()));
    out.append_data(data);
    out.append_with(|b| b.extend_from_slice(h1::CHUNK_END));
}

/// Whether there is exactly one `Content-Length`, with this value.
fn has_content_length(headers: &Headers, n: u64) -> bool {
    let mut lengths = headers.get_all(name::CONTENT_LENGTH);
    let first = lengths.next().and_then(|v| std::str::from_utf8(v).ok()).and_then(|v| v.parse().ok());
    first == Some(n) && lengths.next().is_none()
}

fn set_header(headers: &mut Headers, name: &str, value: &[u8]) {
    headers.set(name, value).expect("framing fields are well formed");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: Method, version: HttpVersion) -> RequestFacts {
        RequestFacts { method, version, keep_alive: true, expects: false }
    }

    fn announced(
        asked: &RequestFacts,
        status: u16,
        fields: &[(&str, &str)],
        remaining: Option<u64>,
        keep: bool,
    ) -> String {
        let mut head = ResponseHead::new(StatusCode::from_u16(status).unwrap());
        for (n, v) in fields {
            head = head.with_header(n, v);
        }
        ResponseFraming::choose(asked, head.status, remaining).write_headers(&mut head, asked, keep);
        head.headers
            .iter()
            .map(|(n, v)| format!("{}: {}", String::from_utf8_lossy(n), String::from_utf8_lossy(v)))
            .collect::<Vec<_>>()
            .join(" | ")
    }

    #[test]
    fn framing_fields_match_the_body() {
        use HttpVersion::{Http10, Http11};
        let get = Method::GET;
        for (method, version, status, fields, remaining, keep, want) in [
            (&get, Http11, 200, &[][..], Some(5), true, "Content-Length: 5"),
            (&get, Http11, 200, &[("content-length", "5"), ("X", "1")], Some(5), true, "content-length: 5 | X: 1"),
            (&get, Http11, 200, &[("Content-Length", "7"), ("X", "1")], Some(5), true, "Content-Length: 5 | X: 1"),
            (
                &get,
                Http11,
                200,
                &[("Content-Length", "5"), ("X", "1"), ("Content-Length", "5")],
                Some(5),
                true,
                "Content-Length: 5 | X: 1",
            ),
            (&get, Http11, 200, &[("Transfer-Encoding", "gzip")], Some(0), true, "Content-Length: 0"),
            (&get, Http11, 200, &[("Content-Length", "5")], None, true, "Transfer-Encoding: chunked"),
            (&get, Http11, 200, &[], None, false, "Transfer-Encoding: chunked | Connection: close"),
            (&get, Http11, 200, &[("Connection", "close")], Some(0), false, "Connection: close | Content-Length: 0"),
            (&get, Http10, 200, &[("Content-Length", "5")], None, false, "Connection: close"),
            (&get, Http10, 200, &[], Some(5), true, "Content-Length: 5 | Connection: keep-alive"),
            (&Method::HEAD, Http11, 200, &[("Content-Length", "1000")], Some(0), true, "Content-Length: 1000"),
            (&Method::HEAD, Http11, 200, &[("Transfer-Encoding", "chunked")], None, true, ""),
            (&get, Http11, 304, &[("Content-Length", "500")], Some(0), true, "Content-Length: 500"),
            (&get, Http11, 204, &[("Content-Length", "0")], Some(0), true, ""),
            (&get, Http11, 204, &[("Transfer-Encoding", "chunked")], None, true, ""),
        ] {
            let asked = asked(method.clone(), version);
            assert_eq!(announced(&asked, status, fields, remaining, keep), want, "{method} {status} {fields:?}");
        }
    }

    #[test]
    fn a_body_of_the_wrong_length_is_detected() {
        let data = |n: usize| BodyFrame::Data(Bytes::from(vec![0; n]));
        let mut out = WriteBuf::default();
        assert_eq!(ResponseFraming::Length(3).frame(&mut out, data(4)), Err(LengthMismatch));
        let mut content = ResponseFraming::Length(3);
        assert_eq!(content.frame(&mut out, data(2)), Ok(()));
        assert_eq!(content.end(&mut out), Err(LengthMismatch));
        assert_eq!(content.frame(&mut out, data(1)), Ok(()));
        assert_eq!(content.end(&mut out), Ok(()));
    }
}
