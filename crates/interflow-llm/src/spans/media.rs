//! Media in bodies: base64 images, audio and documents, and placeholders for media that is removed.

use std::ops::Range;

use interflow_types::data_file::has_word;
use interflow_types::labelled_enum;

use super::{SpanKind, words};
use crate::message::is_text_format;

labelled_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum MediaKind {
        /// An image or a video.
        Image "image",
        Audio "audio",
        /// A document, or anything else that is neither image nor audio.
        Document "document",
    }
}

impl MediaKind {
    /// Estimates the tokens of media of this kind, by its size in bytes: APIs count an image by its resolution, audio
    /// by its length and a document by its pages, which only a decoder could tell.
    pub const fn estimated_tokens(self, bytes: usize) -> u64 {
        match self {
            Self::Image => IMAGE_TOKENS,
            Self::Audio => (bytes as u64).div_ceil(BYTES_PER_AUDIO_TOKEN),
            Self::Document => (bytes as u64).div_ceil(BYTES_PER_DOCUMENT_TOKEN),
        }
    }
}

/// Tokens of an image or a video.
pub(super) const IMAGE_TOKENS: u64 = 1_000;
const BYTES_PER_AUDIO_TOKEN: u64 = 1_000;
const BYTES_PER_DOCUMENT_TOKEN: u64 = 100;

/// Base64 media in a body, and the JSON that replaces it when it is removed, so that the body stays valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaSpan {
    pub kind: MediaKind,
    /// The byte range to replace in order to remove it: its whole content part.
    pub whole: Range<usize>,
    /// JSON for the range `whole`; empty for an element that is dropped from a list.
    pub stand_in: String,
}

/// What a string that may contain media contains, as far as the string itself tells. Its siblings may tell more.
pub(super) enum BlobContent {
    Address,
    Text,
    /// Base64 from this offset, with the media type of its data URL.
    Base64(usize, Option<Range<usize>>),
}

/// Maximum length of a text that is taken for an address or a word although it is valid base64.
const MIN_BASE64_LEN: usize = 24;

pub(super) fn classify_blob(raw: &[u8]) -> BlobContent {
    if raw.starts_with(b"data:") {
        return match memchr::memmem::find(raw.get(..200.min(raw.len())).unwrap_or_default(), b";base64,") {
            Some(end) => {
                let type_end = memchr::memchr(b';', raw).unwrap_or(end).min(end);
                BlobContent::Base64(end + 8, Some(5..type_end))
            }
            None => BlobContent::Text,
        };
    }
    if is_address(raw) {
        return BlobContent::Address;
    }
    // The beginning is enough: text has a space or a comma within the first 512 bytes.
    let sample = raw.get(..512.min(raw.len())).unwrap_or_default();
    if raw.len() >= MIN_BASE64_LEN && is_base64(sample) { BlobContent::Base64(0, None) } else { BlobContent::Text }
}

/// Whether a string is an address on the web or in a cloud's storage, or the name of a file at OpenAI.
pub(super) fn is_address(raw: &[u8]) -> bool {
    let scheme: [&[u8]; 5] = [b"http://", b"https://", b"gs://", b"s3://", b"file-"];
    scheme.iter().any(|s| raw.starts_with(s))
}

/// Whether the content of a JSON string, or its beginning, is base64 on one line or several. Some encoders write `+` and
/// `/` as escapes.
fn is_base64(mut raw: &[u8]) -> bool {
    let base64 = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'-' | b'_' | b'\n' | b'\r');
    while let Some((first, rest)) = raw.split_first() {
        raw = match (first, rest) {
            (b'\\', [b'u', code @ ..]) if code.len() >= 4 => {
                let code = std::str::from_utf8(&code[..4]).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
                if !code.is_some_and(base64) {
                    return false;
                }
                &rest[5..]
            }
            (b'\\', [b'/' | b'n' | b'r', rest @ ..]) => rest,
            // The sample ends within an escape.
            (b'\\', [] | [b'u', ..]) => return true,
            (b, rest) if base64(*b) => rest,
            _ => return false,
        };
    }
    true
}

