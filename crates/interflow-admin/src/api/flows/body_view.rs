//! Views of bodies: text and hex dump.

use std::fmt::Write as _;

use interflow_types::Headers;

/// The text of a body, in the charset of its head or byte order mark; invalid sequences become U+FFFD.
pub(crate) fn text(headers: &Headers, bytes: &[u8]) -> String {
    match bytes {
        // A byte order mark takes precedence over the declared charset, as in browsers.
        [0xef, 0xbb, 0xbf, rest @ ..] => return String::from_utf8_lossy(rest).into_owned(),
        [0xff, 0xfe, rest @ ..] => return utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => return utf16(rest, u16::from_be_bytes),
        _ => {}
    }
    match charset(headers).as_deref() {
        Some("iso-8859-1" | "latin1" | "us-ascii" | "windows-1252") => bytes.iter().copied().map(char::from).collect(),
        Some("utf-16le") => utf16(bytes, u16::from_le_bytes),
        Some("utf-16" | "utf-16be") => utf16(bytes, u16::from_be_bytes),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    // An odd byte at the end is omitted.
    let units = bytes.as_chunks::<2>().0.iter().map(|pair| unit(*pair));
    char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

fn charset(headers: &Headers) -> Option<String> {
    let value = headers.get_str("content-type")?.to_ascii_lowercase();
    let (_, charset) = value.split(';').filter_map(|p| p.split_once('=')).find(|(name, _)| name.trim() == "charset")?;
    Some(charset.trim().trim_matches('"').to_owned())
}

/// Sixteen bytes per line: offset, hex digits, and printable ASCII.
pub(crate) fn hex(start: u64, bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 5);
    for (i, line) in bytes.chunks(16).enumerate() {
        let _ = write!(out, "{:08x} ", start + i as u64 * 16);
        for at in 0..16 {
            let gap = if at == 8 { " " } else { "" };
            let _ = match line.get(at) {
                Some(b) => write!(out, "{gap} {b:02x}"),
                None => write!(out, "{gap}   "),
            };
        }
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
    fn hex_view_shows_offset_bytes_and_ascii() {
        let shown = hex(32, b"<script>\0\x7f\xff4567890");
        assert_eq!(
            shown,
            "00000020  3c 73 63 72 69 70 74 3e  00 7f ff 34 35 36 37 38  |<script>...45678|\n\
             00000030  39 30                                             |90|\n"
        );
    }
}
