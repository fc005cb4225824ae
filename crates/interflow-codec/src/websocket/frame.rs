//! A single frame: header, masking, and writing (RFC 6455 5.2 and 5.3).

use super::{FrameSender, WebSocketError};
use crate::cursor::Cursor;

/// The opcode of a frame (RFC 6455 11.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    Continuation = 0,
    /// A text message or its first fragment.
    Text = 1,
    /// A binary message or its first fragment.
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    /// Whether it is a control frame, which may occur between the fragments of a message.
    pub const fn is_control(self) -> bool {
        self as u8 & 8 != 0
    }

    fn from_bits(bits: u8) -> Option<Self> {
        let all = [Self::Continuation, Self::Text, Self::Binary, Self::Close, Self::Ping, Self::Pong];
        all.into_iter().find(|opcode| *opcode as u8 == bits)
    }
}

/// The header of a frame: whether it is the last fragment of its message, the masking key, and the payload's length in
/// bytes. `compressed` is RSV1, which permessage-deflate sets on the first frame of a message (RFC 7692 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub fin: bool,
    pub compressed: bool,
    pub opcode: Opcode,
    pub mask: Option<[u8; 4]>,
    pub len: u64,
}

/// Parses a frame's header and returns it with its length; `None` if it is incomplete.
///
/// # Errors
/// Bits, opcodes or lengths that RFC 6455 5.2 forbids, a long or fragmented control frame, or a mask on the wrong
/// side.
pub fn parse_frame_header(buf: &[u8], sender: FrameSender) -> Result<Option<(FrameHeader, usize)>, WebSocketError> {
    const FIN: u8 = 0x80;
    const RSV1: u8 = 0x40;
    const RSV2_AND_3: u8 = 0x30;
    const MASKED: u8 = 0x80;
    let mut c = Cursor(buf);
    let Some(first) = c.u8() else { return Ok(None) };
    // They belong to extensions that were not negotiated.
    if first & RSV2_AND_3 != 0 {
        return Err(WebSocketError::ReservedBits);
    }
    let opcode = Opcode::from_bits(first & 0x0f).ok_or(WebSocketError::Opcode)?;
    let (fin, compressed) = (first & FIN != 0, first & RSV1 != 0);
    let Some(second) = c.u8() else { return Ok(None) };
    // RFC 6455 5.1 requires the mask from clients and forbids it from servers; masking keeps attackers from choosing
    // the bytes that intermediaries see.
    if (second & MASKED != 0) != (sender == FrameSender::Client) {
        return Err(WebSocketError::Mask);
    }
    let short = second & 0x7f;
    // A control frame of more than 125 bytes would need an extended length, which is forbidden for it.
    if opcode.is_control() && (!fin || short > 125) {
        return Err(WebSocketError::Control);
    }
    // RFC 7692 6.1: only the first frame of a data message has the bit.
    if compressed && (opcode.is_control() || opcode == Opcode::Continuation) {
        return Err(WebSocketError::ReservedBits);
    }
    let Some(len) = length(&mut c, short)? else { return Ok(None) };
    let mask = if second & MASKED == 0 {
        None
    } else {
        let Some(key) = c.array() else { return Ok(None) };
        Some(key)
    };
    Ok(Some((FrameHeader { fin, compressed, opcode, mask, len }, buf.len() - c.0.len())))
}

/// The payload length, which must have the shortest encoding (RFC 6455 5.2).
fn length(c: &mut Cursor<'_>, short: u8) -> Result<Option<u64>, WebSocketError> {
    let (len, least) = match short {
        // The extended lengths, with the smallest value that needs them.
        126 => (c.u16().map(u64::from), 126),
        127 => (c.array().map(u64::from_be_bytes), 1 << 16),
        _ => (Some(short.into()), 0),
    };
    match len {
        // The most significant bit of a 64-bit length must be zero, and the encoding the shortest.
        Some(len) if len < least || len > i64::MAX as u64 => Err(WebSocketError::Length),
        len => Ok(len),
    }
}

