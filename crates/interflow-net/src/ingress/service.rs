//! What the HTTP server drivers and the engine hand one another.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use interflow_types::{
    Body, BoxFuture, ByteStr, Error, FlowClock, Headers, HttpVersion, Method, RequestTarget, Response, ResponseHead,
};

use interflow_codec::h1::HeadLimits;

use crate::io::IoStream;

/// A request as the client sent it.
#[derive(Debug)]
pub struct IncomingRequest {
    /// The method, case as sent.
    pub method: Method,
    /// The target as it stood on the wire; over HTTP/2 it is absolute, or an authority for CONNECT.
    pub target: RequestTarget,
    /// The version of the client's leg.
    pub version: HttpVersion,
    /// All fields as received, hop-by-hop ones too. HTTP/2's pseudo-header fields are not among them.
    pub headers: Headers,
    /// HTTP/2's `:protocol` (RFC 8441).
    pub protocol: Option<ByteStr>,
    /// The body. It ends with an error when the client breaks off.
    pub body: Body,
    /// The way to send interim responses.
    pub interim: InformationalSender,
    /// Started with the head's first byte.
    pub clock: FlowClock,
    /// How the client opened its HTTP/2 connection, as Akamai's fingerprint.
    pub opening: Option<ByteStr>,
}

/// The way to send interim responses (RFC 9110 15.2) ahead of the final one.
#[derive(Clone, Default)]
pub struct InformationalSender {
    to: Option<Arc<dyn SendInformational>>,
    exchange: u64,
}

/// A driver's end of [`InformationalSender`].
pub(crate) trait SendInformational: Send + Sync {
    /// Sends or queues the head, unless this exchange's final response has begun or too many are queued already.
    fn send(&self, exchange: u64, head: ResponseHead);

    /// Says whether a person is waited for.
    fn pause_timeouts(&self, _exchange: u64, _held: bool) {}
}

impl InformationalSender {
    pub(crate) fn new(to: Arc<dyn SendInformational>, exchange: u64) -> Self {
        Self { to: Some(to), exchange }
    }

    /// Sends a 1xx head to the client. Dropped silently for HTTP/1.0 (RFC 9110 15.2), for a status that is not 1xx
    /// or is 101, and once the final response has begun.
    pub fn send(&self, head: ResponseHead) {
        if let Some(to) = &self.to
            && head.status.is_informational()
            && head.status.as_u16() != 101
        {
            to.send(self.exchange, head);
        }
    }

    /// Says that the exchange waits for a person now, or no longer. Nobody is asked for a client that may well have left:
    /// over HTTP/1 the end of the client's sending side then ends the exchange even with
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

/// What becomes of a request.
pub enum ServiceReply {
    /// This response.
    Response(Response),
    /// This head, and then the connection (or HTTP/2 stream) speaks another protocol: 101, or 2xx to CONNECT.
    Upgrade(ResponseHead, OnUpgrade),
    /// Nothing: the connection is cut, the HTTP/2 stream reset, so that the client sees a failure.
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

/// Runs once the head of an upgrade is written; gets the client's bytes, those that came behind the request included.
pub type OnUpgrade = Box<dyn FnOnce(IoStream) -> BoxFuture<'static, ()> + Send>;

/// Whoever answers requests.
pub trait HttpService: Send + Sync + 'static {
    /// Answers a request. The future is dropped when the client goes away.
    fn call(&self, request: IncomingRequest) -> impl Future<Output = ServiceReply> + Send;

    /// What to answer to a head that could not be read, before the connection closes.
    fn error_response(&self, error: &Error) -> Response;
}

/// Bounds of a client connection that speaks HTTP.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// How large the head of a request may be.
    pub head: HeadLimits,
    /// From the first byte of a head to its last.
    pub head_timeout: Duration,
    /// Without a request on a connection.
    pub idle_timeout: Duration,
    /// Without a byte of a request body that is being waited for.
    pub body_timeout: Duration,
    /// Without the client taking a byte of what is written.
    pub write_timeout: Duration,
    /// How much of a request body that nobody read is taken off the wire so that the connection can go on, in bytes.
    pub drain_bytes: u64,
    /// How long that may take, and how long a connection lingers after its last response.
    pub drain_timeout: Duration,
    /// HTTP/1: goes on serving a request whose client has ended its sending side. Without it, the end of the client's
    /// sending side behind a complete request ends that request: nothing tells such a client from one that is gone.
    pub keep_half_closed: bool,
    /// HTTP/2: concurrent streams of one connection.
    pub max_streams: u32,
    /// HTTP/2: bytes that a stream may send ahead of its reader.
    pub stream_window: u32,
    /// HTTP/2: bytes that a connection may send ahead of its readers.
    pub connection_window: u32,
    /// HTTP/2: bytes of a stream's response that are buffered ahead of the client.
    pub send_buffer: usize,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            head: HeadLimits::default(),
            head_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            drain_bytes: 64 * 1024,
            drain_timeout: Duration::from_secs(2),
            keep_half_closed: false,
            max_streams: 250,
            stream_window: 1 << 20,
            connection_window: 4 << 20,
            send_buffer: 256 * 1024,
        }
    }
}
