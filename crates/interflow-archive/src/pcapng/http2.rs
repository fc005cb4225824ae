//! HTTP/2 on a connection (RFC 9113): one stream per flow, header fields as literals without indexing (RFC 7541 6.2.2).

use std::io::{self, Read, Write};

use interflow_codec::http2_frame::{PREFACE, flag, kind};
use interflow_types::{Direction, Headers};

use super::connection::{MessageTiming, PacketConnection};
use super::sides::FlowSide;
use crate::frames;
use interflow_store::FlowKind;

/// Payload of one frame, in bytes (RFC 9113 4.2).
const MAX_FRAME: usize = 16_384;

/// The preface and the settings of both endpoints, each acknowledged (RFC 9113 section 3.4).
pub(super) fn write_preface(connection: &mut PacketConnection, out: &mut dyn Write) -> io::Result<()> {
    let [settings, ack] = [0, flag::ACK].map(|flags| frame(kind::SETTINGS, flags, 0, b""));
    connection.send(out, Direction::Request, &[PREFACE, &settings[..]].concat())?;
    connection.send(out, Direction::Response, &[&settings[..], &ack].concat())?;
    connection.send(out, Direction::Request, &ack)
}

/// A request and its response, on the next stream.
pub(super) fn exchange(connection: &mut PacketConnection, out: &mut dyn Write, flow: &FlowSide<'_>) -> io::Result<()> {
    let row = flow.row;
    let stream = connection.stream;
    connection.stream += 2;
    // Stream numbers have 31 bits.
    connection.over = connection.stream > 0x7fff_fff0;
    let Some(request) = &row.request else { return Ok(()) };
    let socket = row.kind == FlowKind::WebSocket;
    let authority = row.authority.to_host_header(row.scheme);
    let mut pseudo = vec![(":method", request.method.as_str())];
    if socket {
        // A WebSocket over HTTP/2 is an extended CONNECT (RFC 8441).
        pseudo = vec![(":method", "CONNECT"), (":protocol", "websocket")];
    }
    pseudo.extend([(":scheme", row.scheme.as_str()), (":authority", &authority), (":path", &request.path)]);
    let head = fields(&pseudo, &request.headers);
    let side = StreamSide { stream, direction: Direction::Request, trailers: &request.trailers, open: socket };
    side.write(connection, out, flow, &head)?;
    for interim in &row.interim {
        let head = fields(&[(":status", &interim.status.to_string())], &interim.headers);
        connection.send(out, Direction::Response, &headers(stream, &head, false))?;
    }
    let Some(response) = &row.response else { return Ok(()) };
    let status = if socket && response.status == 101 { 200 } else { response.status };
    let head = fields(&[(":status", &status.to_string())], &response.headers);
    let side = StreamSide { stream, direction: Direction::Response, trailers: &response.trailers, open: socket };
    side.write(connection, out, flow, &head)?;
    if socket { messages(connection, out, flow, stream) } else { Ok(()) }
}

struct StreamSide<'a> {
    stream: u32,
    direction: Direction,
    trailers: &'a Headers,
    /// Whether messages follow.
    open: bool,
}

impl StreamSide<'_> {
    fn write(
        &self,
        connection: &mut PacketConnection,
        out: &mut dyn Write,
        flow: &FlowSide<'_>,
        head: &[u8],
    ) -> io::Result<()> {
        let size = flow.row.body(self.direction).map_or(0, |b| b.kept);
        let trailers = !self.trailers.is_empty();
        let mut pipe = connection.packet_sink(out, self.direction, MessageTiming::from_row(flow.row, self.direction));
        // END_STREAM is set on whatever comes last: the head, the body or the trailers.
        pipe.write_all(&headers(self.stream, head, size == 0 && !trailers && !self.open))?;
        let mut body = flow.contents.body(flow.row, self.direction)?;
        let mut remaining = size;
        while remaining > 0 {
            let mut data = Vec::new();
            let read = body.by_ref().take(remaining.min(MAX_FRAME as u64)).read_to_end(&mut data)? as u64;
            // A body may be shorter than its row says if its stored bytes are damaged.
            remaining = if read == 0 { 0 } else { remaining - read };
            let end = remaining == 0 && !trailers && !self.open;
            pipe.write_all(&frame(kind::DATA, if end { flag::END_STREAM } else { 0 }, self.stream, &data))?;
        }
        if trailers {
            pipe.write_all(&headers(self.stream, &fields(&[], self.trailers), true))?;
        }
        pipe.flush()
    }
}

