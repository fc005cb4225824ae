//! JSON string escapes (RFC 8259 7): decoding, and the raw bytes of a part of the decoded text.

use std::borrow::Cow;
use std::ops::Range;

use interflow_redact::{JsonEscape, json_escape};

/// A decoded character with its raw length.
type Unit = (char, usize);

/// The first character of raw text. An unpaired surrogate is U+FFFD; an invalid escape stands for itself.
fn unit(raw: &str) -> Option<Unit> {
    let first = raw.chars().next()?;
    if first != '\\' {
        return Some((first, first.len_utf8()));
    }
    Some(match json_escape(raw.as_bytes()) {
        JsonEscape::Char(c, length) => (c, length),
        // A high surrogate whose other half is missing.
        JsonEscape::Cut if raw.len() >= 6 => (char::REPLACEMENT_CHARACTER, 6),
        JsonEscape::Cut | JsonEscape::Wrong => ('\\', 1),
    })
}

/// The decoded text.
pub(super) fn decode(raw: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\\', raw.as_bytes()).is_none() {
        return raw.into();
    }
    let (mut out, mut rest) = (String::with_capacity(raw.len()), raw);
    while let Some((c, length)) = unit(rest) {
        out.push(c);
        rest = rest.get(length..).unwrap_or_default();
    }
    out.into()
}

/// The raw bytes of a range of the decoded text. A range inside a character covers all of it.
pub(super) fn raw_range(raw: &str, decoded: &Range<usize>) -> Range<usize> {
    if memchr::memchr(b'\\', raw.as_bytes()).is_none() {
        return raw.floor_char_boundary(decoded.start)..raw.ceil_char_boundary(decoded.end);
    }
    let (mut from, mut to, mut at_raw, mut at) = (None, None, 0, 0);
    while let Some((c, length)) = raw.get(at_raw..).and_then(unit) {
        if from.is_none() && at + c.len_utf8() > decoded.start {
            from = Some(at_raw);
        }
        if at >= decoded.end {
            to = Some(at_raw);
            break;
        }
        (at_raw, at) = (at_raw + length, at + c.len_utf8());
    }
    let from = from.unwrap_or(raw.len());
    from..to.unwrap_or(raw.len()).max(from)
}

/// The length of an escape at the end that more input may complete, a high surrogate included; 0 if there is none.
pub(super) fn open_escape(raw: &str) -> usize {
    // An escape has at most twelve bytes: a pair of surrogates.
    let mut start = raw.len().saturating_sub(12);
    while !raw.is_char_boundary(start) {
        start -= 1;
    }
    // A backslash before it would escape the first one.
    let before = raw[..start].bytes().rev().take_while(|b| *b == b'\\').count();
    let mut at = start + before % 2;
    while let Some(rest) = raw.get(at..).filter(|r| !r.is_empty()) {
        if rest.starts_with('\\') && json_escape(rest.as_bytes()) == JsonEscape::Cut {
            return rest.len();
        }
        at += unit(rest).map_or(1, |(_, length)| length);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_decoded_text_are_found_in_the_raw_text() {
        for (raw, decoded, range, expected) in [
            ("abc", "abc", 1..2, 1..2),
            (r#"a\n\"b"#, "a\n\"b", 1..3, 1..5),
            (r"x\u00e9y", "xéy", 1..3, 1..7),
            (r"\ud83d\ude00!", "😀!", 0..4, 0..12),
            (r"\ud83d!", "\u{fffd}!", 3..4, 6..7),
            (r"end\", "end\\", 3..4, 3..4),
        ] {
            assert_eq!(decode(raw), decoded, "{raw}");
            assert_eq!(raw_range(raw, &range), expected, "{raw}");
        }
    }

    #[test]
    fn incomplete_escape_at_the_end_is_measured() {
        for (raw, length) in [
            ("abc", 0),
            (r"abc\", 1),
            (r"abc\\", 0),
            (r"abc\\\", 1),
            (r"\u00", 4),
            (r"\u00e9", 0),
            (r"\ud83d", 6),
            (r"\ud83d\ude", 10),
            (r"\ud83dx", 0),
            (r"\\\\\\\\\\\\\\\u0", 3),
        ] {
            assert_eq!(open_escape(raw), length, "{raw}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_raw_text_is_decoded_without_panic(raw in r#"([a-zé😀]|\\|u|d83d|de00|n|")*"#, from in 0usize..40, length in 0usize..40) {
            let decoded = decode(&raw);
            let range = raw_range(&raw, &(from.min(decoded.len())..(from + length).min(decoded.len())));
            proptest::prop_assert!(raw.get(range).is_some());
            proptest::prop_assert!(raw.is_char_boundary(raw.len() - open_escape(&raw)));
        }
    }
}
