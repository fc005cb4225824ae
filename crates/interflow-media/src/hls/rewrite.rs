//! The rewriter: one pass over the bytes; everything except URIs is copied unchanged.
//!
//! `copied` is the end of what has been written of the original text. A replacement first writes what precedes it, so
//! that unknown tags, line terminators and spaces survive as they are.
//!
//! Where encryption is removed here (`apply_keys`), key tags are deleted, and the parameters of each segment are passed
//! to the [`UriReplacer`], which puts them into the segment's URL. The player then sees a clear playlist.

mod catchup;
mod keys;

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use interflow_types::budget::PROCESS_BUDGET;
use interflow_types::{Error, ErrorKind as FlowKind, Result, data_file};

use super::define::{MAX_VALUE_LEN, PlaylistVariables};
use super::tags::{
    PlaylistLine, attribute, attribute_text, attributes, length_and_offset, lines, loose_attribute, tag,
};
use crate::relay::BaseUrl;
use crate::relay::address::{is_http, scheme_of};

pub use catchup::{fill_placeholders, placeholders};

/// What a URI refers to, which determines the gateway endpoint that will serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UriRole {
    Playlist,
    /// A segment, part, initialization section or hint.
    Segment,
    /// The initialization section of samples that are decrypted here.
    Init,
    Key,
    /// The value of an `EXT-X-SESSION-DATA` or an unknown tag: JSON or anything else.
    Data,
    Steering,
    /// The JSON list of interstitial assets (`X-ASSET-LIST`).
    Assets,
    Channel,
    Guide,
}

/// How the following segments are encrypted, if they are decrypted here. `method` is the tag's `METHOD`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentEncryption {
    /// The absolute URL of the key; `None` for the link's own keys.
    pub key: Option<String>,
    pub method: String,
    /// The initialization vector in hex, without `0x`; `#` and the media sequence number when the tag gives none.
    pub iv: String,
    /// URL and byte range (first and last byte) of the initialization section, for samples in MP4.
    pub map: Option<(String, Option<(u64, u64)>)>,
}

/// Writes what replaces the URIs of a playlist. The methods are called in the order of the text; those about channels
/// concern IPTV lists only and do nothing by default.
pub trait UriReplacer {
    /// Writes the replacement for this absolute URL. `crypt` is set for segments that are decrypted here.
    fn write_uri(&mut self, kind: UriRole, address: &str, crypt: Option<&SegmentEncryption>, out: &mut Vec<u8>);

    /// A line about the next channel; returns whether the channel's URL covers it, so that the line is removed.
    fn channel_option(&mut self, _line: &str) -> bool {
        false
    }

    /// Header fields after a channel's URL (`URL|Name=value&…`, Kodi's syntax); returns whether the channel's URL
    /// covers them, so that they are removed.
    fn channel_fields(&mut self, _fields: &str) -> bool {
        false
    }

