//! What the corridor tells a recorder, from the side.

use std::task::{Context, Poll};

use bytes::Bytes;

use crate::{Error, Flow, Headers, RequestHead, ResponseHead, Timestamp};

/// Which way something goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the upstream.
    Request,
    /// From the upstream to the client.
    Response,
}

impl Direction {
    /// `"request"` or `"response"`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }

    /// The other one.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Request => Self::Response,
            Self::Response => Self::Request,
        }
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// A WebSocket text message.
    Text,
    /// A WebSocket binary message.
    Binary,
    /// A WebSocket ping.
    Ping,
    /// A WebSocket pong.
    Pong,
    /// A WebSocket close, its payload as on the wire.
    Close,
    /// A server-sent event, its block as on the wire.
    Event,
    /// A gRPC message without its five-byte prefix, decompressed where `grpc-encoding` says gzip or deflate.
    Grpc,
}

/// One message of a WebSocket, event stream or gRPC stream.
#[derive(Clone, Debug)]
pub struct StreamMessage {
    /// Which way.
    pub direction: Direction,
    /// What it is.
    pub kind: MessageKind,
    /// Its payload: unmasked, defragmented, decompressed where an extension compressed it.
    pub payload: Bytes,
    /// When its last byte had come.
    pub at: Timestamp,
}

/// Bytes that crossed a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteCounts {
    /// From the client to the upstream.
    pub sent: u64,
    /// From the upstream to the client.
    pub received: u64,
}

/// How a flow ended.
#[derive(Debug)]
pub enum FlowOutcome<'a> {
    /// As it should.
    Complete,
    /// As a tunnel should, having carried this much.
    Tunnelled(ByteCounts),
    /// With an error; a tunnel says what it had carried until then.
    Failed(&'a Error, ByteCounts),
}

/// The note on a flow whose response was decrypted here: its body is media in the clear.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecryptedMedia;

/// Whoever keeps what passes.
pub trait Recorder: Send + Sync {
    /// A flow begins; `head` is `None` for a tunnel. `None` back: it is not kept, and costs nothing further.
    fn begin(&self, flow: &Flow, head: Option<&RequestHead>) -> Option<Box<dyn FlowRecording>>;
}

/// What is being kept of one flow. No method blocks: chunks are kept by reference count, and whether the keeper
/// has fallen behind is asked with [`poll_ready`](Self::poll_ready).
///
/// A capture that is dropped without [`done`](Self::done) is kept as a flow that was cut off.
pub trait FlowRecording: Send {
    /// Pending while the keeper is too far behind and its owner chose to wait.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Bytes of a body as sent on (not of a WebSocket: those come as messages).
    fn data(&mut self, direction: Direction, chunk: &Bytes);

    /// The trailers of a body.
    fn trailers(&mut self, direction: Direction, trailers: &Headers);

    /// An interim response (1xx) that was relayed.
    fn interim(&mut self, head: &ResponseHead);

    /// The response's head.
    fn response(&mut self, flow: &Flow, head: &ResponseHead);

    /// The head of the request as it came, before it was edited; `body` says that its body was edited too, whose bytes then
    /// come with [`original_data`](Self::original_data).
    fn original_request(&mut self, _head: &RequestHead, _body: bool) {}

    /// The same of the response.
    fn original_response(&mut self, _flow: &Flow, _head: &ResponseHead, _body: bool) {}

    /// Bytes of a body as they came, before they were edited.
    fn original_data(&mut self, _direction: Direction, _chunk: &Bytes) {}

    /// The body as it came could not be held until now: none of it follows.
    fn original_lost(&mut self, _direction: Direction) {}

    /// A message; for event streams and gRPC it stands beside the same bytes given as data.
    fn message(&mut self, message: &StreamMessage);

    /// The end.
    fn finish(self: Box<Self>, flow: &Flow, outcome: FlowOutcome<'_>);
}
