//! Key tags: which encryption is removed here, and what becomes of the other keys.

use super::{
    PlaylistRewriter, SegmentEncryption, UriReplacer, UriRole, is_foreign_scheme, is_of_whole_segments,
    length_and_offset,
};
use crate::hls::tags::{attribute, attribute_text, lines, tag};
use crate::relay::address::scheme_of;

impl<P: UriReplacer> PlaylistRewriter<'_, P> {
    /// Remembers the initialization section, which is needed to decrypt samples.
    pub(super) fn note_map(&mut self, list: &[u8]) {
        let Some(reference) = attribute_text(list, b"URI") else { return };
        let reference = self.filled(reference);
        let range = attribute_text(list, b"BYTERANGE").and_then(|r| {
            let (length, first) = length_and_offset(r)?;
            let first = first.unwrap_or(0);
            Some((first, first.checked_add(length)?.checked_sub(1)?))
        });
        self.map = (!is_foreign_scheme(reference.trim())).then(|| (self.base.resolve(reference.trim()), range));
        // Some packagers leave the key tags out for players that get their keys elsewhere.
        if self.options.own_keys && self.crypt.is_none() && memchr::memmem::find(self.text, b"#EXT-X-KEY:").is_none() {
            self.crypt = Some(SegmentEncryption::default());
        }
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

    /// Whether there are samples in MP4 that can be decrypted here, and whether there is anything else of that kind.
    pub(super) fn decryptable_kinds(&self) -> (bool, bool) {
        let (mut samples, mut others) = (self.options.own_keys, false);
        for at in memchr::memmem::find_iter(self.text, b"#EXT-X-KEY:") {
            let rest = self.text.get(at..).unwrap_or_default();
            let line = lines(rest).next().map(|line| line.content(rest)).unwrap_or_default();
            let Some((_, list)) = tag(line).filter(|(_, list)| self.can_apply(list)) else { continue };
            let is_sample = attribute_text(list, b"METHOD").is_some_and(|m| m.starts_with("SAMPLE-AES"));
            samples |= is_sample;
            others |= !is_sample || self.is_transport;
        }
        (samples, others)
    }

    /// Whether samples under this key are decrypted with the link's own keys.
    fn has_own_key(&self, list: &[u8]) -> bool {
        let method = attribute_text(list, b"METHOD").unwrap_or_default();
        self.options.own_keys && !self.is_transport && method.starts_with("SAMPLE-AES")
    }

    /// Whether segments under this key can be decrypted here.
    fn can_apply(&self, list: &[u8]) -> bool {
        let method = attribute_text(list, b"METHOD").unwrap_or_default();
        let is_plain = attribute_text(list, b"KEYFORMAT").unwrap_or("identity") == "identity";
        let reference = attribute_text(list, b"URI").and_then(|r| self.options.variables.fill(r)).unwrap_or_default();
        let is_supported = match method {
            "AES-128" | "AES-256" | "SAMPLE-AES" => true,
            "SAMPLE-AES-CTR" => !self.is_transport,
            _ => false,
        };
        let is_known = is_supported && is_plain && !reference.is_empty() && !is_foreign_key(reference.trim());
        self.has_own_key(list) || self.options.apply_keys && is_known
    }

    /// A key tag: removed if it is applied here, otherwise its URI is replaced or the key inlined.
    pub(super) fn key(&mut self, of_segments: bool, list: &[u8], list_at: usize, line_at: usize) {
        let method = attribute_text(list, b"METHOD").unwrap_or_default();
        let format = attribute_text(list, b"KEYFORMAT").unwrap_or("identity");
        let range = attribute(list, b"URI");
        let raw = range.clone().and_then(|r| list.get(r)).unwrap_or_default();
        let raw = String::from_utf8_lossy(raw).into_owned();
        let reference = self.filled(&raw);
        let reference = reference.trim();
        // The keys of a multivariant playlist are those of its media playlists, of which the container is not known.
        let is_own_session = !of_segments && self.options.own_keys && method.starts_with("SAMPLE-AES");
        let applied = self.can_apply(list) || is_own_session;
        let applies_any = self.options.apply_keys || self.options.own_keys;
        if applied || applies_any && of_segments && self.is_applied_here(method, line_at) {
            if of_segments && applied {
                let map = self.map.clone().filter(|_| !is_of_whole_segments(method));
                self.crypt = Some(if self.has_own_key(list) {
                    SegmentEncryption { map, ..SegmentEncryption::default() }
                } else {
                    let iv = attribute_text(list, b"IV").unwrap_or_default();
                    let iv = iv.trim_start_matches("0x").trim_start_matches("0X").to_owned();
                    let key = Some(self.base.resolve(reference));
                    SegmentEncryption { key, method: method.to_owned(), iv, map }
                });
                (self.is_keyed, self.is_kept) = (true, false);
            }
            return self.remove_line(line_at);
        }
        // The keys before it no longer apply, whether this one can be applied here or not.
        if of_segments {
            (self.crypt, self.is_kept) = (None, method != "NONE");
        }
        let Some(range) = range else { return };
        let span = list_at + range.start..list_at + range.end;
        // Players that cannot send fields or cookies for key requests get the key in the playlist.
        let is_identity = format == "identity" && !reference.is_empty() && !is_foreign_scheme(reference);
        if is_identity && matches!(method, "AES-128" | "SAMPLE-AES") {
            let address = self.base.resolve(reference);
            if let Some(data) = self.place.inline(&address) {
                // `data:` URLs contain a comma, which would end a value without quotes.
                if self.is_unquoted(span.start) {
                    return self.replace_quoted(span, data.as_bytes());
                }
                return self.replace(span, |r| r.out.extend_from_slice(data.as_bytes()));
            }
        }
        self.uri(span, UriRole::Key);
    }
}

/// Key URLs that cannot be fetched here; `data:` URLs contain the key themselves.
fn is_foreign_key(reference: &str) -> bool {
    is_foreign_scheme(reference) && !scheme_of(reference).is_some_and(|s| s.eq_ignore_ascii_case("data"))
}
