//! The body of a request, decoded, and what its readers make of it.

use std::borrow::Cow;
use std::io;
use std::sync::{Arc, OnceLock};

use base64::alphabet;
use base64::engine::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use bytes::Bytes;
use interflow_codec::content_coding::{self as coding, ContentCoding};
use interflow_llm::LlmRefusal;
use interflow_llm::message::is_text_format;
use interflow_llm::spans::{self, MarkError, MarkedText, TextSpan, multipart};
use interflow_redact::decode_lossy;
use interflow_types::budget::{MemoryReservation, PROCESS_BUDGET};
use interflow_types::{Error, Headers, percent};
use parking_lot::Mutex;

use super::{bad_request, off_worker, overloaded, too_large};

/// A body without its content codings. What is read of it is kept for the stages that follow.
#[derive(Default)]
pub(crate) struct RequestBody {
    raw: Bytes,
    codings: Vec<ContentCoding>,
    /// That of a form.
    boundary: Option<String>,
    is_url_encoded: bool,
    /// It is a file, or a piece of one.
    is_upload: bool,
    plain: Bytes,
    /// Without the positions of texts, unless they were needed too.
    facts: OnceLock<Arc<MarkedText>>,
    /// The positions of texts, and whether those of members that only describe the request are among them.
    content: Mutex<Option<(bool, Arc<BodyContent>)>>,
}

/// The positions of a body's texts, charged to the memory budget.
pub(crate) struct BodyContent {
    pub shape: BodyShape,
    _held: MemoryReservation,
}

pub(crate) enum BodyShape {
    Json(Arc<MarkedText>),
    Form(multipart::Form),
}

/// Why a body cannot be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    Overloaded(Error),
    Undecodable(io::Error),
    Malformed(&'static str, String),
}

impl From<ReadError> for LlmRefusal {
    fn from(e: ReadError) -> Self {
        match e {
            ReadError::Overloaded(e) => overloaded(&e),
            ReadError::Undecodable(e) if e.kind() == io::ErrorKind::FileTooLarge => too_large(e.to_string()),
            ReadError::Undecodable(e) => {
                bad_request("unsupported_content_encoding", format!("the body cannot be decoded: {e}"))
            }
            ReadError::Malformed(code, message) => bad_request(code, message),
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(e: io::Error) -> Self {
        coding::budget_error(&e).map_or(Self::Undecodable(e), Self::Overloaded)
    }
}

impl From<MarkError> for ReadError {
    fn from(e: MarkError) -> Self {
        match e {
            MarkError::Overloaded(e) => Self::Overloaded(e),
            MarkError::Json(e) => Self::Malformed("bad_json", format!("the body cannot be read: {e}")),
        }
    }
}

/// What was read; `None` if it cannot be read, which whoever must understand it reports.
///
/// # Errors
/// The memory budget is exhausted, which says nothing of the body.
pub(crate) fn unless_unreadable<T>(read: Result<T, ReadError>) -> Result<Option<T>, Error> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(ReadError::Overloaded(e)) => Err(e),
        Err(ReadError::Undecodable(_) | ReadError::Malformed(..)) => Ok(None),
    }
}

impl RequestBody {
    /// Decodes the body of a request with this head; the result has at most `max` bytes.
    ///
    /// # Errors
    /// As [`coding::decode`].
    pub async fn decode(headers: &Headers, raw: &Bytes, max: usize) -> Result<Self, ReadError> {
        Self::new(headers, raw, coding::decode_off_thread(headers, raw, max as u64).await?)
    }

    /// As [`decode`](Self::decode), on this thread.
    pub fn decode_now(headers: &Headers, raw: &Bytes, max: usize) -> Result<Self, ReadError> {
        Self::new(headers, raw, coding::decode(headers, raw, max as u64)?)
    }

    fn new(headers: &Headers, raw: &Bytes, plain: Option<Bytes>) -> Result<Self, ReadError> {
        let codings = coding::parse_codings(headers)?;
        let plain = plain.unwrap_or_else(|| raw.clone());
        Ok(Self { codings, raw: raw.clone(), plain, ..Self::plain_text(headers, Bytes::new()) })
    }

