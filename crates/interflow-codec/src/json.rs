//! A pull parser for JSON (RFC 8259) that returns byte ranges instead of values, so that a body can be edited in
//! place.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};
use std::ops::Range;

use memchr::memchr;
use serde::de::DeserializeOwned;

/// The deepest nesting of arrays and objects.
pub const MAX_DEPTH: usize = 256;

/// The reason of a [`JsonError`] for text that may be valid, but is nested deeper than [`MAX_DEPTH`].
pub const TOO_DEEP: &str = "nested too deeply";

/// Why a text is not valid JSON, and at which byte of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid JSON at byte {at}: {reason}")]
pub struct JsonError {
    pub at: usize,
    pub reason: &'static str,
}

/// A token of JSON: the offset of an opening bracket, the offset after a closing one, or the range of a name, a string,
/// or a number or literal. Ranges of strings and names exclude the quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonToken {
    Object(usize),
    Array(usize),
    End(usize),
    Name(Range<usize>),
    Text(Range<usize>),
    Scalar(Range<usize>),
}

/// The bytes with other bytes in the place of these ranges, which are in the order of their starts. A range inside one
/// before it goes with that one.
///
/// ```
/// use interflow_codec::json::replace_ranges;
///
/// let edits = [(0..1, &b"x"[..]), (2..4, b""), (3..4, b"y"), (5..5, b"z")];
/// assert_eq!(replace_ranges(b"abcdefg", edits.into_iter()), b"xbezfg");
/// ```
pub fn replace_ranges<'e>(bytes: &[u8], edits: impl Iterator<Item = (Range<usize>, &'e [u8])> + Clone) -> Vec<u8> {
    let grown: usize = edits.clone().map(|(_, new)| new.len()).sum();
    let mut out = Vec::with_capacity(bytes.len() + grown);
    let mut at = 0;
    for (range, new) in edits {
        if range.start >= at || range.end > at {
            out.extend_from_slice(bytes.get(at..range.start).unwrap_or_default());
            out.extend_from_slice(new);
            at = range.end;
        }
    }
    out.extend_from_slice(bytes.get(at..).unwrap_or_default());
    out
}

/// Reads JSON of any sender. JavaScript writes half of a cut emoji as a lone escape (`\ud83e`), which the grammar
/// allows (RFC 8259 8.2) and no string of Rust can hold: such a half is read as U+FFFD.
///
/// # Errors
/// It is not JSON, or not of this type.
///
/// ```
/// let cut: String = interflow_codec::json::parse(br#""a \ud83e""#)?;
/// assert_eq!(cut, "a \u{fffd}");
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn parse<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(json).or_else(|strict| match std::str::from_utf8(json).map(whole_pairs) {
        Ok(Cow::Owned(whole)) => serde_json::from_str(&whole),
        _ => Err(strict),
    })
}

/// JSON text that every parser reads: with U+FFFD for halves of surrogate pairs.
pub fn whole_pairs(json: &str) -> Cow<'_, str> {
    if !["\\ud", "\\uD"].iter().any(|begin| json.contains(begin)) {
        return json.into();
    }
    let mut whole = json.as_bytes().to_vec();
    replace_halves(&mut whole);
    String::from_utf8(whole).map_or(json.into(), Cow::Owned)
}

/// The length of an escape by its code, such as `\ud83e`.
const ESCAPE: usize = 6;

/// Puts U+FFFD, which is as long, in the place of halves of surrogate pairs. Returns up to where that is certain: an
/// escape may go on behind the end.
fn replace_halves(json: &mut [u8]) -> usize {
    let is_cut = |text: &[u8]| text.len() < ESCAPE && br"\u".starts_with(text.get(..2).unwrap_or(text));
    let mut at = 0;
    while let Some(found) = memchr(b'\\', json.get(at..).unwrap_or_default()) {
        at += found;
        let rest = json.get_mut(at..).unwrap_or_default();
        let (escape, next) = rest.split_at_mut(ESCAPE.min(rest.len()));
        at += match (escaped_code(escape), escaped_code(next)) {
            (None, _) if is_cut(escape) => return at,
            (None, _) => 2,
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 2 * ESCAPE,
            (Some(0xd800..=0xdbff), None) if is_cut(next) => return at,
            (Some(code), _) => {
                if matches!(code, 0xd800..=0xdfff) {
                    escape.copy_from_slice(br"\ufffd");
                }
                ESCAPE
            }
        };
    }
    json.len()
}