/// WebSocket frames within a stream (RFC 8441).
fn messages(
    connection: &mut PacketConnection,
    out: &mut dyn Write,
    flow: &FlowSide<'_>,
    stream: u32,
) -> io::Result<()> {
    for message in flow.contents.messages(flow.row)? {
        let message = message?;
        connection.at = message.at.micros();
        let Some(payload) = frames::encode(&message) else { continue };
        for piece in payload.chunks(MAX_FRAME) {
            connection.send(out, message.direction, &frame(kind::DATA, 0, stream, piece))?;
        }
    }
    Ok(())
}

/// A HEADERS frame, with CONTINUATION frames if needed.
fn headers(stream: u32, block: &[u8], end_stream: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut pieces = block.chunks(MAX_FRAME).peekable();
    let mut kind = kind::HEADERS;
    let mut flags = if end_stream { flag::END_STREAM } else { 0 };
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            flags |= flag::END_HEADERS;
        }
        out.extend(frame(kind, flags, stream, piece));
        // END_STREAM belongs to the HEADERS frame only.
        (kind, flags) = (kind::CONTINUATION, 0);
    }
    out
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    // The length has 24 bits.
    let length = &(payload.len() as u32).to_be_bytes()[1..];
    [length, &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Pseudo-header fields, followed by the others. Fields not allowed in HTTP/2 are omitted (RFC 9113 8.2.2); `Host` becomes `:authority`.
fn fields(pseudo: &[(&str, &str)], headers: &Headers) -> Vec<u8> {
    const CONNECTION_HEADERS: [&str; 7] =
        ["connection", "host", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "http2-settings"];
    let mut out = Vec::new();
    for (name, value) in pseudo {
        literal(&mut out, name.as_bytes(), value.as_bytes());
    }
    for (name, value) in headers {
        // Names are lower case in HTTP/2 (RFC 9113 section 8.2.1).
        let name = name.to_ascii_lowercase();
        if !CONNECTION_HEADERS.iter().any(|n| n.as_bytes() == name) {
            literal(&mut out, &name, value);
        }
    }
    out
}

fn literal(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    // Literal without indexing, with a literal name and no Huffman coding.
    out.push(0);
    string(out, name);
    string(out, value);
}

/// A length as prefixed integer with a 7-bit prefix (RFC 7541 5.1), followed by the bytes.
fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = bytes.len();
    if len < 127 {
        out.push(len as u8);
    } else {
        out.push(127);
        let mut rest = len - 127;
        while rest >= 128 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hpack_string_lengths_follow_rfc_7541() {
        let packed = |len: usize| {
            let mut out = Vec::new();
            string(&mut out, &vec![b'x'; len]);
            out.truncate(out.len() - len);
            out
        };
        assert_eq!((packed(0), packed(126), packed(127)), (vec![0], vec![126], vec![127, 0]));
        assert_eq!((packed(254), packed(255)), (vec![127, 127], vec![127, 0x80, 1]));
    }

    #[test]
    fn long_header_block_uses_continuation_frames() {
        let out = headers(1, &vec![0; MAX_FRAME + 1], true);
        assert_eq!((out[3], out[4]), (kind::HEADERS, flag::END_STREAM));
        let second = 9 + MAX_FRAME;
        assert_eq!((out[second + 3], out[second + 4]), (kind::CONTINUATION, flag::END_HEADERS));
    }
}
