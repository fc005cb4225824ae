//! The interface between the request pipeline and whatever records flows: [`Recorder`] and [`FlowRecording`].

use std::pin::Pin;
use std::task::{Context, Poll};

use serde::{Deserialize, Serialize};

use crate::labelled_enum;
use crate::schema::JsonSchema;
use bytes::Bytes;

use crate::{Error, Flow, Headers, RequestHead, ResponseHead, Timestamp};

labelled_enum! {
    // Stored by number and by name: neither may change.
    /// The direction in which data travels, seen from the client: requests go to the origin, responses come from it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Direction {
        Request "request",
        Response "response",
    }
}

impl Direction {
    pub const fn opposite(self) -> Self {
        match self {
            Self::Request => Self::Response,
            Self::Response => Self::Request,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MessageKind {
    /// A WebSocket text message.
    Text,
    /// A WebSocket binary message.
    Binary,
    /// A WebSocket ping.
    Ping,
    /// A WebSocket pong.
    Pong,
    /// A WebSocket close frame; the payload is as on the wire (status code and reason).
    Close,
    /// A server-sent event; the payload is its block of lines as on the wire.
    Event,
    /// A gRPC message without its five-byte prefix, decompressed if `grpc-encoding` is gzip or deflate.
    Grpc,
}

impl MessageKind {
    /// In the order of their stored numbers.
    pub const ALL: [Self; 7] = [Self::Text, Self::Binary, Self::Ping, Self::Pong, Self::Close, Self::Event, Self::Grpc];
}

/// One message of a WebSocket, an event stream or a gRPC stream.
#[derive(Clone, Debug)]
pub struct StreamMessage {
    pub direction: Direction,
    pub kind: MessageKind,
    /// The payload: unmasked, reassembled from fragments, and decompressed (permessage-deflate).
    pub payload: Bytes,
    /// When the last byte was received.
    pub at: Timestamp,
}

/// The number of bytes copied through a tunnel: sent to the origin, and received from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteCounts {
    pub sent: u64,
    pub received: u64,
}

/// How a flow ended.
#[derive(Debug)]
pub enum FlowOutcome<'a> {
    /// The response was sent completely.
    Complete,
    /// The tunnel was closed after copying this many bytes.
    Tunnelled(ByteCounts),
    /// The flow ended with an error; for a tunnel, with the bytes copied until then.
    Failed(&'a Error, ByteCounts),
}

/// An extension of flows whose response body was decrypted here: the recorded body is media in the clear.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecryptedMedia;

/// An extension of flows whose bodies are keys or contain them: whatever the configuration says, only the sizes of the
/// bodies that follow are recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct SecretBodies;

/// Resolves when a flow that ended is stored, or cannot be: what was given up, refused by the disk or dropped holds no client
/// back.
pub type FlowStored = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Records flows. Methods here and on [`FlowRecording`] must not block: they run on a worker thread of the proxy.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use interflow_types::{Flow, FlowRecording, Recorder, RequestHead};
///
/// /// Counts flows and records none of them.
/// #[derive(Default)]
/// struct FlowCounter(AtomicU64);
///
/// impl Recorder for FlowCounter {
///     fn begin(&self, _flow: &Flow, _head: Option<&RequestHead>) -> Option<Box<dyn FlowRecording>> {
///         self.0.fetch_add(1, Ordering::Relaxed);
///         None
///     }
/// }
/// ```
pub trait Recorder: Send + Sync {
    /// Called when a flow begins; `head` is `None` for a tunnel. Returning `None` means that the flow is not
    /// recorded, and no further calls are made for it.
    fn begin(&self, flow: &Flow, head: Option<&RequestHead>) -> Option<Box<dyn FlowRecording>>;
}

/// Receives the events of one flow, in order. Body chunks are shared by reference count, not copied; back-pressure is
/// applied through [`poll_ready`](Self::poll_ready) alone.
///
/// The bytes are those that were forwarded, after all edits. Only the `original_*` methods pass on what was received,
/// and only for flows that a stage edits. If dropped without a call of [`finish`](Self::finish), the flow is recorded
/// as aborted.
pub trait FlowRecording: Send {
    /// Pending while the recorder is too far behind and is configured to slow traffic down rather than to drop
    /// bodies.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// A chunk of a body as forwarded. Not called for WebSocket data, which is passed as [messages](Self::message).
    fn data(&mut self, direction: Direction, chunk: &Bytes);

    /// The trailer section of a body, which follows its data.
    fn trailers(&mut self, direction: Direction, trailers: &Headers);

    /// An interim (1xx) response that was forwarded.
    fn interim(&mut self, head: &ResponseHead);

    /// The response head as forwarded to the client, after all edits.
    fn response(&mut self, flow: &Flow, head: &ResponseHead);

    /// The request head as received, before it was edited. If `body` is true, the body was edited too, and its bytes
    /// follow through [`original_data`](Self::original_data).
    fn original_request(&mut self, _head: &RequestHead, _body: bool) {}

    /// The response head as received; see [`original_request`](Self::original_request).
    fn original_response(&mut self, _flow: &Flow, _head: &ResponseHead, _body: bool) {}

    /// A chunk of a body as received, before it was edited.
    fn original_data(&mut self, _direction: Direction, _chunk: &Bytes) {}

    /// Too much of the body as received had accumulated before recording began: none of its bytes follow.
    fn original_lost(&mut self, _direction: Direction) {}

    /// One message. For event streams and gRPC, the same bytes are passed to [`data`](Self::data) too.
    fn message(&mut self, message: &StreamMessage);

    /// `Some` if the end of the response, or all of a tunnel, is to be withheld from the client until the flow is stored.
    /// Called once, before [`finish`](Self::finish).
    fn until_stored(&mut self) -> Option<FlowStored> {
        None
    }

    /// The response has ended, but the flow waits for work beside it; or the flow becomes a tunnel. The client waits only for
    /// what there is by now.
    fn store_now(&mut self, _flow: &Flow) {}

    /// The flow has ended; no further calls follow.
    fn finish(self: Box<Self>, flow: &Flow, outcome: FlowOutcome<'_>);
}
