//! Finds the streams of an HTTP/2 connection in its two byte streams (RFC 9113).

use std::collections::BTreeMap;

use interflow_codec::hpack::{HpackDecoder, HpackError};
use interflow_codec::http2_frame::{Http2Frame, PREFACE, flag, kind};
use interflow_types::Direction;

use super::reader::TcpStream;

/// Longer header blocks are not read, in bytes.
const MAX_BLOCK: usize = 1 << 20;
/// Header fields of one connection that are in memory at once, in bytes as HTTP/2 counts them: a few bytes of a capture may
/// stand for fields of any size.
const MAX_FIELDS: usize = 256 << 20;
/// What a field, and what a stream counts beside its bytes.
const FIELD_OVERHEAD: usize = 32;
const STREAM_OVERHEAD: usize = 1024;

/// A name and a value.
type Field = (Box<[u8]>, Box<[u8]>);

/// The fields of one HEADERS or PUSH_PROMISE frame with its CONTINUATION frames.
#[derive(Default)]
pub(super) struct HeaderBlock {
    pub fields: Vec<Field>,
    /// When its first and last byte were captured, in microseconds.
    pub began: u64,
    pub ended: u64,
}

impl HeaderBlock {
    /// A pseudo-header field, such as `:status`.
    pub fn pseudo(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(n, _)| **n == *name.as_bytes()).map(|(_, value)| &**value)
    }
}

/// One direction of a stream.
#[derive(Default)]
pub(super) struct StreamHalf {
    /// The head, perhaps with interim ones before it and trailers behind it.
    pub blocks: Vec<HeaderBlock>,
    pub body: Vec<u8>,
    /// When its last frame was captured, in microseconds.
    pub last: u64,
    /// Whether its end was captured.
    pub is_complete: bool,
    /// The error code with which its sender reset the stream.
    pub reset: Option<u32>,
}

#[derive(Default)]
pub(super) struct Http2Stream {
    pub request: StreamHalf,
    pub response: StreamHalf,
}

#[derive(Default)]
pub(super) struct Http2Connection {
    pub streams: BTreeMap<u32, Http2Stream>,
    /// Why the frames of a side are not read to their end.
    pub problems: Vec<String>,
    fields: usize,
}

/// Whether the bytes of a client begin an HTTP/2 connection.
pub(super) fn is_http2(bytes: &[u8]) -> bool {
    bytes.starts_with(PREFACE)
}

/// Reads both sides, the client's from its preface on.
pub(super) fn read(client: &TcpStream, server: &TcpStream) -> Http2Connection {
    let mut connection = Http2Connection::default();
    // The client first: its streams exist when the server answers.
    for (direction, stream, start) in [(Direction::Request, client, PREFACE.len()), (Direction::Response, server, 0)] {
        let mut side = SideReader { stream, at: start, direction, hpack: HpackDecoder::default() };
        if let Err(problem) = side.read(&mut connection) {
            let from = if direction == Direction::Request { "client" } else { "server" };
            connection.problems.push(format!("its HTTP/2 frames from the {from} end at byte {}: {problem}", side.at));
        }
    }
    connection
}

/// The frames of one side.
struct SideReader<'a> {
    stream: &'a TcpStream,
    at: usize,
    direction: Direction,
    hpack: HpackDecoder,
}

impl<'a> SideReader<'a> {
    fn next(&mut self) -> Option<(Http2Frame<'a>, u64)> {
        let frame = Http2Frame::parse(self.stream.bytes.get(self.at..)?)?;
        self.at += frame.byte_len();
        Some((frame, self.stream.time_at(self.at - 1)))
    }

    fn read(&mut self, connection: &mut Http2Connection) -> Result<(), String> {
        loop {
            let start = self.at;
            let Some((frame, time)) = self.next() else { break };
            match frame.kind {
                kind::DATA => {
                    // Frames of streams that began before what is known are left out.
                    if let Some(half) = self.half(connection, frame.stream) {
                        half.body.extend_from_slice(frame.content());
                        half.last = time;
                        half.is_complete |= frame.has(flag::END_STREAM);
                    }
                }
                kind::HEADERS => {
                    let block = self.block(&frame, start, connection)?;
                    self.open(connection, frame.stream)?;
                    if let Some(half) = self.half(connection, frame.stream) {
                        half.last = block.ended;
                        half.is_complete |= frame.has(flag::END_STREAM);
                        half.blocks.push(block);
                    }
                }
                kind::PUSH_PROMISE => {
                    let promised = frame.promised_stream().ok_or("a PUSH_PROMISE frame is too short")?;
                    let request = self.block(&frame, start, connection)?;
                    self.open(connection, promised)?;
                    if let Some(stream) = connection.streams.get_mut(&promised) {
                        stream.request.last = request.ended;
                        stream.request.is_complete = true;
                        stream.request.blocks.push(request);
                    }
                }
                kind::RST_STREAM => {
                    let code = frame.payload.try_into().map(u32::from_be_bytes).ok();
                    if let Some(half) = self.half(connection, frame.stream) {
                        half.reset = code;
                        half.last = half.last.max(time);
                    }
                }
                _ => {}
            }
        }
        match self.stream.bytes.len() - self.at.min(self.stream.bytes.len()) {
            0 if self.stream.has_gap() => Err("packets are missing".to_owned()),
            0 => Ok(()),
            rest => Err(format!("the last frame is cut after {rest} bytes")),
        }
    }

