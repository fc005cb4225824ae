//! Assembles the frames of one direction into messages.

use bytes::{Bytes, BytesMut};
use interflow_types::budget::MemoryReservation;

use super::deflate::MessageInflater;
use super::{FrameHeader, FrameSender, Opcode, PermessageDeflate, WebSocketError, apply_mask, parse_frame_header};

#[derive(Clone, Copy, Debug)]
pub struct WsDecoderOptions {
    /// The side that sends these frames.
    pub sender: FrameSender,
    pub deflate: Option<PermessageDeflate>,
    /// The most bytes of a message that are buffered, of its content and of its frames each.
    pub max_message: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// Text; not validated as UTF-8.
    Text,
    Binary,
    /// A close frame: a status code in two bytes and a reason, or nothing.
    Close,
    Ping,
    Pong,
}

impl MessageType {
    /// The opcode of its first frame.
    pub const fn opcode(self) -> Opcode {
        match self {
            Self::Text => Opcode::Text,
            Self::Binary => Opcode::Binary,
            Self::Close => Opcode::Close,
            Self::Ping => Opcode::Ping,
            Self::Pong => Opcode::Pong,
        }
    }
}

/// A message: a control frame, or all fragments of a text or binary message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketMessage {
    pub kind: MessageType,
    /// The content, unmasked and decompressed; only its beginning if `size` is larger.
    pub data: Bytes,
    /// The size of the whole content in bytes.
    pub size: u64,
    /// Whether it was compressed on the wire.
    pub compressed: bool,
    /// Its frames as received, without those already returned as [`WebSocketItem::Part`].
    pub raw: Bytes,
    /// Whether parts were returned before; then it can no longer be edited or dropped.
    pub passed: bool,
}

/// The output of a decoder: a complete message, or the bytes of a message that is too large to buffer, whose
/// `WebSocketMessage` follows. Forwarding every `raw` and every part in order reproduces the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebSocketItem {
    Message(WebSocketMessage),
    Part { raw: Bytes, compressed: bool },
}

/// Decodes one direction of a WebSocket. Control frames are assembled separately, because they may occur between the
/// fragments of a message (RFC 6455 5.4).
pub struct WebSocketDecoder {
    options: WsDecoderOptions,
    inflater: Option<MessageInflater>,
    frame: Option<IncomingFrame>,
    /// The data message whose fragments are being received.
    message: Option<MessageAssembly>,
    control: MessageAssembly,
}

/// The frame whose payload is being received.
struct IncomingFrame {
    header: FrameHeader,
    read: u64,
}

#[derive(Default)]
struct MessageAssembly {
    text: bool,
    compressed: bool,
    passed: bool,
    size: u64,
    data: BytesMut,
    raw: BytesMut,
    /// Reserves the buffered bytes in the memory budget, from the first fragment until the message is dropped.
    held: [MemoryReservation; 2],
}

impl WebSocketDecoder {
    /// A decoder for one direction, to be used after the handshake.
    pub fn new(options: WsDecoderOptions) -> Self {
        let inflater = options.deflate.map(|deflate| MessageInflater::new(deflate, options.sender));
        Self { options, inflater, frame: None, message: None, control: MessageAssembly::default() }
    }

