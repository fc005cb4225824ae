//! The content of a body as rules read it: without its content coding, and as UTF-8 where it was written in UTF-16 or
//! UTF-32.

use bytes::Bytes;
use interflow_types::budget::PROCESS_BUDGET;
use interflow_types::{Headers, Result};
use smallvec::{SmallVec, smallvec};

/// Content up to this size is converted on the calling thread; longer content on a blocking thread.
const MAX_INLINE_SIZE: usize = 64 << 10;

/// An encoding of Unicode in which ASCII characters are not single bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WideEncoding {
    Utf16Le,
    Utf16Be,
    Utf32Le,
    Utf32Be,
}

/// What a charset means for rules that compare bytes.
#[derive(Debug, PartialEq, Eq)]
enum Charset {
    /// ASCII characters are themselves, so that the bytes can be compared with a pattern.
    AsciiCompatible,
    /// One of these encodings; several if neither the name nor a byte order mark decides.
    Wide(SmallVec<[WideEncoding; 2]>),
    Unknown(String),
}

/// The content of a body without its content coding.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyContent {
    bytes: Bytes,
    /// The same content as UTF-8 if it may be in another encoding of Unicode, in the order of likelihood.
    wide: SmallVec<[WideText; 1]>,
    /// The messages of a gRPC body without their compression.
    messages: Option<Bytes>,
    /// Whether the head says that it is JSON.
    is_json: bool,
}

#[derive(Clone, Debug)]
struct WideText {
    text: Bytes,
    encoding: WideEncoding,
    /// Whether a byte order mark precedes it.
    marked: bool,
    /// Whether encoding the text again gives the same bytes, so that it can be edited.
    exact: bool,
}

impl From<Bytes> for BodyContent {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, wide: SmallVec::new(), messages: None, is_json: false }
    }
}

impl BodyContent {
    /// The content of a body with this head; the inner error names the charset if its text cannot be read.
    ///
    /// # Errors
    /// The memory budget is exhausted.
    pub async fn read(headers: &Headers, bytes: Bytes) -> Result<Result<Self, String>> {
        let is_json = declares_json(headers);
        let encodings = match charset(headers, &bytes) {
            _ if bytes.is_empty() => return Ok(Ok(bytes.into())),
            Charset::AsciiCompatible => return Ok(Ok(Self { is_json, ..bytes.into() })),
            Charset::Unknown(name) => return Ok(Err(name)),
            Charset::Wide(encodings) => encodings,
        };
        if bytes.len() <= MAX_INLINE_SIZE {
            return Self::decode(bytes, &encodings, is_json).map(Ok);
        }
        let decoded = tokio::task::spawn_blocking(move || Self::decode(bytes, &encodings, is_json)).await;
        decoded.map_err(|e| interflow_types::Error::new(interflow_types::ErrorKind::Internal, e.to_string()))?.map(Ok)
    }

    fn decode(bytes: Bytes, encodings: &[WideEncoding], is_json: bool) -> Result<Self> {
        let wide = encodings.iter().map(|encoding| WideText::decode(&bytes, *encoding)).collect::<Result<_>>()?;
        Ok(Self { bytes, wide, messages: None, is_json })
    }

    /// Whether it has to be JSON: its head says so, and it is not blank.
    pub fn must_be_json(&self) -> bool {
        self.is_json && !self.bytes.iter().all(u8::is_ascii_whitespace)
    }

    /// The text that scripts, services and edits get: UTF-8 if that is certain, else the bytes as they are.
    pub fn text(&self) -> &Bytes {
        self.wide.first().filter(|w| w.exact).map_or(&self.bytes, |w| &w.text)
    }

