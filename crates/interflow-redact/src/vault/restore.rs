//! Restores originals in streamed text. Placeholders are matched in decoded text, and originals are encoded for their
//! position, so that every fragment remains valid: the content of a JSON string, JSON, or text.
//!
//! Three texts are involved. The *raw* fragment is what the event contains. The *decoded* text is the same without the
//! escapes of the string that carries it. If that text is JSON itself (tool call arguments), its strings may contain
//! JSON again; the *innermost* text is what a placeholder is matched in, because a model writes placeholders as
//! ordinary characters of the innermost string. `OffsetMap` leads from decoded to raw offsets and `LeafText` from
//! innermost to decoded ones; the depth at a placeholder is the number of times its original has to be escaped.
//!
//! A fragment boundary may fall anywhere: within a placeholder, an escape, or a surrogate pair. What cannot be decided
//! yet is buffered and joined with the next fragment; everything before it is released, so that a stream is not delayed
//! by text that has nothing to do with placeholders.

use interflow_codec::json::replace_ranges;

use crate::scan::stream::EscapeLevel;
use crate::text::escape_layers::{CharSink, EscapeLayers, NullSink};
use crate::text::json::{JsonPart, decode_piece, escape_into, escaped, json_parts};
use crate::text::normalized_text::OffsetMap;
use crate::vault::{PlaceholderPrefix, PlaceholderVault};
use crate::{RedactError, Result};

/// Number of code characters after which a truncated placeholder is certain; a label and an underscore alone are
/// ordinary text.
const MIN_CERTAIN_CODE_CHARS: usize = 2;

/// Restores placeholders in streamed text. One per choice and tool call; buffers only what may be the beginning of a
/// known placeholder or of an escape.
///
/// ```
/// use interflow_redact::{EscapeLevel, Kind, PlaceholderRestorer, PlaceholderVault, VaultKey};
///
/// let mut vault = PlaceholderVault::new(&VaultKey::random()?);
/// let placeholder = vault.placeholder(Kind::Email, "EMAIL", "ada@example.org")?;
/// let (head, tail) = placeholder.split_at(4);
///
/// let mut restorer = PlaceholderRestorer::new(EscapeLevel::Plain);
/// let mut out = String::new();
/// restorer.push(&vault, &format!("Write to {head}"), &mut out);
/// assert_eq!(out, "Write to ");
/// restorer.push(&vault, &format!("{tail}!"), &mut out);
/// restorer.finish(&vault, &mut out)?;
/// assert_eq!(out, "Write to ada@example.org!");
/// # Ok::<(), interflow_redact::RedactError>(())
/// ```
#[derive(Debug)]
pub struct PlaceholderRestorer {
    /// Whether fragments are the content of JSON strings.
    in_string: bool,
    reading: RestoreReading,
    /// Text that may be the beginning of a placeholder, decoded.
    held: String,
    /// A high surrogate at the end of the last fragment, in raw form.
    half: String,
    leaves: LeafText,
}

/// How the decoded text is interpreted. It starts as `Open` and is decided by the first character that is not white
/// space; `Json` becomes `Plain` as soon as the text proves not to be JSON.
#[derive(Debug)]
enum RestoreReading {
    Plain,
    /// Nothing but white space so far; `any` means that it is certainly JSON.
    Open {
        any: bool,
    },
    Json(Box<EscapeLayers>),
}

/// The innermost text of the buffer and the current fragment, with a map to the outer text. Filled only while the
/// text is read as JSON.
#[derive(Debug, Default)]
struct LeafText {
    text: String,
    marks: Vec<OffsetMark>,
}

/// From this byte of the innermost text on, both texts advance together.
#[derive(Clone, Copy, Debug)]
struct OffsetMark {
    leaf: usize,
    outer: usize,
    depth: u8,
}

impl CharSink for LeafText {
    fn character(&mut self, c: char, start: usize, depth: u8) {
        let leaf = self.text.len();
        // Most characters continue where the last one ended; a new mark is needed only after an escape or a change of
        // depth.
        let goes_on = self.marks.last().is_some_and(|m| m.depth == depth && m.outer + (leaf - m.leaf) == start);
        if !goes_on {
            self.marks.push(OffsetMark { leaf, outer: start, depth });
        }
        self.text.push(c);
    }
}

