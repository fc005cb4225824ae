//! Lossless editing of JSON (RFC 8259): locates strings, decodes them with a map back to the raw bytes, and applies
//! edits that leave every other byte unchanged.

use std::ops::Range;

use interflow_codec::json::{JsonReader, JsonToken};

use crate::text::normalized_text::OffsetMap;
use crate::{RedactError, Result};

/// A string in a body, as located by a caller that knows the body's format. `range` is the bytes between the quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonSpan {
    pub range: Range<usize>,
    /// Whether the string itself contains JSON, whose string values are to be scanned. If it is not JSON after all, it
    /// is scanned as text.
    pub nested: bool,
    /// The name of its member (between the quotes): `"password"` indicates the kind of the value.
    pub name: Option<Range<usize>>,
    pub part: JsonPart,
    /// Whether it belongs to a client's fixed prompts, whose placeholders are the same in all conversations.
    pub fixed: bool,
}

/// The role of a span in its body: a string value, a member's name, or a number, which has no quotes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonPart {
    #[default]
    Text,
    Name,
    Number,
}

impl JsonSpan {
    /// A string value without JSON in it.
    pub const fn text(range: Range<usize>) -> Self {
        Self::with_nesting(range, false, None)
    }

    /// A string value, its member's name, and whether it may contain JSON.
    pub const fn with_nesting(range: Range<usize>, nested: bool, name: Option<Range<usize>>) -> Self {
        Self { range, nested, name, part: JsonPart::Text, fixed: false }
    }
}

fn json_error(at: usize, reason: &'static str) -> RedactError {
    RedactError::Json { at, reason }
}

/// Every string value of a body (not member names), in order. Also validates the JSON.
///
/// # Errors
/// The body is not JSON, or is nested deeper than [`interflow_codec::json::MAX_DEPTH`].
pub fn string_values(json: &[u8]) -> Result<Vec<JsonSpan>> {
    let mut spans = json_parts(json)?;
    spans.retain(|s| s.part == JsonPart::Text);
    Ok(spans)
}

/// Every string value, member name and number of a body, in order.
///
/// # Errors
/// As [`string_values`].
pub fn json_parts(json: &[u8]) -> Result<Vec<JsonSpan>> {
    let mut reader = JsonReader::new(json);
    let (mut spans, mut around) = (Vec::new(), Vec::new());
    // The member of the current value; the values of an array have the array's name.
    let mut name: Option<Range<usize>> = None;
    while let Some(token) = reader.next_token()? {
        match token {
            JsonToken::Object(_) | JsonToken::Array(_) => around.push(name.clone()),
            // The name before the container applies again.
            JsonToken::End(_) => name = around.pop().flatten(),
            JsonToken::Name(range) => {
                spans.push(JsonSpan { part: JsonPart::Name, ..JsonSpan::text(range.clone()) });
                name = Some(range);
            }
            JsonToken::Text(range) => {
                let nested = json.get(range.clone()).is_some_and(may_hold_json);
                spans.push(JsonSpan::with_nesting(range, nested, name.clone()));
            }
            JsonToken::Scalar(range) => {
                if json.get(range.start).is_some_and(|b| b.is_ascii_digit() || *b == b'-') {
                    spans.push(JsonSpan {
                        part: JsonPart::Number,
                        ..JsonSpan::with_nesting(range, false, name.clone())
                    });
                }
            }
        }
    }
    Ok(spans)
}

/// Whether the raw content of a string begins like an object or an array, ignoring white space. Only a hint: it need
/// not be JSON.
pub fn may_hold_json(raw: &[u8]) -> bool {
    let mut rest = raw;
    loop {
        rest = match rest {
            [b' ', more @ ..] | [b'\\', b'n' | b'r' | b't', more @ ..] => more,
            _ => return matches!(rest, [b'{' | b'[', ..]),
        }
    }
}

/// Whether a text is exactly one JSON number (RFC 8259 6).
pub(crate) fn is_number(text: &str) -> bool {
    let number = text.bytes().next().is_some_and(|b| b.is_ascii_digit() || b == b'-');
    let mut reader = JsonReader::new(text.as_bytes());
    number && matches!(reader.next_token(), Ok(Some(JsonToken::Scalar(r))) if r == (0..text.len()))
}