    /// Takes the next item from the front of `buf`; `None` if more bytes are needed.
    ///
    /// # Errors
    /// Frames that violate RFC 6455 or do not decompress; [`WebSocketError::Overloaded`]. To continue as a tunnel,
    /// forward [`take_held`](Self::take_held), then `buf`, and do not call the decoder again.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<Option<WebSocketItem>, WebSocketError> {
        // In this order: header, payload, end; each may need more bytes.
        loop {
            if self.frame.is_none() && !self.start_frame(buf)? {
                return Ok(None);
            }
            let ended = self.take_payload(buf)?;
            // Control frames end with themselves, data messages with their last fragment.
            if ended && let Some(message) = self.end_frame()? {
                return Ok(Some(WebSocketItem::Message(message)));
            }
            // After the end of a frame: a message that ends here is returned whole if it fits, even if the buffer has
            // more.
            if let Some(part) = self.take_overflow() {
                return Ok(Some(part));
            }
            if !ended {
                return Ok(None);
            }
        }
    }

    /// The bytes that were taken from the buffer but not returned yet, in order as far as control frames between
    /// fragments permit.
    pub fn take_held(&mut self) -> Bytes {
        // The data message came first, unless a control frame interrupted it.
        let mut held = self.message.take().map_or_else(BytesMut::new, |m| m.raw);
        held.extend_from_slice(&std::mem::take(&mut self.control).raw);
        self.frame = None;
        held.freeze()
    }

    fn start_frame(&mut self, buf: &mut BytesMut) -> Result<bool, WebSocketError> {
        let Some((header, len)) = parse_frame_header(buf, self.options.sender)? else { return Ok(false) };
        // RSV1 has no meaning without the extension.
        if header.compressed && self.inflater.is_none() {
            return Err(WebSocketError::ReservedBits);
        }
        let assembly = match header.opcode {
            Opcode::Close | Opcode::Ping | Opcode::Pong => &mut self.control,
            // A continuation needs a message that has begun.
            Opcode::Continuation => self.message.as_mut().ok_or(WebSocketError::Fragments)?,
            // Only control frames may come between the fragments of a message.
            Opcode::Text | Opcode::Binary if self.message.is_some() => return Err(WebSocketError::Fragments),
            Opcode::Text | Opcode::Binary => self.message.insert(MessageAssembly {
                text: header.opcode == Opcode::Text,
                compressed: header.compressed,
                ..MessageAssembly::default()
            }),
        };
        // The original bytes are kept beside the decoded ones: an unedited message is forwarded as it came.
        assembly.raw.extend_from_slice(&buf.split_to(len));
        self.frame = Some(IncomingFrame { header, read: 0 });
        Ok(true)
    }

    /// Takes the available part of the frame's payload; returns whether it is complete.
    fn take_payload(&mut self, buf: &mut BytesMut) -> Result<bool, WebSocketError> {
        let Some(IncomingFrame { header, read }) = &mut self.frame else { return Ok(false) };
        let remaining = header.len - *read;
        let n = usize::try_from(remaining).map_or(buf.len(), |remaining| remaining.min(buf.len()));
        let assembly = if header.opcode.is_control() { Some(&mut self.control) } else { self.message.as_mut() };
        let assembly = assembly.ok_or(WebSocketError::Fragments)?;
        let mut payload = buf.split_to(n);
        assembly.raw.extend_from_slice(&payload);
        // The key's position depends on the offset in the frame, because a payload may arrive in pieces.
        if let Some(key) = header.mask {
            apply_mask(&mut payload, key, *read);
        }
        // A frame may be as long as 2^63 bytes, so it is processed as it arrives.
        *read += n as u64;
        let ended = *read == header.len;
        let max = self.options.max_message;
        match &mut self.inflater {
            // Control frames are never compressed.
            Some(inflater) if assembly.compressed => {
                inflater.push(&payload, &mut |plain| assembly.add(plain, max))?;
            }
            _ => assembly.add(&payload, max),
        }
        assembly.reserve_budget()?;
        Ok(ended)
    }

    /// The message that ends with this frame, if any.
    fn end_frame(&mut self) -> Result<Option<WebSocketMessage>, WebSocketError> {
        let Some(IncomingFrame { header, .. }) = self.frame.take() else { return Ok(None) };
        // More fragments follow.
        if !header.fin {
            return Ok(None);
        }
        let kind = match header.opcode {
            Opcode::Close => MessageType::Close,
            Opcode::Ping => MessageType::Ping,
            Opcode::Pong => MessageType::Pong,
            Opcode::Continuation | Opcode::Text | Opcode::Binary => return self.end_message(),
        };
        Ok(Some(std::mem::take(&mut self.control).into_message(kind)))
    }

    fn end_message(&mut self) -> Result<Option<WebSocketMessage>, WebSocketError> {
        let message = self.message.as_mut().ok_or(WebSocketError::Fragments)?;
        if let Some(inflater) = &mut self.inflater
            && message.compressed
        {
            // Also for a message that was passed on: the window has to advance.
            inflater.finish(&mut |plain| message.add(plain, self.options.max_message))?;
            message.reserve_budget()?;
        }
        Ok(self.message.take().map(|message| {
            let kind = if message.text { MessageType::Text } else { MessageType::Binary };
            message.into_message(kind)
        }))
    }

    /// The buffered bytes of a message that exceeds the limit, to be forwarded.
    fn take_overflow(&mut self) -> Option<WebSocketItem> {
        let message = self.message.as_mut()?;
        // Once a part was passed on, the rest has to follow, whatever its size.
        let over = message.passed || message.raw.len() > self.options.max_message;
        if !over || message.raw.is_empty() {
            return None;
        }
        // From now on the message can only be forwarded.
        message.passed = true;
        let [_, held] = &mut message.held;
        let raw = std::mem::take(held).attach_to(message.raw.split());
        Some(WebSocketItem::Part { raw, compressed: message.compressed })
    }
}

impl MessageAssembly {
    fn into_message(self, kind: MessageType) -> WebSocketMessage {
        let [data, raw] = self.held;
        WebSocketMessage {
            kind,
            data: data.attach_to(self.data),
            size: self.size,
            compressed: self.compressed,
            raw: raw.attach_to(self.raw),
            passed: self.passed,
        }
    }

    fn reserve_budget(&mut self) -> Result<(), WebSocketError> {
        let [data, raw] = &mut self.held;
        let counted = data.resize(self.data.len()).and_then(|()| raw.resize(self.raw.len()));
        counted.map_err(|_| WebSocketError::Overloaded)
    }

    fn add(&mut self, plain: &[u8], max: usize) {
        self.size += plain.len() as u64;
        // Beyond the limit the content is only counted; decompression goes on, because later messages depend on it.
        let allowed = max.saturating_sub(self.data.len()).min(plain.len());
        self.data.extend_from_slice(plain.get(..allowed).unwrap_or_default());
    }
}
