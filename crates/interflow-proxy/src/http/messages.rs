//! Splits bodies into messages for observers: server-sent events, gRPC and WebSocket messages. A tap neither changes
//! nor delays the body.

use bytes::{Bytes, BytesMut};
use interflow_codec::grpc::{self, GrpcMessage};
use interflow_codec::sse::SseParser;
use interflow_codec::websocket::{
    self, FrameSender, MessageForwarder, MessageType, Opcode, PermessageDeflate, WebSocketDecoder, WebSocketError,
    WebSocketItem,
};
use interflow_types::budget::MemoryReservation;
use interflow_types::{
    Direction, Error, ErrorKind, Flow, Headers, MessageKind, Phase, Result, StreamMessage, Timestamp, random_bytes,
};

use crate::upstream::plan::RequestPlan;

/// The largest message that is parsed. Larger ones are forwarded and recorded only as bytes of the body.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 << 20;

pub(crate) struct MessageTap {
    direction: Direction,
    kind: MessageTapKind,
}

/// What the body is parsed as. gRPC keeps the bytes of an incomplete message, charged to the memory budget.
enum MessageTapKind {
    Events(SseParser),
    Grpc(GrpcKind, BytesMut, MemoryReservation),
    /// Framing was lost, or a message exceeds a limit; nothing more is parsed.
    Lost,
}

impl MessageTap {
    /// A tap, if the header section announces a stream of messages. Streams with a content coding are not parsed.
    pub fn for_body(direction: Direction, headers: &Headers) -> Option<Self> {
        let kind = if media_type(headers)?.eq_ignore_ascii_case("text/event-stream") {
            MessageTapKind::Events(SseParser::new(MAX_MESSAGE_BYTES))
        } else {
            MessageTapKind::Grpc(GrpcKind::from_headers(headers)?, BytesMut::new(), MemoryReservation::default())
        };
        (!headers.contains("content-encoding")).then_some(Self { direction, kind })
    }

    /// Feeds the body's next bytes and calls `see` with each message that they complete. All of them get the time of
    /// this call.
    pub fn feed(&mut self, bytes: &[u8], mut see: impl FnMut(&StreamMessage)) {
        let (direction, at) = (self.direction, Timestamp::now());
        let mut give = |kind, payload| see(&StreamMessage { direction, kind, payload, at });
        let whole = match &mut self.kind {
            MessageTapKind::Events(parser) => sse_events(parser, bytes, |raw| give(MessageKind::Event, raw)),
            MessageTapKind::Grpc(kind, buffer, held) => {
                let read = grpc_messages(kind, buffer, bytes, |data| give(MessageKind::Grpc, data));
                // The tap only observes: without memory to hold a message it stops, and the body goes on.
                read.filter(|()| held.resize(buffer.len()).is_ok())
            }
            MessageTapKind::Lost => return,
        };
        if whole.is_none() {
            self.kind = MessageTapKind::Lost;
        }
    }
}

/// How the gRPC messages of a body are encoded.
#[derive(Default)]
pub(crate) struct GrpcKind {
    encoding: String,
    /// Whether it is gRPC-Web, whose responses end with a block of trailers.
    pub web: bool,
    /// Framing was lost: a later prefix cannot be found again, so nothing more is parsed.
    pub lost: bool,
}

impl GrpcKind {
    /// `None` if this is not gRPC, or the body has a content coding or is base64 text.
    pub fn from_headers(headers: &Headers) -> Option<Self> {
        const START: &[u8] = b"application/grpc";
        // Fast path: called for every body, and few are gRPC.
        let value = headers.get("content-type")?.trim_ascii_start();
        if !value.get(..START.len())?.eq_ignore_ascii_case(START) {
            return None;
        }
        let media_type = media_type(headers)?;
        let readable =
            !media_type.to_ascii_lowercase().contains("grpc-web-text") && !headers.contains("content-encoding");
        let encoding = headers.get_str("grpc-encoding").unwrap_or_default().trim().to_ascii_lowercase();
        readable.then_some(Self { encoding, web: media_type.to_ascii_lowercase().contains("grpc-web"), lost: false })
    }

