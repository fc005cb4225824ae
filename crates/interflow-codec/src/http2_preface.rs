//! Computes Akamai's HTTP/2 fingerprint from a client's first frames: SETTINGS, window, priorities and the order of
//! pseudo-header fields (RFC 9113; Akamai, "Passive Fingerprinting of HTTP/2 Clients", 2017).

use crate::cursor::Cursor;
use crate::fingerprint::{Http2Fingerprint, PseudoHeader, StreamPriority};
use crate::hpack::{HpackDecoder, HpackError};
use crate::http2_frame::{Http2Frame, PREFACE, flag, kind};

/// No known client sends more bytes before its first request.
const MAX_PREFACE_BYTES: usize = 64 << 10;

/// Parses a copy of a client's first frames. Nothing is taken from the connection, which the HTTP/2 server parses
/// itself.
#[derive(Debug, Default)]
pub struct PrefaceReader {
    seen: Vec<u8>,
    at: usize,
    fingerprint: Http2Fingerprint,
}

#[derive(Debug, PartialEq, Eq)]
pub enum PrefaceState {
    /// The first request has not arrived yet.
    More,
    Done(String),
    /// Not HTTP/2, or over the size limit; no more bytes are needed.
    Strange,
}

impl PrefaceReader {
    pub fn feed(&mut self, bytes: &[u8]) -> PrefaceState {
        // Bytes beyond the bound are not kept; the state then ends as `Strange`.
        let remaining = MAX_PREFACE_BYTES - self.seen.len().min(MAX_PREFACE_BYTES);
        self.seen.extend_from_slice(&bytes[..bytes.len().min(remaining)]);
        // The connection has the preface only once, so `at` is 0 before it.
        if self.at == 0 {
            let n = self.seen.len().min(PREFACE.len());
            if self.seen[..n] != PREFACE[..n] {
                return PrefaceState::Strange;
            }
            if n < PREFACE.len() {
                return PrefaceState::More;
            }
            self.at = n;
        }
        while let Some(is_complete) = self.frame() {
            if is_complete {
                return PrefaceState::Done(self.fingerprint.to_string());
            }
        }
        if self.seen.len() < MAX_PREFACE_BYTES { PrefaceState::More } else { PrefaceState::Strange }
    }

    /// Consumes the next complete frame (RFC 9113 4.1). Returns whether the fingerprint is complete with it.
    fn frame(&mut self) -> Option<bool> {
        let frame = Http2Frame::parse(self.seen.get(self.at..)?)?;
        self.at += frame.byte_len();
        Some(add_frame(&mut self.fingerprint, &frame))
    }
}

/// Adds a frame to the fingerprint. Returns whether that completes it, as a HEADERS frame does.
fn add_frame(fingerprint: &mut Http2Fingerprint, frame: &Http2Frame<'_>) -> bool {
    let payload = frame.payload;
    match frame.kind {
        kind::HEADERS => fingerprint.pseudo = pseudo_order(frame.content()),
        kind::PRIORITY if payload.len() >= 5 => {
            let depends_on = Cursor(payload).u32().unwrap_or_default();
            fingerprint.priorities.push(StreamPriority {
                stream: frame.stream,
                exclusive: depends_on >> 31 == 1,
                depends_on: depends_on & 0x7fff_ffff,
                weight: payload[4],
            });
        }
        // Only the first SETTINGS frame counts; one with the ACK flag is a reply.
        kind::SETTINGS if !frame.has(flag::ACK) && fingerprint.settings.is_empty() => {
            // Incomplete settings are ignored; `h2` refuses the frame anyway.
            let mut rest = Cursor(payload);
            fingerprint.settings.extend(std::iter::from_fn(|| Some((rest.u16()?, rest.u32()?))));
        }
        kind::WINDOW_UPDATE if frame.stream == 0 && payload.len() == 4 && fingerprint.window == 0 => {
            fingerprint.window = Cursor(payload).u32().unwrap_or_default() & 0x7fff_ffff;
        }
        _ => {}
    }
    frame.kind == kind::HEADERS
}

/// The order of the pseudo-header fields.
fn pseudo_order(block: &[u8]) -> Vec<PseudoHeader> {
    let mut order = Vec::new();
    // The block may be cut off by CONTINUATION; what is known of the order is returned.
    let _ = HpackDecoder::default().decode(block, &mut |name, _| {
        order.push(match name {
            b":authority" => PseudoHeader::Authority,
            b":method" => PseudoHeader::Method,
            b":path" => PseudoHeader::Path,
            b":scheme" => PseudoHeader::Scheme,
            // A regular field: pseudo-header fields come first (RFC 9113 8.3).
            _ => return Err(HpackError::TooMany),
        });
        Ok(())
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    fn settings(list: &[(u16, u32)]) -> Vec<u8> {
        frame(
            4,
            0,
            0,
            &list.iter().flat_map(|(id, v)| [&id.to_be_bytes()[..], &v.to_be_bytes()].concat()).collect::<Vec<_>>(),
        )
    }

    /// `:method: GET`, `:authority` as a literal, `:scheme: https`, `:path: /`, then a field.
    const BLOCK: &[u8] = &[0x82, 0x41, 3, b'a', b'.', b'b', 0x87, 0x84, 0x53, 1, b'x'];

    fn chrome() -> Vec<u8> {
        let window = frame(8, 0, 0, &15_663_105_u32.to_be_bytes());
        let headers = frame(1, 0x25, 1, &[&[0x80, 0, 0, 0, 255], BLOCK].concat());
        [PREFACE, &settings(&[(1, 65536), (2, 0), (4, 6_291_456), (6, 262_144)]), &window, &headers].concat()
    }

    #[test]
    fn preface_fingerprint_matches_the_published_text() {
        let mut opening = PrefaceReader::default();
        let text = "1:65536;2:0;4:6291456;6:262144|15663105|0|m,a,s,p";
        assert_eq!(opening.feed(&chrome()), PrefaceState::Done(text.into()));
        let tree = [
            PREFACE,
            &settings(&[(3, 100)]),
            &frame(2, 0, 3, &[0, 0, 0, 0, 200]),
            &frame(2, 0, 5, &[0x80, 0, 0, 3, 0]),
            &frame(1, 0x8, 15, &[&[2], &[0x20, 0x82, 0x84, 0x87, 0x41, 1, b'a'][..], &[0, 0]].concat()),
        ];
        assert_eq!(
            PrefaceReader::default().feed(&tree.concat()),
            PrefaceState::Done("3:100|00|3:0:0:201,5:1:3:1|m,p,s,a".into())
        );
    }

    #[test]
    fn other_bytes_give_no_fingerprint() {
        assert_eq!(PrefaceReader::default().feed(b"GET / HTTP/1.1"), PrefaceState::Strange);
        assert_eq!(PrefaceReader::default().feed(b"PRI * HT"), PrefaceState::More);
        let endless = [PREFACE, &frame(0xff, 0, 0, &[0; 16_000]).repeat(5)].concat();
        assert_eq!(PrefaceReader::default().feed(&endless), PrefaceState::Strange);
    }

    proptest! {
        #[test]
        fn preface_fingerprint_is_independent_of_segmentation(cut in 0..100_usize) {
            let whole = chrome();
            let (a, b) = whole.split_at(cut.min(whole.len()));
            let mut opening = PrefaceReader::default();
            let last = match opening.feed(a) { PrefaceState::More => opening.feed(b), done => done };
            prop_assert!(matches!(last, PrefaceState::Done(_)));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = PrefaceReader::default().feed(&[PREFACE, &bytes].concat());
            let _ = pseudo_order(&bytes);
        }
    }
}