    fn half<'c>(&self, connection: &'c mut Http2Connection, stream: u32) -> Option<&'c mut StreamHalf> {
        let stream = connection.streams.get_mut(&stream)?;
        Some(match self.direction {
            Direction::Request => &mut stream.request,
            Direction::Response => &mut stream.response,
        })
    }

    fn open(&self, connection: &mut Http2Connection, stream: u32) -> Result<(), String> {
        if !connection.streams.contains_key(&stream) {
            connection.count(STREAM_OVERHEAD).map_err(|e| e.to_string())?;
            connection.streams.insert(stream, Http2Stream::default());
        }
        Ok(())
    }

    /// The header block that begins with `frame`, at position `start`.
    fn block(
        &mut self,
        frame: &Http2Frame<'a>,
        start: usize,
        connection: &mut Http2Connection,
    ) -> Result<HeaderBlock, String> {
        let mut bytes = frame.content().to_vec();
        let mut is_last = frame.has(flag::END_HEADERS);
        while !is_last {
            let (next, _) = self.next().ok_or("a header block is cut")?;
            if next.kind != kind::CONTINUATION || next.stream != frame.stream {
                return Err("a header block is not continued".to_owned());
            }
            bytes.extend_from_slice(next.payload);
            is_last = next.has(flag::END_HEADERS);
            if bytes.len() > MAX_BLOCK {
                return Err("a header block has more than 1 MiB".to_owned());
            }
        }
        let mut fields = Vec::new();
        let decoded = self.hpack.decode(&bytes, &mut |name, value| {
            connection.count(name.len() + value.len() + FIELD_OVERHEAD)?;
            fields.push((name.into(), value.into()));
            Ok(())
        });
        decoded.map_err(|e| format!("its header fields cannot be decoded, {e}"))?;
        let [began, ended] = [start, self.at - 1].map(|at| self.stream.time_at(at));
        Ok(HeaderBlock { fields, began, ended })
    }
}

impl Http2Connection {
    fn count(&mut self, bytes: usize) -> Result<(), HpackError> {
        self.fields += bytes;
        if self.fields > MAX_FIELDS { Err(HpackError::TooMany) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    fn stream(frames: &[Vec<u8>]) -> TcpStream {
        TcpStream::from_parts(frames.concat(), vec![(0, 7)])
    }

    /// `GET / HTTP/2` with `x: 1`, added to the table.
    const REQUEST: &[u8] = &[0x82, 0x84, 0x40, 1, b'x', 1, b'1'];

    #[test]
    fn pushed_streams_padding_and_continuations_are_read() {
        let client =
            stream(&[PREFACE.to_vec(), frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, REQUEST)]);
        let promise = [&2_u32.to_be_bytes()[..], &[0x82, 0x84]].concat();
        let padded = flag::PADDED | flag::END_STREAM;
        let server = stream(&[
            frame(kind::PUSH_PROMISE, flag::END_HEADERS, 1, &promise),
            frame(kind::HEADERS, 0, 1, &[0x88, 0x40, 1]),
            frame(kind::CONTINUATION, flag::END_HEADERS, 1, &[b'y', 1, b'2']),
            frame(kind::HEADERS, flag::END_HEADERS, 2, &[0x88, 0xbe]),
            frame(kind::DATA, padded, 2, b"\x03pushed\0\0\0"),
            frame(kind::DATA, padded, 1, b"\0asked"),
        ]);
        let found = read(&client, &server);
        assert_eq!(found.problems, Vec::<String>::new());
        let responses: Vec<_> =
            found.streams.values().map(|s| (&s.response.body[..], s.response.is_complete)).collect();
        assert_eq!(responses, [(&b"asked"[..], true), (b"pushed", true)]);
        let pushed = &found.streams[&2];
        assert_eq!(pushed.request.blocks[0].pseudo(":method"), Some(&b"GET"[..]));
        // A field of the table that the first response made.
        assert_eq!(*pushed.response.blocks[0].fields[1].0, *b"y");
    }

    #[test]
    fn damaged_frames_end_a_side_with_the_reason() {
        let request = frame(kind::HEADERS, flag::END_HEADERS, 1, REQUEST);
        for (bad, reason) in [
            (frame(kind::HEADERS, flag::END_HEADERS, 3, &[0xff]), "cannot be decoded"),
            (frame(kind::HEADERS, 0, 3, &[0x82]), "a header block is cut"),
            ([frame(kind::HEADERS, 0, 3, &[0x82]), request.clone()].concat(), "not continued"),
            (vec![0, 0, 9, 0, 0], "the last frame is cut after 5 bytes"),
        ] {
            let client = stream(&[PREFACE.to_vec(), request.clone(), bad]);
            let found = read(&client, &stream(&[]));
            assert!(found.streams[&1].request.blocks.len() == 1, "{reason}");
            assert!(found.problems.len() == 1 && found.problems[0].contains(reason), "{:?}", found.problems);
        }
    }

    #[test]
    fn what_fields_expand_to_is_bounded() {
        // A field of 4,000 bytes, repeated a million times with one byte each.
        let long = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'v'; 4000]].concat();
        let repeats = frame(kind::HEADERS, flag::END_HEADERS, 3, &[0xbe; 1_000_000]);
        let client = stream(&[PREFACE.to_vec(), frame(kind::HEADERS, flag::END_HEADERS, 1, &long), repeats]);
        let found = read(&client, &stream(&[]));
        assert!(found.fields < MAX_FIELDS + 5000);
        assert!(found.problems[0].contains("too many header fields"), "{:?}", found.problems);
    }
}
