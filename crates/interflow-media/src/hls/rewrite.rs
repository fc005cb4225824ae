//! The rewriter: one pass over the bytes, everything that is no URI copied as it stands.

use std::borrow::Cow;
use std::ops::Range;

use interflow_types::budget::PROCESS_BUDGET;
use interflow_types::{Error, ErrorKind as FlowKind, Result};

use super::define::{MAX_VALUE_LEN, PlaylistVariables};
use super::tags::{PlaylistLine, attribute, attribute_text, lines, loose_attribute, tag};
use crate::relay::BaseUrl;
use crate::relay::address::{is_http, scheme_of};

/// What a URI leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UriRole {
    /// A playlist.
    Playlist,
    /// A segment, part, initialization section or hint.
    Segment,
    /// The initialization section of samples that are decrypted here.
    Init,
    /// A key.
    Key,
    /// Data of a session: JSON or anything else.
    Data,
    /// A steering manifest.
    Steering,
    /// A list of interstitial assets.
    Assets,
    /// A channel of an IPTV list.
    Channel,
    /// A programme guide.
    Guide,
}

/// How the segments that follow are encrypted, when they are to be decrypted here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentEncryption {
    /// The key's absolute address.
    pub key: String,
    /// `AES-128`, `SAMPLE-AES`, …
    pub method: String,
    /// The initialization vector in hex, without `0x`; the media sequence number when the tag gives none.
    pub iv: String,
    /// Where the initialization section is, and its first and last byte: for samples in MP4.
    pub map: Option<(String, Option<(u64, u64)>)>,
}

/// Decides what stands in the place of a URI.
pub trait UriReplacer {
    /// Writes what stands for this absolute address. `crypt` is there for segments that are to be decrypted.
    fn write_uri(&mut self, kind: UriRole, address: &str, crypt: Option<&SegmentEncryption>, out: &mut Vec<u8>);

    /// A line about the channel that comes next; whether the channel's URL says it, so that the line goes.
    fn channel_option(&mut self, _line: &str) -> bool {
        false
    }

    /// Header fields that stand behind a channel's address (`URL|Name=value&…`, as Kodi writes them); whether the channel's URL
    /// says them, so that they go.
    fn channel_fields(&mut self, _fields: &str) -> bool {
        false
    }

    /// The channel is over: what was said of it means nothing for the next one.
    fn end_channel(&mut self) {}

    /// A key that is to stand in the playlist itself: its `data:` address.
    fn inline(&self, _address: &str) -> Option<String> {
        None
    }
}

/// What is done besides.
#[derive(Clone, Debug, Default)]
pub struct HlsRewriteOptions {
    /// Take the tags of keys out, and tell the place how segments are encrypted.
    pub apply_keys: bool,
    /// `EXT-X-START` for a playlist that has none, in seconds.
    pub start: Option<f64>,
    /// Variables (`EXT-X-DEFINE`).
    pub variables: PlaylistVariables,
}

/// How much is written in one go before other work of the same thread has its turn, in bytes.
const YIELD_BYTES: usize = 64 << 10;

/// Rewrites a playlist that came from `base`.
pub fn rewrite(text: &[u8], base: &BaseUrl, options: &HlsRewriteOptions, place: &mut impl UriReplacer) -> Vec<u8> {
    let mut r = PlaylistRewriter::new(text, base, options, place);
    let mut start = options.start;
    lines(text).for_each(|line| r.line(line, &mut start));
    r.copy(text.len());
    r.out
}

/// The same for a playlist that nobody vouches for: other work has its turn meanwhile, what is written counts towards the
/// process's budget of held bytes, and there is at most `most` of it.
///
/// # Errors
/// [`interflow_types::Kind::BadResponse`] for a playlist that would grow longer than `most`, or an address longer than
/// variables may make it; [`interflow_types::Kind::Overloaded`].
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
        if line.next + r.out.len() >= paused + YIELD_BYTES {
            paused = line.next + r.out.len();
            held.grow_to(r.out.capacity() as u64)?;
            tokio::task::yield_now().await;
        }
    }
    r.copy(text.len());
    Ok(r.out)
}