    /// The content of a message, decompressed if its encoding is known; otherwise as it was sent.
    pub fn payload(&self, message: &GrpcMessage) -> Bytes {
        // A message that cannot be decompressed is shown compressed rather than not at all.
        self.clear(message).unwrap_or_else(|| message.data.clone())
    }

    /// The content of a message; `None` if it is compressed and cannot be decompressed.
    pub fn clear(&self, message: &GrpcMessage) -> Option<Bytes> {
        match message.compressed {
            true => grpc::decompress(&self.encoding, &message.data, MAX_MESSAGE_BYTES),
            false => Some(message.data.clone()),
        }
    }
}

fn media_type(headers: &Headers) -> Option<&str> {
    Some(headers.get_str("content-type")?.split(';').next()?.trim())
}

/// Calls `see` with every complete event. `None` when the stream can no longer be parsed.
fn sse_events(parser: &mut SseParser, bytes: &[u8], mut see: impl FnMut(bytes::Bytes)) -> Option<()> {
    parser.push(bytes);
    while let Some(event) = parser.next_event().ok()? {
        see(event.raw);
    }
    Some(())
}

fn grpc_messages(
    kind: &GrpcKind,
    buffer: &mut BytesMut,
    bytes: &[u8],
    mut see: impl FnMut(bytes::Bytes),
) -> Option<()> {
    buffer.extend_from_slice(bytes);
    while let Some(message) = grpc::next_message(buffer, MAX_MESSAGE_BYTES).ok()? {
        see(kind.payload(&message));
    }
    Some(())
}

/// Asks the stages whether a message that cannot be read passes unread.
///
/// # Errors
/// A stage requires that it be read.
pub(crate) async fn pass_unread(
    plan: &RequestPlan,
    flow: &mut Flow,
    direction: Direction,
    kind: MessageKind,
    why: &Error,
) -> Result<()> {
    let mut message = StreamMessage { direction, kind, payload: Bytes::new(), at: Timestamp::now() };
    for stage in plan.stages(Phase::Message) {
        stage.unreadable_message(flow, &mut message, why).resolve().await?;
    }
    Ok(())
}

/// Why a message over the limit cannot be read.
pub(crate) fn too_large() -> Error {
    Error::new(ErrorKind::BodyTooLarge, format!("the message is larger than {MAX_MESSAGE_BYTES} bytes"))
}

/// One direction of a WebSocket: bytes are forwarded unchanged unless a stage changes a message.
pub(crate) struct WsDirection {
    direction: Direction,
    pub decoder: Option<WebSocketDecoder>,
    forwarder: MessageForwarder,
    buffer: BytesMut,
    /// A message too large to hold is forwarded in parts, or framing was lost.
    in_parts: bool,
    /// The stages have agreed that these parts pass unread.
    pub passes_unread: bool,
}

pub(crate) enum WsEvent {
    Message(StreamMessage, websocket::WebSocketMessage),
    /// A part of a message too large to be held, and whether the message is compressed.
    Part(Bytes, bool),
    /// Framing was lost: these bytes, and all that follow, are forwarded unchanged.
    Lost(Bytes),
    /// As [`Lost`](Self::Lost), because the memory budget is exhausted.
    Overloaded,
}

impl WsDirection {
    /// One direction of a WebSocket whose handshake ended with this response.
    pub fn new(direction: Direction, response: &Headers) -> Self {
        let agreed = PermessageDeflate::from_response(response);
        let sender = sender(direction);
        // A negotiated extension that is not understood may change the framing: without a decoder, everything is
        // forwarded unparsed.
        let decoder = agreed.as_ref().ok().map(|deflate| {
            WebSocketDecoder::new(websocket::WsDecoderOptions {
                sender,
                deflate: *deflate,
                max_message: MAX_MESSAGE_BYTES,
            })
        });
        let forwarder = MessageForwarder::new(agreed.ok().flatten(), sender);
        Self { direction, decoder, forwarder, buffer: BytesMut::new(), in_parts: false, passes_unread: false }
    }

