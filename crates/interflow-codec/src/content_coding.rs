//! Decoding of content codings (RFC 9110 8.4): gzip, deflate, br and zstd, also stacked. The only decoder in the
//! workspace, with one set of bounds, as a stream, for whole bodies, and as a reader.

use std::io::{self, Read, Write};
use std::sync::LazyLock;

use bytes::Bytes;
use flate2::write::GzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use interflow_types::budget::PROCESS_BUDGET;
use interflow_types::{Error, Headers};
use tokio::sync::Semaphore;
use zstd::stream::raw::{DParameter, InBuffer, Operation, OutBuffer};

/// The most codings on one body; no legitimate message has more.
pub const MAX_CODINGS: usize = 4;

/// The largest window that a zstd body may require, as a power of two: 8 MiB (RFC 9659 2.1).
const MAX_ZSTD_WINDOW: u32 = 23;

/// A body may expand to this many times its size, plus [`FREE_GROWTH`]. Text expands 3- to 20-fold, logs and tables
/// up to a hundredfold; a decompression bomb reaches a thousandfold with gzip, and far more with brotli and zstd.
const MAX_RATIO: u64 = 200;

/// The size to which any body may expand, whatever its own size: 4 MiB.
const FREE_GROWTH: u64 = 4 << 20;

/// How many bytes are decoded per step, which bounds the output of a layer before its size is checked.
const DECODE_STEP: usize = 16 << 10;

/// A buffered body up to this size is decoded on the calling thread; a larger one on a blocking thread.
const MAX_INLINE_SIZE: usize = 4 << 10;

/// A supported content coding (RFC 9110 8.4.1, RFC 7932, RFC 8878).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    Gzip,
    /// `deflate`: the zlib format by the standard, but raw deflate from many senders.
    Deflate,
    Brotli,
    Zstd,
}

impl ContentCoding {
    fn parse(token: &[u8]) -> Option<Self> {
        Some(match token.to_ascii_lowercase().as_slice() {
            // `x-gzip` is an alias that recipients should treat as gzip (RFC 9110 8.4.1.3).
            b"gzip" | b"x-gzip" => Self::Gzip,
            b"deflate" => Self::Deflate,
            b"br" => Self::Brotli,
            b"zstd" => Self::Zstd,
            _ => return None,
        })
    }
}

/// Whether the head has a content coding, supported or not.
pub fn has_content_coding(headers: &Headers) -> bool {
    headers.list_items("content-encoding").any(|t| !t.eq_ignore_ascii_case(b"identity"))
}

/// The codings of a head, in the order in which they were applied.
///
/// # Errors
/// An unsupported coding, or more than [`MAX_CODINGS`].
pub fn parse_codings(headers: &Headers) -> io::Result<Vec<ContentCoding>> {
    let mut codings = Vec::new();
    for token in headers.list_items("content-encoding").filter(|t| !t.eq_ignore_ascii_case(b"identity")) {
        if codings.len() == MAX_CODINGS {
            return Err(invalid_data("the body has more than four content codings"));
        }
        codings.push(ContentCoding::parse(token).ok_or_else(|| {
            let name = String::from_utf8_lossy(token).to_ascii_lowercase();
            io::Error::new(io::ErrorKind::Unsupported, format!("unknown content coding {name}"))
        })?);
    }
    Ok(codings)
}

/// Decodes all codings of one body incrementally.
pub struct ContentDecoder {
    /// The coding that was applied last is decoded first.
    layers: Vec<DecodeLayer>,
    max: u64,
    taken: u64,
    trailing: TrailingData,
}

/// What becomes of bytes after the end of the coded data.
#[derive(Clone, Copy, Default)]
struct TrailingData {
    /// They are dropped, as browsers do. Otherwise they are an error: bytes that no recipient decodes could hide content
    /// from inspection.
    ignore: bool,
    /// Some were dropped.
    ignored: bool,
}

impl TrailingData {
    fn drop_rest(&mut self) -> io::Result<()> {
        self.ignored = true;
        if self.ignore { Ok(()) } else { Err(invalid_data("the body continues after the end of its coding")) }
    }
}

impl ContentDecoder {
    /// A decoder for the body of this head that returns at most `max` bytes in total; `None` if the body has no
    /// coding.
    ///
    /// # Errors
    /// An unsupported coding, or more than [`MAX_CODINGS`].
    pub fn new(headers: &Headers, max: u64) -> io::Result<Option<Self>> {
        if !has_content_coding(headers) {
            return Ok(None);
        }
        let layers: io::Result<Vec<_>> = parse_codings(headers)?.into_iter().rev().map(DecodeLayer::new).collect();
        Ok(Some(Self { layers: layers?, max, taken: 0, trailing: TrailingData::default() }))
    }