    /// A body that has no content coding.
    pub fn plain_text(headers: &Headers, raw: Bytes) -> Self {
        let (plain, boundary, is_url_encoded) = (raw.clone(), boundary(headers), is_url_encoded(headers));
        Self { raw, plain, boundary, is_url_encoded, is_upload: is_upload(headers), ..Self::default() }
    }

    /// The body as it was received.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    pub fn plain(&self) -> &Bytes {
        &self.plain
    }

    /// Whether these are the very bytes of this body, which holds them, so that others cannot have their address.
    pub fn has_bytes(&self, raw: &Bytes) -> bool {
        std::ptr::eq(self.raw.as_ptr(), raw.as_ptr()) && self.raw.len() == raw.len()
    }

    /// Whether it is the body of a request with this head and these bytes.
    pub fn is_of(&self, headers: &Headers, raw: &Bytes) -> bool {
        self.has_bytes(raw)
            && coding::parse_codings(headers).is_ok_and(|codings| codings == self.codings)
            && boundary(headers) == self.boundary
            && is_url_encoded(headers) == self.is_url_encoded
            && is_upload(headers) == self.is_upload
    }

    /// The body, if it is no larger than another stage decodes it to.
    ///
    /// # Errors
    /// That of the decoder.
    pub fn within(self: Arc<Self>, max: usize) -> Result<Arc<Self>, ReadError> {
        if self.codings.is_empty() || self.plain.len() <= max {
            return Ok(self);
        }
        Err(io::Error::new(io::ErrorKind::FileTooLarge, "the decoded body exceeds its size limit").into())
    }

    /// What the body asks for. `marks` tells that a stage is going to need the positions of its texts, which are then
    /// determined at once.
    pub async fn facts(self: &Arc<Self>, marks: bool) -> Result<Arc<MarkedText>, ReadError> {
        self.read(move |body| body.facts_now(marks)).await
    }

    fn facts_now(&self, marks: bool) -> Result<Arc<MarkedText>, ReadError> {
        if let Some(facts) = self.facts.get() {
            return Ok(Arc::clone(facts));
        }
        let marked = self.content.lock().as_ref().map(|(_, content)| Arc::clone(content));
        // Marks may take more memory than there is for them; the facts do not.
        let content = marked.or_else(|| marks.then(|| self.content_now(true).ok()).flatten());
        let facts = match content.as_deref() {
            Some(BodyContent { shape: BodyShape::Json(marked), .. }) => Arc::clone(marked),
            _ => Arc::new(spans::facts(&self.plain)?),
        };
        Ok(Arc::clone(self.facts.get_or_init(|| facts)))
    }

    /// The positions of the body's texts. `metadata` includes those of members that only describe the request.
    pub async fn content(self: &Arc<Self>, metadata: bool) -> Result<Arc<BodyContent>, ReadError> {
        self.read(move |body| body.content_now(metadata)).await
    }

    /// As [`content`](Self::content), on this thread.
    pub fn content_now(&self, metadata: bool) -> Result<Arc<BodyContent>, ReadError> {
        if let Some((_, content)) = self.content.lock().as_ref().filter(|(own, _)| *own == metadata) {
            return Ok(Arc::clone(content));
        }
        let shape = match &self.boundary {
            Some(boundary) => multipart::parse(&self.plain, boundary)
                .map(BodyShape::Form)
                .map_err(|e| ReadError::Malformed("bad_form", e.to_string()))?,
            None => BodyShape::Json(mark_json(&self.plain, metadata)?.into()),
        };
        let _held = PROCESS_BUDGET.reserve(shape.size()).map_err(ReadError::Overloaded)?;
        let content = Arc::new(BodyContent { shape, _held });
        *self.content.lock() = Some((metadata, Arc::clone(&content)));
        Ok(content)
    }

    /// Whether it is a form in the syntax of a URL's query, or a file.
    pub const fn is_opaque(&self) -> bool {
        self.is_url_encoded || self.is_upload
    }

    /// The positions of the texts of a body in an unknown format: all of it. One that is not JSON is like a form with a
    /// single field.
    ///
    /// # Errors
    /// It is a form that is malformed, or the memory budget is exhausted.
    pub fn everything(&self) -> Result<Arc<BodyContent>, ReadError> {
        let shape = match spans::mark_everything(&self.plain) {
            _ if self.boundary.is_some() => return self.content_now(true),
            Ok(marked) => BodyShape::Json(marked.into()),
            Err(e @ MarkError::Overloaded(_)) => return Err(e.into()),
            Err(MarkError::Json(_)) => {
                let media_type = (self.is_url_encoded && !self.is_upload).then(|| URL_ENCODED.to_owned());
                let (range, file) = (0..self.plain.len(), self.is_upload.then(String::new));
                let part = multipart::FormPart { range, media_type, file, ..multipart::FormPart::default() };
                BodyShape::Form(multipart::Form { parts: vec![part], ..multipart::Form::default() })
            }
        };
        let _held = PROCESS_BUDGET.reserve(shape.size()).map_err(ReadError::Overloaded)?;
        Ok(Arc::new(BodyContent { shape, _held }))
    }

    /// Reads the body with a parser of its stage's own.
    ///
    /// # Errors
    /// That of the parser; also if it panicked.
    pub async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let body = Arc::clone(self);
        let cut = || ReadError::Malformed("request_failed", "the work on the body was cut short".to_owned());
        off_worker(self.plain.len(), move || read(&body)).await.unwrap_or_else(|| Err(cut()))
    }

    /// As [`read`](Self::read), with a parser that makes a tree of the body. That takes several times its size.
    ///
    /// # Errors
    /// As [`read`](Self::read); also if the memory budget is exhausted.
    pub async fn read_tree<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let held = PROCESS_BUDGET.reserve(self.plain.len() as u64 * 2).map_err(ReadError::Overloaded)?;
        // It goes with the work, which may go on for a while after its future is dropped.
        let read = move |body: &Self| {
            let _held = held;
            read(body)
        };
        self.read(read).await
    }
}

