//! Decodes what a text holds in another encoding: percent-encoding, HTML character references, escapes of JSON and
//! JavaScript, base64, and values broken by a line break. The detectors then see the values that these stand for.

use std::ops::Range;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use interflow_types::data_file;

use crate::Kind;
use crate::detect::Finding;
use crate::text::json::{JsonEscape, json_escape};
use crate::text::normalized_text::OffsetMap;

/// How many encodings around each other are decoded.
pub(crate) const MAX_DEPTH: usize = 3;

/// A part of a text in its decoded form.
#[derive(Debug)]
pub(crate) struct DecodedPart {
    pub text: String,
    /// The part in the text.
    range: Range<usize>,
    /// The offsets in the part; `None` for base64, of which only the whole can be replaced.
    map: Option<OffsetMap>,
    /// The decoded characters in `text`, in order.
    decoded: Vec<Range<usize>>,
    /// Whether two lines were joined. What is found must then extend over both, and be more than words that happen to
    /// meet.
    joined: bool,
}

impl DecodedPart {
    /// The range in the text that stands for a range of the decoded part. `None` if it holds no decoded character and
    /// borders on none: the text itself says the same.
    pub fn source(&self, found: Range<usize>) -> Option<Range<usize>> {
        let Some(map) = &self.map else { return Some(self.range.clone()) };
        let next = self.decoded.partition_point(|d| d.end < found.start);
        let touched = self.decoded.get(next).is_some_and(|d| match self.joined {
            true => found.start < d.start && d.end < found.end,
            false => d.start <= found.end,
        });
        let at = self.range.start;
        touched.then(|| at + map.start(found.start)..at + map.end(found.end))
    }

    /// Whether a finding counts here: over a line break only what has a format or check digits of its own, and only if
    /// the text itself holds no value of this kind there, which the other line would merely extend.
    pub fn accepts(&self, finding: &Finding, source: &Range<usize>, literal: &[Finding]) -> bool {
        use Kind::{ApiKey, CloudCredential, CreditCard, Custom, Email, Iban, Jwt, Phone, Token};
        let formal = match finding.kind {
            Email | Iban | ApiKey | CloudCredential | Token | Jwt | Custom => true,
            Phone => finding.confidence >= 90,
            // Shorter numbers are those of two rows.
            CreditCard => finding.confidence >= 90 && finding.len() >= 14,
            _ => false,
        };
        let apart = |f: &Finding| f.kind != finding.kind || f.end <= source.start || source.end <= f.start;
        !self.joined || formal && literal.iter().all(apart)
    }
}

/// Calls `visit` with every part of the text that stands for something else: lines with escapes, and base64 of text.
pub(crate) fn each_part(text: &str, mut visit: impl FnMut(&DecodedPart)) {
    each_escaped_line(text, &mut visit);
    each_base64(text, &mut visit);
    each_broken_value(text, &mut visit);
}

/// Lines without an escape are skipped, so that ordinary texts cost one search for three characters.
fn each_escaped_line(text: &str, visit: &mut impl FnMut(&DecodedPart)) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(skip) = bytes.get(at..).and_then(|rest| memchr::memchr3(b'%', b'&', b'\\', rest)) {
        at += skip;
        if decode_escape(&text[at..]).is_none() {
            at += 1;
            continue;
        }
        let start = memchr::memrchr(b'\n', &bytes[..at]).map_or(0, |n| n + 1);
        let end = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |n| at + n);
        visit(&decode_line(text, start..end));
        at = end;
    }
}

fn decode_line(text: &str, range: Range<usize>) -> DecodedPart {
    let line = &text[range.clone()];
    let (mut out, mut map, mut decoded) = (String::with_capacity(line.len()), OffsetMap::default(), Vec::new());
    let (mut at, mut copied) = (0, 0);
    while let Some(skip) = memchr::memchr3(b'%', b'&', b'\\', &line.as_bytes()[at..]) {
        at += skip;
        let Some((c, length)) = decode_escape(&line[at..]) else {
            at += 1;
            continue;
        };
        out.push_str(&line[copied..at]);
        map.push_point(out.len(), at, at);
        let from = out.len();
        out.push(c);
        decoded.push(from..out.len());
        at += length;
        map.push_point(out.len(), at, at);
        copied = at;
    }
    out.push_str(&line[copied..]);
    DecodedPart { text: out, range, map: Some(map), decoded, joined: false }
}

