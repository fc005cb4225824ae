//! The rewriter: one pass over the bytes; everything except URIs is copied unchanged.
//!
//! `copied` is the end of what has been written of the original text. A replacement first writes what precedes it, so
//! that unknown tags, line terminators and spaces survive as they are.
//!
//! Where encryption is removed here (`apply_keys`), key tags are deleted, and the parameters of each segment are passed
//! to the [`UriReplacer`], which puts them into the segment's URL. The player then sees a clear playlist.

use std::borrow::Cow;
use std::ops::Range;

use interflow_types::budget::PROCESS_BUDGET;
use interflow_types::{Error, ErrorKind as FlowKind, Result};

use super::define::{MAX_VALUE_LEN, PlaylistVariables};
use super::tags::{PlaylistLine, attribute, attribute_text, lines, loose_attribute, tag};
use crate::relay::BaseUrl;
use crate::relay::address::{is_http, scheme_of};

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

/// How the following segments are encrypted, if they are decrypted here. `key` is an absolute URL, `method` the tag's
/// `METHOD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentEncryption {
    pub key: String,
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
            map: None,
            is_keyed: false,
            group: (0, false),
        };
        r.has_samples = options.apply_keys && !r.is_transport && r.has_decryptable_samples();
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
        self.copy(range.start);
        self.place.write_uri(kind, address, crypt.as_ref(), &mut self.out);
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
            b"EXTINF" => self.next = ExpectedUri::Segment,
            b"EXTM3U" => self.guides(line, at),
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
                let whole = self.crypt.as_ref().is_some_and(|c| is_of_whole_segments(&c.method));
                let kind = if self.has_samples && !whole { UriRole::Init } else { UriRole::Segment };
                uri(self, b"URI", kind);
            }
            b"EXT-X-PART" | b"EXT-X-PRELOAD-HINT" => {
                if self.options.apply_keys {
                    self.set_iv_from_sequence();
                }
                uri(self, b"URI", UriRole::Segment);
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
                let mut found: Vec<_> = [(&b"X-ASSET-URI"[..], UriRole::Playlist), (b"X-ASSET-LIST", UriRole::Assets)]
                    .into_iter()
                    .chain(preloaded)
                    .filter_map(|(attr, kind)| attribute(list, attr).map(|range| (range, kind)))
                    .collect();
                found.sort_by_key(|(range, _)| range.start);
                found.into_iter().for_each(|(r, kind)| self.uri(list_at + r.start..list_at + r.end, kind));
            }
            b"EXT-X-DEFINE" => self.define(list, at..at + line.len()),
            other if other.starts_with(b"EXT-X-") => uri(self, b"URI", UriRole::Data),
            _ => {}
        }
    }

    /// Remembers the initialization section, which is needed to decrypt samples.
    fn note_map(&mut self, list: &[u8]) {
        let Some(reference) = attribute_text(list, b"URI") else { return };
        let reference = self.filled(reference);
        let range = attribute_text(list, b"BYTERANGE").and_then(|r| {
            let (length, first) = r.split_once('@').unwrap_or((r, "0"));
            let (length, first) = (length.trim().parse::<u64>().ok()?, first.trim().parse::<u64>().ok()?);
            Some((first, first.checked_add(length)?.checked_sub(1)?))
        });
        self.map = (!is_foreign_scheme(reference.trim())).then(|| (self.base.resolve(reference.trim()), range));
        if let Some(crypt) = self.crypt.as_mut().filter(|c| !is_of_whole_segments(&c.method)) {
            crypt.map.clone_from(&self.map);
        }
    }

    /// Whether another key of the same segments is applied here, so that this tag no longer applies. Several key tags
    /// with different `KEYFORMAT`s offer the same key to different players; once the segments are clear, all of them
    /// must go, also those before the one that is applied.
    fn is_applied_here(&mut self, method: &str, line_at: usize) -> bool {
        if method == "NONE" {
            return false;
        }
        if self.is_keyed || line_at < self.group.0 {
            // The tags before the segment are examined once, and not again for each key among them.
            return self.is_keyed || self.group.1;
        }
        let rest = self.text.get(line_at..).unwrap_or_default();
        let (mut end, mut applied) = (line_at, false);
        for line in lines(rest) {
            let bytes = line.content(rest);
            if bytes.first().is_some_and(|b| *b != b'#') {
                break;
            }
            applied |= tag(bytes).is_some_and(|(name, list)| name == b"EXT-X-KEY" && self.can_apply(list));
            end = line_at + line.next;
        }
        self.group = (end, applied);
        applied
    }

    /// Whether there are samples in MP4 that can be decrypted here.
    fn has_decryptable_samples(&self) -> bool {
        let is_one = |list: &[u8]| attribute_text(list, b"METHOD").is_some_and(|m| m.starts_with("SAMPLE-AES"));
        let mut keys = memchr::memmem::find_iter(self.text, b"#EXT-X-KEY:").filter_map(|at| {
            let line = lines(self.text.get(at..)?).next()?;
            tag(line.content(self.text.get(at..)?)).map(|(_, list)| list)
        });
        keys.any(|list| is_one(list) && self.can_apply(list))
    }

    /// Whether segments under this key can be decrypted here.
    fn can_apply(&self, list: &[u8]) -> bool {
        let method = attribute_text(list, b"METHOD").unwrap_or_default();
        let is_plain = attribute_text(list, b"KEYFORMAT").unwrap_or("identity") == "identity";
        let reference = attribute_text(list, b"URI").and_then(|r| self.options.variables.fill(r)).unwrap_or_default();
        let known = match method {
            "AES-128" | "AES-256" | "SAMPLE-AES" => true,
            "SAMPLE-AES-CTR" => !self.is_transport,
            _ => false,
        };
        self.options.apply_keys && known && is_plain && !reference.is_empty() && !is_foreign_key(reference.trim())
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

    /// A key tag: removed if it is applied here, otherwise its URI is replaced or the key inlined.
    fn key(&mut self, of_segments: bool, list: &[u8], list_at: usize, line_at: usize) {
        let method = attribute_text(list, b"METHOD").unwrap_or_default();
        let format = attribute_text(list, b"KEYFORMAT").unwrap_or("identity");
        let Some(range) = attribute(list, b"URI") else {
            if of_segments && method == "NONE" {
                self.crypt = None;
            }
            return;
        };
        let place = list_at + range.start..list_at + range.end;
        let raw = String::from_utf8_lossy(list.get(range).unwrap_or_default()).into_owned();
        let reference = self.filled(&raw);
        let reference = reference.trim();
        let applied = self.can_apply(list);
        if applied || self.options.apply_keys && of_segments && self.is_applied_here(method, line_at) {
            if of_segments && applied {
                let iv = attribute_text(list, b"IV").unwrap_or_default();
                let iv = iv.trim_start_matches("0x").trim_start_matches("0X").to_owned();
                let map = self.map.clone().filter(|_| !is_of_whole_segments(method));
                self.crypt =
                    Some(SegmentEncryption { key: self.base.resolve(reference), method: method.to_owned(), iv, map });
                self.is_keyed = true;
            }
            let end = self.text.get(line_at..).and_then(|t| memchr::memchr(b'\n', t));
            let end = end.map_or(self.text.len(), |n| line_at + n + 1);
            return self.replace(line_at..end, |_| ());
        }
        // Players that cannot send fields or cookies for key requests get the key in the playlist.
        let known = format == "identity" && !reference.is_empty() && !is_foreign_scheme(reference);
        if known && matches!(method, "AES-128" | "SAMPLE-AES") {
            let address = self.base.resolve(reference);
            if let Some(data) = self.place.inline(&address) {
                return self.replace(place, |r| r.out.extend_from_slice(data.as_bytes()));
            }
        }
        self.uri(place, UriRole::Key);
    }

    /// The programme guides of an IPTV list; one attribute may contain several URLs separated by commas.
    fn guides(&mut self, line: &[u8], at: usize) {
        let mut found: Vec<_> =
            ["url-tvg", "x-tvg-url", "tvg-url"].iter().filter_map(|name| loose_attribute(line, name)).collect();
        found.sort_by_key(|r| r.start);
        for range in found {
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

/// Key URLs that cannot be fetched here; `data:` URLs contain the key themselves.
fn is_foreign_key(reference: &str) -> bool {
    is_foreign_scheme(reference) && !scheme_of(reference).is_some_and(|s| s.eq_ignore_ascii_case("data"))
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

/// The extension of a segment's gateway URL, so that players recognise its type: that of its original URL, or `ts`.
pub fn extension(address: &str) -> &'static str {
    const KNOWN: [&str; 19] = [
        "ts", "m4s", "mp4", "m4a", "m4v", "aac", "ac3", "ec3", "mp3", "vtt", "webvtt", "cmfv", "cmfa", "cmft", "m2ts",
        "mpg", "jpg", "png", "ttml",
    ];
    let end = memchr::memchr2(b'?', b'#', address.as_bytes()).unwrap_or(address.len());
    let path = &address[..end];
    let dot = memchr::memrchr2(b'.', b'/', path.as_bytes()).filter(|at| path.as_bytes().get(*at) == Some(&b'.'));
    let extension = dot.map_or("", |at| &path[at + 1..]);
    KNOWN.iter().find(|k| k.eq_ignore_ascii_case(extension)).copied().unwrap_or("ts")
}
