//! Computes Akamai's HTTP/2 fingerprint from a client's first frames: SETTINGS, window, priorities and the order of
//! pseudo-header fields (RFC 9113; Akamai, "Passive Fingerprinting of HTTP/2 Clients", 2017).

use std::fmt::Write as _;

/// The client connection preface (RFC 9113 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// No known client sends more bytes before its first request.
const MAX_PREFACE_BYTES: usize = 64 << 10;

/// Parses a copy of a client's first frames. Nothing is taken from the connection, which the HTTP/2 server parses
/// itself.
#[derive(Debug, Default)]
pub struct PrefaceReader {
    seen: Vec<u8>,
    at: usize,
    settings: String,
    window: u32,
    priorities: String,
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
        while let Some(frame) = self.frame() {
            if let Some(order) = frame {
                // Akamai's format: two zeros if no WINDOW_UPDATE was sent.
                let window = if self.window == 0 { "00".into() } else { self.window.to_string() };
                let priorities = if self.priorities.is_empty() { "0" } else { &self.priorities };
                return PrefaceState::Done(format!("{}|{window}|{priorities}|{order}", self.settings));
            }
        }
        if self.seen.len() < MAX_PREFACE_BYTES { PrefaceState::More } else { PrefaceState::Strange }
    }

    /// Consumes the next complete frame (RFC 9113 4.1) and adds it to the fingerprint; a HEADERS frame completes it.
    fn frame(&mut self) -> Option<Option<String>> {
        let rest = self.seen.get(self.at..)?;
        let head = rest.get(..9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        // The highest bit is reserved (RFC 9113 4.1).
        let stream = number(&head[5..9]) & 0x7fff_ffff;
        let payload = rest.get(9..9 + length)?.to_vec();
        self.at += 9 + length;
        match kind {
            1 => return Some(Some(pseudo_order(fragment(&payload, flags)))),
            2 if payload.len() >= 5 => self.priority(stream, &payload),
            // Only the first SETTINGS frame counts; one with the ACK flag is a reply.
            4 if flags & 1 == 0 && self.settings.is_empty() => self.settings(&payload),
            8 if stream == 0 && payload.len() == 4 && self.window == 0 => self.window = number(&payload) & 0x7fff_ffff,
            _ => {}
        }
        Some(None)
    }

    fn settings(&mut self, payload: &[u8]) {
        // Incomplete settings are ignored; `h2` refuses the frame anyway.
        for setting in payload.chunks_exact(6) {
            let separator = if self.settings.is_empty() { "" } else { ";" };
            let id = u16::from_be_bytes([setting[0], setting[1]]);
            let _ = write!(self.settings, "{separator}{id}:{}", number(&setting[2..]));
        }
    }

    fn priority(&mut self, stream: u32, payload: &[u8]) {
        let separator = if self.priorities.is_empty() { "" } else { "," };
        let (depends, weight) = (number(&payload[..4]), u16::from(payload[4]) + 1);
        let exclusive = depends >> 31;
        let _ = write!(self.priorities, "{separator}{stream}:{exclusive}:{}:{weight}", depends & 0x7fff_ffff);
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |n, b| n << 8 | u32::from(*b))
}

/// The field block of a HEADERS frame, without padding and priority (RFC 9113 6.2).
fn fragment(payload: &[u8], flags: u8) -> &[u8] {
    let (padding, mut rest) = match (flags & 0x8, payload.split_first()) {
        (0, _) | (_, None) => (0, payload),
        (_, Some((padding, rest))) => (usize::from(*padding), rest),
    };
    // The PRIORITY flag: five bytes of dependency and weight.
    if flags & 0x20 != 0 {
        rest = rest.get(5..).unwrap_or_default();
    }
    &rest[..rest.len().saturating_sub(padding)]
}

/// The order of the pseudo-header fields by their initials, if the block uses static-table names, as all clients do
/// (RFC 7541 6, appendix A).
fn pseudo_order(mut block: &[u8]) -> String {
    let mut order = String::new();
    while let Some(first) = block.first().copied() {
        let (prefix, value) = match first {
            // An indexed field is a name with its value; the others are followed by a literal value.
            0x80.. => (7, false),
            0x40..0x80 => (6, true),
            // Dynamic table size updates precede all fields.
            0x20..0x40 => (5, false),
            _ => (4, true),
        };
        // The block may be cut off by CONTINUATION; what is known of the order is returned.
        let Some((index, rest)) = integer(block, prefix) else { break };
        block = rest;
        if matches!(first, 0x20..0x40) {
            continue;
        }
        let letter = match index {
            1 => 'a',
            2 | 3 => 'm',
            4 | 5 => 'p',
            6 | 7 => 's',
            // A regular field: pseudo-header fields come first (RFC 9113 8.3).
            _ => break,
        };
        if !order.is_empty() {
            order.push(',');
        }
        order.push(letter);
        if value {
            let Some((length, rest)) = integer(block, 7) else { break };
            // The length counts coded bytes, Huffman or not.
            block = rest.get(length..).unwrap_or_default();
        }
    }
    order
}

/// An integer with a prefix of this many bits (RFC 7541 5.1), and the bytes after it.
fn integer(bytes: &[u8], prefix: u32) -> Option<(usize, &[u8])> {
    let mask = (1_usize << prefix) - 1;
    let (first, mut rest) = bytes.split_first()?;
    let mut value = usize::from(*first) & mask;
    if value < mask {
        return Some((value, rest));
    }
    // At most four continuation bytes: larger integers do not occur in a valid block.
    for shift in (0..28).step_by(7) {
        let (byte, after) = rest.split_first()?;
        rest = after;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
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