/// The character that an escape at the beginning of a text stands for, and the length of the escape.
fn decode_escape(text: &str) -> Option<(char, usize)> {
    match text.as_bytes() {
        [b'%', ..] => percent(text.as_bytes()),
        [b'&', ..] => character_reference(text),
        [b'\\', b'u' | b'n' | b'r' | b't' | b'"', ..] => match json_escape(text.as_bytes()) {
            JsonEscape::Char(c, length) => Some((c, length)),
            JsonEscape::Cut | JsonEscape::Wrong => None,
        },
        [b'\\', b'x', high, low, ..] => Some((char::from(hex_pair(*high, *low)?), 4)),
        _ => None,
    }
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let digit = |b| char::from(b).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// `%41`, or the two to four bytes of a character in UTF-8 (RFC 3986 2.1).
fn percent(raw: &[u8]) -> Option<(char, usize)> {
    let byte = |n: usize| match raw.get(n * 3..n * 3 + 3)? {
        [b'%', high, low] => hex_pair(*high, *low),
        _ => None,
    };
    let first = byte(0)?;
    let length = match first {
        0..0x80 => 1,
        0xc2..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf5 => 4,
        _ => return None,
    };
    let mut utf8 = [first, 0, 0, 0];
    for (n, slot) in utf8.iter_mut().enumerate().take(length).skip(1) {
        *slot = byte(n)?;
    }
    let c = std::str::from_utf8(&utf8[..length]).ok()?.chars().next()?;
    Some((c, length * 3))
}

/// Named references that stand for ASCII characters of addresses and numbers, or for spaces.
static NAMED: LazyLock<Vec<(&str, char)>> = LazyLock::new(|| {
    let character = |[name, code]: [&'static str; 2]| Some((name, u8::from_str_radix(code, 16).ok()?.into()));
    data_file::records(include_str!("../../data/character_references.txt")).filter_map(character).collect()
});

/// `&#64;`, `&#x40;`, with or without the semicolon, and named references.
fn character_reference(text: &str) -> Option<(char, usize)> {
    let Some(number) = text.strip_prefix("&#") else {
        return NAMED.iter().find(|(name, _)| text.starts_with(name)).map(|(name, c)| (*c, name.len()));
    };
    let (digits, radix) = match number.strip_prefix(['x', 'X']) {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };
    let length = digits.bytes().take(8).take_while(|b| char::from(*b).is_digit(radix)).count();
    let c = u32::from_str_radix(&digits[..length], radix).ok().and_then(char::from_u32)?;
    let end = text.len() - digits.len() + length;
    Some((c, end + usize::from(text.as_bytes().get(end) == Some(&b';'))))
}

/// Number of characters of the shortest base64 that is decoded: twelve bytes of text.
const MIN_BASE64: usize = 16;
/// Number of characters of the shortest line of base64 after which the next line continues it.
const MIN_WRAPPED_LINE: usize = 40;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

static BASE64_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = (b as u8).is_ascii_alphanumeric() || matches!(b as u8, b'+' | b'/' | b'-' | b'_');
        b += 1;
    }
    table
};

fn is_base64(b: u8) -> bool {
    BASE64_BYTES[usize::from(b)]
}

fn each_base64(text: &str, visit: &mut impl FnMut(&DecodedPart)) {
    let bytes = text.as_bytes();
    let mut at = 0;
    // A run of this length covers every sixteenth byte, so most of a text need not be looked at.
    while let Some(probe) = bytes.get(at + MIN_BASE64 - 1) {
        if !is_base64(*probe) {
            at += MIN_BASE64;
            continue;
        }
        let probed = at + MIN_BASE64 - 1;
        let start = probed - bytes[at..probed].iter().rev().take_while(|b| is_base64(**b)).count();
        // Nearly all runs are words, which end before the shortest base64 would.
        let least = bytes.get(probed + 1..start + MIN_BASE64).unwrap_or_default();
        if let Some(rest) = least.iter().position(|b| !is_base64(*b)) {
            at = probed + rest + 2;
            continue;
        }
        let end = base64_end(bytes, start);
        if end - start >= MIN_BASE64 {
            decode_base64(text, start..end, visit);
        }
        at = end + 1;
    }
}

