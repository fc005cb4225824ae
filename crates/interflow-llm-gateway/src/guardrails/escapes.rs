//! JSON string escapes (RFC 8259 7): decoding, and the raw bytes of a part of the decoded text.

use std::borrow::Cow;
use std::ops::Range;

/// A decoded character with its raw length.
type Unit = (char, usize);

/// The first character of raw text. An unpaired surrogate is U+FFFD; an invalid escape stands for itself.
fn unit(raw: &str) -> Option<Unit> {
    let first = raw.chars().next()?;
    if first != '\\' {
        return Some((first, first.len_utf8()));
    }
    let plain = |c| Some((c, 2));
    match raw.as_bytes().get(1) {
        Some(b'n') => plain('\n'),
        Some(b't') => plain('\t'),
        Some(b'r') => plain('\r'),
        Some(b'b') => plain('\u{8}'),
        Some(b'f') => plain('\u{c}'),
        Some(b @ (b'"' | b'\\' | b'/')) => plain(char::from(*b)),
        Some(b'u') => Some(match (code_unit(raw, 0), code_unit(raw, 6)) {
            (Some(high @ 0xd800..0xdc00), Some(low @ 0xdc00..0xe000)) => {
                let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                (char::from_u32(code).unwrap_or('\u{fffd}'), 12)
            }
            (Some(code), _) => (char::from_u32(code).unwrap_or('\u{fffd}'), 6),
            (None, _) => ('\\', 1),
        }),
        _ => Some(('\\', 1)),
    }
}

fn code_unit(raw: &str, at: usize) -> Option<u32> {
    let digits = raw.get(at..at + 6)?.strip_prefix("\\u")?;
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
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
        let waits = match rest.as_bytes() {
            [b'\\'] => true,
            [b'\\', b'u', digits @ ..] if digits.len() < 4 => digits.iter().all(u8::is_ascii_hexdigit),
            [b'\\', b'u', ..] if matches!(code_unit(rest, 0), Some(0xd800..0xdc00)) => {
                rest.len() < 12 && "\\u".starts_with(&rest[6..rest.len().min(8)])
            }
            _ => false,
        };
        if waits {
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
