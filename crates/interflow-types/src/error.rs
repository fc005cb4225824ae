//! Errors that end a flow: the cause, the party at fault, and whether the request may be retried.

use std::fmt;

use http::StatusCode;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The party at fault. It determines how the error is logged and counted, and what is shown to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorSource {
    /// The client sent something invalid, or disconnected.
    Client,
    /// The origin, or an upstream proxy on the route to it.
    Upstream,
    /// The operator's configuration forbids it or is wrong.
    Config,
    /// Interflow itself: a bug, or a resource that is exhausted.
    Internal,
}

/// Whether the same request may be sent again (RFC 9110 9.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retryable {
    No,
    /// Only if a *reused* connection failed before the first byte of a response: it may have been closed before the
    /// request arrived, which the sender cannot know. For idempotent methods.
    ReusedOnly,
    /// Yes: nothing had been sent yet.
    Yes,
}

/// The cause of an [`Error`]. The proxy maps each kind to one status code, log line and metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A malformed request: framing, head syntax, or a request-smuggling pattern.
    BadRequest,
    /// A request head over a limit on size or number of fields.
    HeadTooLarge,
    /// A body over a limit, of a message that had to be buffered or inspected as a whole.
    BodyTooLarge,
    /// A request line over the limit.
    UriTooLong,
    /// The client's bytes are not a protocol that this listener accepts.
    UnknownProtocol,
    /// A method, version or expectation that is not supported.
    Unsupported,
    /// Credentials are missing or wrong; answered with 407.
    Unauthorized,
    /// Refused by a rule, an access list or an approval decision.
    Denied,
    /// A limit on connections, rate or budget was reached.
    Limited,
    /// The [memory budget](crate::budget) is exhausted.
    Overloaded,
    /// The request would be sent back to this proxy.
    Loop,
    ClientGone,
    /// The client did not send in time.
    ClientTimeout,
    /// The client rejected Interflow's certificate, or its TLS handshake failed otherwise.
    ClientTls,
    /// The origin's name could not be resolved.
    Dns,
    /// No address of the origin accepted a connection.
    Connect,
    ConnectTimeout,
    /// The origin's certificate failed verification.
    UpstreamCertificate,
    /// The TLS handshake with the origin failed for another reason.
    UpstreamTls,
    /// The upstream proxy refused the connection or request.
    UpstreamProxy,
    /// The origin's response is malformed, or violates the protocol that was negotiated.
    BadResponse,
    /// The origin closed or reset the connection before its response was complete.
    UpstreamClosed,
    /// The origin did not respond in time.
    UpstreamTimeout,
    /// No connection to the origin became available in time.
    PoolTimeout,
    /// A stage failed and is configured to fail closed.
    StageFailed,
    Draining,
    /// A bug in Interflow, or a failure of its environment.
    Internal,
}