fn escaped_code(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(br"\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// JSON that comes bit by bit, with U+FFFD for halves of surrogate pairs.
pub fn whole_pairs_reader(json: impl BufRead) -> impl Read {
    WholePairsReader { json, held: Vec::new(), certain: 0 }
}

struct WholePairsReader<R> {
    json: R,
    held: Vec<u8>,
    /// How much of what is held is passed on as it is.
    certain: usize,
}

impl<R: BufRead> Read for WholePairsReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut is_end = false;
        while self.certain == 0 && !is_end {
            let more = self.json.fill_buf()?;
            let length = more.len();
            self.held.extend_from_slice(more);
            self.json.consume(length);
            is_end = length == 0;
            let certain = replace_halves(&mut self.held);
            self.certain = if is_end { self.held.len() } else { certain };
        }
        let length = self.held.get(..self.certain).unwrap_or_default().read(out)?;
        self.held.drain(..length);
        self.certain -= length;
        Ok(length)
    }
}

/// Reads what is directly inside an array or object: the name of a member and the value, by their ranges.
///
/// # Errors
/// It is not JSON; what was read before was passed on.
pub fn children(
    json: &[u8],
    within: Range<usize>,
    mut child: impl FnMut(Option<Range<usize>>, Range<usize>),
) -> Result<(), JsonError> {
    let base = within.start;
    let mut reader = JsonReader::new(json.get(within).unwrap_or_default());
    let (mut depth, mut start, mut name) = (0_usize, 0, None);
    while let Some(token) = reader.next_token()? {
        let value = match token {
            JsonToken::Object(at) | JsonToken::Array(at) => {
                depth += 1;
                start = if depth == 2 { at } else { start };
                continue;
            }
            JsonToken::Name(range) => {
                name = (depth == 1).then(|| base + range.start..base + range.end).or(name);
                continue;
            }
            JsonToken::End(at) => {
                depth = depth.saturating_sub(1);
                start..at
            }
            // With its quotes.
            JsonToken::Text(text) => text.start - 1..text.end + 1,
            JsonToken::Scalar(value) => value,
        };
        if depth == 1 {
            child(name.take(), base + value.start..base + value.end);
        }
    }
    Ok(())
}

/// A key or index in a JSON Pointer without escapes (RFC 6901 4).
pub fn unescape_pointer_token(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// A key with what has to be escaped in a JSON Pointer (RFC 6901 3).
pub fn escape_pointer_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonExpectation {
    Value,
    ValueOrEnd,
    NameOrEnd,
    Name,
    CommaOrEnd,
    Nothing,
}

/// Reads one value token by token, and validates it on the way. Strings are not unescaped.
///
/// ```
/// use interflow_codec::json::{JsonReader, JsonToken};
///
/// let body = br#"{"model": "small"}"#;
/// let mut reader = JsonReader::new(body);
/// assert_eq!(reader.next_token()?, Some(JsonToken::Object(0)));
/// assert_eq!(reader.next_token()?, Some(JsonToken::Name(2..7)));
/// assert_eq!(reader.next_token()?, Some(JsonToken::Text(11..16)));
/// assert_eq!(reader.next_token()?, Some(JsonToken::End(18)));
/// assert_eq!(reader.next_token()?, None);
/// # Ok::<(), interflow_codec::json::JsonError>(())
/// ```
#[derive(Debug)]
pub struct JsonReader<'j> {
    json: &'j [u8],
    at: usize,
    /// For each open container, whether it is an object.
    open: Vec<bool>,
    expect: JsonExpectation,
}

impl<'j> JsonReader<'j> {
    /// A reader at the start of a body; skips a byte order mark.
    pub fn new(json: &'j [u8]) -> Self {
        let at = if json.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Self { json, at, open: Vec::new(), expect: JsonExpectation::Value }
    }

    /// The next token; `None` after the value.
    ///
    /// # Errors
    /// Invalid JSON, data after the value, or nesting deeper than [`MAX_DEPTH`].
    pub fn next_token(&mut self) -> Result<Option<JsonToken>, JsonError> {
        // Before every token, wherever whitespace is allowed.
        loop {
            self.skip_whitespace();
            let byte = self.json.get(self.at).copied();
            match (self.expect, byte) {
                (JsonExpectation::Nothing, None) => return Ok(None),
                (JsonExpectation::Nothing, Some(_)) => return self.fail("something follows the value"),
                (_, None) => return self.fail("the body ends too early"),
                (JsonExpectation::NameOrEnd | JsonExpectation::CommaOrEnd, Some(b'}'))
                    if self.open.last() == Some(&true) =>
                {
                    return Ok(Some(self.close()));
                }
                (JsonExpectation::ValueOrEnd | JsonExpectation::CommaOrEnd, Some(b']'))
                    if self.open.last() == Some(&false) =>
                {
                    return Ok(Some(self.close()));
                }
                (JsonExpectation::CommaOrEnd, Some(b',')) => {
                    self.at += 1;
                    self.expect =
                        if self.open.last() == Some(&true) { JsonExpectation::Name } else { JsonExpectation::Value };
                }
                (JsonExpectation::CommaOrEnd, Some(_)) => return self.fail("a comma or a closing bracket is missing"),
                (JsonExpectation::NameOrEnd | JsonExpectation::Name, Some(b'"')) => return self.name().map(Some),
                (JsonExpectation::NameOrEnd | JsonExpectation::Name, Some(_)) => {
                    return self.fail("a member's name is missing");
                }
                (JsonExpectation::Value | JsonExpectation::ValueOrEnd, Some(byte)) => {
                    return self.value(byte).map(Some);
                }
            }
        }
    }