impl LeafText {
    fn offset_mark(&self, leaf: usize) -> Option<&OffsetMark> {
        let next = self.marks.partition_point(|m| m.leaf <= leaf);
        self.marks.get(next.checked_sub(1)?)
    }

    /// The position in the outer text of the character at `leaf`; the outer text ends at `end`.
    fn outer_offset(&self, leaf: usize, end: usize) -> usize {
        if leaf >= self.text.len() {
            return end;
        }
        self.offset_mark(leaf).map_or(leaf, |m| m.outer + (leaf - m.leaf))
    }

    fn depth(&self, leaf: usize) -> u8 {
        self.offset_mark(leaf).map_or(0, |m| m.depth)
    }

    /// Discards the text before `leaf`, and moves the map by `outer` bytes, which left the buffer.
    fn drop_before(&mut self, leaf: usize, outer: usize) {
        if leaf >= self.text.len() {
            self.text.clear();
            self.marks.clear();
            return;
        }
        let first = self.offset_mark(leaf).map(|m| OffsetMark {
            leaf: 0,
            outer: m.outer + (leaf - m.leaf) - outer,
            depth: m.depth,
        });
        self.marks.retain(|m| m.leaf > leaf);
        for m in &mut self.marks {
            m.leaf -= leaf;
            m.outer -= outer;
        }
        self.marks.splice(..0, first);
        self.text.drain(..leaf);
    }
}

/// A placeholder in offsets of the outer text.
struct PlaceholderMatch<'v> {
    start: usize,
    end: usize,
    depth: u8,
    original: &'v str,
}

/// A fragment in raw and decoded form.
struct DecodedPiece<'p> {
    raw: &'p str,
    text: &'p str,
    map: &'p OffsetMap,
}

impl PlaceholderVault {
    /// Restores the originals in a complete text. Borrowed if there is nothing to restore.
    pub fn restore<'t>(&self, text: &'t str) -> std::borrow::Cow<'t, str> {
        let restored = self.restore_with(PlaceholderRestorer::new(EscapeLevel::Plain), text);
        restored.map_or(text.into(), Into::into)
    }

    /// Restores originals in the raw content of a whole JSON string; `None` if there is nothing to restore. `json` as for
    /// [`PlaceholderRestorer::in_string`].
    pub fn restore_string(&self, raw: &str, json: bool) -> Option<String> {
        self.restore_with(PlaceholderRestorer::in_string(json), raw)
    }

    fn restore_with(&self, mut restorer: PlaceholderRestorer, raw: &str) -> Option<String> {
        let restored = restorer.rewrite(self, raw);
        // A complete text that ends inside a possible placeholder: what was held back is emitted as it is.
        if !restorer.has_buffered() {
            return restored;
        }
        let out = restored.unwrap_or_default() + &restorer.end(self);
        (out != raw).then_some(out)
    }

    /// Restores originals in the strings and names of a JSON text; `None` if there is nothing to restore.
    pub fn restore_json(&self, json: &str) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let mut restored = Vec::new();
        for span in json_parts(json.as_bytes()).ok()?.into_iter().filter(|span| span.part != JsonPart::Number) {
            let text = self.restore_string(json.get(span.range.clone())?, false);
            restored.extend(text.map(|text| (span.range, text)));
        }
        if restored.is_empty() {
            return None;
        }
        let edits = restored.iter().map(|(range, text)| (range.clone(), text.as_bytes()));
        String::from_utf8(replace_ranges(json.as_bytes(), edits)).ok()
    }
}

impl PlaceholderRestorer {
    /// A restorer for fragments of decoded text at this escape level.
    pub const fn new(form: EscapeLevel) -> Self {
        let reading = match form {
            EscapeLevel::Plain => RestoreReading::Plain,
            EscapeLevel::Json => RestoreReading::Open { any: true },
        };
        Self::with_reading(reading, false)
    }