    /// Writes the URL of a channel's archive, in which the player fills in the placeholders of `template`. `options` are
    /// the lines before the channel's URL, and `fields` the header fields after it. Returns whether it did.
    fn write_catchup(&mut self, _template: &str, _options: &[&str], _fields: &str, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// The byte range of the next segment, which its URL has to carry: `first-last`, or `first-`.
    fn segment_range(&mut self, _range: String) {}

    /// Ends the channel: its options do not apply to the next one.
    fn end_channel(&mut self) {}

    /// The `data:` URL of a key that is inlined into the playlist.
    fn inline(&self, _address: &str) -> Option<String> {
        None
    }
}

/// What to change in a playlist besides its URIs.
#[derive(Clone, Debug, Default)]
pub struct HlsRewriteOptions {
    /// Remove key tags, and pass the encryption of segments to the replacer.
    pub apply_keys: bool,
    /// The same for samples in MP4, for which the link has the keys, whatever key systems the playlist names.
    pub own_keys: bool,
    /// Segments change their length on the way, so that the byte ranges of the playlist would not fit any more: they
    /// go into the segments' URLs.
    pub moves_ranges: bool,
    /// Adds `EXT-X-START` with this offset to a playlist; in seconds, from the end if negative.
    pub start: Option<f64>,
    /// Variables (`EXT-X-DEFINE`).
    pub variables: PlaylistVariables,
}

/// Bytes processed before yielding to other tasks: a playlist of several megabytes would delay all others on the
/// thread.
const YIELD_BYTES: usize = 64 << 10;

/// Rewrites a playlist fetched from `base`, for trusted texts of limited size.
pub fn rewrite(text: &[u8], base: &BaseUrl, options: &HlsRewriteOptions, place: &mut impl UriReplacer) -> Vec<u8> {
    let mut r = PlaylistRewriter::new(text, base, options, place);
    let mut start = options.start;
    lines(text).for_each(|line| r.line(line, &mut start));
    r.copy(text.len());
    r.out
}

/// Like [`rewrite`], for untrusted playlists: yields to other tasks, charges its output to the process-wide memory
/// budget, and limits it to `most` bytes.
///
/// # Errors
/// [`BadResponse`](interflow_types::ErrorKind::BadResponse) for a playlist that would exceed `most`, or a URL that
/// variables make too long; [`Overloaded`](interflow_types::ErrorKind::Overloaded).
pub async fn rewrite_within(
    text: &[u8],
    base: &BaseUrl,
    options: &HlsRewriteOptions,
    place: &mut impl UriReplacer,
    most: u64,
) -> Result<Vec<u8>> {
    let mut r = PlaylistRewriter::new(text, base, options, place);
    let mut held = PROCESS_BUDGET.reserve(0)?;
    let mut start = options.start;
    let mut paused = 0;
    for line in lines(text) {
        r.line(line, &mut start);
        if r.too_long {
            let text =
                format!("an address of the playlist is longer than {MAX_VALUE_LEN} bytes with its variables filled in");
            return Err(Error::new(FlowKind::BadResponse, text));
        }
        if (r.out.len() + text.len().saturating_sub(r.copied)) as u64 > most {
            let text = format!("the playlist would be longer than {most} bytes when rewritten (media.rewritten_bytes)");
            return Err(Error::new(FlowKind::BadResponse, text));
        }
        // Input and output both count, because one line may be replaced by a much longer one.
        if line.next + r.out.len() >= paused + YIELD_BYTES {
            paused = line.next + r.out.len();
            held.grow_to(r.out.capacity() as u64)?;
            tokio::task::yield_now().await;
        }
    }
    r.copy(text.len());
    Ok(r.out)
}

/// The meaning of the next line without `#`, which depends on the tag before it.
#[derive(Clone, Copy, PartialEq)]
enum ExpectedUri {
    Any,
    Variant,
    Segment,
}

struct PlaylistRewriter<'a, P> {
    text: &'a [u8],
    base: &'a BaseUrl,
    options: &'a HlsRewriteOptions,
    place: &'a mut P,
    out: Vec<u8>,
    scratch: String,
    has_variables: bool,
    /// A URL would be too long after substitution.
    too_long: bool,
    copied: usize,
    next: ExpectedUri,
    is_media: bool,
    /// No initialization section: segments are transport streams or packed audio.
    is_transport: bool,
    /// There are encrypted samples to be decrypted here.
    has_samples: bool,
    sequence: u64,
    crypt: Option<SegmentEncryption>,
    /// A key that is not applied here is active.
    is_kept: bool,
    /// Byte ranges go into the URLs.
    moves_ranges: bool,
    /// The range of the next segment (`EXT-X-BYTERANGE`): its length and its offset, if it is stated.
    range: Option<(u64, Option<u64>)>,
    /// The resource and the end of the last range, where one without an offset begins (RFC 8216 4.3.2.2).
    range_end: (String, u64),
    /// There may be catch-up templates, and those of channels that have none of their own.
    has_catchup: bool,
    catchup: catchup::CatchupTemplate,
    /// The initialization section of the following segments.
    map: Option<(String, Option<(u64, u64)>)>,
    /// A key was applied since the last segment.
    is_keyed: bool,
    /// How far the tags before the next segment were examined, and whether a key among them is applied.
    group: (usize, bool),
}

