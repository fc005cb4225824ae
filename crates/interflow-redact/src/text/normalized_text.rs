//! Text normalization for the detectors, with a map to offsets in the original.

use std::borrow::Cow;

use unicode_normalization::char::compose;

use crate::text::appearance::is_invisible;

/// Maps byte offsets of a derived text to the text it was derived from.
///
/// Between two points both advance byte by byte; a rewritten or omitted piece has a point on each side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetMap {
    points: Vec<OffsetPoint>,
}

/// The derived offset, and the source offsets at which the preceding text ends and the following text begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OffsetPoint {
    derived: usize,
    before: usize,
    after: usize,
}

impl OffsetMap {
    /// The map of a text to itself.
    pub const fn identity() -> Self {
        Self { points: Vec::new() }
    }

    pub const fn is_identity(&self) -> bool {
        self.points.is_empty()
    }

    /// Declares that the text before `derived` ends at `before` in the source, and the text after it begins at `after`.
    /// Offsets must not decrease.
    pub fn push_point(&mut self, derived: usize, before: usize, after: usize) {
        match self.points.last_mut() {
            Some(last) if last.derived == derived => last.after = after,
            _ => self.points.push(OffsetPoint { derived, before, after }),
        }
    }

    /// Forgets the points after a derived offset, where another piece begins; returns its source offset.
    fn reopen(&mut self, derived: usize) -> usize {
        let start = self.start(derived);
        self.points.truncate(self.points.partition_point(|p| p.derived <= derived));
        start
    }

    /// The source offset at which the derived byte at `offset` begins.
    pub fn start(&self, offset: usize) -> usize {
        let next = self.points.partition_point(|p| p.derived <= offset);
        let Some(p) = next.checked_sub(1).and_then(|i| self.points.get(i)) else { return offset };
        let moved = p.after + (offset - p.derived);
        // Inside a rewritten piece the offset must not exceed its end.
        self.points.get(next).map_or(moved, |n| moved.min(n.before))
    }

    /// The derived offset of a source offset: of a piece that was omitted, where it was; of a rewritten one, its beginning.
    pub fn derived(&self, offset: usize) -> usize {
        let next = self.points.partition_point(|p| p.after <= offset);
        let Some(p) = next.checked_sub(1).and_then(|i| self.points.get(i)) else {
            return self.points.first().map_or(offset, |n| offset.min(n.derived));
        };
        let moved = p.derived + (offset - p.after);
        self.points.get(next).map_or(moved, |n| moved.min(n.derived))
    }

    /// The source offset just after the derived byte before `offset`.
    pub fn end(&self, offset: usize) -> usize {
        match self.points.binary_search_by_key(&offset, |p| p.derived) {
            Ok(at) => self.points[at].before,
            Err(_) => self.start(offset),
        }
    }
}

/// The text for the detectors: full-width and other digits as ASCII digits, without invisible characters, hyphen and
/// space variants as `-` and space, letters composed with their marks (NFC). Otherwise a soft hyphen or a full-width digit
/// would hide a number. Borrowed if nothing changes, as for nearly all texts.
pub fn normalize(text: &str) -> (Cow<'_, str>, OffsetMap) {
    let Some(first) = next_special(text, 0) else { return (Cow::Borrowed(text), OffsetMap::identity()) };
    let mut out = String::with_capacity(text.len());
    let mut map = OffsetMap::default();
    let (mut copied, mut next) = (0, Some(first));
    while let Some(at) = next {
        out.push_str(&text[copied..at]);
        let Some(c) = text[at..].chars().next() else { break };
        let end = at + c.len_utf8();
        let (start, new) = match normalize_char(c) {
            NormalizedChar::Mark => match out.chars().next_back().and_then(|letter| compose(letter, c)) {
                Some(composed) => {
                    out.pop();
                    (map.reopen(out.len()), Some(composed))
                }
                None => (at, Some(c)),
            },
            NormalizedChar::Other(p) => (at, Some(p)),
            NormalizedChar::Same => (at, Some(c)),
            NormalizedChar::Gone => (at, None),
        };
        map.push_point(out.len(), start, if new.is_some() { start } else { end });
        if let Some(new) = new {
            out.push(new);
            map.push_point(out.len(), end, end);
        }
        copied = end;
        next = next_special(text, end);
    }
    out.push_str(&text[copied..]);
    (Cow::Owned(out), map)
}

enum NormalizedChar {
    Same,
    Other(char),
    Gone,
    /// Composed with the letter before it, if there is a character for both.
    Mark,
}