/// Masks or unmasks `data`, which starts at this offset of the payload.
pub fn apply_mask(data: &mut [u8], key: [u8; 4], offset: u64) {
    let mut key = key;
    // The payload may continue in the middle of the key.
    key.rotate_left((offset % 4) as usize);
    let [a, b, c, d] = key;
    let repeated = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    // Eight bytes per step; the rest one by one.
    let (words, rest) = data.as_chunks_mut::<8>();
    for chunk in words {
        *chunk = (u64::from_ne_bytes(*chunk) ^ repeated).to_ne_bytes();
    }
    for (b, k) in rest.iter_mut().zip(key.iter().cycle()) {
        *b ^= k;
    }
}

/// Appends a whole uncompressed frame. Clients must pass a new random `mask` for each, servers none.
pub fn write_frame(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], mask: Option<[u8; 4]>) {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    out.reserve(payload.len() + 14);
    out.push(0x80 | opcode as u8);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(n @ ..=125), _) => out.push(masked | n),
        (_, Ok(n)) => {
            out.push(masked | 126);
            out.extend_from_slice(&n.to_be_bytes());
        }
        _ => {
            out.push(masked | 127);
            out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(mask.as_ref().map_or(&[][..], |key| key));
    let start = out.len();
    out.extend_from_slice(payload);
    if let (Some(key), Some(written)) = (mask, out.get_mut(start..)) {
        apply_mask(written, key, 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 6455 5.7.
    #[test]
    fn frame_examples_of_rfc_6455_are_parsed_and_written() {
        let masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        let (header, used) = parse_frame_header(&masked, FrameSender::Client).unwrap().unwrap();
        assert_eq!((header.opcode, header.len, header.fin, used), (Opcode::Text, 5, true, 6));
        let mut payload = masked[used..].to_vec();
        apply_mask(&mut payload, header.mask.unwrap(), 0);
        assert_eq!(payload, b"Hello");
        let mut out = Vec::new();
        write_frame(&mut out, Opcode::Text, b"Hello", header.mask);
        assert_eq!(out, masked);
        for (len, head) in
            [(5usize, &[0x82, 5][..]), (256, &[0x82, 126, 1, 0]), (65536, &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0])]
        {
            out.clear();
            write_frame(&mut out, Opcode::Binary, &vec![0; len], None);
            assert_eq!((&out[..head.len()], out.len()), (head, head.len() + len));
            let header = parse_frame_header(&out, FrameSender::Server).unwrap().unwrap();
            assert_eq!((header.0.len, header.1), (len as u64, head.len()));
        }
    }

    /// RFC 6455 5.1, 5.2 and 5.5.
    #[test]
    fn protocol_violating_frames_are_refused() {
        use WebSocketError::*;
        for (raw, sender, error) in [
            (&[0xa1][..], FrameSender::Server, ReservedBits),
            (&[0x91], FrameSender::Server, ReservedBits),
            (&[0xc9, 0], FrameSender::Server, ReservedBits),
            (&[0xc0, 0], FrameSender::Server, ReservedBits),
            (&[0x83], FrameSender::Server, Opcode),
            (&[0x8b], FrameSender::Server, Opcode),
            (&[0x81, 0x80], FrameSender::Server, Mask),
            (&[0x81, 0x05], FrameSender::Client, Mask),
            (&[0x09, 0], FrameSender::Server, Control),
            (&[0x88, 126], FrameSender::Server, Control),
            (&[0x81, 126, 0, 125], FrameSender::Server, Length),
            (&[0x81, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff], FrameSender::Server, Length),
            (&[0x81, 127, 0x80, 0, 0, 0, 0, 0, 0, 0], FrameSender::Server, Length),
        ] {
            assert_eq!(parse_frame_header(raw, sender), Err(error), "{raw:x?}");
        }
    }

    proptest! {
        #[test]
        fn the_mask_is_the_same_from_any_offset(data in prop::collection::vec(any::<u8>(), 0..60), key: [u8; 4], cut in any::<prop::sample::Index>()) {
            let expected: Vec<u8> = data.iter().enumerate().map(|(i, b)| b ^ key[i % 4]).collect();
            let mut got = data.clone();
            let cut = cut.index(data.len() + 1);
            apply_mask(&mut got[..cut], key, 0);
            apply_mask(&mut got[cut..], key, cut as u64);
            prop_assert_eq!(got, expected);
        }
    }
}