/// The digits of an integer that is written as a number with a fraction or an exponent, such as `4.1e3` or `41.0`;
/// `None` for other numbers. Many encoders write large integers so.
pub(crate) fn integer_digits(number: &str) -> Option<String> {
    let unsigned = number.strip_prefix('-').unwrap_or(number);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if mantissa.len() == unsigned.len() && fraction.is_empty() {
        return None;
    }
    let exponent: i32 = exponent.parse().ok()?;
    let digits = format!("{whole}{fraction}");
    // How many of the digits are before the decimal point.
    let integral = usize::try_from(i32::try_from(whole.len()).ok()?.checked_add(exponent)?).ok()?;
    if integral > MAX_INTEGER_DIGITS || digits.bytes().skip(integral).any(|b| b != b'0') {
        return None;
    }
    let integer: String = digits.chars().chain(std::iter::repeat('0')).take(integral).collect();
    let integer = integer.trim_start_matches('0');
    let is_number = !integer.is_empty() && integer.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| format!("{}{integer}", &number[..number.len() - unsigned.len()]))
}

/// Longer integers are no identifiers of people.
const MAX_INTEGER_DIGITS: usize = 40;

/// A decoded string, with a map to its raw bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DecodedString<'j> {
    pub text: std::borrow::Cow<'j, str>,
    pub map: OffsetMap,
    /// For streamed text: the number of raw bytes at the end that begin an escape.
    pub open: usize,
}

/// Decodes the raw content of a string. An unpaired surrogate becomes U+FFFD here; its raw bytes are kept unless they
/// are part of a replacement.
///
/// # Errors
/// An invalid escape, or bytes that are not UTF-8; `base` is the offset of the string in the body.
pub(crate) fn decode(raw: &[u8], base: usize) -> Result<DecodedString<'_>> {
    let text = std::str::from_utf8(raw).map_err(|e| RedactError::Utf8 { at: base + e.valid_up_to() })?;
    let mut decoded = decode_piece(text, base)?;
    if decoded.open == 6 {
        // A high surrogate at the very end.
        let (at, end) = (raw.len() - 6, decoded.text.len());
        decoded.text.to_mut().push(char::REPLACEMENT_CHARACTER);
        decoded.map.push_point(end, at, at);
        decoded.map.push_point(decoded.text.len(), raw.len(), raw.len());
    } else if decoded.open > 0 {
        return Err(json_error(base + raw.len() - decoded.open, "an escape is cut short"));
    }
    Ok(decoded)
}

/// The same for a fragment of a string, which may end inside an escape; then its raw bytes are counted in `open`.
pub(crate) fn decode_piece(text: &str, base: usize) -> Result<DecodedString<'_>> {
    let raw = text.as_bytes();
    // The usual case: without escapes the string is used in place.
    let Some(first) = memchr::memchr(b'\\', raw) else {
        return Ok(DecodedString { text: text.into(), map: OffsetMap::identity(), open: 0 });
    };
    let mut out = String::with_capacity(raw.len());
    let mut map = OffsetMap::default();
    let (mut at, mut copied) = (first, 0);
    loop {
        out.push_str(&text[copied..at]);
        let (c, len) = match json_escape(&raw[at..]) {
            JsonEscape::Char(c, len) => (c, len),
            JsonEscape::Cut => return Ok(DecodedString { text: out.into(), map, open: raw.len() - at }),
            JsonEscape::Wrong => return Err(json_error(base + at, "a wrong escape in a string")),
        };
        // An escape has no correspondence byte by byte: points on both sides make a finding cover it whole or not at
        // all.
        map.push_point(out.len(), at, at);
        out.push(c);
        at += len;
        map.push_point(out.len(), at, at);
        copied = at;
        match memchr::memchr(b'\\', &raw[at..]) {
            Some(skip) => at += skip,
            None => break,
        }
    }
    out.push_str(&text[copied..]);
    Ok(DecodedString { text: out.into(), map, open: 0 })
}