    /// Sets another bound of the output in total.
    pub const fn set_max(&mut self, max: u64) {
        self.max = max;
    }

    /// Drops what follows the end of the coded data, such as padding, instead of failing.
    pub fn ignoring_trailing_data(mut self) -> Self {
        self.trailing.ignore = true;
        self
    }

    /// Whether something followed the end of the coded data.
    pub fn has_trailing_data(&self) -> bool {
        self.trailing.ignored
    }

    /// Decodes the next bytes of the body.
    ///
    /// # Errors
    /// As [`push_into`](Self::push_into).
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        self.push_into(bytes, &mut out).map(|()| out)
    }

    /// Decodes the next bytes of the body and appends the output, up to the point of failure.
    ///
    /// # Errors
    /// Invalid data, bytes after the end of the coded data, or output over the bound.
    pub fn push_into(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        // In steps, because the ratio is checked against what was read so far: a bomb is detected after its first 16
        // KiB.
        bytes.chunks(DECODE_STEP).try_for_each(|step| {
            self.taken += step.len() as u64;
            // Both bounds apply: the caller's and the ratio, which catches bombs long before a large `max`.
            let most = self.max.min(self.taken.saturating_mul(MAX_RATIO).saturating_add(FREE_GROWTH));
            run_layers(&mut self.layers, step, most, &mut self.trailing, out)
        })
    }

    /// Ends the body and returns the remaining output.
    ///
    /// # Errors
    /// As [`finish_into`](Self::finish_into).
    pub fn finish(&mut self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        self.finish_into(&mut out).map(|()| out)
    }

    /// Ends the body and appends the remaining output. A body of no bytes is valid.
    ///
    /// # Errors
    /// A truncated body.
    pub fn finish_into(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if self.taken == 0 {
            return Ok(());
        }
        let most = self.max.min(self.taken.saturating_mul(MAX_RATIO).saturating_add(FREE_GROWTH));
        // From the outermost coding inwards: what one layer still holds is input for the next.
        for i in 0..self.layers.len() {
            let rest = self.layers[i].finish(most)?;
            match self.layers.get_mut(i + 1..) {
                Some([]) | None => out.extend(rest),
                Some(above) => run_layers(above, &rest, most, &mut self.trailing, out)?,
            }
        }
        Ok(())
    }
}

/// Passes bytes through the layers. The output of the last layer before a failure is kept.
fn run_layers(
    layers: &mut [DecodeLayer],
    bytes: &[u8],
    most: u64,
    trailing: &mut TrailingData,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let Some((layer, above)) = layers.split_first_mut() else {
        out.extend_from_slice(bytes);
        return Ok(());
    };
    // The result is inspected only after the output was passed on, so that what preceded the failure is not lost.
    let done = layer.push(bytes, most, trailing);
    let decoded = layer.take();
    // In steps here too, because the output of a layer may be large.
    decoded.chunks(DECODE_STEP).try_for_each(|step| run_layers(above, step, most, trailing, out))?;
    done
}

/// The output buffer of a decoder, with its bound.
#[derive(Default)]
struct BoundedSink {
    bytes: Vec<u8>,
    given: u64,
    most: u64,
}

impl BoundedSink {
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        let total = self.given + bytes.len() as u64;
        if total > self.most {
            // What fits is kept, so that callers can show the beginning.
            let allowed = usize::try_from(self.most.saturating_sub(self.given)).unwrap_or(usize::MAX);
            self.bytes.extend_from_slice(bytes.get(..allowed).unwrap_or(bytes));
            self.given = self.most;
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the decoded body exceeds its size limit"));
        }
        self.given = total;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

impl Write for BoundedSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum DecodeLayer {
    Gzip(Box<GzipLayer>),
    /// The first two bytes decide between zlib and raw deflate.
    Deflate(BoundedSink, Vec<u8>),
    Inflate(Box<InflateLayer>),
    /// Whether its end was seen.
    Brotli(Box<brotli::DecompressorWriter<BoundedSink>>, bool),
    Zstd(Box<ZstdLayer>),
}

impl DecodeLayer {
    fn new(coding: ContentCoding) -> io::Result<Self> {
        let sink = BoundedSink::default();
        Ok(match coding {
            ContentCoding::Gzip => {
                Self::Gzip(Box::new(GzipLayer { member: GzDecoder::new(sink), next: None, ended: false }))
            }
            ContentCoding::Deflate => Self::Deflate(sink, Vec::new()),
            ContentCoding::Brotli => Self::Brotli(Box::new(brotli::DecompressorWriter::new(sink, 4096)), false),
            ContentCoding::Zstd => Self::Zstd(Box::new(ZstdLayer::new(sink)?)),
        })
    }