impl<'a, P: UriReplacer> PlaylistRewriter<'a, P> {
    fn new(text: &'a [u8], base: &'a BaseUrl, options: &'a HlsRewriteOptions, place: &'a mut P) -> Self {
        let mut r = Self {
            text,
            base,
            options,
            place,
            out: Vec::with_capacity(text.len() + text.len() / 2 + 1024),
            scratch: String::new(),
            has_variables: memchr::memmem::find(text, b"{$").is_some(),
            too_long: false,
            copied: 0,
            next: ExpectedUri::Any,
            is_media: false,
            is_transport: memchr::memmem::find(text, b"#EXT-X-MAP").is_none(),
            has_samples: false,
            sequence: 0,
            crypt: None,
            is_kept: false,
            moves_ranges: options.moves_ranges,
            range: None,
            range_end: (String::new(), 0),
            has_catchup: memchr::memmem::find(text, b"catchup").is_some(),
            catchup: catchup::CatchupTemplate::default(),
            map: None,
            is_keyed: false,
            group: (0, false),
        };
        let (samples, others) = r.decryptable_kinds();
        r.has_samples = samples && !r.is_transport;
        r.moves_ranges |= others;
        r
    }

    /// Processes one line. `start`: inserted after the first line.
    fn line(&mut self, line: PlaylistLine, start: &mut Option<f64>) {
        let bytes = line.content(self.text);
        match bytes.first() {
            // Options of a channel are in IPTV lists only; the same lines in a media playlist are comments.
            None => return,
            Some(b'#') if !self.is_media && self.takes_option(bytes) => self.replace(line.start..line.next, |_| ()),
            Some(b'#') => self.tag(bytes, line.start),
            Some(_) => self.uri_line(bytes, line.start),
        }
        if let Some(offset) = start.take_if(|_| bytes.starts_with(b"#EXTM3U")) {
            self.copy(line.next);
            self.out.extend_from_slice(format!("#EXT-X-START:TIME-OFFSET={offset},PRECISE=YES\n").as_bytes());
        }
    }

    /// Whether a list's line is an option of the next channel that its link covers.
    fn takes_option(&mut self, line: &[u8]) -> bool {
        (line.starts_with(b"#EXTVLCOPT:") || line.starts_with(b"#EXTHTTP:") || line.starts_with(b"#KODIPROP:"))
            && std::str::from_utf8(line).is_ok_and(|line| self.place.channel_option(line))
    }

