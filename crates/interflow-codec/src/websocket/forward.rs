//! Writes one direction again after messages were looked at, changed or dropped.

use super::{FrameSender, PermessageDeflate, WebSocketError, WebSocketMessage, write_frame};

/// Decides whether a message may go on as it came.
///
/// A sender that keeps its compression window refers back to earlier messages. Once one of those has not reached the
/// receiver as it was, its successors cannot be decompressed there, so from then on compressed messages go on
/// uncompressed, which RFC 7692 6 permits at any time.
#[derive(Debug)]
pub struct MessageForwarder {
    keeps_context: bool,
    broken: bool,
}

impl MessageForwarder {
    /// For the messages of `sender`.
    pub fn new(deflate: Option<PermessageDeflate>, sender: FrameSender) -> Self {
        Self { keeps_context: deflate.is_some_and(|d| d.keeps_context(sender)), broken: false }
    }

    /// Appends a message that nobody changed. `mask` as for [`write_frame`]; it is used only when the frames have to
    /// be written anew.
    ///
    /// # Errors
    /// [`WebSocketError::TooLarge`] when they have to be and not all of the content is held. Close with 1009 then.
    pub fn forward(
        &mut self,
        out: &mut Vec<u8>,
        message: &WebSocketMessage,
        mask: Option<[u8; 4]>,
    ) -> Result<(), WebSocketError> {
        if !self.broken || !message.compressed {
            out.extend_from_slice(&message.raw);
        } else if message.passed || message.size > message.data.len() as u64 {
            return Err(WebSocketError::TooLarge);
        } else {
            write_frame(out, message.kind.opcode(), &message.data, mask);
        }
        Ok(())
    }

    /// Appends a part of a message too large to hold.
    ///
    /// # Errors
    /// [`WebSocketError::TooLarge`] when the message would have to be written anew. Close with 1009 then.
    pub fn forward_part(&mut self, out: &mut Vec<u8>, raw: &[u8], compressed: bool) -> Result<(), WebSocketError> {
        if self.broken && compressed {
            return Err(WebSocketError::TooLarge);
        }
        out.extend_from_slice(raw);
        Ok(())
    }

    /// Appends other content in the stead of a message that was not [`passed`](WebSocketMessage::passed).
    pub fn replace(&mut self, out: &mut Vec<u8>, message: &WebSocketMessage, data: &[u8], mask: Option<[u8; 4]>) {
        self.drop_message(message);
        write_frame(out, message.kind.opcode(), data, mask);
    }

    /// Notes that a message that was not [`passed`](WebSocketMessage::passed) does not go on.
    pub fn drop_message(&mut self, message: &WebSocketMessage) {
        self.broken |= self.keeps_context && message.compressed;
    }
}