/// The end of the base64 that begins at `start`, on this line and those that continue it, with its padding.
fn base64_end(bytes: &[u8], start: usize) -> usize {
    let mut line = start;
    loop {
        let end = line + bytes[line..].iter().take_while(|b| is_base64(**b)).count();
        let padding = bytes[end..].iter().take(2).take_while(|b| **b == b'=').count();
        let gap = match bytes.get(end..).unwrap_or_default() {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => 0,
        };
        let length = end - line;
        let continues = padding == 0 && gap > 0 && length >= MIN_WRAPPED_LINE && length.is_multiple_of(4);
        if !continues || !bytes.get(end + gap).is_some_and(|b| is_base64(*b)) {
            return end + padding;
        }
        line = end + gap;
    }
}

/// Decodes a run as a whole, or else the pieces between the characters that are also separators: a run may begin with
/// the path or the prefix before it.
fn decode_base64(text: &str, range: Range<usize>, visit: &mut impl FnMut(&DecodedPart)) {
    let run = &text[range.clone()];
    if let Some(decoded) = base64_text(run) {
        return visit(&DecodedPart { text: decoded, range, map: None, decoded: Vec::new(), joined: false });
    }
    let mut at = range.start;
    for piece in run.split_inclusive(['/', '+', '-', '_']) {
        let own = piece.trim_end_matches(['/', '+', '-', '_']);
        if own.len() >= MIN_BASE64
            && own.len() < run.len()
            && let Some(decoded) = base64_text(own)
        {
            let range = at..at + own.len();
            visit(&DecodedPart { text: decoded, range, map: None, decoded: Vec::new(), joined: false });
        }
        at += piece.len();
    }
}

/// The text that base64 in either alphabet stands for; `None` if it is not text.
fn base64_text(raw: &str) -> Option<String> {
    let standard = |b: u8| match b {
        b'-' => b'+',
        b'_' => b'/',
        b => b,
    };
    // Most runs are words, paths and hashes, which twelve bytes show not to be text.
    let first: Vec<u8> = raw.bytes().take(MIN_BASE64).map(standard).collect();
    let head = BASE64.decode(first.trim_ascii_end()).ok()?;
    if !is_text(&head) {
        return None;
    }
    let all: Vec<u8> = raw.bytes().filter(|b| !b.is_ascii_whitespace()).map(standard).collect();
    let decoded = BASE64.decode(all).ok()?;
    if is_text(&decoded) { String::from_utf8(decoded).ok() } else { None }
}

/// Number of bytes of each line that are joined.
const MAX_JOINED: usize = 80;

/// Joins the end of a line and the beginning of the next one where a value may be broken: an address, a number or a key.
fn each_broken_value(text: &str, visit: &mut impl FnMut(&DecodedPart)) {
    let bytes = text.as_bytes();
    for line_break in memchr::memchr_iter(b'\n', bytes) {
        let blank = |b: &&u8| matches!(b, b' ' | b'\t' | b'\r');
        let start = &bytes[..line_break - bytes[..line_break].iter().rev().take_while(blank).count()];
        let indent = |b: &&u8| matches!(b, b' ' | b'\t' | b'>' | b'#' | b'|' | b'*');
        let next = line_break + 1 + bytes[line_break + 1..].iter().take(MAX_JOINED).take_while(indent).count();
        let end = memchr::memchr(b'\n', &bytes[next..]).map_or(bytes.len(), |n| next + n);
        let start_of_line = memchr::memrchr(b'\n', start).map_or(0, |n| n + 1);
        let from = text.ceil_char_boundary(start_of_line.max(start.len().saturating_sub(MAX_JOINED)));
        let to = text.floor_char_boundary(end.min(next + MAX_JOINED));
        let (Some(before), Some(after)) = (text.get(from..start.len()), text.get(next..to)) else { continue };
        let whole = from == 0 && to == text.len();
        if let Some(spaced) = may_be_broken(before, after, whole) {
            visit(&joined(text, [from..start.len(), next..to], ""));
            if spaced {
                visit(&joined(text, [from..start.len(), next..to], " "));
            }
        }
    }
}

