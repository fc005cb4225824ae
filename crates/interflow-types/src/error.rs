//! What went wrong, whose fault it is, and whether the request may be tried again.

use std::fmt;

use http::StatusCode;

/// The result of whatever may end a flow.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorSource {
    /// The client sent something wrong or went away.
    Client,
    /// The origin, or an upstream proxy on the way to it.
    Upstream,
    /// The owner's configuration forbids it or is wrong.
    Config,
    /// Interflow itself.
    Internal,
}

/// Whether the same request may be sent once more (RFC 9110 9.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retryable {
    /// Never.
    No,
    /// Only because a *reused* connection died before a byte of the response had come.
    ReusedOnly,
    /// Nothing had been sent yet.
    Yes,
}

/// The cause. The engine's one table maps it to a status code, a log line and a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A request that breaks the protocol: framing, a bad head, a smuggling shape.
    BadRequest,
    /// A request head over the limits.
    HeadTooLarge,
    /// A body over a limit.
    BodyTooLarge,
    /// A request line over the limits.
    UriTooLong,
    /// The client's bytes are no protocol that this listener speaks.
    UnknownProtocol,
    /// A method, version or expectation that is not supported.
    Unsupported,
    /// Credentials are missing or wrong.
    Unauthorized,
    /// A rule, an access list or an approval said no.
    Denied,
    /// A limit on connections, rate or budget is reached.
    Limited,
    /// The process has no memory left for what it would have to hold.
    Overloaded,
    /// The request would come back to this proxy.
    Loop,
    /// The client went away.
    ClientGone,
    /// The client did not send in time.
    ClientTimeout,
    /// The client refused our leaf, or its TLS failed otherwise.
    ClientTls,
    /// The name did not resolve.
    Dns,
    /// No address of the origin accepted a connection.
    Connect,
    /// Connecting took too long.
    ConnectTimeout,
    /// The origin's certificate does not hold.
    UpstreamCertificate,
    /// TLS with the origin failed otherwise.
    UpstreamTls,
    /// The upstream proxy said no.
    UpstreamProxy,
    /// The origin's answer breaks the protocol.
    BadResponse,
    /// The origin closed or reset before its answer was whole.
    UpstreamClosed,
    /// The origin did not answer in time.
    UpstreamTimeout,
    /// No connection to the origin became free in time.
    PoolTimeout,
    /// A stage failed and is set to fail closed.
    StageFailed,
    /// The proxy is shutting down.
    Draining,
    /// Anything that should not happen.
    Internal,
}

impl ErrorKind {
    /// The status code that a client gets for it.
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

    /// What the operator can do about it, in one sentence; empty when there is nothing to say.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::UpstreamCertificate => {
                "If you trust this origin, add its authority with upstream.extra_ca, or its name to upstream.danger_insecure_hosts."
            }
            Self::Dns => "Check the name, and the machine's DNS settings.",
            Self::Connect | Self::ConnectTimeout => "Check that the origin runs and that this machine may reach it.",
            Self::Unauthorized => "Give the proxy a user name and password.",
            Self::Denied => "The owner of this proxy does not allow it; see the access rules.",
            Self::Loop => {
                "Ask an origin, not this proxy itself; where proxies forward to one another, let one of them go straight."
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
            Self::BadResponse => "The origin breaks the protocol; its answer was not passed on.",
            _ => "",
        }
    }

    /// Every kind, in order.
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

    /// The label in metrics, logs and records; never changes once published.
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

    /// Who is at fault unless the error says otherwise.
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

/// An error of a flow. One pointer wide, so that the good path does not pay for it.
pub struct Error(Box<ErrorDetails>);

struct ErrorDetails {
    kind: ErrorKind,
    blame: ErrorSource,
    retry: Retryable,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error with a message that says what happened and, where there is one, what the owner can do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(ErrorDetails {
            kind,
            blame: kind.error_source(),
            retry: Retryable::No,
            message: message.into(),
            source: None,
        }))
    }

    /// The same with the error below it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The same with another culprit.
    #[must_use]
    pub fn with_error_source(mut self, blame: ErrorSource) -> Self {
        self.0.blame = blame;
        self
    }

    /// The same with a word on trying again.
    #[must_use]
    pub fn with_retryable(mut self, retry: Retryable) -> Self {
        self.0.retry = retry;
        self
    }

    /// The cause.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whose fault it is.
    pub fn error_source(&self) -> ErrorSource {
        self.0.blame
    }

    /// Whether the request may be sent once more.
    pub fn retryable(&self) -> Retryable {
        self.0.retry
    }

    /// The message without its sources.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Error {
    /// The message, and the chain of sources behind it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        let mut source = std::error::Error::source(self);
        while let Some(e) = source {
            match e.downcast_ref::<Self>() {
                // One of ours would tell its sources itself, and they would be told twice.
                Some(ours) => write!(f, ": {}", ours.message())?,
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
    fn an_error_is_one_pointer() {
        assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
    }

    #[test]
    fn the_message_tells_the_whole_chain() {
        let e =
            Error::new(ErrorKind::Connect, "could not connect to a:80").with_source(std::io::Error::other("refused"));
        assert_eq!(e.to_string(), "could not connect to a:80: refused");
        assert_eq!((e.error_source(), e.retryable()), (ErrorSource::Upstream, Retryable::No));
        let above = Error::new(ErrorKind::UpstreamProxy, "the proxy is not there").with_source(e);
        assert_eq!(above.to_string(), "the proxy is not there: could not connect to a:80: refused", "each once");
    }
}