    /// A restorer for raw contents of JSON strings. A text that begins like an object or an array is treated as JSON
    /// while it is valid; `json` means that it is any JSON value.
    pub const fn in_string(json: bool) -> Self {
        Self::with_reading(RestoreReading::Open { any: json }, true)
    }

    const fn with_reading(reading: RestoreReading, in_string: bool) -> Self {
        let leaves = LeafText { text: String::new(), marks: Vec::new() };
        Self { in_string, reading, held: String::new(), half: String::new(), leaves }
    }

    /// Processes a fragment and appends to `out` what can be forwarded.
    pub fn push(&mut self, vault: &PlaceholderVault, piece: &str, out: &mut String) {
        match self.rewrite(vault, piece) {
            Some(text) => out.push_str(&text),
            None => out.push_str(piece),
        }
    }

    /// Processes a fragment; returns its replacement, or `None` if it can be forwarded unchanged.
    pub fn rewrite(&mut self, vault: &PlaceholderVault, piece: &str) -> Option<String> {
        if !self.in_string {
            let piece = DecodedPiece { raw: piece, text: piece, map: &OffsetMap::identity() };
            return self.run(vault, &piece, true, false);
        }
        if self.half.is_empty() {
            return self.push_raw(vault, piece, false);
        }
        // The low surrogate is at the start of this fragment.
        let mut joined = std::mem::take(&mut self.half);
        joined.push_str(piece);
        Some(self.push_raw(vault, &joined, true).unwrap_or(joined))
    }

    /// Decodes a fragment of a string's raw content. A high surrogate at its end waits for the next fragment.
    fn push_raw(&mut self, vault: &PlaceholderVault, raw: &str, changed: bool) -> Option<String> {
        // The event was valid JSON; a string that cannot be decoded is not changed.
        let Ok(decoded) = decode_piece(raw, 0) else {
            let out = escaped(&std::mem::take(&mut self.held));
            self.reading = RestoreReading::Plain;
            // From here on nothing is known about the structure, so the rest is searched as plain text.
            self.leaves.drop_before(usize::MAX, 0);
            return (changed || !out.is_empty()).then(|| out + raw);
        };
        let (whole, half) = raw.split_at(raw.len() - decoded.open);
        self.half.push_str(half);
        let piece = DecodedPiece { raw: whole, text: &decoded.text, map: &decoded.map };
        self.run(vault, &piece, true, changed || !half.is_empty())
    }

    /// The end of the text: buffered text is released if it is ordinary text.
    ///
    /// # Errors
    /// The text ends inside a placeholder.
    pub fn finish(&mut self, vault: &PlaceholderVault, out: &mut String) -> Result<()> {
        let read = if matches!(self.reading, RestoreReading::Json(_)) { &self.leaves.text } else { &self.held };
        // A label and an underscore occur in ordinary text; with part of a code after them, the text is a truncated
        // placeholder.
        if read.rsplit_once('_').is_some_and(|(_, code)| code.len() >= MIN_CERTAIN_CODE_CHARS) {
            return Err(RedactError::OpenPlaceholder);
        }
        out.push_str(&self.end(vault));
        Ok(())
    }

    /// The end of a complete text: a truncated placeholder is ordinary text there.
    pub fn end(&mut self, vault: &PlaceholderVault) -> String {
        let nothing = DecodedPiece { raw: "", text: "", map: &OffsetMap::identity() };
        let mut out = self.run(vault, &nothing, false, true).unwrap_or_default();
        out.push_str(&std::mem::take(&mut self.half));
        out
    }

    /// Whether a part of the text has not been released yet.
    pub const fn has_buffered(&self) -> bool {
        !self.held.is_empty() || !self.half.is_empty()
    }

