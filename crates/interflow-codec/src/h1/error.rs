//! Which rule of RFC 9112 a message broke, and what that is called in the vocabulary of flows.

use interflow_types::{AuthorityError, ErrorKind};

/// The rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// RFC 9112 2.2: CRLF ends a line; a bare LF would be read as a line end by some and as text by others.
    #[error("a line ends in a bare LF instead of CRLF (RFC 9112 2.2)")]
    BareLf,
    /// RFC 9112 3: `method SP target SP version`.
    #[error("the request line is not `method target HTTP/1.1` (RFC 9112 3)")]
    RequestLine,
    /// RFC 9112 4: `version SP status SP reason`.
    #[error("the status line is not `HTTP/1.1 status reason` (RFC 9112 4)")]
    StatusLine,
    /// RFC 9112 2.3: 1.0 and 1.1 are spoken here.
    #[error("the HTTP version is not 1.0 or 1.1 (RFC 9112 2.3)")]
    Version,
    /// RFC 9112 3.2: one of the four forms, the one that fits the method.
    #[error("the request target has no form that fits the method (RFC 9112 3.2)")]
    Target,
    /// RFC 9112 3.2: no target holds a fragment.
    #[error("the request target holds a fragment (RFC 9112 3.2)")]
    Fragment,
    /// RFC 9110 4.2: http and https are proxied.
    #[error("the scheme of the request target is neither http nor https")]
    Scheme,
    /// RFC 9112 3.2.2 and 3.2.3.
    #[error("bad authority in the request target: {0}")]
    Authority(AuthorityError),
    /// RFC 9112 5: a field line is `name: value`, no space before the colon, no folding, no control bytes.
    #[error("a header field line is malformed (RFC 9112 5)")]
    Field,
    /// RFC 9112 3.2: an HTTP/1.1 request has one.
    #[error("the Host field is missing (RFC 9112 3.2)")]
    NoHost,
    /// RFC 9112 3.2: a request has one at most.
    #[error("there is more than one Host field (RFC 9112 3.2)")]
    ManyHosts,
    /// RFC 9110 7.2.
    #[error("bad Host field: {0}")]
    Host(AuthorityError),
    /// The first line is over the limit.
    #[error("the first line is longer than the limit")]
    LineTooLong,
    /// The head is over the limit on bytes.
    #[error("the head is larger than the limit")]
    HeadTooLarge,
    /// The head is over the limit on fields.
    #[error("the head has more fields than the limit")]
    TooManyFields,
    /// RFC 9110 8.6.
    #[error("the Content-Length is no plain number of bytes (RFC 9110 8.6)")]
    ContentLength,
    /// RFC 9112 6.3: several are refused, equal or not.
    #[error("there is more than one Content-Length (RFC 9112 6.3)")]
    ManyContentLengths,
    /// RFC 9112 6.1: nothing but `chunked`, once, in HTTP/1.1.
    #[error("the Transfer-Encoding is not `chunked` alone (RFC 9112 6.1)")]
    TransferEncoding,
    /// RFC 9112 6.1: HTTP/1.0 knows no transfer codings.
    #[error("Transfer-Encoding stands in an HTTP/1.0 message (RFC 9112 6.1)")]
    TransferEncodingIn10,
    /// RFC 9112 6.3: the usual shape of request smuggling.
    #[error("both Transfer-Encoding and Content-Length are there (RFC 9112 6.3)")]
    BothFramings,
    /// RFC 9110 9.3.6: CONNECT has no content.
    #[error("a CONNECT request announces a body (RFC 9110 9.3.6)")]
    ConnectBody,
    /// RFC 9112 7.1: hexadecimal digits, perhaps an extension, CRLF.
    #[error("a chunk size line is malformed (RFC 9112 7.1)")]
    ChunkSize,
    /// RFC 9112 7.1: CRLF stands behind the data.
    #[error("a chunk's data is not followed by CRLF (RFC 9112 7.1)")]
    ChunkEnd,
    /// RFC 9112 7.1.1: extensions are far larger than the data.
    #[error("the chunk extensions are larger than the limit (RFC 9112 7.1.1)")]
    ChunkOverhead,
    /// RFC 9110 6.5.1: a trailer that would frame or route the message.
    #[error("a framing field stands in the trailers (RFC 9110 6.5.1)")]
    Trailer,
    /// RFC 9112 8: the connection closed before the message was whole.
    #[error("the connection closed before the message was whole (RFC 9112 8)")]
    Incomplete,
}

/// A message that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}")]
pub struct H1Error {
    rule: Violation,
    response: bool,
}

impl H1Error {
    pub(super) const fn request(rule: Violation) -> Self {
        Self { rule, response: false }
    }

    pub(super) const fn response(rule: Violation) -> Self {
        Self { rule, response: true }
    }

    /// The rule that was broken.
    pub const fn violation(&self) -> Violation {
        self.rule
    }

    /// Whether a response broke it: then the upstream is to blame, otherwise the client.
    pub const fn in_response(&self) -> bool {
        self.response
    }

    /// The kind of a flow's error; its usual blame is the right one.
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
