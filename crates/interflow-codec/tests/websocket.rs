//! WebSocket messages: decoding from frames, with and without compression, and re-encoding.

use bytes::BytesMut;
use flate2::{Compress, Compression, FlushCompress};
use interflow_codec::websocket::{
    FrameSender, MessageForwarder, MessageType, Opcode, PermessageDeflate, WebSocketDecoder, WebSocketError,
    WebSocketItem, WebSocketMessage, WsDecoderOptions, apply_mask, write_frame,
};
use proptest::prelude::*;

const MAX: usize = 1000;

fn decoder(sender: FrameSender, deflate: Option<PermessageDeflate>) -> WebSocketDecoder {
    WebSocketDecoder::new(WsDecoderOptions { sender, deflate, max_message: MAX })
}

fn items(decoder: &mut WebSocketDecoder, pieces: &[&[u8]]) -> Result<Vec<WebSocketItem>, WebSocketError> {
    let mut buf = BytesMut::new();
    let mut items = Vec::new();
    for piece in pieces {
        buf.extend_from_slice(piece);
        while let Some(item) = decoder.decode(&mut buf)? {
            items.push(item);
        }
    }
    Ok(items)
}

fn messages(raw: &[u8], deflate: Option<PermessageDeflate>) -> Result<Vec<WebSocketMessage>, WebSocketError> {
    let items = items(&mut decoder(FrameSender::Server, deflate), &[raw])?;
    Ok(items
        .into_iter()
        .map(|item| match item {
            WebSocketItem::Message(message) => message,
            WebSocketItem::Part { .. } => panic!("no message here is too large to buffer"),
        })
        .collect())
}

fn texts(raw: &[u8], deflate: Option<PermessageDeflate>) -> Result<Vec<String>, WebSocketError> {
    Ok(messages(raw, deflate)?.iter().map(|m| String::from_utf8_lossy(&m.data).into_owned()).collect())
}

fn raw_of(items: &[WebSocketItem]) -> Vec<u8> {
    items
        .iter()
        .flat_map(|item| match item {
            WebSocketItem::Message(message) => message.raw.to_vec(),
            WebSocketItem::Part { raw, .. } => raw.to_vec(),
        })
        .collect()
}

/// A sender with compression and context takeover.
struct Compressor(Compress);

impl Compressor {
    fn frame(&mut self, text: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len() + 100);
        self.0.compress_vec(text.as_bytes(), &mut out, FlushCompress::Sync).unwrap();
        let body = out.strip_suffix(&[0, 0, 0xff, 0xff]).unwrap();
        let mut frame = Vec::new();
        write_frame(&mut frame, Opcode::Text, body, None);
        frame[0] |= 0x40;
        frame
    }
}

/// RFC 6455 5.7.
#[test]
fn fragments_are_joined_across_control_frames() {
    let raw = b"\x01\x03Hel\x89\x05Hello\x80\x02lo\x88\x02\x03\xe8";
    let got = messages(raw, None).unwrap();
    let received: Vec<_> = got.iter().map(|m| (m.kind, &m.data[..], m.size)).collect();
    assert_eq!(
        received,
        [(MessageType::Ping, &b"Hello"[..], 5), (MessageType::Text, b"Hello", 5), (MessageType::Close, b"\x03\xe8", 2)]
    );
    assert_eq!(&got[1].raw[..], b"\x01\x03Hel\x80\x02lo");
    assert_eq!(messages(b"\x82\x00", None).unwrap()[0].kind, MessageType::Binary);
}