    /// Every text that a recipient may read in the bytes, which conditions must consider.
    pub fn readings(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.bytes).chain(self.wide.iter().map(|w| &w.text)).chain(&self.messages)
    }

    /// The content with these messages of gRPC, which conditions consider too.
    pub fn with_messages(mut self, messages: Option<Bytes>) -> Self {
        self.messages = messages;
        self
    }

    /// Size in bytes, without a content coding.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The content as it is, without its content coding.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The content after a text replaced [`text`](Self::text).
    pub fn with_text(mut self, text: Bytes) -> Self {
        self.bytes = self.encode(text.clone());
        self.messages = None;
        self.wide.truncate(1);
        match self.wide.first_mut().filter(|w| w.exact && std::str::from_utf8(&text).is_ok()) {
            Some(wide) => wide.text = text,
            None => self.wide.clear(),
        }
        self
    }

    /// Whether its text is UTF-16 or UTF-32.
    pub fn is_wide(&self) -> bool {
        self.wide.first().is_some_and(|w| w.exact)
    }

    /// A text that replaces [`text`](Self::text), in the encoding of this body. Bytes that are not a text stay.
    pub fn encode(&self, text: Bytes) -> Bytes {
        match (self.wide.first().filter(|w| w.exact), std::str::from_utf8(&text)) {
            (Some(wide), Ok(text)) => wide.encoding.encode(text, wide.marked).into(),
            _ => text,
        }
    }
}

impl WideText {
    fn decode(bytes: &Bytes, encoding: WideEncoding) -> Result<Self> {
        // At most 3 bytes for 2, while replacement characters stand for what is not valid.
        let mut held = PROCESS_BUDGET.reserve(bytes.len() as u64 * 2)?;
        let mark = encoding.encode("\u{feff}", false);
        let marked = bytes.starts_with(&mark);
        let (mut text, exact) = encoding.decode(if marked { &bytes[mark.len()..] } else { bytes });
        text.shrink_to_fit();
        held.resize(text.len())?;
        Ok(Self { text: held.attach_to(text), encoding, marked, exact })
    }
}