impl BodyShape {
    fn size(&self) -> u64 {
        let size = match self {
            Self::Json(marked) => marked.spans.capacity() * size_of::<TextSpan>(),
            Self::Form(form) => form.parts.len() * size_of::<multipart::FormPart>(),
        };
        size as u64
    }
}

/// The boundary of a form.
fn boundary(headers: &Headers) -> Option<String> {
    multipart::boundary(headers.get_str("content-type").unwrap_or_default())
}

/// The media type of forms in the syntax of a URL's query.
const URL_ENCODED: &str = "application/x-www-form-urlencoded";

/// Whether a body is a form of several parts.
pub(crate) fn is_form(headers: &Headers) -> bool {
    let media_type = headers.get_str("content-type").unwrap_or_default().trim_start();
    media_type.get(..10).is_some_and(|start| start.eq_ignore_ascii_case("multipart/"))
}

fn is_url_encoded(headers: &Headers) -> bool {
    let media_type = headers.get_str("content-type").unwrap_or_default().split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case(URL_ENCODED)
}

/// Whether a request of Google's upload protocols has the bytes of a file in its body.
pub(crate) fn is_upload(headers: &Headers) -> bool {
    let has = |name, word| headers.get_str(name).is_some_and(|value| value.to_ascii_lowercase().contains(word));
    has("x-goog-upload-command", "upload") || has("x-goog-upload-protocol", "raw")
}

/// A part of a form in the syntax of a URL's query; `None` if the part is none.
///
/// # Errors
/// It is not text in UTF-8, or names a charset in which it is not read.
pub(crate) fn url_encoded<'c>(part: &multipart::FormPart, content: &'c [u8]) -> Result<Option<&'c str>, ReadError> {
    if part.file.is_some() || part.media_type.as_deref() != Some(URL_ENCODED) {
        return Ok(None);
    }
    let wrong = || ReadError::Malformed("bad_form", "the form is not text in UTF-8".to_owned());
    let raw = utf8_text(content).filter(|raw| !raw.contains("%00")).ok_or_else(wrong)?;
    let fields = raw.split('&').filter_map(|field| field.split_once('='));
    let charsets = fields.filter(|(name, _)| multipart::is_charset_field(&percent::decoded_lossy(name)));
    for (_, charset) in charsets {
        check_encoding(!multipart::has_readable_charset(&format!("charset={}", percent::decoded_lossy(charset))))?;
    }
    Ok(Some(raw))
}