    fn fail<T>(&self, reason: &'static str) -> Result<T, JsonError> {
        Err(JsonError { at: self.at, reason })
    }

    fn skip_whitespace(&mut self) {
        while matches!(self.json.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn after_value(&mut self) {
        self.expect = if self.open.is_empty() { JsonExpectation::Nothing } else { JsonExpectation::CommaOrEnd };
    }

    fn close(&mut self) -> JsonToken {
        self.at += 1;
        self.open.pop();
        self.after_value();
        JsonToken::End(self.at)
    }

    fn name(&mut self) -> Result<JsonToken, JsonError> {
        let range = self.string()?;
        self.skip_whitespace();
        if self.json.get(self.at) != Some(&b':') {
            return self.fail("a colon is missing");
        }
        self.at += 1;
        self.expect = JsonExpectation::Value;
        Ok(JsonToken::Name(range))
    }

    fn value(&mut self, byte: u8) -> Result<JsonToken, JsonError> {
        let at = self.at;
        match byte {
            b'{' | b'[' => {
                // Bounded, so that `open` cannot grow with the body.
                if self.open.len() >= MAX_DEPTH {
                    return self.fail(TOO_DEEP);
                }
                self.at += 1;
                let object = byte == b'{';
                self.open.push(object);
                self.expect = if object { JsonExpectation::NameOrEnd } else { JsonExpectation::ValueOrEnd };
                Ok(if object { JsonToken::Object(at) } else { JsonToken::Array(at) })
            }
            b'"' => {
                let range = self.string()?;
                self.after_value();
                Ok(JsonToken::Text(range))
            }
            _ => {
                let rest = self.json.get(at..).unwrap_or_default();
                // Everything that could be part of a literal, so that `nulla` is an error and not `null` followed by
                // `a`.
                let len = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
                let len = len.count();
                let literal = rest.get(..len).unwrap_or_default();
                if !matches!(literal, b"true" | b"false" | b"null") && !is_number(literal) {
                    return self.fail("no JSON value");
                }
                self.at += len;
                self.after_value();
                Ok(JsonToken::Scalar(at..self.at))
            }
        }
    }

    /// The range between the quotes; afterwards the reader is positioned after the closing quote.
    fn string(&mut self) -> Result<Range<usize>, JsonError> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            let rest = self.json.get(at..).unwrap_or_default();
            let Some(skip) = find_special_byte(rest) else {
                self.at = self.json.len();
                return self.fail("a string does not end");
            };
            at += skip;
            match self.json.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Ok(start..at);
                }
                // Whether the escape is valid is not checked here; what matters is that an escaped quote does not end
                // the string.
                Some(b'\\') => at += 2,
                _ => {
                    self.at = at;
                    return self.fail("a control character in a string");
                }
            }
        }
    }
}

