//! Responses of an origin: whole or in chunks with pauses, with correct or wrong length, and with different endings.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt, iter, unfold};
use interflow_types::Headers;

/// The chunks of a body, each sent and flushed separately.
pub(crate) type Pieces = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// The replies of a WebSocket to a text message.
pub(crate) type Talker = Arc<dyn Fn(&str) -> Vec<String> + Send + Sync>;

pub(crate) enum Payload {
    Whole(Bytes),
    Pieces(Pieces),
    /// `None`: every message is echoed.
    WebSocket(Option<Talker>),
}

/// How the response ends after its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// As the framing says; the connection stays open.
    #[default]
    Complete,
    /// The connection closes (FIN); with chunked framing the last chunk is missing. HTTP/2: the connection ends.
    Cut,
    /// TCP reset; HTTP/2: `RST_STREAM` with `INTERNAL_ERROR`.
    Reset,
    /// Nothing more is sent, and the connection stays open.
    Stall,
}

/// One response of an [`Origin`](crate::Origin).
pub struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) payload: Payload,
    pub(crate) trailers: Headers,
    pub(crate) informational: Vec<(u16, Headers)>,
    pub(crate) delay: Duration,
    pub(crate) claimed_length: Option<u64>,
    pub(crate) ending: Ending,
    pub(crate) headless: bool,
}

impl Reply {
    /// An empty response with this status.
    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: Headers::new(),
            payload: Payload::Whole(Bytes::new()),
            trailers: Headers::new(),
            informational: Vec::new(),
            delay: Duration::ZERO,
            claimed_length: None,
            ending: Ending::Complete,
            headless: false,
        }
    }

    /// No response at all, only this ending.
    pub fn nothing(ending: Ending) -> Self {
        Self { headless: true, ending, ..Self::status(200) }
    }

    /// 200 with this body and its `Content-Length`.
    pub fn ok(body: impl Into<Bytes>) -> Self {
        Self::status(200).body(body)
    }

    pub fn json(value: &serde_json::Value) -> Self {
        Self::ok(value.to_string()).header("Content-Type", "application/json")
    }

    /// 101 to a WebSocket handshake, then an echo of every message (RFC 6455).
    pub fn websocket_echo() -> Self {
        Self { payload: Payload::WebSocket(None), ..Self::status(101) }
    }

    /// 101 to a WebSocket handshake; `talk` returns the replies to each text.
    pub fn websocket(talk: impl Fn(&str) -> Vec<String> + Send + Sync + 'static) -> Self {
        Self { payload: Payload::WebSocket(Some(Arc::new(talk))), ..Self::status(101) }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.append_unchecked(name.as_bytes(), value.as_ref());
        self
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.payload = Payload::Whole(body.into());
        self
    }

    /// A body without a known length (HTTP/1: chunked), sent in chunks with `gap` between them.
    #[must_use]
    pub fn pieces(self, pieces: Vec<Bytes>, gap: Duration) -> Self {
        if gap.is_zero() {
            return self.stream(iter(pieces));
        }
        self.stream(unfold((pieces.into_iter(), None), move |(mut pieces, at)| async move {
            if let Some(at) = at {
                tokio::time::sleep_until(at).await;
            }
            let piece = pieces.next()?;
            // From the first piece on, so that the time for sending does not add to the gaps.
            let next = at.unwrap_or_else(tokio::time::Instant::now) + gap;
            Some((piece, (pieces, Some(next))))
        }))
    }

    #[must_use]
    pub fn stream(mut self, pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        self.payload = Payload::Pieces(pieces.boxed());
        self
    }

    /// Adds a trailer field (HTTP/1: only with pieces).
    #[must_use]
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.append_unchecked(name.as_bytes(), value.as_bytes());
        self
    }

    /// Sends an interim response first, such as 103 with `Link`.
    #[must_use]
    pub fn informational(mut self, status: u16, fields: &[(&str, &str)]) -> Self {
        self.informational.push((status, fields.iter().copied().collect()));
        self
    }

    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sends this `Content-Length`, whatever the body's length.
    #[must_use]
    pub fn claim_length(mut self, length: u64) -> Self {
        self.claimed_length = Some(length);
        self
    }

    #[must_use]
    pub fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }
}