impl ErrorKind {
    /// The status code sent to the client.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::BadRequest | Self::UnknownProtocol | Self::ClientTls => StatusCode::BAD_REQUEST,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
            Self::Unsupported => StatusCode::NOT_IMPLEMENTED,
            Self::Unauthorized => StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            Self::Denied => StatusCode::FORBIDDEN,
            Self::Limited => StatusCode::TOO_MANY_REQUESTS,
            Self::Loop => StatusCode::LOOP_DETECTED,
            // The client rarely sees it, since it has left or stalls; the status is for the records.
            Self::ClientGone | Self::ClientTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Dns
            | Self::Connect
            | Self::UpstreamCertificate
            | Self::UpstreamTls
            | Self::UpstreamProxy
            | Self::BadResponse
            | Self::UpstreamClosed => StatusCode::BAD_GATEWAY,
            Self::ConnectTimeout | Self::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::PoolTimeout | Self::Draining | Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::StageFailed | Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What the operator or user can do about it, in one sentence; empty if there is nothing to suggest.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::UpstreamCertificate => {
                "If you trust this origin, add its authority with upstream.extra_ca, or its name to upstream.danger_insecure_hosts."
            }
            Self::Dns => "Check the name, and this machine's DNS settings.",
            Self::Connect | Self::ConnectTimeout => "Check that the origin is running and reachable from this machine.",
            Self::Unauthorized => "Send a user name and password to the proxy.",
            Self::Denied => "The operator of this proxy does not allow it; see the access rules.",
            Self::Loop => {
                "Request an origin, not this proxy itself; if proxies forward to one another, let one of them connect directly."
            }
            Self::HeadTooLarge | Self::UriTooLong => "Send a shorter head, or raise limits.max_header_bytes.",
            Self::UpstreamProxy => "Check the upstream proxy and its credentials (upstream.proxy).",
            Self::UpstreamTimeout => {
                "The origin did not answer in time; timeouts.response_header_timeout sets how long that is."
            }
            Self::PoolTimeout => {
                "All connections to this origin are busy; upstream.max_connections_per_host sets how many there may be."
            }
            Self::Overloaded => "Try again in a moment, or raise limits.held_bytes.",
            Self::BadResponse => "The origin violates the protocol; its response was not forwarded.",
            _ => "",
        }
    }

    /// All kinds, in the order of their discriminants, which index counters.
    pub const ALL: [Self; 27] = [
        Self::BadRequest,
        Self::HeadTooLarge,
        Self::BodyTooLarge,
        Self::UriTooLong,
        Self::UnknownProtocol,
        Self::Unsupported,
        Self::Unauthorized,
        Self::Denied,
        Self::Limited,
        Self::Overloaded,
        Self::Loop,
        Self::ClientGone,
        Self::ClientTimeout,
        Self::ClientTls,
        Self::Dns,
        Self::Connect,
        Self::ConnectTimeout,
        Self::UpstreamCertificate,
        Self::UpstreamTls,
        Self::UpstreamProxy,
        Self::BadResponse,
        Self::UpstreamClosed,
        Self::UpstreamTimeout,
        Self::PoolTimeout,
        Self::StageFailed,
        Self::Draining,
        Self::Internal,
    ];

    /// The label in metrics, logs and records; stable once published.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::HeadTooLarge => "head_too_large",
            Self::BodyTooLarge => "body_too_large",
            Self::UriTooLong => "uri_too_long",
            Self::UnknownProtocol => "unknown_protocol",
            Self::Unsupported => "unsupported",
            Self::Unauthorized => "unauthorized",
            Self::Denied => "denied",
            Self::Limited => "limited",
            Self::Overloaded => "overloaded",
            Self::Loop => "loop",
            Self::ClientGone => "client_gone",
            Self::ClientTimeout => "client_timeout",
            Self::ClientTls => "client_tls",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::ConnectTimeout => "connect_timeout",
            Self::UpstreamCertificate => "upstream_certificate",
            Self::UpstreamTls => "upstream_tls",
            Self::UpstreamProxy => "upstream_proxy",
            Self::BadResponse => "bad_response",
            Self::UpstreamClosed => "upstream_closed",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::PoolTimeout => "pool_timeout",
            Self::StageFailed => "stage_failed",
            Self::Draining => "draining",
            Self::Internal => "internal",
        }
    }

    /// The party at fault, unless the error overrides it.
    pub const fn error_source(self) -> ErrorSource {
        match self {
            Self::BadRequest
            | Self::HeadTooLarge
            | Self::BodyTooLarge
            | Self::UriTooLong
            | Self::UnknownProtocol
            | Self::Unsupported
            | Self::Unauthorized
            | Self::Loop
            | Self::ClientGone
            | Self::ClientTimeout
            | Self::ClientTls => ErrorSource::Client,
            Self::Denied | Self::Limited => ErrorSource::Config,
            Self::Dns
            | Self::Connect
            | Self::ConnectTimeout
            | Self::UpstreamCertificate
            | Self::UpstreamTls
            | Self::UpstreamProxy
            | Self::BadResponse
            | Self::UpstreamClosed
            | Self::UpstreamTimeout
            | Self::PoolTimeout => ErrorSource::Upstream,
            Self::Overloaded | Self::StageFailed | Self::Draining | Self::Internal => ErrorSource::Internal,
        }
    }
}

/// The error that ends a flow, with its kind, who is at fault, whether a retry is allowed, and the underlying error.
/// One pointer wide, which keeps `Result`s small.
pub struct Error(Box<ErrorDetails>);

struct ErrorDetails {
    kind: ErrorKind,
    blame: ErrorSource,
    retry: Retryable,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error with a message that says what happened and, if possible, what the operator can do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(ErrorDetails {
            kind,
            blame: kind.error_source(),
            retry: Retryable::No,
            message: message.into(),
            source: None,
        }))
    }

    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    #[must_use]
    pub fn with_error_source(mut self, blame: ErrorSource) -> Self {
        self.0.blame = blame;
        self
    }

    /// Sets whether the request may be retried; by default it may not.
    #[must_use]
    pub fn with_retryable(mut self, retry: Retryable) -> Self {
        self.0.retry = retry;
        self
    }

    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    pub fn error_source(&self) -> ErrorSource {
        self.0.blame
    }

    pub fn retryable(&self) -> Retryable {
        self.0.retry
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Error {
    /// The message, followed by the chain of sources.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        // Each source once, from the outermost to the cause.
        let mut source = std::error::Error::source(self);
        while let Some(e) = source {
            match e.downcast_ref::<Self>() {
                // `Display` of an `Error` would print its own sources, and they would appear twice.
                Some(inner) => write!(f, ": {}", inner.message())?,
                None => write!(f, ": {e}")?,
            }
            source = e.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?}, {:?}): {self}", self.kind().as_str(), self.error_source(), self.retryable())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|s| &**s as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_one_pointer_in_size() {
        assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
    }

    #[test]
    fn the_message_includes_the_whole_chain_once() {
        let e =
            Error::new(ErrorKind::Connect, "could not connect to a:80").with_source(std::io::Error::other("refused"));
        assert_eq!(e.to_string(), "could not connect to a:80: refused");
        assert_eq!((e.error_source(), e.retryable()), (ErrorSource::Upstream, Retryable::No));
        let above = Error::new(ErrorKind::UpstreamProxy, "the proxy is not there").with_source(e);
        assert_eq!(above.to_string(), "the proxy is not there: could not connect to a:80: refused", "each once");
    }
}