    fn sink(&mut self) -> &mut BoundedSink {
        match self {
            Self::Gzip(g) => g.member.get_mut(),
            Self::Deflate(sink, _) => sink,
            Self::Inflate(i) => &mut i.sink,
            Self::Brotli(w, _) => w.get_mut(),
            Self::Zstd(z) => &mut z.sink,
        }
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.sink().bytes)
    }

    fn push(&mut self, bytes: &[u8], most: u64, trailing: &mut TrailingData) -> io::Result<()> {
        if let Self::Deflate(sink, first) = self {
            first.extend_from_slice(bytes);
            // Too few bytes to decide; they are kept.
            let [method, check, ..] = first.as_slice() else { return Ok(()) };
            // RFC 1950 2.2: the method, and a checksum over both bytes.
            let zlib = method & 15 == 8 && (u16::from(*method) << 8 | u16::from(*check)) % 31 == 0;
            // The kept bytes are replayed into the decoder that was chosen.
            let (sink, first) = (std::mem::take(sink), std::mem::take(first));
            *self = Self::Inflate(Box::new(InflateLayer { sink, inner: Decompress::new(zlib), ended: false }));
            return self.push(&first, most, trailing);
        }
        self.sink().most = most;
        match self {
            Self::Gzip(g) => g.push(bytes, trailing),
            Self::Brotli(w, ended) => {
                let mut rest = bytes;
                while !rest.is_empty() && !*ended {
                    let n = w.write(rest)?;
                    // The writer takes nothing behind the end of the coded data.
                    *ended = n < rest.len();
                    rest = rest.get(n..).unwrap_or_default();
                }
                w.flush()?;
                if rest.is_empty() { Ok(()) } else { trailing.drop_rest() }
            }
            Self::Inflate(i) => i.push(bytes, trailing),
            Self::Zstd(z) => z.push(bytes, trailing),
            Self::Deflate(..) => Ok(()),
        }
    }

    fn finish(&mut self, most: u64) -> io::Result<Vec<u8>> {
        // The rest of the output is subject to the same bound.
        self.sink().most = most;
        match self {
            Self::Gzip(g) => g.member.try_finish()?,
            Self::Brotli(w, _) => w.close()?,
            // The end of the coded data was seen.
            Self::Inflate(i) if i.ended => {}
            Self::Zstd(z) if z.complete => {}
            Self::Deflate(..) | Self::Inflate(_) | Self::Zstd(_) => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the body is truncated"));
            }
        }
        Ok(self.take())
    }
}

/// Members of gzip (RFC 1952 2.2), one after the other.
struct GzipLayer {
    member: GzDecoder<BoundedSink>,
    /// After the end of a member, what may begin another one.
    next: Option<Vec<u8>>,
    /// What follows the last member is not a member.
    ended: bool,
}

impl GzipLayer {
    fn push(&mut self, bytes: &[u8], trailing: &mut TrailingData) -> io::Result<()> {
        if self.ended && !bytes.is_empty() {
            return trailing.drop_rest();
        }
        let joined;
        let mut rest = bytes;
        if let Some(mut next) = self.next.take() {
            next.extend_from_slice(rest);
            joined = next;
            rest = &joined;
            if self.is_between(&mut rest, trailing)? {
                return Ok(());
            }
        }
        while !rest.is_empty() {
            let n = self.member.write(rest)?;
            rest = rest.get(n..).unwrap_or_default();
            // The decoder takes nothing behind the end of a member.
            if n == 0 && self.is_between(&mut rest, trailing)? {
                return Ok(());
            }
        }
        // Flushed after each step: a stream must not be held back by a decoder that waits for a full buffer.
        self.member.flush()
    }

    /// Whether these bytes, after the end of a member, are all that there is for now; otherwise a member begins.
    fn is_between(&mut self, rest: &mut &[u8], trailing: &mut TrailingData) -> io::Result<bool> {
        // Checks the length and the checksum.
        self.member.try_finish()?;
        if trailing.ignore {
            // Some recipients look for a member behind padding, so what it contains is decoded.
            let padding = rest.iter().position(|b| *b != 0).unwrap_or(rest.len());
            trailing.ignored |= padding > 0;
            *rest = rest.get(padding..).unwrap_or_default();
            match **rest {
                [0x1f, 0x8b, ..] => {}
                [] | [0x1f] => {
                    self.next = Some(rest.to_vec());
                    return Ok(true);
                }
                _ => {
                    self.ended = true;
                    return trailing.drop_rest().map(|()| true);
                }
            }
        }
        self.member = GzDecoder::new(std::mem::take(self.member.get_mut()));
        Ok(false)
    }
}