/// The offset of the first byte that needs attention in a string: a quote, a backslash, or a control character.
/// Bodies are mostly text, so this checks eight bytes per step.
fn find_special_byte(bytes: &[u8]) -> Option<usize> {
    const fn all(byte: u8) -> u64 {
        byte as u64 * 0x0101_0101_0101_0101
    }
    // Only the lowest marked byte is certain; borrows may mark bytes above it.
    // Marks bytes that are zero: the byte minus one borrows into its high bit.
    let zero = |x: u64| x.wrapping_sub(all(1)) & !x & all(0x80);
    let mut at = 0;
    while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let x = u64::from_le_bytes(*eight);
        // Marks bytes below 0x20 by the same borrow.
        let control = x.wrapping_sub(all(0x20)) & !x & all(0x80);
        let special = control | zero(x ^ all(b'"')) | zero(x ^ all(b'\\'));
        if special != 0 {
            return Some(at + special.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    bytes.get(at..)?.iter().position(|b| matches!(b, b'"' | b'\\') || *b < 0x20).map(|i| at + i)
}

fn is_number(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    // RFC 8259 6: an optional minus, digits without leading zeros, a fraction, an exponent.
    let digits = |w: &[u8]| w.iter().take_while(|b| b.is_ascii_digit()).count();
    let whole = digits(text);
    // `01` is not a number.
    if whole == 0 || whole > 1 && text.first() == Some(&b'0') {
        return false;
    }
    let mut rest = text.get(whole..).unwrap_or_default();
    if let Some(fraction) = rest.strip_prefix(b".") {
        let n = digits(fraction);
        if n == 0 {
            return false;
        }
        rest = fraction.get(n..).unwrap_or_default();
    }
    if let Some(exponent) = rest.strip_prefix(b"e").or_else(|| rest.strip_prefix(b"E")) {
        let exponent = exponent.strip_prefix(b"+").or_else(|| exponent.strip_prefix(b"-")).unwrap_or(exponent);
        return !exponent.is_empty() && digits(exponent) == exponent.len();
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(json: &str) -> Result<Vec<String>, JsonError> {
        let mut reader = JsonReader::new(json.as_bytes());
        let mut out = Vec::new();
        while let Some(token) = reader.next_token()? {
            out.push(match token {
                JsonToken::Object(_) => "{".to_owned(),
                JsonToken::Array(_) => "[".to_owned(),
                JsonToken::End(_) => "end".to_owned(),
                JsonToken::Name(r) => format!("{}:", &json[r]),
                JsonToken::Text(r) => format!("'{}'", &json[r]),
                JsonToken::Scalar(r) => json[r].to_owned(),
            });
        }
        Ok(out)
    }

    #[test]
    fn every_token_has_its_range() {
        assert_eq!(
            tokens(r#" {"a":"x\"y","b":[1,-2.5e3,true,null,{}],"c":[]} "#).unwrap(),
            [
                "{",
                "a:",
                r#"'x\"y'"#,
                "b:",
                "[",
                "1",
                "-2.5e3",
                "true",
                "null",
                "{",
                "end",
                "end",
                "c:",
                "[",
                "end",
                "end"
            ]
        );
        assert_eq!(tokens("9007199254740993").unwrap(), ["9007199254740993"]);
        assert_eq!(tokens("\u{feff}\"x\"").unwrap(), ["'x'"]);
    }

    #[test]
    fn a_half_of_a_surrogate_pair_is_read_as_a_replacement_character() {
        for (json, text) in [
            (r#""\ud83e""#, "\u{fffd}"),
            (r#""\uDD16 b""#, "\u{fffd} b"),
            (r#""\ud83e\ud83e\udd16\udd16""#, "\u{fffd}🤖\u{fffd}"),
            (r#""\ud83e\n""#, "\u{fffd}\n"),
            (r#""\ud83e\u0041""#, "\u{fffd}A"),
            (r#""\\ud83e \\\ud83e""#, "\\ud83e \\\u{fffd}"),
            (r#""\uD83E\uDD16""#, "🤖"),
        ] {
            assert_eq!(parse::<String>(json.as_bytes()).unwrap(), text, "{json}");
            assert_eq!(serde_json::from_str::<String>(&whole_pairs(json)).unwrap(), text, "{json}");
            for size in 1..json.len() {
                let reader = whole_pairs_reader(io::BufReader::with_capacity(size, json.as_bytes()));
                assert_eq!(serde_json::from_reader::<_, String>(reader).unwrap(), text, "{json} by {size}");
            }
        }
        for json in [r#""\ud83e"#, r#""\ud83e\""#, r#""\ud83e\u""#, r#""\ud83e" x"#, r#""\x \ud83e""#, "{"] {
            assert!(parse::<String>(json.as_bytes()).is_err(), "{json}");
        }
        let mut cut = String::new();
        whole_pairs_reader(&br#""\ud83e\u"#[..]).read_to_string(&mut cut).unwrap();
        assert_eq!(cut, r#""\ud83e\u"#, "nothing is lost at the end");
    }

    #[test]
    fn special_bytes_are_found_at_every_offset() {
        for byte in [b'"', b'\\', 0, 0x1f, 0x20, b'!', b'#', 0x7f, 0x80, 0xff] {
            for length in 0..20 {
                for at in 0..length {
                    let mut text = vec![b'a'; length];
                    text[at] = byte;
                    let wanted = (matches!(byte, b'"' | b'\\') || byte < 0x20).then_some(at);
                    assert_eq!(find_special_byte(&text), wanted, "{byte:#x} at {at} of {length}");
                }
            }
        }
        assert_eq!(find_special_byte(b"aaaaaaa\x01\"bbbbbbb"), Some(7));
    }

    #[test]
    fn invalid_json_is_an_error() {
        for json in [
            "",
            "{",
            "[1,]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "[1 2]",
            "\"open",
            "01",
            "1.",
            "nul",
            "{} x",
            "\"a\nb\"",
            "[\"\\\"]",
            "{\"a\":1,}",
            "<html>",
            "-",
            "1e",
            "[}",
            "{]",
            "]",
            "{\"a\":1]",
        ] {
            assert!(tokens(json).is_err(), "{json}");
        }
        assert_eq!(tokens(&"[".repeat(MAX_DEPTH + 1)).unwrap_err().reason, TOO_DEEP);
    }
}