/// The decoded content of a JSON string, and a high surrogate at its end in its raw form. Other unpaired surrogates
/// become U+FFFD; invalid content is returned unchanged.
pub fn decode_lossy(raw: &str) -> (std::borrow::Cow<'_, str>, &str) {
    match decode_piece(raw, 0) {
        Ok(decoded) => {
            let open = decoded.open;
            (decoded.text, raw.get(raw.len() - open..).unwrap_or_default())
        }
        Err(_) => (raw.into(), ""),
    }
}

/// What an escape stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonEscape {
    /// A character, with the raw length of the escape. An unpaired surrogate is U+FFFD.
    Char(char, usize),
    /// More input may complete it: the text ends within it, or behind a high surrogate.
    Cut,
    Wrong,
}

/// The escape at the beginning of a text, which begins with a backslash (RFC 8259 7).
pub fn json_escape(raw: &[u8]) -> JsonEscape {
    let plain = |c| JsonEscape::Char(c, 2);
    match raw.get(1) {
        None => JsonEscape::Cut,
        Some(b'n') => plain('\n'),
        Some(b't') => plain('\t'),
        Some(b'r') => plain('\r'),
        Some(b'b') => plain('\u{8}'),
        Some(b'f') => plain('\u{c}'),
        Some(b @ (b'"' | b'\\' | b'/')) => plain(char::from(*b)),
        Some(b'u') => unicode_escape(raw),
        Some(_) => JsonEscape::Wrong,
    }
}

/// The code unit of `\uXXXX`; `None` if it is incomplete, `Some(None)` if it has a wrong digit.
fn hex_unit(raw: &[u8]) -> Option<Option<u32>> {
    let digits = raw.get(2..6)?;
    Some(digits.iter().try_fold(0, |n, b| Some(n << 4 | char::from(*b).to_digit(16)?)))
}

/// `\uXXXX`, or a surrogate pair of two of them (RFC 8259 7).
fn unicode_escape(raw: &[u8]) -> JsonEscape {
    let first = match hex_unit(raw) {
        None => return JsonEscape::Cut,
        Some(None) => return JsonEscape::Wrong,
        Some(Some(unit)) => unit,
    };
    if !(0xd800..0xdc00).contains(&first) {
        return JsonEscape::Char(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 6);
    }
    match raw.get(6..8) {
        // The low surrogate may be in the next fragment.
        None if raw.len() == 6 || raw.get(6) == Some(&b'\\') => return JsonEscape::Cut,
        Some(b"\\u") => {}
        _ => return JsonEscape::Char(char::REPLACEMENT_CHARACTER, 6),
    }
    match raw.get(6..).and_then(hex_unit) {
        None => JsonEscape::Cut,
        // The offset and the shift are those of UTF-16 (RFC 2781).
        Some(Some(second @ 0xdc00..0xe000)) => {
            let c = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            JsonEscape::Char(char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER), 12)
        }
        Some(_) => JsonEscape::Char(char::REPLACEMENT_CHARACTER, 6),
    }
}

/// Appends a text with the escapes that JSON strings require (RFC 8259 7); other characters stay as they are.
pub fn escape_into(text: &str, out: &mut String) {
    let quoted = serde_json::to_string(text).expect("a text can be written as JSON");
    out.push_str(&quoted[1..quoted.len() - 1]);
}

/// A text as the content of a JSON string.
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    escape_into(text, &mut out);
    out
}

/// A replacement of raw bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonEdit {
    pub range: Range<usize>,
    pub with: String,
}