    pub const fn direction(&self) -> Direction {
        self.direction
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next event; `None` if more bytes are needed.
    pub fn next(&mut self) -> Option<WsEvent> {
        let Some(decoder) = &mut self.decoder else {
            self.in_parts = true;
            return (!self.buffer.is_empty()).then(|| WsEvent::Lost(self.buffer.split().freeze()));
        };
        match decoder.decode(&mut self.buffer) {
            Ok(None) => None,
            Ok(Some(WebSocketItem::Part { raw, compressed })) => {
                self.in_parts = true;
                Some(WsEvent::Part(raw, compressed))
            }
            Ok(Some(WebSocketItem::Message(message))) => {
                // A control frame may be interleaved with the parts of another message.
                self.in_parts &= !message.passed && is_control(message.kind);
                self.passes_unread &= self.in_parts;
                let seen = StreamMessage {
                    direction: self.direction,
                    kind: kind_of(message.kind),
                    payload: message.data.clone(),
                    at: Timestamp::now(),
                };
                Some(WsEvent::Message(seen, message))
            }
            Err(WebSocketError::Overloaded) => {
                // Observers have already forwarded these bytes; stages that decide on them must close the connection.
                self.decoder = None;
                self.buffer.clear();
                Some(WsEvent::Overloaded)
            }
            Err(_) => {
                // The decoder may hold the beginning of a message: those bytes come first.
                let mut rest = BytesMut::from(&decoder.take_held()[..]);
                rest.unsplit(self.buffer.split());
                self.decoder = None;
                Some(WsEvent::Lost(rest.freeze()))
            }
        }
    }

    /// Writes a message as stages left it; nothing if it was dropped.
    ///
    /// # Errors
    /// The message is too large to be re-encoded.
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        seen: Option<&StreamMessage>,
        frames: &websocket::WebSocketMessage,
    ) -> std::result::Result<(), WebSocketError> {
        let mask = mask_for(self.direction);
        match seen {
            // A message whose parts were already forwarded cannot be dropped any more.
            None if frames.passed => self.forwarder.forward(out, frames, mask)?,
            None => self.forwarder.drop_message(frames),
            Some(m) if m.payload == frames.data || frames.passed => self.forwarder.forward(out, frames, mask)?,
            // A changed message is written as one uncompressed frame, whatever the original was.
            Some(m) => self.forwarder.replace(out, frames, &m.payload, mask),
        }
        Ok(())
    }

    /// Whether another message may be written now, at a message boundary.
    pub fn is_between_messages(&self) -> bool {
        !self.in_parts
    }

    pub fn write_injected(&self, out: &mut Vec<u8>, message: &StreamMessage) {
        let opcode = if message.kind == MessageKind::Binary { Opcode::Binary } else { Opcode::Text };
        websocket::write_frame(out, opcode, &message.payload, mask_for(self.direction));
    }

    /// Writes a part of a message too large to be held.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_part(
        &mut self,
        out: &mut Vec<u8>,
        raw: &[u8],
        compressed: bool,
    ) -> std::result::Result<(), WebSocketError> {
        self.forwarder.forward_part(out, raw, compressed)
    }
}

const fn is_control(kind: MessageType) -> bool {
    matches!(kind, MessageType::Close | MessageType::Ping | MessageType::Pong)
}

const fn sender(direction: Direction) -> FrameSender {
    match direction {
        Direction::Request => FrameSender::Client,
        Direction::Response => FrameSender::Server,
    }
}

/// A client masks each frame with an unpredictable key (RFC 6455 5.3 and 10.3); a server never masks.
fn mask_for(direction: Direction) -> Option<[u8; 4]> {
    (direction == Direction::Request).then(random_bytes)
}

