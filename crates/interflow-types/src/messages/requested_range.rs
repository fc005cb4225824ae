//! The `Range` field of a request.

use std::ops::Range;

/// The meaning of a `Range` field for a resource of a given length (RFC 9110 14.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedRange {
    /// The whole resource: no field, an invalid one, or several ranges, all of which a server may ignore.
    Whole,
    Part(Range<u64>),
    /// Not satisfiable: to be answered with 416 (RFC 9110 15.5.17).
    Nothing,
}

impl RequestedRange {
    /// Reads the field's value for a resource of `length` bytes.
    pub fn read(range: Option<&str>, length: u64) -> Self {
        let Some(text) = range.and_then(|r| r.trim().strip_prefix("bytes=")) else { return Self::Whole };
        let Some((first, last)) = text.trim().split_once('-').filter(|(_, l)| !l.contains(',')) else {
            return Self::Whole;
        };
        let number = |s: &str| s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse::<u64>().unwrap_or(u64::MAX));
        let (first, last) = (first.trim(), last.trim());
        let range = match (first.is_empty(), last.is_empty()) {
            (true, true) => return Self::Whole,
            // A suffix range: the last `n` bytes.
            (true, false) => number(last).map(|n| length.saturating_sub(n)..length),
            (false, true) => number(first).map(|f| f..length),
            (false, false) => match (number(first), number(last)) {
                (Some(f), Some(l)) if f > l => return Self::Whole,
                (f, l) => f.zip(l).map(|(f, l)| f..l.saturating_add(1).min(length)),
            },
        };
        match range {
            None => Self::Whole,
            Some(r) if r.start >= length || r.is_empty() => Self::Nothing,
            Some(r) => Self::Part(r),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_headers_are_parsed() {
        for (text, wanted) in [
            (None, RequestedRange::Whole),
            (Some("bytes=0-"), RequestedRange::Part(0..100)),
            (Some("bytes=5-9"), RequestedRange::Part(5..10)),
            (Some("bytes=5-900"), RequestedRange::Part(5..100)),
            (Some("bytes=-10"), RequestedRange::Part(90..100)),
            (Some("bytes=-1000"), RequestedRange::Part(0..100)),
            (Some("bytes=100-"), RequestedRange::Nothing),
            (Some("bytes=-0"), RequestedRange::Nothing),
            (Some("bytes=99999999999999999999999-"), RequestedRange::Nothing),
            (Some("bytes=9-5"), RequestedRange::Whole),
            (Some("bytes=NaN-"), RequestedRange::Whole),
            (Some("bytes=+1-2"), RequestedRange::Whole),
            (Some("bytes=0-1,4-5"), RequestedRange::Whole),
            (Some("bytes=-"), RequestedRange::Whole),
            (Some("items=0-1"), RequestedRange::Whole),
        ] {
            assert_eq!(RequestedRange::read(text, 100), wanted, "{text:?}");
        }
        assert_eq!(RequestedRange::read(Some("bytes=0-"), 0), RequestedRange::Nothing);
    }
}
