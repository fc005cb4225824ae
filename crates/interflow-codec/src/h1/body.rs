//! Decodes message bodies from the bytes after their head (RFC 9112 6 and 7).

use bytes::{Buf, Bytes, BytesMut};
use interflow_types::Headers;

use super::{BodyFraming, H1Error, HeadLimits, Violation, head};

#[derive(Debug)]
pub enum DecodeStep {
    NeedMore,
    /// Content, never empty; shares the buffer's memory.
    Data(Bytes),
    Trailers(Headers),
    /// The body has ended; what is left in the buffer belongs to the next message.
    Done,
}

/// Decodes one body incrementally. It owns no bytes: the caller reads into one buffer, and what the decoder leaves
/// there after [`DecodeStep::Done`] belongs to the next message.
///
/// ```
/// use bytes::BytesMut;
/// use interflow_codec::h1::{BodyDecoder, BodyFraming, DecodeStep, HeadLimits};
///
/// let mut decoder = BodyDecoder::new(BodyFraming::Chunked, &HeadLimits::default());
/// let mut buf = BytesMut::from(&b"5\r\nhello\r\n0\r\n\r\nGET / HT"[..]);
/// assert!(matches!(decoder.decode(&mut buf), Ok(DecodeStep::Data(data)) if data == "hello"));
/// assert!(matches!(decoder.decode(&mut buf), Ok(DecodeStep::Done)));
/// assert_eq!(&buf[..], b"GET / HT");
/// ```
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: BodyDecodeState,
    limits: HeadLimits,
    response: bool,
    /// Bytes of chunk-size lines in excess of what the chunk sizes justify.
    overhead: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyDecodeState {
    Length(u64),
    UntilClose,
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    Done,
}

impl BodyDecoder {
    /// A decoder for the body of a request.
    pub fn new(framing: BodyFraming, limits: &HeadLimits) -> Self {
        let state = match framing {
            BodyFraming::None | BodyFraming::Length(0) => BodyDecodeState::Done,
            BodyFraming::Length(n) => BodyDecodeState::Length(n),
            BodyFraming::Chunked => BodyDecodeState::ChunkSize,
            BodyFraming::UntilClose => BodyDecodeState::UntilClose,
        };
        Self { state, limits: *limits, response: false, overhead: 0 }
    }

    /// A decoder for the body of a response: its errors are attributed to the upstream.
    pub fn for_response(framing: BodyFraming, limits: &HeadLimits) -> Self {
        Self { response: true, ..Self::new(framing, limits) }
    }

    /// Decodes the next part from the front of `buf`. Call it until it returns `NeedMore` or `Done`.
    ///
    /// # Errors
    /// Chunks or trailers that violate RFC 9112 7.1. The connection cannot be reused then.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<DecodeStep, H1Error> {
        self.step(buf).map_err(|rule| self.error(rule))
    }

    /// The number of content bytes still to come, if known from Content-Length.
    pub const fn remaining(&self) -> Option<u64> {
        match self.state {
            BodyDecodeState::Length(n) => Some(n),
            BodyDecodeState::Done => Some(0),
            _ => None,
        }
    }

    /// The peer has closed its side. On `Ok` the body is complete.
    ///
    /// # Errors
    /// [`Violation::Incomplete`] unless the body had ended or is delimited by the close.
    pub fn eof(&mut self) -> Result<(), H1Error> {
        match self.state {
            BodyDecodeState::Done | BodyDecodeState::UntilClose => {
                self.state = BodyDecodeState::Done;
                Ok(())
            }
            _ => Err(self.error(Violation::Incomplete)),
        }
    }

    /// How many of these bytes follow the body, if they contain the rest of it; `None` otherwise. Decodes a copy if the
    /// body is chunked, so it is meant for occasional use.
    pub fn complete_len(&self, bytes: &[u8]) -> Option<usize> {
        // Of a body with a length, nothing has to be decoded.
        if let BodyDecodeState::Length(left) = self.state {
            return bytes.len().checked_sub(usize::try_from(left).ok()?);
        }
        // On a copy, because decoding changes the state and the buffer.
        let (mut decoder, mut rest) = (self.clone(), BytesMut::from(bytes));
        loop {
            match decoder.decode(&mut rest).ok()? {
                DecodeStep::Done => return Some(rest.len()),
                DecodeStep::NeedMore => return None,
                DecodeStep::Data(_) | DecodeStep::Trailers(_) => {}
            }
        }
    }

    pub const fn is_done(&self) -> bool {
        matches!(self.state, BodyDecodeState::Done)
    }

    const fn error(&self, rule: Violation) -> H1Error {
        if self.response { H1Error::response(rule) } else { H1Error::request(rule) }
    }

    fn step(&mut self, buf: &mut BytesMut) -> Result<DecodeStep, Violation> {
        loop {
            match self.state {
                BodyDecodeState::Done => return Ok(DecodeStep::Done),
                // Before the other states, so that none of them returns empty data.
                _ if buf.is_empty() => return Ok(DecodeStep::NeedMore),
                BodyDecodeState::UntilClose => return Ok(DecodeStep::Data(buf.split().freeze())),
                BodyDecodeState::Length(left) => {
                    let (data, left) = take(buf, left);
                    self.state = if left == 0 { BodyDecodeState::Done } else { BodyDecodeState::Length(left) };
                    return Ok(DecodeStep::Data(data));
                }
                BodyDecodeState::ChunkData(left) => {
                    let (data, left) = take(buf, left);
                    self.state = if left == 0 { BodyDecodeState::ChunkEnd } else { BodyDecodeState::ChunkData(left) };
                    return Ok(DecodeStep::Data(data));
                }
                // Exactly CRLF: a parser that skips other bytes here would see chunks that others do not.
                BodyDecodeState::ChunkEnd => match buf.as_ref() {
                    [b'\r', b'\n', ..] => {
                        buf.advance(2);
                        self.state = BodyDecodeState::ChunkSize;
                    }
                    // Half of the line end has arrived.
                    [b'\r'] => return Ok(DecodeStep::NeedMore),
                    _ => return Err(Violation::ChunkEnd),
                },
                BodyDecodeState::ChunkSize => {
                    let Some((size, line)) = chunk_size(buf, self.limits.max_line)? else {
                        return Ok(DecodeStep::NeedMore);
                    };
                    buf.advance(line);
                    self.count_overhead(size, line)?;
                    self.state = if size == 0 { BodyDecodeState::Trailers } else { BodyDecodeState::ChunkData(size) };
                }
                BodyDecodeState::Trailers => return self.trailers(buf),
            }
        }
    }

    /// Limits long extensions on tiny chunks, which cost far more than they carry; a signature per large chunk is
    /// fine.
    fn count_overhead(&mut self, size: u64, line: usize) -> Result<(), Violation> {
        const FREE: u64 = 16;
        let excused = size.saturating_mul(2).saturating_add(FREE);
        self.overhead = (self.overhead + line as u64).saturating_sub(excused);
        if self.overhead > self.limits.max_bytes as u64 { Err(Violation::ChunkOverhead) } else { Ok(()) }
    }

    fn trailers(&mut self, buf: &mut BytesMut) -> Result<DecodeStep, Violation> {
        let Some(extent) = head::find_section_end(buf, &self.limits)? else { return Ok(DecodeStep::NeedMore) };
        let section = buf.split_to(extent.len);
        self.state = BodyDecodeState::Done;
        // Only the empty line: no trailers.
        if extent.lines == 1 {
            return Ok(DecodeStep::Done);
        }
        let mut trailers = head::parse_section(&section, &extent, &self.limits)?;
        // Refused rather than dropped: no honest sender puts these into trailers.
        if trailers.iter().any(|(name, _)| is_one_of(name, FRAMING_FIELDS)) {
            return Err(Violation::Trailer);
        }
        trailers.retain(|name, _| !is_one_of(name, FORBIDDEN_TRAILERS));
        Ok(if trailers.is_empty() { DecodeStep::Done } else { DecodeStep::Trailers(trailers) })
    }
}

