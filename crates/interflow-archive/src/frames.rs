//! WebSocket frames (RFC 6455 5.2) of recorded messages, for archives that store wire data.

use bytes::Bytes;
use interflow_types::{Direction, MessageKind};

use interflow_store::MessageRecord;

/// A message as one frame. Client messages are masked with zeros, which leaves their bytes unchanged. `None` for events
/// and gRPC.
pub(super) fn encode(message: &MessageRecord) -> Option<Vec<u8>> {
    let opcode = opcode(message.kind)?;
    let masked = message.direction == Direction::Request;
    let len = message.payload.len();
    let mut frame = Vec::with_capacity(len + 14);
    // The FIN bit: a message is one frame, regardless of how it was fragmented.
    frame.push(0x80 | opcode);
    let bit = if masked { 0x80 } else { 0 };
    match (u8::try_from(len), u16::try_from(len)) {
        // Lengths have one, two or eight bytes, in network order.
        (Ok(small @ ..126), _) => frame.push(bit | small),
        (_, Ok(middle)) => {
            frame.push(bit | 126);
            frame.extend_from_slice(&middle.to_be_bytes());
        }
        _ => {
            frame.push(bit | 127);
            frame.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    if masked {
        frame.extend_from_slice(&[0; 4]);
    }
    frame.extend_from_slice(&message.payload);
    Some(frame)
}

/// Parses one frame: the FIN bit, the opcode, and the unmasked payload.
pub(super) fn decode(frame: &[u8]) -> Option<(bool, u8, Bytes)> {
    let (first, second) = (*frame.first()?, *frame.get(1)?);
    let (len, at) = match second & 0x7f {
        126 => (u64::from(u16::from_be_bytes(frame.get(2..4)?.try_into().ok()?)), 4),
        127 => (u64::from_be_bytes(frame.get(2..10)?.try_into().ok()?), 10),
        small => (u64::from(small), 2),
    };
    let mask: [u8; 4] = if second & 0x80 == 0 { [0; 4] } else { frame.get(at..at + 4)?.try_into().ok()? };
    let at = if second & 0x80 == 0 { at } else { at + 4 };
    let end = at.checked_add(usize::try_from(len).ok()?)?;
    let payload = frame.get(at..end)?.iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m).collect();
    Some((first & 0x80 != 0, first & 0x0f, payload))
}

/// The messages of a WebSocket by their opcodes (RFC 6455 5.2).
const OPCODES: [(u8, MessageKind); 5] = [
    (1, MessageKind::Text),
    (2, MessageKind::Binary),
    (8, MessageKind::Close),
    (9, MessageKind::Ping),
    (10, MessageKind::Pong),
];

/// The kind of a message that begins with this opcode.
pub(super) fn kind(opcode: u8) -> Option<MessageKind> {
    OPCODES.into_iter().find(|(code, _)| *code == opcode).map(|(_, kind)| kind)
}

/// `None` for events and gRPC, whose messages are in the body.
pub(super) fn opcode(kind: MessageKind) -> Option<u8> {
    OPCODES.into_iter().find(|(_, known)| *known == kind).map(|(code, _)| code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_types::Timestamp;

    #[test]
    fn frames_of_every_length_round_trip() {
        for len in [0, 1, 125, 126, 65_535, 65_536] {
            for direction in [Direction::Request, Direction::Response] {
                let payload = Bytes::from(vec![7; len]);
                let message = MessageRecord {
                    index: 0,
                    direction,
                    kind: MessageKind::Binary,
                    at: Timestamp::default(),
                    size: len as u64,
                    payload: payload.clone(),
                };
                let frame = encode(&message).unwrap();
                assert_eq!(decode(&frame), Some((true, 2, payload)), "{len}");
                assert!(decode(&frame[..frame.len() - 1]).is_none(), "{len}");
            }
        }
        let masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        assert_eq!(decode(&masked), Some((true, 1, Bytes::from_static(b"Hello"))), "RFC 6455 5.7");
        assert_eq!(decode(&[0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]), None);
    }
}
