//! WebSocket (RFC 6455) as a proxy needs it: frames are decoded, unmasked, assembled and decompressed (RFC 7692) for
//! inspection, while the original bytes are kept to be forwarded unchanged.

mod decoder;
mod deflate;
mod forward;
mod frame;

pub use decoder::{MessageType, WebSocketDecoder, WebSocketItem, WebSocketMessage, WsDecoderOptions};
pub use deflate::PermessageDeflate;
pub use forward::MessageForwarder;
pub use frame::{FrameHeader, Opcode, apply_mask, parse_frame_header, write_frame};

/// The side that sends a frame. Frames of the client are masked, those of the server are not (RFC 6455 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameSender {
    Client,
    Server,
}

/// The rule that a frame violates, or the limit that it exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebSocketError {
    /// RFC 6455 5.2: a reserved bit that no negotiated extension defines.
    #[error("a WebSocket frame sets a reserved bit (RFC 6455 5.2)")]
    ReservedBits,
    #[error("a WebSocket frame has an unknown opcode (RFC 6455 5.2)")]
    Opcode,
    /// RFC 6455 5.2: not the shortest encoding, or over 63 bits.
    #[error("the length of a WebSocket frame is malformed (RFC 6455 5.2)")]
    Length,
    /// RFC 6455 5.1: clients mask, servers do not.
    #[error("a WebSocket frame is masked on the wrong side (RFC 6455 5.1)")]
    Mask,
    /// RFC 6455 5.5: at most 125 bytes, never fragmented.
    #[error("a WebSocket control frame is too long or fragmented (RFC 6455 5.5)")]
    Control,
    /// RFC 6455 5.4: a continuation without a message, or a message inside a message.
    #[error("the fragments of WebSocket messages are out of order (RFC 6455 5.4)")]
    Fragments,
    #[error("a WebSocket message does not decompress (RFC 7692 7.2.2)")]
    Deflate,
    /// The message must be re-encoded but was not buffered completely.
    #[error("a WebSocket message that must be re-encoded exceeds the size limit")]
    TooLarge,
    #[error("the memory budget for WebSocket messages is exhausted (limits.held_bytes)")]
    Overloaded,
    /// RFC 7692 7.1, or an unsupported extension.
    #[error("the negotiated WebSocket extensions are not supported")]
    Extension,
}