    /// Appends a fragment to the buffer and processes both. `changed` means that the fragment cannot be forwarded as
    /// received.
    fn run(&mut self, vault: &PlaceholderVault, piece: &DecodedPiece<'_>, more: bool, changed: bool) -> Option<String> {
        self.begin(piece.text);
        let fresh = self.held.is_empty();
        if let RestoreReading::Json(layers) = &mut self.reading {
            let mut starts = piece.text.char_indices();
            // Without an escape or a possible start, nothing in this fragment can change. The levels still have to see
            // it, because they must know where strings begin and end.
            if fresh
                && more
                && memchr::memchr(b'\\', piece.text.as_bytes()).is_none()
                && vault.next_start(piece.text.as_bytes()).is_none()
            {
                starts.for_each(|(at, c)| layers.feed(c, at, &mut NullSink));
                return changed.then(|| piece.raw.to_owned());
            }
            let base = self.held.len();
            starts.by_ref().for_each(|(at, c)| layers.feed(c, base + at, &mut self.leaves));
            if !more {
                layers.flush(&mut self.leaves);
            }
        } else if fresh && vault.next_start(piece.text.as_bytes()).is_none() {
            return changed.then(|| piece.raw.to_owned());
        }
        let base = self.held.len();
        let joined;
        let text = if fresh {
            piece.text
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.push_str(piece.text);
            joined = held;
            &joined
        };
        let (found, leaf, hold) = self.find(vault, text, more);
        // Nothing found and nothing buffered: the fragment is forwarded as it is, without an allocation.
        if found.is_empty() && fresh && hold == text.len() && !changed {
            self.release_before(leaf, hold);
            return None;
        }
        let mut out = String::with_capacity(piece.raw.len() + found.len() * 16);
        let mut at = 0;
        for f in &found {
            self.copy(piece, text, base, at..f.start, &mut out);
            self.write_original(f, &mut out);
            at = f.end;
        }
        self.copy(piece, text, base, at..hold, &mut out);
        self.held.push_str(&text[hold..]);
        self.release_before(leaf, hold);
        Some(out)
    }

    /// Determines the format of the text by its first character.
    fn begin(&mut self, text: &str) {
        let RestoreReading::Open { any } = self.reading else { return };
        match text.trim_ascii_start().bytes().next() {
            None => {}
            Some(b'{' | b'[') => self.reading = RestoreReading::Json(Box::new(EscapeLayers::new(any))),
            Some(_) if any => self.reading = RestoreReading::Json(Box::new(EscapeLayers::new(true))),
            Some(_) => self.reading = RestoreReading::Plain,
        }
    }

