//! Writes one direction again after its messages were inspected, edited or dropped.

use super::{FrameSender, PermessageDeflate, WebSocketError, WebSocketMessage, write_frame};

/// Decides whether a message can be forwarded as received.
///
/// With context takeover, a compressed message refers to earlier ones. Once one of those did not reach the receiver
/// unchanged, later ones cannot be decompressed there. From then on compressed messages are forwarded uncompressed,
/// which RFC 7692 6 permits at any time.
#[derive(Debug)]
pub struct MessageForwarder {
    keeps_context: bool,
    broken: bool,
}

impl MessageForwarder {
    pub fn new(deflate: Option<PermessageDeflate>, sender: FrameSender) -> Self {
        Self { keeps_context: deflate.is_some_and(|d| d.keeps_context(sender)), broken: false }
    }

    /// Appends an unedited message. `mask` is as for [`write_frame`], and is used only if the message must be
    /// re-encoded.
    ///
    /// # Errors
    /// [`WebSocketError::TooLarge`] if the message must be re-encoded but was not buffered completely. Close with
    /// 1009 then.
    pub fn forward(
        &mut self,
        out: &mut Vec<u8>,
        message: &WebSocketMessage,
        mask: Option<[u8; 4]>,
    ) -> Result<(), WebSocketError> {
        if !self.broken || !message.compressed {
            // As received, with the sender's mask and compression.
            out.extend_from_slice(&message.raw);
        } else if message.passed || message.size > message.data.len() as u64 {
            return Err(WebSocketError::TooLarge);
        } else {
            // Re-encoded without compression; the receiver's window is not touched by it.
            write_frame(out, message.kind.opcode(), &message.data, mask);
        }
        Ok(())
    }

    /// Appends a part of a message that is too large to buffer.
    ///
    /// # Errors
    /// [`WebSocketError::TooLarge`] if the message must be re-encoded. Close with 1009 then.
    pub fn forward_part(&mut self, out: &mut Vec<u8>, raw: &[u8], compressed: bool) -> Result<(), WebSocketError> {
        if self.broken && compressed {
            return Err(WebSocketError::TooLarge);
        }
        out.extend_from_slice(raw);
        Ok(())
    }

    /// Appends new content instead of a message that was not [`passed`](WebSocketMessage::passed).
    pub fn replace(&mut self, out: &mut Vec<u8>, message: &WebSocketMessage, data: &[u8], mask: Option<[u8; 4]>) {
        // For the receiver's window, replacing is the same as dropping: the new frame is not compressed.
        self.drop_message(message);
        write_frame(out, message.kind.opcode(), data, mask);
    }

    /// Records that a message that was not [`passed`](WebSocketMessage::passed) is not forwarded.
    pub fn drop_message(&mut self, message: &WebSocketMessage) {
        self.broken |= self.keeps_context && message.compressed;
    }
}