const fn kind_of(kind: MessageType) -> MessageKind {
    match kind {
        MessageType::Text => MessageKind::Text,
        MessageType::Binary => MessageKind::Binary,
        MessageType::Close => MessageKind::Close,
        MessageType::Ping => MessageKind::Ping,
        MessageType::Pong => MessageKind::Pong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(media_type: &str, pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let headers: Headers = [("Content-Type", media_type), ("grpc-encoding", "deflate")].into_iter().collect();
        let mut tap = MessageTap::for_body(Direction::Response, &headers).unwrap();
        let mut all = Vec::new();
        pieces.iter().for_each(|p| tap.feed(p, |m| all.push(m.payload.to_vec())));
        all
    }

    #[test]
    fn events_are_tapped_at_any_segmentation() {
        let all = seen("text/event-stream; charset=utf-8", &[b"data: a\n", b"\ndata: b", b"\n\nda"]);
        assert_eq!(all, [b"data: a\n\n".to_vec(), b"data: b\n\n".to_vec()]);
    }

    #[test]
    fn grpc_messages_are_tapped_without_their_prefix() {
        let all = seen("application/grpc+proto", &[b"\0\0\0\0\x02h", b"i\0\0\0\0\0"]);
        assert_eq!(all, [b"hi".to_vec(), Vec::new()]);
    }

    #[test]
    fn compressed_grpc_messages_are_tapped_decompressed_if_possible() {
        // "aa" in zlib format, uncompressed block; then garbage under the same flag.
        let zlib = b"\x01\0\0\0\x0d\x78\x01\x01\x02\0\xfd\xffaa\x01\x25\0\xc3";
        assert_eq!(seen("application/grpc", &[zlib, b"\x01\0\0\0\x01?"]), [b"aa".to_vec(), b"?".to_vec()]);
    }

    #[test]
    fn invalid_grpc_stream_is_no_longer_tapped_and_html_never() {
        assert!(seen("application/grpc", &[b"\x55junkjunkjunk", b"\0\0\0\0\0"]).is_empty());
        let headers: Headers = [("Content-Type", "text/html")].into_iter().collect();
        assert!(MessageTap::for_body(Direction::Response, &headers).is_none());
    }

    #[test]
    fn unchanged_websocket_messages_keep_their_bytes() {
        let mut wire = Vec::new();
        websocket::write_frame(&mut wire, websocket::Opcode::Text, b"one", Some([1, 2, 3, 4]));
        websocket::write_frame(&mut wire, websocket::Opcode::Text, b"two", Some([5, 6, 7, 8]));
        let mut leg = WsDirection::new(Direction::Request, &Headers::new());
        leg.push(&wire);
        let mut out = Vec::new();
        while let Some(WsEvent::Message(mut message, frames)) = leg.next() {
            if &message.payload[..] == b"two" {
                message.payload = Bytes::from_static(b"TWO!");
            }
            leg.write(&mut out, Some(&message), &frames).unwrap();
        }
        assert_eq!(out[..9], wire[..9], "the unchanged message keeps its mask and bytes");
        let mut reader = WsDirection::new(Direction::Request, &Headers::new());
        reader.push(&out[9..]);
        let Some(WsEvent::Message(message, _)) = reader.next() else { panic!("no message") };
        assert_eq!(&message.payload[..], b"TWO!");
    }

    #[test]
    fn invalid_websocket_data_is_forwarded_as_raw_bytes() {
        let mut leg = WsDirection::new(Direction::Response, &Headers::new());
        leg.push(b"\xff\xff junk");
        let Some(WsEvent::Lost(bytes)) = leg.next() else { panic!("understood") };
        assert_eq!(&bytes[..], b"\xff\xff junk");
        leg.push(b"more");
        assert!(matches!(leg.next(), Some(WsEvent::Lost(b)) if &b[..] == b"more"));
    }
}