/// The text of another part of a form, whatever its type says; `None` if it is none. What providers would not read of a text
/// is replaced.
pub(crate) fn part_text(part: &multipart::FormPart, content: &[u8]) -> Option<MediumText> {
    medium_text(content).or_else(|| {
        let text = || String::from_utf8_lossy(content).replace('\0', "");
        (!is_binary_file(part, content)).then(|| MediumText { text: text(), is_compressed: false })
    })
}

/// Refuses a part whose text is not read as it is.
pub(crate) fn check_encoding(is_encoded: bool) -> Result<(), ReadError> {
    let message = "the body or a part of the form has a Content-Transfer-Encoding or a charset in which it is not read, or a field on several lines: send it as UTF-8, without a transfer encoding, and each field on one line";
    if is_encoded { Err(ReadError::Malformed("bad_form", message.to_owned())) } else { Ok(()) }
}

/// The text in UTF-8. A NUL character shows that it is UTF-16 or UTF-32, in which detectors find nothing.
pub(crate) fn utf8_text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0') && utf16_order(bytes).is_none())
}

/// Base64 without padding, as readers take it that ignore what is wrong with it.
const LENIENT: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, NO_PAD.with_decode_allow_trailing_bits(true));

/// The beginning of a medium that shows whether it may be text, in characters of base64.
const MEDIUM_SAMPLE: usize = 4 << 10;

/// The largest text in a compressed medium.
const MAX_COMPRESSED_TEXT: u64 = 64 << 20;

/// A text that its media type does not call one.
pub(crate) struct MediumText {
    pub text: String,
    /// Whether it is compressed (gzip), so that it cannot be replaced.
    pub is_compressed: bool,
}

/// The text in base64 of a medium; `None` if the bytes are no text.
pub(crate) fn text_of_medium(base64: &[u8]) -> Option<MediumText> {
    let base64 = unescaped(base64)?;
    let sample = decode_base64(&base64.as_bytes()[..base64.len().min(MEDIUM_SAMPLE)]);
    let is_cut = || std::str::from_utf8(&sample).is_err_and(|e| e.error_len().is_none());
    if !sample.starts_with(GZIP) && decoded_text(&sample).is_none() && !is_cut() {
        return None;
    }
    medium_text(&decode_base64(base64.as_bytes()))
}

/// The text in base64 of a file that its media type calls one. What is no text in it is replaced.
pub(crate) fn text_of_file(base64: &[u8]) -> Option<MediumText> {
    text_of_medium(base64).or_else(|| {
        let text = String::from_utf8_lossy(&bytes_of_file(base64)?).replace('\0', "");
        Some(MediumText { text, is_compressed: false })
    })
}

/// The text of a medium, in any encoding of text that is known by its bytes.
pub(crate) fn medium_text(bytes: &[u8]) -> Option<MediumText> {
    let is_compressed = bytes.starts_with(GZIP);
    let mut headers = Headers::new();
    headers.append_unchecked(b"Content-Encoding", b"gzip");
    let plain = is_compressed.then(|| coding::decode(&headers, bytes, MAX_COMPRESSED_TEXT).ok().flatten());
    let text = match plain {
        Some(plain) => decoded_text(&plain?)?.into_owned(),
        None => decoded_text(bytes)?.into_owned(),
    };
    Some(MediumText { text, is_compressed })
}

/// How data in gzip begins (RFC 1952 2.3.1).
const GZIP: &[u8] = b"\x1f\x8b\x08";

/// A text in UTF-8, UTF-16 or UTF-32, or in a charset of single bytes, of which control characters are no part.
fn decoded_text(bytes: &[u8]) -> Option<Cow<'_, str>> {
    if let Some(text) = utf8_text(bytes) {
        return Some(text.into());
    }
    if let Some(read) = utf16_order(bytes) {
        let units = bytes.chunks_exact(2).map(|pair| read([pair[0], pair[1]]));
        // UTF-32 is UTF-16 with NUL characters.
        let text = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
        return Some(text.filter(|c| !matches!(c, '\0' | '\u{feff}')).collect());
    }
    (!bytes.contains(&0) && !bytes.iter().any(|b| is_control(*b)))
        .then(|| bytes.iter().copied().map(char::from).collect())
}