/// What becomes of a character. Case and accents stay: the lexicon ignores them, and detectors need capitals.
fn normalize_char(c: char) -> NormalizedChar {
    if c.is_ascii() {
        return NormalizedChar::Same;
    }
    if is_invisible(c) {
        return NormalizedChar::Gone;
    }
    let other = match c {
        // Diacritics of Latin, Greek, Cyrillic and Arabic, Korean vowels and finals, Japanese voicing marks.
        '\u{300}'..='\u{36f}' | '\u{653}'..='\u{655}' | '\u{1161}'..='\u{11c2}' | '\u{3099}' | '\u{309a}' => {
            return NormalizedChar::Mark;
        }
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' => '-',
        '\u{2024}' => '.',
        // Full-width forms of ASCII.
        '\u{ff01}'..='\u{ff5e}' => return shift_char(c, 0xff01, '!'),
        '\u{660}'..='\u{669}' => return shift_char(c, 0x660, '0'),
        '\u{6f0}'..='\u{6f9}' => return shift_char(c, 0x6f0, '0'),
        '\u{966}'..='\u{96f}' => return shift_char(c, 0x966, '0'),
        '\u{9e6}'..='\u{9ef}' => return shift_char(c, 0x9e6, '0'),
        '\u{e50}'..='\u{e59}' => return shift_char(c, 0xe50, '0'),
        '\u{b9}' => '1',
        '\u{b2}' | '\u{b3}' => return shift_char(c, 0xb2, '2'),
        '\u{2070}' | '\u{2074}'..='\u{2079}' => return shift_char(c, 0x2070, '0'),
        '\u{2080}'..='\u{2089}' => return shift_char(c, 0x2080, '0'),
        '\u{1d7ce}'..='\u{1d7ff}' => {
            let digit = (c as u32 - 0x1d7ce) % 10;
            return char::from_digit(digit, 10).map_or(NormalizedChar::Same, NormalizedChar::Other);
        }
        _ => return NormalizedChar::Same,
    };
    NormalizedChar::Other(other)
}

/// The character at the same position in another range.
fn shift_char(c: char, from: u32, to: char) -> NormalizedChar {
    char::from_u32(c as u32 - from + to as u32).map_or(NormalizedChar::Same, NormalizedChar::Other)
}

/// The position of the next character at or after `from` that is normalized.
fn next_special(text: &str, from: usize) -> Option<usize> {
    // Accented Latin letters begin with C3..CB and need no closer look.
    let bytes = text.as_bytes();
    let mut at = from;
    while let Some(skip) = next_lead(bytes.get(at..)?) {
        at += skip;
        let c = text[at..].chars().next()?;
        if !matches!(normalize_char(c), NormalizedChar::Same) {
            return Some(at);
        }
        at += c.len_utf8();
    }
    None
}

/// The next byte that may begin such a character; scans eight ASCII bytes at a time.
fn next_lead(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        while let Some(word) = bytes.get(at..at + 8).and_then(|w| <[u8; 8]>::try_from(w).ok()) {
            if u64::from_ne_bytes(word) & 0x8080_8080_8080_8080 != 0 {
                break;
            }
            at += 8;
        }
        let b = *bytes.get(at)?;
        if b >= 0xc2 && !(0xc3..=0xcb).contains(&b) {
            return Some(at);
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn back(text: &str, needle: &str) -> String {
        let (plain, map) = normalize(text);
        let at = plain.find(needle).unwrap_or_else(|| panic!("{needle} not in {plain}"));
        text[map.start(at)..map.end(at + needle.len())].to_owned()
    }

    #[test]
    fn spans_of_normalized_text_map_back_to_the_original() {
        for (text, needle, original) in [
            ("id １２３ end", "123", "１２３"),
            ("a 123\u{2011}45\u{2011}6789 b", "123-45-6789", "123\u{2011}45\u{2011}6789"),
            ("a 1\u{200b}23 b", "123", "1\u{200b}23"),
            ("a \u{200b}123\u{200b} b", "123", "123"),
            ("é 42", "42", "42"),
            ("x\u{a0}42 y", "42", "42"),
            ("٤٢ y", "42", "٤٢"),
            ("a@b．com z", "a@b.com", "a@b．com"),
            ("a ¹²³⁴⁵⁶⁷⁸⁹⁰", "1234567890", "¹²³⁴⁵⁶⁷⁸⁹⁰"),
            (
                "a 4\u{61c}1\u{2066}1\u{fe0f}1\u{115f}2\u{e0041}3",
                "411123",
                "4\u{61c}1\u{2066}1\u{fe0f}1\u{115f}2\u{e0041}3",
            ),
            ("x Zo\u{308}rbiq y", "Zörbiq", "Zo\u{308}rbiq"),
            ("Vie\u{323}\u{302}t", "iệ", "ie\u{323}\u{302}"),
            ("１e\u{200b}\u{301}２", "é2", "e\u{200b}\u{301}２"),
            ("\u{1112}\u{1161}\u{11ab} x", "한", "\u{1112}\u{1161}\u{11ab}"),
            ("か\u{3099}", "が", "か\u{3099}"),
            ("1\u{308} e\u{301}", "é", "e\u{301}"),
        ] {
            assert_eq!(back(text, needle), original, "{text:?}");
        }
    }

    #[test]
    fn ordinary_text_is_borrowed() {
        for text in ["plain", "Márquez lives in Þórshöfn", "Κασνέτη", ""] {
            let (plain, map) = normalize(text);
            assert!(matches!(plain, Cow::Borrowed(_)) && map.is_identity(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_offset_maps_to_a_boundary_and_never_backwards(text in "[aeo0-9é１２\u{200b}\u{ad}\u{2011}\u{a0} 漢\u{301}\u{308}\u{323}]{0,40}") {
            let (plain, map) = normalize(&text);
            let mut last = 0;
            for (at, c) in plain.char_indices() {
                let (s, e) = (map.start(at), map.end(at + c.len_utf8()));
                prop_assert!(text.is_char_boundary(s) && text.is_char_boundary(e));
                prop_assert!(last <= s && s < e && e <= text.len());
                prop_assert_eq!(normalize(&text[s..e]).0.into_owned(), c.to_string());
                last = e;
            }
        }
    }
}
