//! Takes a body out of the bytes behind its head (RFC 9112 6 and 7).

use bytes::{Buf, Bytes, BytesMut};
use interflow_flow::Headers;

use super::{Error, Framing, HeadLimits, Rule, head};

/// One step through a body.
#[derive(Debug)]
pub enum Decoded {
    /// More bytes are needed.
    NeedMore,
    /// Content, never empty: a part of the buffer, not a copy.
    Data(Bytes),
    /// The trailer section; `Done` comes next.
    Trailers(Headers),
    /// The body has ended; what is left in the buffer is not its own.
    Done,
}

/// A body on its way through the buffer.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
    limits: HeadLimits,
    response: bool,
    /// Bytes of chunk size lines beyond what the chunks' own sizes excuse.
    overhead: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Length(u64),
    UntilClose,
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    Done,
}

impl BodyDecoder {
    /// For the body of a request.
    pub fn new(framing: Framing, limits: &HeadLimits) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(n) => State::Length(n),
            Framing::Chunked => State::ChunkSize,
            Framing::UntilClose => State::UntilClose,
        };
        Self { state, limits: *limits, response: false, overhead: 0 }
    }

    /// For the body of a response: the same, but its errors blame the upstream.
    pub fn for_response(framing: Framing, limits: &HeadLimits) -> Self {
        Self { response: true, ..Self::new(framing, limits) }
    }

    /// Takes the next piece from the front of `buf`. Call it until it says `NeedMore` or `Done`.
    ///
    /// # Errors
    /// Chunks or trailers that break RFC 9112 7.1. The connection cannot be used any further then.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<Decoded, Error> {
        self.step(buf).map_err(|rule| self.error(rule))
    }

    /// How many bytes of content are still to come, when a Content-Length tells.
    pub const fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(n) => Some(n),
            State::Done => Some(0),
            _ => None,
        }
    }

    /// The peer has closed. After `Ok` the body is done.
    ///
    /// # Errors
    /// [`Rule::Incomplete`] unless the body had ended or ends by the close.
    pub fn eof(&mut self) -> Result<(), Error> {
        match self.state {
            State::Done | State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            _ => Err(self.error(Rule::Incomplete)),
        }
    }

    /// Whether the rest of the body stands in these bytes, with nothing behind it or something; `None` when it does not.
    pub fn ends_in(&self, bytes: &[u8]) -> Option<usize> {
        if let State::Length(left) = self.state {
            return bytes.len().checked_sub(usize::try_from(left).ok()?);
        }
        let (mut decoder, mut rest) = (self.clone(), BytesMut::from(bytes));
        loop {
            match decoder.decode(&mut rest).ok()? {
                Decoded::Done => return Some(rest.len()),
                Decoded::NeedMore => return None,
                Decoded::Data(_) | Decoded::Trailers(_) => {}
            }
        }
    }

    /// Whether the body has ended.
    pub const fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    const fn error(&self, rule: Rule) -> Error {
        if self.response { Error::response(rule) } else { Error::request(rule) }
    }

    fn step(&mut self, buf: &mut BytesMut) -> Result<Decoded, Rule> {
        loop {
            match self.state {
                State::Done => return Ok(Decoded::Done),
                _ if buf.is_empty() => return Ok(Decoded::NeedMore),
                State::UntilClose => return Ok(Decoded::Data(buf.split().freeze())),
                State::Length(left) => {
                    let (data, left) = take(buf, left);
                    self.state = if left == 0 { State::Done } else { State::Length(left) };
                    return Ok(Decoded::Data(data));
                }
                State::ChunkData(left) => {
                    let (data, left) = take(buf, left);
                    self.state = if left == 0 { State::ChunkEnd } else { State::ChunkData(left) };
                    return Ok(Decoded::Data(data));
                }
                State::ChunkEnd => match buf.as_ref() {
                    [b'\r', b'\n', ..] => {
                        buf.advance(2);
                        self.state = State::ChunkSize;
                    }
                    [b'\r'] => return Ok(Decoded::NeedMore),
                    _ => return Err(Rule::ChunkEnd),
                },
                State::ChunkSize => {
                    let Some((size, line)) = chunk_size(buf, self.limits.max_line)? else {
                        return Ok(Decoded::NeedMore);
                    };
                    buf.advance(line);
                    self.count_overhead(size, line)?;
                    self.state = if size == 0 { State::Trailers } else { State::ChunkData(size) };
                }
                State::Trailers => return self.trailers(buf),
            }
        }
    }

    /// Long extensions on tiny chunks make a peer pay far more than it is told; a signature per large chunk is fine.
    fn count_overhead(&mut self, size: u64, line: usize) -> Result<(), Rule> {
        const FREE: u64 = 16;
        let excused = size.saturating_mul(2).saturating_add(FREE);
        self.overhead = (self.overhead + line as u64).saturating_sub(excused);
        if self.overhead > self.limits.max_bytes as u64 { Err(Rule::ChunkOverhead) } else { Ok(()) }
    }

    fn trailers(&mut self, buf: &mut BytesMut) -> Result<Decoded, Rule> {
        let Some(extent) = head::section_extent(buf, &self.limits)? else { return Ok(Decoded::NeedMore) };
        let section = buf.split_to(extent.len);
        self.state = State::Done;
        if extent.lines == 1 {
            return Ok(Decoded::Done);
        }
        let mut trailers = head::parse_section(&section, &extent, &self.limits)?;
        if trailers.iter().any(|(name, _)| is(name, &FRAMING)) {
            return Err(Rule::Trailer);
        }
        trailers.retain(|name, _| !is(name, &NEVER_TRAILERS));
        Ok(if trailers.is_empty() { Decoded::Done } else { Decoded::Trailers(trailers) })
    }
}