impl WideEncoding {
    /// The text, with replacement characters for what is not valid, and whether everything was.
    fn decode(self, bytes: &[u8]) -> (String, bool) {
        let mut exact = true;
        let mut lossy = |c: Option<char>| {
            exact &= c.is_some();
            c.unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        let mut text = String::with_capacity(bytes.len());
        let rest = match self {
            Self::Utf16Le | Self::Utf16Be => {
                let units = bytes.chunks_exact(2);
                let rest = units.remainder();
                let unit = |b: &[u8]| match self {
                    Self::Utf16Le => u16::from_le_bytes([b[0], b[1]]),
                    _ => u16::from_be_bytes([b[0], b[1]]),
                };
                text.extend(char::decode_utf16(units.map(unit)).map(|c| lossy(c.ok())));
                rest
            }
            Self::Utf32Le | Self::Utf32Be => {
                let units = bytes.chunks_exact(4);
                let rest = units.remainder();
                text.extend(units.map(|b| {
                    let number = match self {
                        Self::Utf32Le => u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
                        _ => u32::from_be_bytes([b[0], b[1], b[2], b[3]]),
                    };
                    lossy(char::from_u32(number))
                }));
                rest
            }
        };
        if !rest.is_empty() {
            text.push(lossy(None));
        }
        (text, exact)
    }

    fn encode(self, text: &str, marked: bool) -> Vec<u8> {
        let mut out = if marked { self.encode("\u{feff}", false) } else { Vec::with_capacity(text.len() * 2) };
        match self {
            Self::Utf16Le => text.encode_utf16().for_each(|u| out.extend(u.to_le_bytes())),
            Self::Utf16Be => text.encode_utf16().for_each(|u| out.extend(u.to_be_bytes())),
            Self::Utf32Le => text.chars().for_each(|c| out.extend(u32::from(c).to_le_bytes())),
            Self::Utf32Be => text.chars().for_each(|c| out.extend(u32::from(c).to_be_bytes())),
        }
        out
    }
}

/// Whether the head says that the body is one JSON document (RFC 8259 11, RFC 6839 3.1). Streams of messages in JSON
/// are none.
fn declares_json(headers: &Headers) -> bool {
    headers.get_all("content-type").any(|value| {
        let value = String::from_utf8_lossy(value).to_ascii_lowercase();
        let media = value.split([';', ',']).next().unwrap_or_default().trim();
        let stream = media.starts_with("application/grpc") || media.starts_with("application/connect");
        !stream && (media.ends_with("/json") || media.ends_with("+json"))
    })
}

/// A text for a body with this head that does not depend on the one before: in the declared charset if that is an
/// encoding of Unicode, else in UTF-8, which is declared if the text is not the same in both.
pub(crate) fn encode_new(headers: &mut Headers, text: Bytes) -> Bytes {
    let media = headers.get_str("content-type").unwrap_or_default();
    let lower = media.to_ascii_lowercase();
    let is_foreign = lower.contains("charset") && !lower.contains("utf-8") && !lower.contains("utf8");
    match (declared_charset(headers), std::str::from_utf8(&text)) {
        // A mark says which of several byte orders it is.
        (Charset::Wide(encodings), Ok(text)) => encodings[0].encode(text, encodings.len() > 1).into(),
        (Charset::AsciiCompatible, _) if text.is_ascii() || !is_foreign => text,
        (_, Err(_)) => text,
        (_, Ok(_)) => {
            let others = media.split(';').map(str::trim).filter(|p| !p.to_ascii_lowercase().starts_with("charset"));
            let declared = others.chain(["charset=utf-8"]).collect::<Vec<_>>().join("; ");
            let _ = headers.set("Content-Type", declared);
            text
        }
    }
}

/// Whether the head alone says that edits have to convert the body, which they cannot do as it streams.
pub(crate) fn is_wide(headers: &Headers) -> bool {
    declared_charset(headers) != Charset::AsciiCompatible
}

/// Whether a body with this head may turn out to be UTF-16 or UTF-32: a text whose type does not say so.
pub(crate) fn may_be_wide(headers: &Headers) -> bool {
    let media = headers.get_str("content-type").unwrap_or_default().to_ascii_lowercase();
    media.is_empty() || ["text/", "html", "xml", "json", "javascript"].iter().any(|part| media.contains(part))
}

/// Whether a text that begins with these bytes is UTF-16 or UTF-32.
pub(crate) fn is_wide_text(headers: &Headers, beginning: &[u8]) -> bool {
    may_be_wide(headers) && matches!(charset(headers, beginning), Charset::Wide(_))
}

/// The charset of a body: that of its byte order mark, else the declared one, else what the first bytes of JSON and XML
/// tell (RFC 4627 3, XML 1.0 appendix F).
fn charset(headers: &Headers, bytes: &[u8]) -> Charset {
    use WideEncoding::{Utf16Be, Utf16Le, Utf32Be, Utf32Le};
    match bytes {
        // Also UTF-16 that begins with a null character, as browsers read it.
        [0xff, 0xfe, 0, 0, ..] => return Charset::Wide(smallvec![Utf32Le, Utf16Le]),
        [0xff, 0xfe, ..] => return Charset::Wide(smallvec![Utf16Le]),
        [0xfe, 0xff, ..] => return Charset::Wide(smallvec![Utf16Be]),
        [0, 0, 0xfe, 0xff, ..] => return Charset::Wide(smallvec![Utf32Be]),
        _ => {}
    }
    let declared = declared_charset(headers);
    if declared != Charset::AsciiCompatible {
        return declared;
    }
    let media = headers.get_str("content-type").unwrap_or_default().to_ascii_lowercase();
    if !media.is_empty() && !media.contains("json") && !media.contains("xml") {
        return Charset::AsciiCompatible;
    }
    match bytes {
        [0, 0, 0, _, ..] => Charset::Wide(smallvec![Utf32Be]),
        [_, 0, 0, 0, ..] => Charset::Wide(smallvec![Utf32Le]),
        [0, _, ..] => Charset::Wide(smallvec![Utf16Be]),
        [_, 0, ..] => Charset::Wide(smallvec![Utf16Le]),
        _ => Charset::AsciiCompatible,
    }
}

/// The charset that `Content-Type` declares. If it declares several, one in which bytes cannot be compared counts.
fn declared_charset(headers: &Headers) -> Charset {
    use WideEncoding::{Utf16Be, Utf16Le, Utf32Be, Utf32Le};
    /// Names without `-` and `_` by which charsets begin whose ASCII characters are single bytes of the same value.
    const COMPATIBLE: [&str; 27] = [
        "utf8", "usascii", "ascii", "ansi", "iso8859", "latin", "l1", "windows", "cp125", "cp65001", "cp437", "cp85",
        "cp86", "cp932", "cp936", "cp949", "cp950", "koi8", "gb", "big5", "shiftjis", "sjis", "xsjis", "euc", "tis620",
        "mac", "binary",
    ];
    for value in headers.get_all("content-type") {
        let value = String::from_utf8_lossy(value).to_ascii_lowercase();
        for parameter in value.split(';').skip(1) {
            let Some((name, charset)) = parameter.split_once('=') else { continue };
            // The extended form (RFC 8187) has the charset and the language of the value before it.
            let charset = match name.trim() {
                "charset" => charset,
                "charset*" => charset.rsplit('\'').next().unwrap_or_default(),
                _ => continue,
            };
            let charset = charset.trim().trim_matches(['"', '\'', ' ']);
            let plain: String = charset.chars().filter(|c| !matches!(c, '-' | '_' | ':')).collect();
            let wide = match plain.as_str() {
                "utf16le" | "ucs2le" => smallvec![Utf16Le],
                "utf16be" | "ucs2be" => smallvec![Utf16Be],
                "utf32le" | "ucs4le" => smallvec![Utf32Le],
                "utf32be" | "ucs4be" => smallvec![Utf32Be],
                // Big-endian without a mark by RFC 2781 4.3, little-endian by the Encoding Standard.
                "utf16" | "ucs2" | "iso10646ucs2" | "csunicode" | "unicode" => smallvec![Utf16Be, Utf16Le],
                "utf32" | "ucs4" | "iso10646ucs4" => smallvec![Utf32Be, Utf32Le],
                "" => continue,
                name if COMPATIBLE.iter().any(|known| name.starts_with(known)) => continue,
                _ => return Charset::Unknown(charset.to_owned()),
            };
            return Charset::Wide(wide);
        }
    }
    Charset::AsciiCompatible
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(media: &str) -> Headers {
        [("Content-Type", media)].into_iter().collect()
    }

    async fn read(media: &str, bytes: impl Into<Bytes>) -> BodyContent {
        BodyContent::read(&typed(media), bytes.into()).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn unicode_is_read_in_every_encoding() {
        use WideEncoding::{Utf16Be, Utf16Le, Utf32Be, Utf32Le};
        let text = "{\"a\": \"né\u{1f600}dle\"}";
        for encoding in [Utf16Le, Utf16Be, Utf32Le, Utf32Be] {
            let name = format!("text/plain; charset=\"{}\"", format!("{encoding:?}").to_lowercase());
            for (media, marked) in [
                (name.as_str(), false),
                (name.as_str(), true),
                ("text/plain", true),
                ("text/plain; charset=utf-8", true),
                ("application/json", false),
                ("application/soap+xml", true),
            ] {
                let bytes = encoding.encode(text, marked);
                let content = read(media, bytes.clone()).await;
                assert_eq!(&content.text()[..], text.as_bytes(), "{encoding:?} {media} {marked}");
                assert_eq!(&content.encode(content.text().clone())[..], bytes, "{encoding:?} {media} {marked}");
                assert_eq!(content.len(), bytes.len());
            }
        }
    }

    #[tokio::test]
    async fn damaged_unicode_is_read_by_conditions_but_not_edited() {
        let mut bytes = WideEncoding::Utf16Le.encode("needle", true);
        bytes.extend([0, 0xd8, 7]);
        let content = read("text/plain", bytes.clone()).await;
        assert_eq!(&content.text()[..], bytes);
        assert!(content.readings().any(|r| r.starts_with(b"needle")));
    }

    #[tokio::test]
    async fn undecided_byte_orders_are_both_read() {
        for encoding in [WideEncoding::Utf16Be, WideEncoding::Utf16Le] {
            let content = read("text/plain; charset=UTF-16", encoding.encode("needle", false)).await;
            assert!(content.readings().any(|r| &r[..] == b"needle"), "{encoding:?}");
        }
    }

    #[tokio::test]
    async fn charsets_with_other_bytes_for_ascii_cannot_be_read() {
        for (charset, readable) in [
            ("utf-8", true),
            ("UTF8", true),
            ("ISO-8859-15", true),
            ("windows-1252", true),
            ("us-ascii", true),
            ("Shift_JIS", true),
            ("euc-kr", true),
            ("", true),
            ("utf-7", false),
            ("IBM037", false),
            ("cp500", false),
            ("ebcdic-cp-us", false),
            ("utf-8; charset=utf-7", false),
        ] {
            let read = BodyContent::read(&typed(&format!("text/plain; charset={charset}")), "x".into()).await.unwrap();
            assert_eq!(read.is_ok(), readable, "{charset}");
        }
        let empty = BodyContent::read(&typed("text/plain; charset=utf-7"), Bytes::new()).await.unwrap();
        assert!(empty.is_ok(), "no content needs no charset");
    }
}
