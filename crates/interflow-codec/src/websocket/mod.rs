//! WebSocket (RFC 6455) as a proxy needs it: frames are read, unmasked, joined into messages and decompressed
//! (RFC 7692) for viewing, while the bytes as they came stay at hand to be forwarded unchanged.

mod decoder;
mod deflate;
mod forward;
mod frame;

pub use decoder::{MessageType, WebSocketDecoder, WebSocketItem, WebSocketMessage, WsDecoderOptions};
pub use deflate::PermessageDeflate;
pub use forward::MessageForwarder;
pub use frame::{FrameHeader, Opcode, apply_mask, parse_frame_header, write_frame};

/// Which side sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameSender {
    /// The client: its frames are masked (RFC 6455 5.3).
    Client,
    /// The server: its frames are not.
    Server,
}

/// Which rule a frame broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebSocketError {
    /// RFC 6455 5.2: a reserved bit without an extension that gives it a meaning.
    #[error("a WebSocket frame sets a reserved bit (RFC 6455 5.2)")]
    ReservedBits,
    /// RFC 6455 5.2.
    #[error("a WebSocket frame has an opcode that is not known (RFC 6455 5.2)")]
    Opcode,
    /// RFC 6455 5.2: not the shortest form, or over 63 bits.
    #[error("the length of a WebSocket frame is malformed (RFC 6455 5.2)")]
    Length,
    /// RFC 6455 5.1: clients mask, servers do not.
    #[error("a WebSocket frame is masked on the wrong side (RFC 6455 5.1)")]
    Mask,
    /// RFC 6455 5.5: at most 125 bytes, never in fragments.
    #[error("a WebSocket control frame is too long or in fragments (RFC 6455 5.5)")]
    Control,
    /// RFC 6455 5.4: a continuation of nothing, or a message inside a message.
    #[error("the fragments of WebSocket messages are out of order (RFC 6455 5.4)")]
    Fragments,
    /// RFC 7692 7.2.2.
    #[error("a WebSocket message does not decompress (RFC 7692 7.2.2)")]
    Deflate,
    /// It would have to be held as a whole to be written anew.
    #[error("a WebSocket message that must be written anew is larger than the limit")]
    TooLarge,
    /// The process's [budget](interflow_types::budget) of held bytes is spent.
    #[error("the memory for WebSocket messages is spent (limits.held_bytes)")]
    Overloaded,
    /// RFC 7692 7.1, or another extension.
    #[error("the WebSocket extensions that were agreed on are not known")]
    Extension,
}