/// What the next line without `#` is.
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
    /// Where addresses are put together.
    scratch: String,
    has_variables: bool,
    /// An address would be too long with its variables filled in.
    too_long: bool,
    copied: usize,
    next: ExpectedUri,
    is_media: bool,
    /// No initialization section: segments are transport streams, or packed audio.
    is_transport: bool,
    /// There are encrypted samples, which are decrypted here.
    has_samples: bool,
    sequence: u64,
    crypt: Option<SegmentEncryption>,
    /// The initialization section of the segments that follow.
    map: Option<(String, Option<(u64, u64)>)>,
    /// A key was applied since the last segment.
    is_keyed: bool,
    /// Up to where the tags before the next segment were looked at, and whether a key among them is applied.
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

    /// One line. `start`: what is to stand behind the first one.
    fn line(&mut self, line: PlaylistLine, start: &mut Option<f64>) {
        let bytes = line.content(self.text);
        match bytes.first() {
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

    /// Whether a line of a list is about the next channel, and its link says so.
    fn takes_option(&mut self, line: &[u8]) -> bool {
        (line.starts_with(b"#EXTVLCOPT:") || line.starts_with(b"#EXTHTTP:") || line.starts_with(b"#KODIPROP:"))
            && std::str::from_utf8(line).is_ok_and(|line| self.place.channel_option(line))
    }

    /// A reference with its variables filled in; one that would be too long is noted, and left out.
    fn filled<'t>(&mut self, reference: &'t str) -> Cow<'t, str> {
        if !self.has_variables {
            return Cow::Borrowed(reference);
        }
        Cow::Owned(self.options.variables.fill(reference).unwrap_or_else(|| {
            self.too_long = true;
            String::new()
        }))
    }

    fn copy(&mut self, until: usize) {
        self.out.extend_from_slice(self.text.get(self.copied..until).unwrap_or_default());
        self.copied = until.max(self.copied);
    }

    /// Puts something else in the place of these bytes.
    fn replace(&mut self, range: Range<usize>, put: impl FnOnce(&mut Self)) {
        self.copy(range.start);
        put(self);
        self.copied = range.end;
    }

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
        } else if scheme_of(reference).is_some() {
            self.scratch = scratch;
            return;
        } else {
            self.base.join(reference, &mut scratch);
            &scratch
        };
        let crypt = if kind == UriRole::Segment { self.crypt.take() } else { None };
        self.copy(range.start);
        self.place.write_uri(kind, address, crypt.as_ref(), &mut self.out);
        self.copied = range.end;
        if kind == UriRole::Segment {
            self.crypt = crypt;
        }
        self.scratch = scratch;
    }

    fn uri_line(&mut self, line: &[u8], at: usize) {
        let trimmed = line.trim_ascii();
        if trimmed.is_empty() {
            return;
        }
        let start = at + (trimmed.as_ptr() as usize - line.as_ptr() as usize);
        let (address, fields) = match trimmed.iter().position(|b| *b == b'|') {
            Some(bar) if !self.is_media && self.next != ExpectedUri::Variant => trimmed.split_at(bar),
            _ => (trimmed, &b""[..]),
        };
        // Addresses of other schemes stay as they stand, and with them what is behind them.
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

    /// Without a vector of its own, a segment's is its number (RFC 8216bis 5.2).
    fn set_iv_from_sequence(&mut self) {
        let number = self.sequence;
        if let Some(crypt) = &mut self.crypt
            && (crypt.iv.is_empty() || crypt.iv.starts_with('#'))
        {
            crypt.iv = format!("#{number:032x}");
        }
    }

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
                // In their order in the line, whichever that is.
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

    /// Remembers the initialization section, which samples cannot be decrypted without.
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

    /// Whether another key of the same segments is applied here: then this one's tag says what is no longer so.
    fn is_applied_here(&mut self, method: &str, line_at: usize) -> bool {
        if method == "NONE" {
            return false;
        }
        if self.is_keyed || line_at < self.group.0 {
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

    /// A player would look for a query parameter in its own URL of the playlist, which is ours.
    fn define(&mut self, list: &[u8], line: Range<usize>) {
        let Some(name) = attribute_text(list, b"QUERYPARAM") else { return };
        let Some(value) = self.options.variables.get(name) else { return };
        if value.contains(['"', '\n', '\r']) {
            return;
        }
        let tag = format!("#EXT-X-DEFINE:NAME=\"{name}\",VALUE=\"{value}\"");
        self.replace(line, |r| r.out.extend_from_slice(tag.as_bytes()));
    }

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
        let known = format == "identity" && !reference.is_empty() && !is_foreign_scheme(reference);
        if known && matches!(method, "AES-128" | "SAMPLE-AES") {
            let address = self.base.resolve(reference);
            if let Some(data) = self.place.inline(&address) {
                return self.replace(place, |r| r.out.extend_from_slice(data.as_bytes()));
            }
        }
        self.uri(place, UriRole::Key);
    }

    /// The programme guides of an IPTV list; several addresses may stand in one attribute, parted by commas.
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

/// What a resource that a player is told to fetch early is, by its address: its URL must be the one that it has elsewhere.
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

/// Whether a method encrypts segments from their first byte to their last.
fn is_of_whole_segments(method: &str) -> bool {
    matches!(method, "AES-128" | "AES-256")
}

/// Addresses of keys that are none of ours to read; those of `data:` hold the key themselves.
fn is_foreign_key(reference: &str) -> bool {
    is_foreign_scheme(reference) && !scheme_of(reference).is_some_and(|s| s.eq_ignore_ascii_case("data"))
}

/// Addresses that are none of ours to fetch: `skd:`, `data:`, `urn:` and the like.
fn is_foreign_scheme(reference: &str) -> bool {
    !is_http(reference.as_bytes()) && scheme_of(reference).is_some()
}

/// Whether an address is a playlist's by its name, or by what its query says.
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

/// The extension that a segment's URL of ours gets, so that players know what it is: that of its address.
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