/// RFC 7692 7.2.3.
#[test]
fn the_compressed_examples_of_the_rfc_are_read() {
    let deflate = Some(PermessageDeflate::default());
    for (raw, expected) in [
        (&b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00"[..], &["Hello"][..]),
        (b"\x41\x03\xf2\x48\xcd\x80\x04\xc9\xc9\x07\x00", &["Hello"]),
        (b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00\xc1\x05\xf2\x00\x11\x00\x00", &["Hello", "Hello"]),
        (b"\xc1\x0b\x00\x05\x00\xfa\xffHello\x00", &["Hello"]),
        (b"\xc1\x08\xf3\x48\xcd\xc9\xc9\x07\x00\x00", &["Hello"]),
        (b"\xc1\x0d\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", &["Hello"]),
        (b"\x81\x05Hello\xc1\x01\x00", &["Hello", ""]),
    ] {
        assert_eq!(texts(raw, deflate).unwrap(), expected, "{raw:x?}");
    }
    let fresh = Some(PermessageDeflate { server_no_context_takeover: true, ..PermessageDeflate::default() });
    let backward = b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00\xc1\x05\xf2\x00\x11\x00\x00";
    assert_ne!(texts(backward, fresh).unwrap_or_default(), ["Hello", "Hello"]);
}

#[test]
fn protocol_violating_frames_are_refused() {
    for (raw, deflate, error) in [
        (&b"\x80\x00"[..], None, WebSocketError::Fragments),
        (b"\x01\x00\x81\x00", None, WebSocketError::Fragments),
        (b"\xc1\x00", None, WebSocketError::ReservedBits),
        (b"\xc1\x02\xff\xff", Some(PermessageDeflate::default()), WebSocketError::Deflate),
    ] {
        assert_eq!(messages(raw, deflate), Err(error), "{raw:x?}");
    }
}

#[test]
fn no_bytes_are_lost_after_an_error() {
    let mut d = decoder(FrameSender::Server, None);
    let mut buf = BytesMut::from(&b"\x01\x03Hel\x00\x01l\xff rest"[..]);
    assert_eq!(d.decode(&mut buf), Err(WebSocketError::ReservedBits));
    assert_eq!([&d.take_held()[..], &buf].concat(), b"\x01\x03Hel\x00\x01l\xff rest");
}

#[test]
fn a_message_over_the_limit_is_forwarded_in_parts() {
    let mut raw = Vec::new();
    write_frame(&mut raw, Opcode::Binary, &[7; 5000], Some([1, 2, 3, 4]));
    write_frame(&mut raw, Opcode::Text, b"next", Some([5, 6, 7, 8]));
    let pieces: Vec<&[u8]> = raw.chunks(700).collect();
    let got = items(&mut decoder(FrameSender::Client, None), &pieces).unwrap();
    assert_eq!(raw_of(&got), raw);
    assert!(matches!(got[0], WebSocketItem::Part { compressed: false, .. }));
    let WebSocketItem::Message(large) = &got[got.len() - 2] else { panic!("the message follows its parts") };
    assert_eq!((large.size, large.data.len(), large.passed), (5000, MAX, true));
    assert!(large.data.iter().all(|&b| b == 7));
    let Some(WebSocketItem::Message(next)) = got.last() else { panic!("the next message is read") };
    assert_eq!((&next.data[..], next.passed), (&b"next"[..], false));
}

#[test]
fn decompression_bomb_is_cut_at_the_message_limit() {
    let mut c = Compressor(Compress::new(Compression::best(), false));
    let raw = [c.frame(&"x".repeat(100_000)), c.frame("after")].concat();
    let got = messages(&raw, Some(PermessageDeflate::default())).unwrap();
    assert_eq!((got[0].size, got[0].data.len(), got[0].passed), (100_000, MAX, false));
    assert_eq!(&got[1].data[..], b"after");
}

#[test]
fn unedited_messages_are_forwarded_byte_for_byte() {
    let mut c = Compressor(Compress::new(Compression::default(), false));
    let raw: Vec<u8> = ["one two", "one two three", "one two three four"].iter().flat_map(|t| c.frame(t)).collect();
    let deflate = Some(PermessageDeflate::default());
    let mut forwarder = MessageForwarder::new(deflate, FrameSender::Server);
    let mut out = Vec::new();
    for message in messages(&raw, deflate).unwrap() {
        forwarder.forward(&mut out, &message, None).unwrap();
    }
    assert_eq!(out, raw);
}

#[test]
fn later_messages_decompress_after_an_edit() {
    let mut c = Compressor(Compress::new(Compression::default(), false));
    let said = ["one two three", "one two three four", "one two three five", "one two"];
    let raw: Vec<u8> = said.iter().flat_map(|t| c.frame(t)).collect();
    for deflate in [
        PermessageDeflate::default(),
        PermessageDeflate { client_no_context_takeover: true, ..PermessageDeflate::default() },
    ] {
        let got = messages(&raw, Some(deflate)).unwrap();
        let mut forwarder = MessageForwarder::new(Some(deflate), FrameSender::Server);
        let mut out = Vec::new();
        forwarder.forward(&mut out, &got[0], None).unwrap();
        forwarder.replace(&mut out, &got[1], b"changed", None);
        forwarder.forward(&mut out, &got[2], None).unwrap();
        forwarder.drop_message(&got[2]);
        forwarder.forward(&mut out, &got[3], None).unwrap();
        assert_eq!(texts(&out, Some(deflate)).unwrap(), ["one two three", "changed", "one two three five", "one two"]);
    }
}

#[test]
fn a_partly_buffered_message_that_must_be_reencoded_is_refused() {
    let mut c = Compressor(Compress::new(Compression::best(), false));
    let raw = [c.frame("first"), c.frame(&"x".repeat(100_000))].concat();
    let deflate = Some(PermessageDeflate::default());
    let got = messages(&raw, deflate).unwrap();
    let mut forwarder = MessageForwarder::new(deflate, FrameSender::Server);
    forwarder.drop_message(&got[0]);
    assert_eq!(forwarder.forward(&mut Vec::new(), &got[1], None), Err(WebSocketError::TooLarge));
    assert_eq!(forwarder.forward_part(&mut Vec::new(), b"x", true), Err(WebSocketError::TooLarge));
    assert_eq!(forwarder.forward_part(&mut Vec::new(), b"x", false), Ok(()));
}

proptest! {
    #[test]
    fn decoding_does_not_depend_on_segmentation(
        sent in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), any::<[u8; 4]>(), any::<bool>()), 0..6),
        size in 1usize..50,
    ) {
        let mut raw = Vec::new();
        for (data, key, fragmented) in &sent {
            if *fragmented {
                let (a, b) = data.split_at(data.len() / 2);
                let start = raw.len();
                write_frame(&mut raw, Opcode::Binary, a, Some(*key));
                raw[start] &= 0x7f;
                write_frame(&mut raw, Opcode::Ping, b"?", Some(*key));
                write_frame(&mut raw, Opcode::Continuation, b, Some(*key));
            } else {
                write_frame(&mut raw, Opcode::Binary, data, Some(*key));
            }
        }
        let whole = items(&mut decoder(FrameSender::Client, None), &[&raw]).unwrap();
        let pieces: Vec<&[u8]> = raw.chunks(size).collect();
        prop_assert_eq!(&items(&mut decoder(FrameSender::Client, None), &pieces).unwrap(), &whole);
        let got: Vec<Vec<u8>> = whole.iter().filter_map(|item| match item {
            WebSocketItem::Message(m) if m.kind == MessageType::Binary => Some(m.data.to_vec()),
            _ => None,
        }).collect();
        prop_assert_eq!(got, sent.into_iter().map(|(data, ..)| data).collect::<Vec<_>>());
    }

    #[test]
    fn no_input_panics_or_is_lost(noise in prop::collection::vec(any::<u8>(), 0..200), size in 1usize..40) {
        for (sender, deflate) in [(FrameSender::Client, None), (FrameSender::Server, Some(PermessageDeflate::default()))] {
            let mut d = decoder(sender, deflate);
            let mut buf = BytesMut::new();
            let mut ping_between = false;
            let (mut out, mut arrived) = (Vec::new(), 0);
            'arrive: for piece in noise.chunks(size) {
                buf.extend_from_slice(piece);
                arrived += piece.len();
                loop {
                    match d.decode(&mut buf) {
                        Ok(Some(item)) => {
                            ping_between |= matches!(&item, WebSocketItem::Message(m) if m.kind.opcode().is_control());
                            out.extend(raw_of(&[item]));
                        }
                        Ok(None) => break,
                        Err(_) => break 'arrive,
                    }
                }
            }
            out.extend_from_slice(&d.take_held());
            out.extend_from_slice(&buf);
            if !ping_between {
                prop_assert_eq!(out, &noise[..arrived]);
            }
        }
    }

    #[test]
    fn masking_twice_restores_the_plain_bytes(mut data in prop::collection::vec(any::<u8>(), 0..100), key: [u8; 4], offset: u64) {
        let plain = data.clone();
        apply_mask(&mut data, key, offset);
        apply_mask(&mut data, key, offset);
        prop_assert_eq!(data, plain);
    }
}
