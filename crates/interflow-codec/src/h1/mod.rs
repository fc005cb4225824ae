//! HTTP/1.1 on the wire (RFC 9112): heads, message framing, chunked bodies, and writers.
//!
//! Anything that two parsers could interpret differently is refused, to prevent request smuggling. The parsers keep
//! no state between calls: pass them the whole buffer again when more bytes have arrived.

mod body;
mod error;
mod framing;
mod head;
mod target;
mod write;

pub use body::{BodyDecoder, DecodeStep, is_forbidden_trailer};
pub use error::{H1Error, Violation};
pub use framing::{BodyFraming, keeps_alive, request_framing, response_framing};
pub use head::{HeadLimits, RequestLine, parse_request, parse_response};
pub use write::{
    CHUNK_END, write_chunk_size, write_last_chunk, write_request_head, write_response_head, write_status_line,
};