/// Whether a value may be broken here, and whether a space may belong to it.
fn may_be_broken(before: &str, after: &str, whole: bool) -> Option<bool> {
    let (last, first) = (before.bytes().next_back()?, after.bytes().next()?);
    let token = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'@' | b'.' | b'_' | b'-' | b'+');
    if !token(last) || !token(first) {
        return None;
    }
    let prefix = before.rsplit(|c: char| !c.is_ascii() || !token(c as u8)).next().unwrap_or_default();
    let right = after.split(|c: char| !c.is_ascii() || !token(c as u8)).next().unwrap_or_default();
    // Lines of nothing but numbers are a column, unless they are the whole text: the value of a member.
    let numbers = last.is_ascii_digit()
        && first.is_ascii_digit()
        && (whole || before.contains(|c: char| c.is_alphabetic()) || after.contains(|c: char| c.is_alphabetic()));
    let drawn = |part: &str, least: usize| part.len() >= least && part.bytes().any(|b| b.is_ascii_digit());
    let address = prefix.contains('@') || right.contains('@');
    (numbers || address || drawn(prefix, 12) && drawn(right, 6)).then_some(numbers)
}

fn joined(text: &str, lines: [Range<usize>; 2], gap: &str) -> DecodedPart {
    let [before, after] = lines;
    let (range, mut map) = (before.start..after.end, OffsetMap::default());
    let mut out = text[before.clone()].to_owned();
    let joint = out.len();
    out.push_str(gap);
    map.push_point(joint, before.len(), before.len());
    map.push_point(out.len(), after.start - range.start, after.start - range.start);
    let decoded = std::iter::once(joint..out.len()).collect();
    out.push_str(&text[after]);
    DecodedPart { text: out, range, map: Some(map), decoded, joined: true }
}

/// The text with each line break, and the spaces around it, as one space, so that terms of several words are found
/// over it. `None` if it has one line.
pub(crate) fn unwrap_lines(text: &str) -> Option<(String, OffsetMap)> {
    let mut at = memchr::memchr(b'\n', text.as_bytes())?;
    let (mut out, mut map, mut copied) = (String::with_capacity(text.len()), OffsetMap::default(), 0);
    loop {
        let start = copied + text[copied..at].trim_end().len();
        let end = text.len() - text[at..].trim_start().len();
        out.push_str(&text[copied..start]);
        map.push_point(out.len(), start, start);
        out.push(' ');
        map.push_point(out.len(), end, end);
        copied = end;
        match memchr::memchr(b'\n', &text.as_bytes()[end..]) {
            Some(next) => at = end + next,
            None => break,
        }
    }
    out.push_str(&text[copied..]);
    Some((out, map))
}