struct InflateLayer {
    sink: BoundedSink,
    inner: Decompress,
    ended: bool,
}

impl InflateLayer {
    fn push(&mut self, mut bytes: &[u8], trailing: &mut TrailingData) -> io::Result<()> {
        self.ended = self.ended || inflate(&mut self.inner, &mut bytes, &mut |out| self.sink.add(out))?;
        if self.ended && !bytes.is_empty() { trailing.drop_rest() } else { Ok(()) }
    }
}

/// Decompresses up to the end of `input`, or to that of the coded data, which it says; then `input` is what follows.
pub(crate) fn inflate(
    inner: &mut Decompress,
    input: &mut &[u8],
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<bool> {
    let mut out = [0; 8 << 10];
    loop {
        let (read, written) = (inner.total_in(), inner.total_out());
        let status = inner.decompress(input, &mut out, FlushDecompress::None)?;
        let (read, written) = ((inner.total_in() - read) as usize, (inner.total_out() - written) as usize);
        *input = input.get(read..).unwrap_or_default();
        sink(out.get(..written).unwrap_or_default())?;
        // Output may be pending although the input is used up.
        match status {
            Status::StreamEnd => return Ok(true),
            _ if read > 0 || written > 0 => {}
            _ if input.is_empty() => return Ok(false),
            _ => return Err(invalid_data("the body is not deflate")),
        }
    }
}

struct ZstdLayer {
    sink: BoundedSink,
    inner: zstd::stream::raw::Decoder<'static>,
    /// The input so far ends at the end of a frame.
    complete: bool,
    /// After the end of a frame, what may begin another one.
    next: Vec<u8>,
    /// What follows the last frame is not a frame.
    ended: bool,
}

impl ZstdLayer {
    fn new(sink: BoundedSink) -> io::Result<Self> {
        let mut inner = zstd::stream::raw::Decoder::new()?;
        // Otherwise a frame could demand a window of gigabytes.
        inner.set_parameter(DParameter::WindowLogMax(MAX_ZSTD_WINDOW))?;
        Ok(Self { sink, inner, complete: false, next: Vec::new(), ended: false })
    }

    fn push(&mut self, bytes: &[u8], trailing: &mut TrailingData) -> io::Result<()> {
        let joined;
        let mut bytes = bytes;
        if !self.next.is_empty() {
            joined = [&std::mem::take(&mut self.next)[..], bytes].concat();
            bytes = &joined;
        }
        let mut input = InBuffer::around(bytes);
        let mut buffer = [0; 8 << 10];
        loop {
            let has_more = input.pos() < bytes.len();
            if has_more && self.complete && trailing.ignore {
                let rest = bytes.get(input.pos()..).unwrap_or_default();
                self.ended |= !may_begin_zstd_frame(rest);
                if self.ended {
                    return trailing.drop_rest();
                }
                if rest.len() < 4 {
                    self.next = rest.to_vec();
                    return Ok(());
                }
            }
            let mut out = OutBuffer::around(&mut buffer[..]);
            let hint = self.inner.run(&mut input, &mut out)?;
            let written = out.pos();
            // A call without input or output returns a hint about the next frame, which says nothing about the end of
            // this one.
            if has_more || written > 0 {
                self.complete = hint == 0;
            }
            self.sink.add(buffer.get(..written).unwrap_or_default())?;
            // Input used up and the buffer not full: nothing more is pending in the decoder.
            if input.pos() == bytes.len() && written < buffer.len() {
                return Ok(());
            }
        }
    }
}

/// Whether these bytes are the beginning of a frame, or of a skippable one (RFC 8878 3.1).
fn may_begin_zstd_frame(bytes: &[u8]) -> bool {
    let begins = |magic: [u8; 4]| bytes.iter().zip(magic).all(|(a, b)| *a == b);
    begins([0x28, 0xb5, 0x2f, 0xfd]) || (0x50..=0x5f).any(|kind| begins([kind, 0x2a, 0x4d, 0x18]))
}

fn invalid_data(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Decodes a whole body to at most `max` bytes; `None` if it has no coding. The output counts against the process's
/// [memory budget](interflow_types::budget) while it is held.
///
/// # Errors
/// As [`ContentDecoder`]; if the budget is exhausted, the error contains an [`Error`].
pub fn decode(headers: &Headers, body: &[u8], max: u64) -> io::Result<Option<Bytes>> {
    ContentDecoder::new(headers, max)?.map(|mut decoder| decode_whole(&mut decoder, body)).transpose()
}

fn decode_whole(decoder: &mut ContentDecoder, body: &[u8]) -> io::Result<Bytes> {
    let mut held = PROCESS_BUDGET.reserve(0).map_err(io::Error::other)?;
    let mut out = Vec::new();
    for step in body.chunks(DECODE_STEP) {
        decoder.push_into(step, &mut out)?;
        // By capacity, which is what the vector occupies while it grows.
        held.grow_to(out.capacity() as u64).map_err(io::Error::other)?;
    }
    decoder.finish_into(&mut out)?;
    // Before the bytes are attached for the lifetime of the body.
    out.shrink_to_fit();
    held.resize(out.len()).map_err(io::Error::other)?;
    Ok(held.attach_to(out))
}

/// How many bodies are decoded on blocking threads at once; others wait.
static DECODE_SLOTS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(std::thread::available_parallelism().map_or(2, usize::from).max(2)));

/// As [`decode`], but a body that is not small is decoded on a blocking thread.
///
/// # Errors
/// As [`decode`].
pub async fn decode_off_thread(headers: &Headers, body: &Bytes, max: u64) -> io::Result<Option<Bytes>> {
    match ContentDecoder::new(headers, max)? {
        Some(decoder) => decode_with(decoder, body).await.map(|(decoded, _)| Some(decoded)),
        None => Ok(None),
    }
}

/// As [`decode_off_thread`] with a decoder that has read nothing yet; also returns whether something followed the end of
/// the coded data.
///
/// # Errors
/// As [`decode`].
pub async fn decode_with(mut decoder: ContentDecoder, body: &Bytes) -> io::Result<(Bytes, bool)> {
    let mut whole = move |body: &[u8]| decode_whole(&mut decoder, body).map(|out| (out, decoder.has_trailing_data()));
    if body.len() <= MAX_INLINE_SIZE {
        return whole(body);
    }
    // Decoding is CPU work: more threads than cores would only slow down the workers that relay traffic.
    let _place = DECODE_SLOTS.acquire().await.map_err(io::Error::other)?;
    let body = body.clone();
    tokio::task::spawn_blocking(move || whole(&body)).await.map_err(io::Error::other)?
}

/// The [`Error`] inside a decoding error, if the memory budget is exhausted.
pub fn budget_error(error: &io::Error) -> Option<Error> {
    let inner = error.get_ref()?.downcast_ref::<Error>()?;
    Some(Error::new(inner.kind(), inner.message()))
}

/// Removes the fields that are no longer valid once the body was decoded and edited.
pub fn strip_stale_headers(headers: &mut Headers) {
    for name in ["content-encoding", "content-length", "etag", "content-md5", "digest", "content-digest", "repr-digest"]
    {
        headers.remove(name);
    }
}

/// Decodes a body while it is read.
pub struct DecodeReader<R> {
    inner: R,
    decoder: ContentDecoder,
    buffer: Vec<u8>,
    at: usize,
    ended: bool,
    failed: Option<io::Error>,
}

impl<R: Read> DecodeReader<R> {
    pub fn new(inner: R, decoder: ContentDecoder) -> Self {
        Self { inner, decoder, buffer: Vec::new(), at: 0, ended: false, failed: None }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut input = [0; 8 << 10];
        self.buffer.clear();
        self.at = 0;
        let n = self.inner.read(&mut input)?;
        let done = match input.get(..n) {
            Some(bytes @ [_, ..]) => self.decoder.push_into(bytes, &mut self.buffer),
            _ => {
                self.ended = true;
                self.decoder.finish_into(&mut self.buffer)
                // A truncated body is an error, reported after its output.
            }
        };
        if let Err(e) = done {
            self.ended = true;
            self.failed = Some(e);
        }
        Ok(())
    }
}

impl<R: Read> Read for DecodeReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let ready = self.buffer.get(self.at..).unwrap_or_default();
            let n = ready.len().min(into.len());
            if n > 0 {
                into[..n].copy_from_slice(&ready[..n]);
                self.at += n;
                return Ok(n);
            }
            if into.is_empty() {
                return Ok(0);
            }
            // Output that preceded the failure is returned first.
            if let Some(e) = self.failed.take() {
                return Err(e);
            }
            if self.ended {
                return Ok(0);
            }
            self.fill()?;
        }
    }
}