    /// A reference with variables substituted; one that would be too long is flagged and omitted.
    fn filled<'t>(&mut self, reference: &'t str) -> Cow<'t, str> {
        if !self.has_variables {
            return Cow::Borrowed(reference);
        }
        Cow::Owned(self.options.variables.fill(reference).unwrap_or_else(|| {
            self.too_long = true;
            String::new()
        }))
    }

    /// Copies the original text up to a position.
    fn copy(&mut self, until: usize) {
        self.out.extend_from_slice(self.text.get(self.copied..until).unwrap_or_default());
        self.copied = until.max(self.copied);
    }

    /// Copies up to a range, calls `put` to write its replacement, and continues after it.
    fn replace(&mut self, range: Range<usize>, put: impl FnOnce(&mut Self)) {
        self.copy(range.start);
        put(self);
        self.copied = range.end;
    }

    /// Removes the line that begins here.
    fn remove_line(&mut self, at: usize) {
        let end = self.text.get(at..).and_then(|rest| memchr::memchr(b'\n', rest));
        self.replace(at..end.map_or(self.text.len(), |n| at + n + 1), |_| ());
    }

    /// Whether an attribute's value that begins here has no quotes.
    fn is_unquoted(&self, at: usize) -> bool {
        at.checked_sub(1).and_then(|before| self.text.get(before)) == Some(&b'=')
    }

    /// Replaces a value without quotes by one with quotes.
    fn replace_quoted(&mut self, range: Range<usize>, value: &[u8]) {
        self.replace(range, |r| r.out.extend_from_slice(&[b"\"", value, b"\""].concat()));
    }

    /// Replaces a URI, resolved against the playlist's URL. What cannot be fetched here stays as it is.
    fn uri(&mut self, range: Range<usize>, kind: UriRole) {
        let text = self.text;
        let raw = text.get(range.clone()).unwrap_or_default();
        let reference = match std::str::from_utf8(raw) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(raw),
        };
        let reference = self.filled(&reference);
        let reference = reference.trim();
        if reference.is_empty() {
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let address = if is_http(reference.as_bytes()) {
            reference
        // `data:`, `skd:` and the like are for the player.
        } else if scheme_of(reference).is_some() {
            self.scratch = scratch;
            return;
        } else {
            self.base.join(reference, &mut scratch);
            &scratch
        };
        // Only a segment's URL carries its encryption.
        let crypt = if kind == UriRole::Segment { self.crypt.take() } else { None };
        if let Some((length, offset)) = self.range.take() {
            let is_same = self.range_end.0 == address;
            let first = offset.unwrap_or(if is_same { self.range_end.1 } else { 0 });
            let end = first.saturating_add(length);
            self.range_end = (address.to_owned(), end);
            let last = if end == u64::MAX { String::new() } else { end.saturating_sub(1).to_string() };
            self.place.segment_range(format!("{first}-{last}"));
        }
        let quote: &[u8] = if self.is_unquoted(range.start) { b"\"" } else { b"" };
        self.copy(range.start);
        self.out.extend_from_slice(quote);
        self.place.write_uri(kind, address, crypt.as_ref(), &mut self.out);
        self.out.extend_from_slice(quote);
        self.copied = range.end;
        if kind == UriRole::Segment {
            self.crypt = crypt;
        }
        self.scratch = scratch;
    }

    /// A line with a URI: a segment, a variant, or a channel of a list.
    fn uri_line(&mut self, line: &[u8], at: usize) {
        let trimmed = line.trim_ascii();
        if trimmed.is_empty() {
            return;
        }
        let start = at + (trimmed.as_ptr() as usize - line.as_ptr() as usize);
        let (address, fields) = match trimmed.iter().position(|b| *b == b'|') {
            // `|` separates header fields in IPTV lists; in a media playlist it is an ordinary character of the URL.
            Some(bar) if !self.is_media && self.next != ExpectedUri::Variant => trimmed.split_at(bar),
            _ => (trimmed, &b""[..]),
        };
        // URLs of other schemes are left unchanged, including their suffix.
        let is_ours = is_http(address) || std::str::from_utf8(address).is_ok_and(|a| scheme_of(a.trim()).is_none());
        let takes =
            is_ours && std::str::from_utf8(fields).is_ok_and(|f| !f.is_empty() && self.place.channel_fields(&f[1..]));
        let address = if takes { address } else { trimmed };
        let kind = match self.next {
            ExpectedUri::Variant => UriRole::Playlist,
            _ if is_playlist_address(address) => UriRole::Playlist,
            _ if self.is_media => UriRole::Segment,
            _ => UriRole::Channel,
        };
        self.next = ExpectedUri::Any;
        let of_list = !self.is_media;
        if kind == UriRole::Segment && self.options.apply_keys {
            self.set_iv_from_sequence();
        }
        self.uri(start..start + address.len(), kind);
        if takes {
            self.replace(start + address.len()..start + trimmed.len(), |_| ());
        }
        self.range = None;
        if of_list {
            self.place.end_channel();
        }
        if kind == UriRole::Segment {
            self.sequence += 1;
            self.is_keyed = false;
        }
    }

    /// Without an IV of its own, a segment's IV is its number (RFC 8216bis 5.2). The `#` marks an IV set here, which
    /// the next segment replaces, in contrast to one of the tag, which applies until the next key.
    fn set_iv_from_sequence(&mut self) {
        let number = self.sequence;
        if let Some(crypt) = &mut self.crypt
            && crypt.key.is_some()
            && (crypt.iv.is_empty() || crypt.iv.starts_with('#'))
        {
            crypt.iv = format!("#{number:032x}");
        }
    }

    /// A tag, whose URIs depend on its name. Unknown tags with a `URI` are data, so that no player reaches the origin
    /// past the gateway.
    fn tag(&mut self, line: &[u8], at: usize) {
        let Some((name, list)) = tag(line) else { return };
        let list_at = at + line.len() - list.len();
        let uri = |r: &mut Self, attr: &[u8], kind| {
            if let Some(range) = attribute(list, attr) {
                r.uri(list_at + range.start..list_at + range.end, kind);
            }
        };
        match name {
            b"EXTINF" => {
                self.next = ExpectedUri::Segment;
                if self.has_catchup && !self.is_media {
                    self.catchup(line, at);
                }
            }
            b"EXTM3U" => {
                self.note_catchup(line);
                self.guides(line, at);
            }
            b"EXT-X-STREAM-INF" => self.next = ExpectedUri::Variant,
            b"EXT-X-TARGETDURATION" => self.is_media = true,
            b"EXT-X-MEDIA-SEQUENCE" => {
                self.is_media = true;
                self.sequence = std::str::from_utf8(list).ok().and_then(|n| n.trim().parse().ok()).unwrap_or(0);
            }
            b"EXT-X-KEY" | b"EXT-X-SESSION-KEY" => self.key(name == b"EXT-X-KEY", list, list_at, at),
            b"EXT-X-MAP" => {
                if self.has_samples {
                    self.note_map(list);
                }
                // Whole-segment encryption covers the initialization section as well (RFC 8216 4.3.2.4), so it is
                // decrypted like a segment. In sample encryption it is clear, and only rewritten as that of a clear
                // stream.
                // So it is for a player that decrypts by itself.
                let whole = self.crypt.as_ref().is_some_and(|c| is_of_whole_segments(&c.method));
                let kind = if self.has_samples && !whole && !self.is_kept { UriRole::Init } else { UriRole::Segment };
                self.uri_with_range(kind, list, list_at);
            }
            b"EXT-X-BYTERANGE" if self.moves_ranges => {
                self.range = std::str::from_utf8(list).ok().and_then(length_and_offset);
                self.remove_line(at);
            }
            // Only a hint, of which the range may be open.
            b"EXT-X-PRELOAD-HINT" if self.moves_ranges && attribute(list, b"BYTERANGE-START").is_some() => {
                self.remove_line(at);
            }
            b"EXT-X-PART" | b"EXT-X-PRELOAD-HINT" => {
                if self.options.apply_keys {
                    self.set_iv_from_sequence();
                }
                self.uri_with_range(UriRole::Segment, list, list_at);
            }
            b"EXT-X-MEDIA" | b"EXT-X-I-FRAME-STREAM-INF" | b"EXT-X-IMAGE-STREAM-INF" | b"EXT-X-RENDITION-REPORT" => {
                uri(self, b"URI", UriRole::Playlist);
            }
            b"EXT-X-SESSION-DATA" => uri(self, b"URI", UriRole::Data),
            b"EXT-X-CONTENT-STEERING" => uri(self, b"SERVER-URI", UriRole::Steering),
            b"EXT-X-DATERANGE" => {
                // In the order of the line.
                let preload = attribute_text(list, b"CLASS") == Some("com.apple.hls.preload");
                let preloaded = attribute(list, b"X-URI").and_then(|r| list.get(r)).filter(|_| preload);
                let preloaded = preloaded.map(|address| (&b"X-URI"[..], kind_of_preload(address)));
                let mut uris: Vec<_> = [(&b"X-ASSET-URI"[..], UriRole::Playlist), (b"X-ASSET-LIST", UriRole::Assets)]
                    .into_iter()
                    .chain(preloaded)
                    .filter_map(|(attr, kind)| attribute(list, attr).map(|range| (range, kind)))
                    .collect();
                uris.sort_by_key(|(range, _)| range.start);
                uris.into_iter().for_each(|(r, kind)| self.uri(list_at + r.start..list_at + r.end, kind));
            }
            b"EXT-X-DEFINE" => self.define(list, at..at + line.len()),
            other if other.starts_with(b"EXT-X-") => uri(self, b"URI", UriRole::Data),
            _ => {}
        }
    }

    /// Replaces the attribute `URI`. The attribute `BYTERANGE` goes into the URL if ranges are moved.
    fn uri_with_range(&mut self, kind: UriRole, list: &[u8], list_at: usize) {
        let Some(uri) = attribute(list, b"URI") else { return };
        let uri = list_at + uri.start..list_at + uri.end;
        let uris = attributes(list).find(|(name, _)| self.moves_ranges && name == b"BYTERANGE").map(|(_, value)| value);
        let Some(value) = uris else { return self.uri(uri, kind) };
        self.range = list.get(value.clone()).and_then(|r| std::str::from_utf8(r).ok()).and_then(length_and_offset);
        // With the comma before it, or after it if it is the first one.
        let name_at =
            list.get(..value.start).and_then(|l| memchr::memmem::rfind(l, b"BYTERANGE")).unwrap_or(value.start);
        let quoted = usize::from(list.get(value.end) == Some(&b'"'));
        let before = list.get(..name_at).and_then(|l| memchr::memrchr(b',', l));
        let gone = match before {
            Some(comma) => comma..value.end + quoted,
            None => name_at..(value.end + quoted + 1).min(list.len()),
        };
        let gone = list_at + gone.start..list_at + gone.end;
        if gone.start < uri.start {
            self.replace(gone, |_| ());
            self.uri(uri, kind);
        } else {
            self.uri(uri, kind);
            self.replace(gone, |_| ());
        }
    }

    /// Replaces `QUERYPARAM` by its value: a player would look for the parameter in the URL that it got the playlist
    /// from, which is the gateway's.
    fn define(&mut self, list: &[u8], line: Range<usize>) {
        let Some(name) = attribute_text(list, b"QUERYPARAM") else { return };
        let Some(value) = self.options.variables.get(name) else { return };
        if value.contains(['"', '\n', '\r']) {
            return;
        }
        let tag = format!("#EXT-X-DEFINE:NAME=\"{name}\",VALUE=\"{value}\"");
        self.replace(line, |r| r.out.extend_from_slice(tag.as_bytes()));
    }

    /// The programme guides of an IPTV list; one attribute may contain several URLs separated by commas.
    fn guides(&mut self, line: &[u8], at: usize) {
        let mut uris: Vec<_> =
            ["url-tvg", "x-tvg-url", "tvg-url"].iter().filter_map(|name| loose_attribute(line, name)).collect();
        uris.sort_by_key(|r| r.start);
        for range in uris {
            let mut from = range.start;
            for part in line.get(range).unwrap_or_default().split(|b| *b == b',') {
                self.uri(at + from..at + from + part.len(), UriRole::Guide);
                from += part.len() + 1;
            }
        }
    }
}