    /// The placeholders, the position from which the innermost text must be buffered, and the position of the text.
    fn find<'v>(
        &self,
        vault: &'v PlaceholderVault,
        text: &str,
        more: bool,
    ) -> (Vec<PlaceholderMatch<'v>>, usize, usize) {
        let layers = match &self.reading {
            RestoreReading::Json(layers) => Some(layers),
            _ => None,
        };
        let read = if layers.is_some() { self.leaves.text.as_str() } else { text };
        let open = layers.and_then(|l| l.pending_start()).unwrap_or(text.len());
        let outer = |leaf: usize| if layers.is_some() { self.leaves.outer_offset(leaf, open) } else { leaf };
        let bytes = read.as_bytes();
        let mut matches = Vec::new();
        let mut at = 0;
        while let Some(skip) = bytes.get(at..).and_then(|rest| vault.next_start(rest)) {
            at += skip;
            match vault.match_at_start(&bytes[at..], more) {
                PlaceholderPrefix::Found { len, original } => {
                    let depth = if layers.is_some() { self.leaves.depth(at) } else { 0 };
                    matches.push(PlaceholderMatch { start: outer(at), end: outer(at + len), depth, original });
                    at += len;
                }
                // The text ends within a possible placeholder: everything from here on is buffered.
                PlaceholderPrefix::Open => return (matches, at, outer(at)),
                PlaceholderPrefix::Not => at += 1,
            }
        }
        (matches, bytes.len(), open)
    }

    /// Forgets what was released: positions are relative to the buffer, which now begins at `hold`.
    fn release_before(&mut self, leaf: usize, hold: usize) {
        self.leaves.drop_before(leaf, hold);
        if let RestoreReading::Json(layers) = &mut self.reading {
            layers.rebase(hold);
            // From here on the text is scanned without the levels, which is several times faster.
            if layers.is_plain() && self.held.is_empty() {
                self.reading = RestoreReading::Plain;
            }
        }
    }

    /// Text that is not replaced: copied from the fragment or, if it was buffered, encoded again.
    fn copy(&self, piece: &DecodedPiece<'_>, text: &str, base: usize, range: std::ops::Range<usize>, out: &mut String) {
        let old = range.start..range.end.min(base);
        if !old.is_empty() {
            // Buffered text lost its raw form, so it is escaped again: equivalent, though perhaps not the same escapes.
            if self.in_string { escape_into(&text[old], out) } else { out.push_str(&text[old]) }
        }
        let new = range.start.max(base)..range.end;
        if !new.is_empty() {
            out.push_str(&piece.raw[piece.map.start(new.start - base)..piece.map.end(new.end - base)]);
        }
    }

    /// Writes an original, escaped once per level of JSON around the placeholder.
    fn write_original(&self, found: &PlaceholderMatch<'_>, out: &mut String) {
        let times = found.depth + u8::from(self.in_string);
        if times == 0 {
            return out.push_str(found.original);
        }
        let mut text = std::borrow::Cow::Borrowed(found.original);
        // The last escape is written directly to the output.
        for _ in 1..times {
            text = escaped(&text).into();
        }
        escape_into(&text, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::vault::VaultKey;
    use proptest::prelude::*;

    fn vault() -> (PlaceholderVault, Vec<String>) {
        let mut vault = PlaceholderVault::new(&VaultKey::for_conversation(&[3; 32], b"t"));
        let names = ["Anna \"the\" Bär", "anna@example.com", "C:\\x\n"];
        let made = names.iter().map(|n| vault.placeholder(Kind::Person, "PERSON", n).expect("room")).collect();
        (vault, made)
    }

    fn restored(vault: &PlaceholderVault, form: EscapeLevel, text: &str, cuts: &[usize]) -> Result<String> {
        let mut restorer = PlaceholderRestorer::new(form);
        let mut out = String::new();
        let mut at = 0;
        for cut in cuts {
            let cut = text.floor_char_boundary(at + cut).min(text.len());
            restorer.push(vault, &text[at..cut], &mut out);
            at = cut;
        }
        restorer.push(vault, &text[at..], &mut out);
        restorer.finish(vault, &mut out)?;
        Ok(out)
    }

    #[test]
    fn ordinary_text_is_not_buffered() {
        let (vault, _) = vault();
        let mut restorer = PlaceholderRestorer::new(EscapeLevel::Plain);
        let mut out = String::new();
        for piece in ["Hello", " there, ", "how are yo", "u?"] {
            restorer.push(&vault, piece, &mut out);
            assert!(!restorer.has_buffered());
        }
        restorer.push(&vault, "a PERS", &mut out);
        assert!(restorer.has_buffered() && out.ends_with("a "));
        restorer.push(&vault, "IAN cat", &mut out);
        assert_eq!(out, "Hello there, how are you?a PERSIAN cat");
    }

    /// Concatenated raw string contents, decoded.
    fn read(raw: &str) -> String {
        serde_json::from_str(&format!("\"{raw}\"")).expect("the whole inside of a string")
    }

    /// The result for a text in fragments of `step` characters, each the content of a string.
    fn told(vault: &PlaceholderVault, text: &str, step: usize) -> String {
        let mut restorer = PlaceholderRestorer::in_string(false);
        let mut all = String::new();
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(step) {
            let raw = serde_json::to_string(&piece.iter().collect::<String>()).expect("a string");
            let mut out = String::new();
            restorer.push(vault, &raw[1..raw.len() - 1], &mut out);
            all.push_str(&read(&out));
        }
        let mut rest = String::new();
        restorer.finish(vault, &mut rest).expect("ordinary text");
        all + &read(&rest)
    }

    #[test]
    fn restored_original_is_escaped_for_its_nesting_depth() {
        let (vault, made) = vault();
        let p = &made[0];
        for (text, wanted) in [
            (p.clone(), r#"Anna "the" Bär"#),
            (format!("{{{p}}}"), r#"{Anna "the" Bär}"#),
            (format!(r#"{{"to":"{p}"}}"#), r#"{"to":"Anna \"the\" Bär"}"#),
            (format!(r#"{{"{p}":1}} {p}"#), r#"{"Anna \"the\" Bär":1} Anna "the" Bär"#),
            (format!(r#"{{"body":"{{\"to\":\"{p}\"}}"}}"#), r#"{"body":"{\"to\":\"Anna \\\"the\\\" Bär\"}"}"#),
            (format!(r#"{{"to":"{}"}}"#, p.replace('P', r"\u0050")), r#"{"to":"Anna \"the\" Bär"}"#),
        ] {
            for step in [1, 2, 3, 5, 1000] {
                assert_eq!(told(&vault, &text, step), wanted, "{step}");
            }
        }
    }

    #[test]
    fn buffered_text_never_splits_an_escape() {
        let (vault, made) = vault();
        for raw in [r"Hello,\n", r"a\u003e", r"\t", r"x\\", r"\u0050", r"\u00e9E", r"\ud83d\ude00P"] {
            let mut restorer = PlaceholderRestorer::in_string(false);
            let (mut first, mut rest) = (String::new(), String::new());
            restorer.push(&vault, raw, &mut first);
            restorer.push(&vault, "ok", &mut rest);
            assert_eq!(read(&first) + &read(&rest), read(&format!("{raw}ok")), "{raw}");
        }
        // Escaped, and split.
        let (a, b) = made[1].split_at(4);
        let spelt = |s: &str| s.chars().map(|c| format!(r"\u{:04x}", c as u32)).collect::<String>();
        let mut out = String::new();
        let mut restorer = PlaceholderRestorer::in_string(false);
        restorer.push(&vault, &spelt(a), &mut out);
        restorer.push(&vault, &spelt(b), &mut out);
        assert_eq!(out, "anna@example.com");
    }

    #[test]
    fn split_surrogate_pair_is_rejoined() {
        let (vault, made) = vault();
        let mut restorer = PlaceholderRestorer::in_string(false);
        let mut out = String::new();
        restorer.push(&vault, r"a\ud83d", &mut out);
        assert_eq!(out, "a");
        restorer.push(&vault, &format!(r"\ude00{}", made[1]), &mut out);
        assert_eq!(out, r"a\ud83d\ude00anna@example.com");
    }

    #[test]
    fn chunk_without_a_placeholder_is_unchanged() {
        let (vault, _) = vault();
        let mut restorer = PlaceholderRestorer::in_string(true);
        for piece in [r#"{\"a\": \"b"#, r"\\n \/ c", r#"\"}"#] {
            assert_eq!(restorer.rewrite(&vault, piece), None, "{piece}");
        }
    }

    #[test]
    fn truncated_placeholder_at_the_end_is_an_error() {
        let (vault, made) = vault();
        assert!(matches!(restored(&vault, EscapeLevel::Plain, &made[0][..10], &[]), Err(RedactError::OpenPlaceholder)));
        for text in ["grade P", "PERSON_", "the PERSON"] {
            assert_eq!(restored(&vault, EscapeLevel::Plain, text, &[]).expect("text"), text);
        }
    }

    #[test]
    fn json_text_gets_its_originals_escaped() {
        let (vault, made) = vault();
        let text = format!("{{\"to\":\"{}\",\"path\":\"{}\"}}", made[0], made[2]);
        let out = restored(&vault, EscapeLevel::Json, &text, &[7, 3, 2, 9]).expect("JSON");
        let value: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(value["to"], "Anna \"the\" Bär");
        assert_eq!(value["path"], "C:\\x\n");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn restoring_is_independent_of_segmentation(cuts in prop::collection::vec(0usize..12, 0..12), pick in prop::collection::vec(0usize..3, 1..5)) {
            let (vault, made) = vault();
            let text: String = pick.iter().map(|i| format!("P {}é", made[*i])).collect();
            prop_assert_eq!(restored(&vault, EscapeLevel::Plain, &text, &cuts).expect("text"), vault.restore(&text));
        }
    }
}