impl JsonEdit {
    /// The same edit in a body in which the edited part begins `by` bytes later.
    pub fn shifted_by(self, by: usize) -> Self {
        Self { range: self.range.start + by..self.range.end + by, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interflow_codec::json::MAX_DEPTH;
    use proptest::prelude::*;

    fn values(json: &str) -> Vec<&str> {
        string_values(json.as_bytes()).expect("JSON").into_iter().map(|s| &json[s.range]).collect()
    }

    #[test]
    fn string_values_are_found_and_names_are_not() {
        assert_eq!(values(r#"{"a":"x","b":["y",{"c":"z\"q"},1.5e3,-0,true,null,{}],"d":[]}"#), ["x", "y", r#"z\"q"#]);
        assert_eq!(values(r#" "only" "#), ["only"]);
        assert_eq!(values("9007199254740993"), Vec::<&str>::new());
    }

    #[test]
    fn value_span_has_its_member_name_and_nested_json_flag() {
        let json = r#"{"a":{"b":["x","{\"q\":1}"],"c":"y"},"d":"z"}"#;
        let spans = string_values(json.as_bytes()).expect("JSON");
        let names: Vec<_> = spans.iter().map(|s| (s.name.clone().map(|n| &json[n]), s.nested)).collect();
        assert_eq!(names, [(Some("b"), false), (Some("b"), true), (Some("c"), false), (Some("d"), false)]);
    }

    #[test]
    fn invalid_json_is_an_error() {
        for json in ["", "{\"a\":1,}", "{a:1}", "[1 2]", "{} x", "<html>"] {
            assert!(string_values(json.as_bytes()).is_err(), "{json}");
        }
        let deep = "[".repeat(MAX_DEPTH + 1);
        assert!(matches!(string_values(deep.as_bytes()), Err(RedactError::Json { reason: "nested too deeply", .. })));
    }

    #[test]
    fn escapes_are_decoded_with_their_byte_positions() {
        let raw = br#"a\n\u00e9\ud83d\ude00\ud800z"#;
        let decoded = decode(raw, 0).expect("a string");
        assert_eq!(decoded.text, "a\né😀\u{fffd}z");
        let at = decoded.text.find('😀').expect("there");
        assert_eq!(&raw[decoded.map.start(at)..decoded.map.end(at + 4)], br"\ud83d\ude00");
        let z = decoded.text.find('z').expect("there");
        assert_eq!(&raw[decoded.map.start(z)..decoded.map.end(z + 1)], b"z");
        for raw in [r"\x", r"\u12", r"\", r"\u12g4"] {
            assert!(decode(raw.as_bytes(), 0).is_err(), "{raw}");
        }
        assert!(matches!(decode(b"ab\xff", 10), Err(RedactError::Utf8 { at: 12 })));
    }

    #[test]
    fn integers_in_other_spellings_are_read() {
        for (number, integer) in [
            ("4111111111111111.0", Some("4111111111111111")),
            ("4.111111111111111e15", Some("4111111111111111")),
            ("4.111111111111111E+15", Some("4111111111111111")),
            ("-41.00", Some("-41")),
            ("5e2", Some("500")),
            ("41000E-3", Some("41")),
            ("41", None),
            ("-41", None),
            ("0.0", None),
            ("41.5", None),
            ("1e-1", None),
            ("1e999999999999", None),
            ("1e2000000000", None),
        ] {
            assert_eq!(integer_digits(number).as_deref(), integer, "{number}");
        }
    }

    proptest! {
        #[test]
        fn json_strings_decode_as_by_serde(text in "\\PC{0,20}", other in any::<i64>()) {
            let value = serde_json::json!({"a": [text, other, {"b": text}]});
            for json in [serde_json::to_string(&value).expect("JSON"), serde_json::to_string_pretty(&value).expect("JSON")] {
                let spans = string_values(json.as_bytes()).expect("JSON");
                prop_assert_eq!(spans.len(), 2);
                for span in spans {
                    let decoded = decode(&json.as_bytes()[span.range.clone()], span.range.start).expect("a string");
                    prop_assert_eq!(&decoded.text, &text);
                }
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(spans) = string_values(&bytes) {
                for span in spans {
                    let _ = decode(&bytes[span.range.clone()], span.range.start);
                }
            }
        }

        #[test]
        fn escaped_text_parses_back_with_serde(text in "\\PC{0,20}|[\u{0}-\u{1f}\"\\\\]{0,10}") {
            let mut out = String::from("\"");
            escape_into(&text, &mut out);
            out.push('"');
            prop_assert_eq!(serde_json::from_str::<String>(&out).expect("a string"), text);
        }
    }
}
