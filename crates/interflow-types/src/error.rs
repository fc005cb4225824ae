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

macro_rules! error_kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident $name:literal $status:ident $source:ident;)*) => {
        /// The cause of an [`Error`]. The proxy maps each kind to one status code, log line and metric label.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorKind { $($(#[doc = $doc])+ $kind,)* }

        impl ErrorKind {
            /// All kinds, in the order of their discriminants, which index counters.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// The label in metrics, logs and records; stable once published.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// The status code sent to the client.
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$kind => StatusCode::$status,)* }
            }

            /// The party at fault, unless the error overrides it.
            pub const fn error_source(self) -> ErrorSource {
                match self { $(Self::$kind => ErrorSource::$source,)* }
            }

            /// What it means, in one or two sentences.
            pub fn doc(self) -> &'static str {
                match self { $(Self::$kind => concat!($($doc),+),)* }.trim()
            }
        }
    };
}

error_kinds! {
    /// A malformed request: framing, head syntax, or a request-smuggling pattern.
    BadRequest "bad_request" BAD_REQUEST Client;
    /// A request head over a limit on size or number of fields.
    HeadTooLarge "head_too_large" REQUEST_HEADER_FIELDS_TOO_LARGE Client;
    /// A body over a limit, of a message that had to be buffered or inspected as a whole.
    BodyTooLarge "body_too_large" PAYLOAD_TOO_LARGE Client;
    /// A request line over the limit.
    UriTooLong "uri_too_long" URI_TOO_LONG Client;
    /// The client's bytes are not a protocol that this listener accepts.
    UnknownProtocol "unknown_protocol" BAD_REQUEST Client;
    /// A method, version or expectation that is not supported.
    Unsupported "unsupported" NOT_IMPLEMENTED Client;
    /// A message that asks to be forwarded as it comes (`Incremental: ?1`, RFC 10036) has to be inspected as a whole.
    IncrementalRefused "incremental_refused" NOT_IMPLEMENTED Config;
    /// Credentials are missing or wrong.
    Unauthorized "unauthorized" PROXY_AUTHENTICATION_REQUIRED Client;
    /// Refused by a rule, an access list or an approval decision.
    Denied "denied" FORBIDDEN Config;
    /// A limit on connections, rate or budget was reached.
    Limited "limited" TOO_MANY_REQUESTS Config;
    /// The memory budget of the process is exhausted.
    Overloaded "overloaded" SERVICE_UNAVAILABLE Internal;
    /// The request would be sent back to this proxy.
    Loop "loop" LOOP_DETECTED Client;
    /// The client disconnected. It rarely sees the status, which is for the records.
    ClientGone "client_gone" REQUEST_TIMEOUT Client;
    /// A rule, or a person who was asked, closed the client's connection without a response.
    Dropped "dropped" FORBIDDEN Config;
    /// The client did not send in time.
    ClientTimeout "client_timeout" REQUEST_TIMEOUT Client;
    /// The client rejected Interflow's certificate, or its TLS handshake failed otherwise.
    ClientTls "client_tls" BAD_REQUEST Client;
    /// The origin's name could not be resolved.
    Dns "dns" BAD_GATEWAY Upstream;
    /// No address of the origin accepted a connection.
    Connect "connect" BAD_GATEWAY Upstream;
    /// The origin did not accept a connection in time.
    ConnectTimeout "connect_timeout" GATEWAY_TIMEOUT Upstream;
    /// The origin's certificate failed verification.
    UpstreamCertificate "upstream_certificate" BAD_GATEWAY Upstream;
    /// The TLS handshake with the origin failed for another reason.
    UpstreamTls "upstream_tls" BAD_GATEWAY Upstream;
    /// The upstream proxy refused the connection or request.
    UpstreamProxy "upstream_proxy" BAD_GATEWAY Upstream;
    /// The origin's response is malformed, or violates the protocol that was negotiated.
    BadResponse "bad_response" BAD_GATEWAY Upstream;
    /// The origin closed or reset the connection before its response was complete.
    UpstreamClosed "upstream_closed" BAD_GATEWAY Upstream;
    /// The origin did not respond in time.
    UpstreamTimeout "upstream_timeout" GATEWAY_TIMEOUT Upstream;
    /// No connection to the origin became available in time.
    PoolTimeout "pool_timeout" SERVICE_UNAVAILABLE Upstream;
    /// A stage failed and is configured to fail closed.
    StageFailed "stage_failed" INTERNAL_SERVER_ERROR Internal;
    /// Interflow is shutting down.
    Draining "draining" SERVICE_UNAVAILABLE Internal;
    /// A bug in Interflow, or a failure of its environment.
    Internal "internal" INTERNAL_SERVER_ERROR Internal;
}

impl ErrorKind {
    /// What the operator or user can do about it, in one sentence; empty if there is nothing to suggest.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::UpstreamCertificate => {
                "If you trust this origin, add its authority with upstream.extra_ca, or its name to upstream.danger_insecure_hosts."
            }
            Self::Dns => "Check the name, and this machine's DNS settings.",
            Self::Connect | Self::ConnectTimeout => "Check that the origin is running and reachable from this machine.",
            Self::Unauthorized => "Send a user name and password to the proxy.",
            Self::Denied => "The operator of this proxy does not allow it; see its access rules and approval rules.",
            Self::Loop => {
                "Request an origin, not this proxy itself; if proxies forward to one another, let one of them connect directly."
            }
            Self::HeadTooLarge => {
                "Send fewer or shorter header fields, or raise the limit: limits.max_header_bytes for the bytes of a head, limits.max_headers for its fields."
            }
            Self::IncrementalRefused => "Send it without `Incremental: ?1`; then it is held until it is complete.",
            Self::UriTooLong => "Send a shorter URL, or raise limits.request_line_bytes.",
            Self::UpstreamProxy => "Check the upstream proxy that is named, and its entry in upstream.proxy.",
            Self::UpstreamTimeout => {
                "The origin did not answer in time; timeouts.response_header_timeout sets how long that is."
            }
            Self::PoolTimeout => {
                "All connections to this origin are busy; upstream.max_connections_per_host sets how many there may be."
            }
            Self::Overloaded => "Try again in a moment, or raise limits.held_bytes.",
            Self::BadResponse => "The origin's response is invalid or over a limit, and was not forwarded.",
            _ => "",
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

    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    pub fn with_error_source(mut self, blame: ErrorSource) -> Self {
        self.0.blame = blame;
        self
    }

    /// Sets whether the request may be retried; by default it may not.
    pub fn with_retryable(mut self, retry: Retryable) -> Self {
        self.0.retry = retry;
        self
    }

    /// The same error with its sources as text, since they cannot be copied.
    pub fn without_sources(&self) -> Self {
        Self::new(self.kind(), self.to_string()).with_error_source(self.error_source())
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
