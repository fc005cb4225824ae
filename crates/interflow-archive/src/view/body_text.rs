//! Views of bodies of any type: text and hex dump.

use std::fmt::Write as _;

use interflow_types::Headers;

/// Characters that are looked at to tell a text from a binary body.
const SAMPLE: usize = 4096;

/// The text of a body, in the charset of its head or byte order mark; invalid sequences become U+FFFD.
pub fn text(headers: &Headers, bytes: &[u8]) -> String {
    match bytes {
        // A byte order mark takes precedence over the declared charset, as in browsers.
        [0xef, 0xbb, 0xbf, rest @ ..] => return String::from_utf8_lossy(rest).into_owned(),
        [0xff, 0xfe, rest @ ..] => return utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => return utf16(rest, u16::from_be_bytes),
        _ => {}
    }
    match headers.get_str("content-type").and_then(charset).as_deref() {
        Some("iso-8859-1" | "latin1" | "us-ascii" | "windows-1252") => bytes.iter().copied().map(char::from).collect(),
        Some("utf-16le") => utf16(bytes, u16::from_le_bytes),
        Some("utf-16" | "utf-16be") => utf16(bytes, u16::from_be_bytes),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// As [`text`]; `None` for a binary body.
pub fn text_if_readable(headers: &Headers, bytes: &[u8]) -> Option<String> {
    let text = text(headers, bytes);
    let is_declared = headers.get_str("content-type").is_some_and(|t| t.starts_with("text/") || charset(t).is_some());
    // What is UTF-8 up to a character that is cut off at its end needs no guess.
    let is_utf8 = std::str::from_utf8(bytes).map_or_else(|e| e.error_len().is_none(), |_| true);
    (!text.contains('\0') && (is_utf8 || is_declared || is_text(&text))).then_some(text)
}

/// Whether a text was text before it was decoded: few characters that no text has.
pub fn is_text(text: &str) -> bool {
    let odd = |c: &char| *c == char::REPLACEMENT_CHARACTER || (c.is_control() && !matches!(c, '\n' | '\r' | '\t'));
    let sample: Vec<char> = text.chars().take(SAMPLE).collect();
    sample.iter().filter(|c| odd(c)).count() * 20 <= sample.len()
}

/// The charset of a media type, in lower case.
pub(crate) fn charset(content_type: &str) -> Option<String> {
    let lower = content_type.to_ascii_lowercase();
    let (_, behind) = lower.split_once("charset=")?;
    let name = behind.split(';').next().unwrap_or_default().trim_matches(['"', ' ', '\'']);
    (!name.is_empty()).then(|| name.to_owned())
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    // An odd byte at the end is omitted.
    let units = bytes.as_chunks::<2>().0.iter().map(|pair| unit(*pair));
    char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// Sixteen bytes per line: offset, hex digits, and printable ASCII.
pub fn hex(start: u64, bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 5);
    for (i, line) in bytes.chunks(16).enumerate() {
        let digits = |half: &[u8]| half.iter().map(|b| format!(" {b:02x}")).collect::<String>();
        let (left, right) = line.split_at(line.len().min(8));
        let _ = write!(out, "{:08x} {:24} {:24}", start + i as u64 * 16, digits(left), digits(right));
        let text: String = line.iter().map(|&b| if (b' '..=b'~').contains(&b) { char::from(b) } else { '.' }).collect();
        let _ = writeln!(out, "  |{text}|");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charset_of_the_content_type_is_decoded() {
        let headers = |value| [("Content-Type", value)].into_iter().collect::<Headers>();
        for (value, bytes, shown) in [
            ("text/html; charset=ISO-8859-1", &[b'a', 0xe9][..], "aé"),
            ("text/html; charset=\"utf-8\"", "é".as_bytes(), "é"),
            ("text/plain", &[0xef, 0xbb, 0xbf, b'a'], "a"),
            ("text/plain", &[0xff, 0xfe, b'a', 0], "a"),
            ("text/plain; charset=utf-16be", &[0, b'b'], "b"),
            ("text/plain", &[b'a', 0xff], "a\u{fffd}"),
        ] {
            assert_eq!(text(&headers(value), bytes), shown, "{value}");
        }
    }

    #[test]
    fn a_text_that_is_cut_or_has_a_bad_byte_is_text_and_a_binary_body_is_none() {
        let head = |value| [("Content-Type", value)].into_iter().collect::<Headers>();
        for (value, bytes, shown) in [
            ("text/plain; charset=iso-8859-1", &b"m\xfcller"[..], Some("müller")),
            ("text/plain", b"m\xfcller", Some("m\u{fffd}ller")),
            ("application/json", "{\"name\": \"mü".as_bytes().split_last().unwrap().1, Some("{\"name\": \"m\u{fffd}")),
            ("application/json", b"{\"a longer text with\": \"\xfc\"}", Some("{\"a longer text with\": \"\u{fffd}\"}")),
            ("application/octet-stream", b"\xff\xfa\xf0abc\xf1\xf2", None),
            ("image/png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", None),
            ("text/plain", b"\0\xff\0", None),
        ] {
            assert_eq!(text_if_readable(&head(value), bytes).as_deref(), shown, "{value}");
        }
    }

    #[test]
    fn hex_view_shows_offset_bytes_and_ascii() {
        let shown = hex(32, b"<script>\0\x7f\xff4567890");
        assert_eq!(
            shown,
            "00000020  3c 73 63 72 69 70 74 3e  00 7f ff 34 35 36 37 38  |<script>...45678|\n\
             00000030  39 30                                             |90|\n"
        );
    }
}