/// Fields that frame or route a message: their presence in trailers indicates an attack, so the message is refused.
const FRAMING_FIELDS: &str = "content-length transfer-encoding host";

/// Other fields that RFC 9110 6.5.1 forbids in trailers; they are dropped.
const FORBIDDEN_TRAILERS: &str = "authorization cache-control connection content-encoding content-range content-type \
    cookie expect keep-alive location max-forwards proxy-authenticate proxy-authorization proxy-connection range \
    set-cookie te trailer upgrade www-authenticate";

/// Whether a field must not be in trailers: it would frame, route or authenticate the message on the next hop.
pub fn is_forbidden_trailer(name: &[u8]) -> bool {
    is_one_of(name, FRAMING_FIELDS) || is_one_of(name, FORBIDDEN_TRAILERS)
}

fn is_one_of(name: &[u8], names: &str) -> bool {
    names.split(' ').any(|n| name.eq_ignore_ascii_case(n.as_bytes()))
}

/// Splits off at most `left` bytes; also returns how many are still left.
fn take(buf: &mut BytesMut, left: u64) -> (Bytes, u64) {
    // A length beyond the address space is simply more than the buffer has.
    let n = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
    (buf.split_to(n).freeze(), left - n as u64)
}

/// The size in a chunk's first line, and the length of that line; `None` if it is incomplete.
///
/// Sixteen digits suffice for every size; more, even leading zeros, are refused. So is every byte other than a digit,
/// an extension, or the whitespace padding of some origins.
fn chunk_size(buf: &[u8], max_line: usize) -> Result<Option<(u64, usize)>, Violation> {
    // A longer line is refused without searching all of it.
    let within = buf.get(..max_line).unwrap_or(buf);
    let digits = within.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    // Known without the end of the line, so garbage is refused at once.
    if digits > 16 || (digits == 0 && !within.is_empty()) {
        return Err(Violation::ChunkSize);
    }
    let Some(lf) = memchr::memchr(b'\n', within) else {
        return if buf.len() >= max_line { Err(Violation::ChunkOverhead) } else { Ok(None) };
    };
    // A bare LF is refused, see `Violation::BareLf`.
    let line = within.get(..lf).and_then(|l| l.strip_suffix(b"\r")).ok_or(Violation::ChunkSize)?;
    let (hex, rest) = line.split_at_checked(digits).ok_or(Violation::ChunkSize)?;
    let padding = rest.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    if !is_extension(rest.get(padding..).unwrap_or_default()) {
        return Err(Violation::ChunkSize);
    }
    // At most sixteen digits, so the shifts cannot lose bits.
    let size = hex.iter().fold(0u64, |n, &d| (n << 4) | u64::from((d as char).to_digit(16).unwrap_or(0)));
    // Lengths are signed in many languages; no real chunk comes near.
    if size > i64::MAX as u64 { Err(Violation::ChunkSize) } else { Ok(Some((size, lf + 1))) }
}

/// Nothing, or `;` and text without control bytes (RFC 9112 7.1.1). Extensions are not forwarded.
fn is_extension(rest: &[u8]) -> bool {
    rest.is_empty() || (rest.starts_with(b";") && rest.iter().all(|&b| b == b'\t' || (b >= b' ' && b != 0x7f)))
}