/// The parts of an address that are text: of the web, segments of its path that may be about a person, and the values of
/// its query, except those that sign it or limit its use; else all of it, if it is not a name of a file. With the range of a
/// value's name.
pub(super) fn address_texts(raw: &[u8]) -> Vec<(Option<Range<usize>>, Range<usize>)> {
    let mut texts = Vec::new();
    let Some(scheme) = memchr::memmem::find(raw, b"://").filter(|_| raw.starts_with(b"http")) else {
        texts.extend((!words::is_word(raw)).then_some((None, 0..raw.len())));
        return texts;
    };
    let end = memchr::memchr2(b'?', b'#', raw).unwrap_or(raw.len());
    let mut at = scheme + 3;
    for (i, segment) in raw.get(at..end).unwrap_or_default().split(|b| *b == b'/').enumerate() {
        // The first is the host, after the user.
        if i == 0
            && let Some(user) = memchr::memrchr(b'@', segment)
        {
            texts.push((None, at..at + user));
        }
        if i > 0 && words::is_personal_segment(segment) {
            // Some encoders of JSON write `/` as `\/`.
            let length = segment.strip_suffix(b"\\").unwrap_or(segment).len();
            texts.push((None, at..at + length));
        }
        at += segment.len() + 1;
    }
    at = end + 1;
    for pair in raw.get(at..).unwrap_or_default().split(|b| *b == b'&') {
        let value = memchr::memchr(b'=', pair).map_or(0, |n| n + 1);
        let name = at..at + value.saturating_sub(1);
        let is_text = |name: &[u8]| !is_signature(name) || is_mail(&pair[value..]) && !names_signer(name);
        if is_text(raw.get(name.clone()).unwrap_or_default()) {
            texts.push((Some(name), at + value..at + pair.len()));
        }
        at += pair.len() + 1;
    }
    texts
}

/// Whether a parameter of an address belongs to its signature: of S3, Google Cloud Storage, Azure, CloudFront and the
/// like. Without it the provider cannot fetch the medium.
fn is_signature(name: &[u8]) -> bool {
    // The latter are those of a shared access signature of Azure.
    const NAMES: &str = "sig signature expires exp policy key-pair-id token access_token key hash hmac awsaccesskeyid \
        googleaccessid se sp sr st sv spr skt ske sks skv skoid sktid";
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    name.starts_with("x-amz-") || name.starts_with("x-goog-") || has_word(NAMES, &name)
}

/// Whether a value has the sign of mail addresses, encoded or not, which no signature has.
fn is_mail(value: &[u8]) -> bool {
    value.contains(&b'@') || memchr::memmem::find(value, b"%40").is_some()
}

/// Whether a parameter names an account that signs, of Google.
fn names_signer(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with(b"x-goog-") || name == b"googleaccessid"
}

/// The kind of base64 data by its media type or, for Bedrock, its format; `key` is the nearest meaningful name.
pub(super) fn media_span_kind(media_type: &[u8], key: &[u8]) -> Result<SpanKind, MediaKind> {
    let t = media_type.to_ascii_lowercase();
    let starts = |prefix: &[u8]| t.starts_with(prefix);
    if str::from_utf8(media_type).is_ok_and(is_text_format) {
        return Ok(SpanKind::Base64Text);
    }
    Err(
        if starts(b"image/")
            || starts(b"video/")
            || matches!(t.as_slice(), b"png" | b"jpeg" | b"jpg" | b"gif" | b"webp")
        {
            MediaKind::Image
        } else if starts(b"audio/") || matches!(t.as_slice(), b"wav" | b"mp3" | b"flac" | b"opus" | b"pcm16") {
            MediaKind::Audio
        } else {
            match key {
                b"images" | b"image" | b"image_url" | b"imageUrl" | b"input_image" | b"b64_json" | b"video" => {
                    MediaKind::Image
                }
                b"input_audio" | b"audio" => MediaKind::Audio,
                _ => MediaKind::Document,
            }
        },
    )
}

/// A text part in place of another part; `kind` is the part's `type`, if it has one, and decides between the forms of
/// Responses, Chat and Gemini.
pub(super) fn placeholder_part(kind: Option<&[u8]>, media: MediaKind) -> String {
    let word = media.as_str();
    match kind {
        Some(k) if k.starts_with(b"input_") && k != b"input_audio" => {
            format!("{{\"type\":\"input_text\",\"text\":\"[{word} removed]\"}}")
        }
        Some(_) => format!("{{\"type\":\"text\",\"text\":\"[{word} removed]\"}}"),
        None => format!("{{\"text\":\"[{word} removed]\"}}"),
    }
}
