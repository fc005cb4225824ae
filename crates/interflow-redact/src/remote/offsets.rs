//! Converts the offsets of external detectors to bytes.

use std::ops::Range;

/// The unit of an offset: Unicode code points, as in Python, or UTF-16 code units, as in Java. A wrong unit would move
/// every finding after the first character outside of the Basic Multilingual Plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OffsetUnit {
    Scalar,
    Utf16,
}

impl OffsetUnit {
    /// The byte range of a range in these units; `None` if it is empty or outside of the text.
    pub fn to_byte_range(self, text: &str, range: &Range<u64>) -> Option<Range<usize>> {
        if range.start >= range.end {
            return None;
        }
        let (mut count, mut start) = (0u64, None);
        for (at, c) in text.char_indices() {
            if count >= range.end {
                return Some(start?..at);
            }
            // An offset inside a surrogate pair covers the whole character.
            let next = count + if self == Self::Utf16 { c.len_utf16() as u64 } else { 1 };
            if start.is_none() && next > range.start {
                start = Some(at);
            }
            count = next;
        }
        (count >= range.end).then_some(start?..text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_and_java_offsets_map_to_the_same_bytes() {
        let text = "h\u{e9} \u{1F600} Ann";
        for (unit, range, found) in [
            (OffsetUnit::Scalar, 5..8, Some("Ann")),
            (OffsetUnit::Utf16, 6..9, Some("Ann")),
            (OffsetUnit::Scalar, 0..2, Some("h\u{e9}")),
            (OffsetUnit::Utf16, 3..5, Some("\u{1F600}")),
            (OffsetUnit::Utf16, 4..5, Some("\u{1F600}")),
            (OffsetUnit::Scalar, 5..9, None),
            (OffsetUnit::Scalar, 3..3, None),
            (OffsetUnit::Scalar, u64::MAX - 1..u64::MAX, None),
        ] {
            assert_eq!(unit.to_byte_range(text, &range).map(|r| &text[r]), found, "{unit:?} {range:?}");
        }
    }
}