/// The kind of a preloaded resource by its URL, which must map to the same gateway URL as elsewhere.
fn kind_of_preload(address: &[u8]) -> UriRole {
    let path = address.split(|b| matches!(b, b'?' | b'#')).next().unwrap_or_default();
    if is_playlist_address(address) {
        UriRole::Playlist
    } else if path.to_ascii_lowercase().ends_with(b".key") {
        UriRole::Key
    } else {
        UriRole::Segment
    }
}

/// Whether a method encrypts whole segments, including initialization sections.
fn is_of_whole_segments(method: &str) -> bool {
    matches!(method, "AES-128" | "AES-256")
}

/// URL schemes that cannot be fetched here: `skd:`, `data:`, `urn:` and the like.
fn is_foreign_scheme(reference: &str) -> bool {
    !is_http(reference.as_bytes()) && scheme_of(reference).is_some()
}

/// Whether a URL refers to a playlist, by its file name, or the parameter `type` that IPTV panels use.
pub fn is_playlist_address(address: &[u8]) -> bool {
    let end = memchr::memchr2(b'?', b'#', address).unwrap_or(address.len());
    let (path, query) = address.split_at(end);
    let ends = |end: &[u8]| path.len() >= end.len() && path[path.len() - end.len()..].eq_ignore_ascii_case(end);
    if matches!(path.last(), Some(b'8' | b'u' | b'U' | b's' | b'S'))
        && (ends(b".m3u8") || ends(b".m3u") || ends(b".m3u_plus"))
    {
        return true;
    }
    let mut rest = query.get(1..).unwrap_or_default();
    while !rest.is_empty() {
        let end = memchr::memchr(b'&', rest).unwrap_or(rest.len());
        if rest[..end].strip_prefix(b"type=").is_some_and(|t| matches!(t, b"m3u" | b"m3u8" | b"m3u_plus")) {
            return true;
        }
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    false
}

/// The path of segments with a file extension, and their media type. Static strings, because most lines of a long playlist
/// need one.
pub static SEGMENT_TYPES: LazyLock<HashMap<&str, (String, &str)>> = LazyLock::new(|| {
    let records = data_file::records(include_str!("../../data/segment_types.txt"));
    records.map(|[extension, own, media]| (extension, (format!("/proxy/hls/segment.{own}"), media))).collect()
});

/// The extension of a segment's gateway URL, so that players recognise its type: that of its original URL, or `ts`.
pub fn extension(address: &str) -> &'static str {
    let end = memchr::memchr2(b'?', b'#', address.as_bytes()).unwrap_or(address.len());
    let path = &address[..end];
    let dot = memchr::memrchr2(b'.', b'/', path.as_bytes()).filter(|at| path.as_bytes().get(*at) == Some(&b'.'));
    let extension = dot.map_or("", |at| &path[at + 1..]);
    SEGMENT_TYPES.keys().find(|k| k.eq_ignore_ascii_case(extension)).copied().unwrap_or("ts")
}