/// The bytes of a file in base64, which is the content of a JSON string.
pub(crate) fn bytes_of_file(base64: &[u8]) -> Option<Vec<u8>> {
    Some(decode_base64(unescaped(base64)?.as_bytes()))
}

/// Some encoders of JSON write `/` as `\/`.
fn unescaped(base64: &[u8]) -> Option<Cow<'_, str>> {
    Some(decode_lossy(std::str::from_utf8(base64).ok()?).0)
}

/// Decodes either alphabet, with padding anywhere, and ignores other characters.
fn decode_base64(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for piece in text.split(|b| *b == b'=') {
        let standard = piece.iter().filter_map(|b| match b {
            b'-' => Some(b'+'),
            b'_' => Some(b'/'),
            b => (b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/')).then_some(*b),
        });
        let mut standard: Vec<u8> = standard.collect();
        // One character alone is no byte.
        standard.truncate(standard.len() - usize::from(standard.len() % 4 == 1));
        LENIENT.decode_vec(standard, &mut bytes).expect("characters of the alphabet only");
    }
    bytes
}

/// How UTF-16 is read in one of its orders.
type Utf16Order = fn([u8; 2]) -> u16;

/// The order of UTF-16, by its mark or by where its NULs are. Without NULs, control characters are the high bytes of
/// letters beyond Latin, or parts of nothing but letters.
fn utf16_order(bytes: &[u8]) -> Option<Utf16Order> {
    let (little, big): (Utf16Order, Utf16Order) = (u16::from_le_bytes, u16::from_be_bytes);
    if bytes.starts_with(b"\xff\xfe") {
        return Some(little);
    }
    if bytes.starts_with(b"\xfe\xff") || bytes.starts_with(b"\0\0\xfe\xff") {
        return Some(big);
    }
    let pairs = || bytes.chunks_exact(2);
    let zeros = |high: usize| pairs().filter(|pair| pair[high] == 0 && !is_control(pair[1 - high])).count();
    if bytes.contains(&0) {
        return [(little, 1), (big, 0)]
            .into_iter()
            .find(|(_, high)| zeros(*high) * 5 > bytes.len() * 2)
            .map(|order| order.0);
    }
    let is_high = |b: &u8| matches!(b, 1..=8 | 0x0e..=0x1f);
    let is_letter =
        |unit: u16| char::from_u32(unit.into()).is_some_and(char::is_alphabetic) || matches!(unit, 0x3001 | 0x3002);
    let fits = |read: &Utf16Order| {
        let units = || pairs().map(|pair| read([pair[0], pair[1]]));
        let high = units().filter(|unit| is_high(&unit.to_be_bytes()[0])).count();
        high * 4 > bytes.len() || units().all(is_letter)
    };
    [little, big].into_iter().find(|read| bytes.iter().any(is_high) && fits(read))
}

/// Whether a byte is a control character that texts do not have.
const fn is_control(byte: u8) -> bool {
    matches!(byte, 1..=6 | 0x0e..=0x19 | 0x1c..=0x1f | 0x7f)
}

/// Whether a part is a file that is no text: neither its type nor its name says so, and it is none in another charset
/// than UTF-8 either. Those have no control characters, besides UTF-16 and UTF-32, which begin with a byte order mark.
pub(crate) fn is_binary_file(part: &multipart::FormPart, content: &[u8]) -> bool {
    let Some(file) = &part.file else { return false };
    let formats = [part.media_type.as_deref(), file.rsplit('.').next()];
    let is_wide = [&b"\xff\xfe"[..], b"\xfe\xff", b"\0\0\xfe\xff"].iter().any(|mark| content.starts_with(mark));
    !formats.into_iter().flatten().any(is_text_format)
        && !is_wide
        && std::str::from_utf8(content).is_err()
        && content.iter().any(|b| is_control(*b))
}

/// Marks the texts of JSON that is a body, or inside one.
///
/// # Errors
/// As [`spans::mark_body`].
pub(crate) fn mark_json(json: &[u8], metadata: bool) -> Result<MarkedText, ReadError> {
    Ok(spans::mark_body(json, metadata)?)
}
