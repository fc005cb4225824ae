//! The rule of RFC 9112 that a message violates, and the [`ErrorKind`] it maps to.

use interflow_types::{AuthorityError, ErrorKind};

/// The rule of the standard that a message violates, each with the section that a peer's developer has to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// RFC 9112 2.2: CRLF ends a line; some parsers would take a bare LF for a line end and others for text.
    #[error("a line ends in a bare LF instead of CRLF (RFC 9112 2.2)")]
    BareLf,
    /// RFC 9112 3: `method SP target SP version`.
    #[error("the request line is not `method target HTTP/1.1` (RFC 9112 3)")]
    RequestLine,
    /// RFC 9112 4: `version SP status SP reason`.
    #[error("the status line is not `HTTP/1.1 status reason` (RFC 9112 4)")]
    StatusLine,
    /// RFC 9112 2.3: 1.0 and 1.1 are supported.
    #[error("the HTTP version is not 1.0 or 1.1 (RFC 9112 2.3)")]
    Version,
    /// RFC 9112 3.2: the target must have the form that fits the method.
    #[error("the request target does not have a form that fits the method (RFC 9112 3.2)")]
    Target,
    /// RFC 9112 3.2: a target has no fragment.
    #[error("the request target contains a fragment (RFC 9112 3.2)")]
    Fragment,
    /// RFC 9110 4.2: only http and https are proxied.
    #[error("the scheme of the request target is neither http nor https")]
    Scheme,
    #[error("bad authority in the request target: {0}")]
    Authority(AuthorityError),
    /// RFC 9112 5: a field line is `name: value`, without space before the colon, folding, or control bytes.
    #[error("a header field line is malformed (RFC 9112 5)")]
    Field,
    /// RFC 9112 3.2: required in an HTTP/1.1 request.
    #[error("the Host field is missing (RFC 9112 3.2)")]
    NoHost,
    /// RFC 9112 3.2: a request has at most one.
    #[error("there is more than one Host field (RFC 9112 3.2)")]
    ManyHosts,
    #[error("bad Host field: {0}")]
    Host(AuthorityError),
    #[error("the first line is longer than limits.request_line_bytes allows")]
    LineTooLong,
    #[error("the head is larger than limits.max_header_bytes allows")]
    HeadTooLarge,
    #[error("the head has more fields than limits.max_headers allows")]
    TooManyFields,
    #[error("the Content-Length is not a plain number of bytes (RFC 9110 8.6)")]
    ContentLength,
    /// RFC 9112 6.3: several are refused, equal or not.
    #[error("there is more than one Content-Length (RFC 9112 6.3)")]
    ManyContentLengths,
    /// RFC 9112 6.1: only `chunked`, once, in HTTP/1.1.
    #[error("the Transfer-Encoding is not `chunked` alone (RFC 9112 6.1)")]
    TransferEncoding,
    /// RFC 9112 6.1: HTTP/1.0 has no transfer codings.
    #[error("an HTTP/1.0 message has a Transfer-Encoding (RFC 9112 6.1)")]
    TransferEncodingIn10,
    /// RFC 9112 6.3: the classic request-smuggling pattern.
    #[error("the message has both Transfer-Encoding and Content-Length (RFC 9112 6.3)")]
    BothFramings,
    /// RFC 9110 9.3.6: CONNECT has no content.
    #[error("a CONNECT request has a body (RFC 9110 9.3.6)")]
    ConnectBody,
    /// RFC 9112 7.1: hexadecimal digits, optional extensions, CRLF.
    #[error("a chunk size line is malformed (RFC 9112 7.1)")]
    ChunkSize,
    /// RFC 9112 7.1: CRLF follows the data.
    #[error("a chunk's data is not followed by CRLF (RFC 9112 7.1)")]
    ChunkEnd,
    /// RFC 9112 7.1.1: extensions that are far larger than the data.
    #[error("the chunk extensions are larger than the limit (RFC 9112 7.1.1)")]
    ChunkOverhead,
    /// RFC 9110 6.5.1: a trailer field that would frame or route the message.
    #[error("the trailers contain a framing field (RFC 9110 6.5.1)")]
    Trailer,
    /// RFC 9112 8: the connection closed before the message was complete.
    #[error("the connection closed before the message was complete (RFC 9112 8)")]
    Incomplete,
}

/// A message that violates a rule. The connection cannot be used for further messages, because the position of the next
/// one is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}")]
pub struct H1Error {
    rule: Violation,
    response: bool,
}

impl H1Error {
    pub const fn request(rule: Violation) -> Self {
        Self { rule, response: false }
    }

    pub(super) const fn response(rule: Violation) -> Self {
        Self { rule, response: true }
    }

    pub const fn violation(&self) -> Violation {
        self.rule
    }

    /// The corresponding kind of flow error; its default [`ErrorSource`](interflow_types::ErrorSource) applies.
    pub const fn kind(&self) -> ErrorKind {
        match (self.rule, self.response) {
            (Violation::Incomplete, true) => ErrorKind::UpstreamClosed,
            (_, true) => ErrorKind::BadResponse,
            (Violation::Incomplete, false) => ErrorKind::ClientGone,
            (Violation::LineTooLong, false) => ErrorKind::UriTooLong,
            (Violation::HeadTooLarge | Violation::TooManyFields, false) => ErrorKind::HeadTooLarge,
            (Violation::Version | Violation::Scheme, false) => ErrorKind::Unsupported,
            (_, false) => ErrorKind::BadRequest,
        }
    }
}

impl From<H1Error> for interflow_types::Error {
    fn from(e: H1Error) -> Self {
        let whose = if e.response { "the origin's response" } else { "the request" };
        Self::new(e.kind(), format!("{whose} was refused: {}", e.rule))
    }
}
