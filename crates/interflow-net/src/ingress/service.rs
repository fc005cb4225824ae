//! The interface between the HTTP servers and the proxy: requests, replies, and options.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use interflow_types::{
    Body, BoxFuture, ByteStr, Error, FlowClock, Headers, HttpVersion, Method, RequestTarget, Response, ResponseHead,
};

use interflow_codec::h1::HeadLimits;

use crate::io::IoStream;

/// A request as received from the client. `target` is in absolute-form over HTTP/2, or an authority for CONNECT;
/// `headers` include hop-by-hop fields, but not pseudo-header fields; `protocol` is HTTP/2's `:protocol` (RFC 8441);
/// `body` ends with an error if the client aborts; `clock` was started with the head's first byte.
#[derive(Debug)]
pub struct IncomingRequest {
    pub method: Method,
    pub target: RequestTarget,
    pub version: HttpVersion,
    pub headers: Headers,
    pub protocol: Option<ByteStr>,
    pub body: Body,
    pub interim: InformationalSender,
    pub clock: FlowClock,
    /// The client's HTTP/2 fingerprint in Akamai's format.
    pub opening: Option<ByteStr>,
}

/// Sends interim responses (RFC 9110 15.2) before the final one.
#[derive(Clone, Default)]
pub struct InformationalSender {
    to: Option<Arc<dyn SendInformational>>,
    exchange: u64,
}

pub(crate) trait SendInformational: Send + Sync {
    /// Sends or queues the head, unless this exchange's final response has begun or too many are queued.
    fn send(&self, exchange: u64, head: ResponseHead);

    /// Reports whether the exchange waits for a person.
    fn pause_timeouts(&self, _exchange: u64, _held: bool) {}
}

impl InformationalSender {
    pub(crate) fn new(to: Arc<dyn SendInformational>, exchange: u64) -> Self {
        Self { to: Some(to), exchange }
    }

    /// Sends a 1xx head to the client. Ignored for HTTP/1.0 (RFC 9110 15.2), for 101 and statuses other than 1xx, and
    /// once the final response has begun.
    pub fn send(&self, head: ResponseHead) {
        if let Some(to) = &self.to
            && head.status.is_informational()
            // 101 is the final response of an upgrade, sent by other means.
            && head.status.as_u16() != 101
        {
            to.send(self.exchange, head);
        }
    }

    /// Reports whether the exchange waits for a person. A person should not be asked on behalf of a client that may
    /// have left: over HTTP/1, a half-close by the client then ends the exchange even with
    /// [`HttpOptions::keep_half_closed`].
    pub fn pause_timeouts(&self, held: bool) {
        if let Some(to) = &self.to {
            to.pause_timeouts(self.exchange, held);
        }
    }
}

impl fmt::Debug for InformationalSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.to.is_some() { "Interim" } else { "Interim(nowhere)" })
    }
}

/// What the server does with a request.
pub enum ServiceReply {
    Response(Response),
    /// Send this head, then switch to another protocol on the connection (or HTTP/2 stream): 101, or 2xx to CONNECT.
    Upgrade(ResponseHead, OnUpgrade),
    /// Send nothing: close the connection or reset the HTTP/2 stream, so that the client sees a failure.
    Abort(Error),
}

impl fmt::Debug for ServiceReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response(r) => f.debug_tuple("Response").field(r).finish(),
            Self::Upgrade(head, _) => f.debug_tuple("Upgrade").field(head).finish(),
            Self::Abort(e) => f.debug_tuple("Abort").field(e).finish(),
        }
    }
}

/// Called once the head of an upgrade is written, with the client's stream, including bytes received after the
/// request.
pub type OnUpgrade = Box<dyn FnOnce(IoStream) -> BoxFuture<'static, ()> + Send>;

/// Answers the requests of a connection. Implementations are shared by all connections of a listener and must not
/// block; over HTTP/2, requests of one connection are answered concurrently.
///
/// ```
/// use interflow_net::ingress::{HttpService, IncomingRequest, ServiceReply};
/// use interflow_types::{Error, Response, StatusCode};
///
/// /// Answers every request with its method.
/// struct Echo;
///
/// impl HttpService for Echo {
///     async fn call(&self, request: IncomingRequest) -> ServiceReply {
///         ServiceReply::Response(Response::full(StatusCode::OK, "text/plain", request.method.to_string()))
///     }
///
///     fn error_response(&self, error: &Error) -> Response {
///         Response::full(error.kind().status(), "text/plain", error.to_string())
///     }
/// }
/// ```
pub trait HttpService: Send + Sync + 'static {
    /// Answers a request. The future is dropped if the client disconnects. It is part of the connection's own: box what is
    /// large in it.
    fn call(&self, request: IncomingRequest) -> impl Future<Output = ServiceReply> + Send;

    /// The response to a malformed head, after which the connection is closed.
    fn error_response(&self, error: &Error) -> Response;
}

options! {
    /// Limits of an HTTP client connection.
    #[derive(Clone, Debug)]
    pub struct HttpOptions {
        pub head: HeadLimits,
        /// From the first byte of a head to its last.
        pub head_timeout: Duration = Duration::from_secs(15),
        /// How long a connection may be without a request.
        pub idle_timeout: Duration = Duration::from_secs(75),
        /// How long to wait for the next byte of a request body.
        pub body_timeout: Duration = Duration::from_secs(60),
        /// How long the client may read nothing of what is written.
        pub write_timeout: Duration = Duration::from_secs(60),
        /// How many bytes of an unread request body are read and discarded so that the connection can be reused.
        pub drain_bytes: u64 = 64 * 1024,
        /// How long that may take, and how long a connection lingers after its last response.
        pub drain_timeout: Duration = Duration::from_secs(2),
        /// HTTP/1: continue serving a request after the client has half-closed. Otherwise a half-close after a complete
        /// request cancels it, because such a client is indistinguishable from one that has disconnected.
        pub keep_half_closed: bool,
        /// HTTP/2: the most concurrent streams of a connection.
        pub max_streams: u32 = 250,
        /// HTTP/2: the flow-control window of a stream, in bytes.
        pub stream_window: u32 = 1 << 20,
        /// HTTP/2: the flow-control window of a connection, in bytes.
        pub connection_window: u32 = 4 << 20,
        /// HTTP/2: how many bytes of a stream's response are buffered.
        pub send_buffer: usize = 256 * 1024,
    }
}