/// Fields that frame or route a message: nobody sends them as trailers in good faith.
const FRAMING: [&str; 3] = ["content-length", "transfer-encoding", "host"];

/// Further fields that RFC 9110 6.5.1 keeps out of trailers; they are dropped.
const NEVER_TRAILERS: [&str; 20] = [
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "keep-alive",
    "location",
    "max-forwards",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "set-cookie",
    "te",
    "trailer",
    "upgrade",
    "www-authenticate",
];

fn is(name: &[u8], any_of: &[&str]) -> bool {
    any_of.iter().any(|n| name.eq_ignore_ascii_case(n.as_bytes()))
}

/// Splits off at most `left` bytes; also says how many are left then.
fn take(buf: &mut BytesMut, left: u64) -> (Bytes, u64) {
    let n = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
    (buf.split_to(n).freeze(), left - n as u64)
}

/// The size in a chunk's first line, and the length of that line; `None` when it is not all there.
///
/// Sixteen digits hold every size; more of them, even zeros, are refused, as is every byte that is not a digit, an
/// extension, or the white space that some origins pad with.
fn chunk_size(buf: &[u8], max_line: usize) -> Result<Option<(u64, usize)>, Rule> {
    let within = buf.get(..max_line).unwrap_or(buf);
    let digits = within.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    if digits > 16 || (digits == 0 && !within.is_empty()) {
        return Err(Rule::ChunkSize);
    }
    let Some(lf) = memchr::memchr(b'\n', within) else {
        return if buf.len() >= max_line { Err(Rule::ChunkOverhead) } else { Ok(None) };
    };
    let line = within.get(..lf).and_then(|l| l.strip_suffix(b"\r")).ok_or(Rule::ChunkSize)?;
    let (hex, rest) = line.split_at_checked(digits).ok_or(Rule::ChunkSize)?;
    let padding = rest.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    if !is_extension(rest.get(padding..).unwrap_or_default()) {
        return Err(Rule::ChunkSize);
    }
    let size = hex.iter().fold(0u64, |n, &d| (n << 4) | u64::from((d as char).to_digit(16).unwrap_or(0)));
    if size > i64::MAX as u64 { Err(Rule::ChunkSize) } else { Ok(Some((size, lf + 1))) }
}

/// Nothing, or `;` and text without control bytes (RFC 9112 7.1.1). Extensions are not handed on.
fn is_extension(rest: &[u8]) -> bool {
    rest.is_empty() || (rest.starts_with(b";") && rest.iter().all(|&b| b == b'\t' || (b >= b' ' && b != 0x7f)))
}