/// Whether the bytes are text or its beginning: UTF-8 without control characters.
fn is_text(bytes: &[u8]) -> bool {
    let control = |b: &u8| b.is_ascii_control() && !matches!(b, b'\n' | b'\r' | b'\t');
    !bytes.iter().any(control) && std::str::from_utf8(bytes).map_or_else(|e| e.error_len().is_none(), |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The decoded parts, and what stands for `needle` in the text.
    fn parts(text: &str) -> Vec<String> {
        let mut all = Vec::new();
        each_part(text, |part| all.push(part.text.clone()));
        all
    }

    fn source(text: &str, needle: &str) -> Option<String> {
        let mut found = None;
        each_part(text, |part| {
            if let Some(at) = part.text.find(needle) {
                found = part.source(at..at + needle.len()).map(|r| text[r].to_owned());
            }
        });
        found
    }

    #[test]
    fn escapes_map_back_to_what_was_written() {
        for (text, needle, written) in [
            ("to a%40b.com now", "a@b.com", "a%40b.com"),
            ("x\nto a&#64;b&#x2e;com\ny", "a@b.com", "a&#64;b&#x2e;com"),
            ("a&#64b", "a@b", "a&#64b"),
            ("a&commat;b&period;com", "a@b.com", "a&commat;b&period;com"),
            (r"a\u0040b\x2ecom", "a@b.com", r"a\u0040b\x2ecom"),
            ("M%C3%BCller", "Müller", "M%C3%BCller"),
            ("é %C3%BC%41", "üA", "%C3%BC%41"),
            // What borders on an escape was not a word by itself before.
            (r"ssn:\n123-45-6789", "123-45-6789", "123-45-6789"),
        ] {
            assert_eq!(source(text, needle).as_deref(), Some(written), "{text}");
        }
    }

    #[test]
    fn what_holds_no_escape_is_left_to_the_text_itself() {
        assert_eq!(source("a@b.com and 100%25 sure", "a@b.com"), None);
        for text in ["100 % of", "a & b", "50%", "R&D; &unknown;", r"C:\dir", "%zz %C3%zz %ff", "&#xD800;"] {
            assert!(parts(text).is_empty(), "{text}: {:?}", parts(text));
        }
    }

    #[test]
    fn base64_of_text_is_decoded_and_nothing_else() {
        let plain = "anna.berg@firm.com";
        for raw in ["YW5uYS5iZXJnQGZpcm0uY29t", "YW5uYS5iZXJnQGZpcm0uY29tCg==", "key=/v1/YW5uYS5iZXJnQGZpcm0uY29t,"] {
            let text = format!("see {raw} there");
            let found = source(&text, plain).expect("decoded");
            assert!(found.starts_with("YW5u") && !found.contains(' '), "{found}");
        }
        // The alphabet for URLs, and lines of 64 characters.
        assert_eq!(parts("x _-_- Pz8_Pj4-Pz8_Pj4-YQ"), ["???>>>???>>>a"]);
        let long = BASE64.encode("anna.berg@firm.com, ".repeat(9));
        let wrapped = format!("{}\n{}\r\n{}", &long[..64], &long[64..128], &long[128..]);
        assert_eq!(source(&wrapped, plain).as_deref(), Some(wrapped.as_str()));
        for text in [
            "internationalisation_of_everything",
            "d41d8cd98f00b204e9800998ecf8427e",
            "550e8400-e29b-41d4-a716-446655440000",
            "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ",
            "/usr/share/applications/default/list",
        ] {
            assert!(parts(text).is_empty(), "{text}: {:?}", parts(text));
        }
    }

    #[test]
    fn a_value_over_a_line_break_is_joined() {
        for (text, needle, written) in [
            ("to anna@\nfirm.com now", "anna@firm.com", "anna@\nfirm.com"),
            ("to anna\r\n> @firm.com", "anna@firm.com", "anna\r\n> @firm.com"),
            ("IBAN DE89 3704\n  0044", "3704 0044", "3704\n  0044"),
            ("key sk-proj-Ab12\nCd34Ef", "sk-proj-Ab12Cd34Ef", "sk-proj-Ab12\nCd34Ef"),
        ] {
            assert_eq!(source(text, needle).as_deref(), Some(written), "{text}");
        }
        for text in ["1\n1234\n5678", "some words\nand others", "anna@firm.com:\n- first", "total 12\n\nnext 3"] {
            assert!(parts(text).is_empty(), "{text}: {:?}", parts(text));
        }
        assert_eq!(source("anna@firm.com\nBerg", "anna@firm.com"), None);
    }

    #[test]
    fn unwrapped_lines_map_back() {
        let (text, map) = unwrap_lines("Anna \n  Berg and\nmore").expect("several lines");
        assert_eq!(text, "Anna Berg and more");
        assert_eq!((map.start(0), map.end(9)), (0, 12));
        assert!(unwrap_lines("one line").is_none());
    }

    proptest! {
        #[test]
        fn every_source_is_within_the_text(text in "[%&#;x4u0\\\\a@é.0-9A-Fa-f=\n]{0,60}") {
            each_part(&text, |part| {
                for (at, c) in part.text.char_indices() {
                    if let Some(range) = part.source(at..at + c.len_utf8()) {
                        assert!(text.get(range).is_some());
                    }
                }
            });
        }
    }
}
