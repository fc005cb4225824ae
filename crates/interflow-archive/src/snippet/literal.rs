//! String literals of the languages.

/// A string literal valid in JavaScript and Python.
pub(super) fn json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    // Unicode's two line separators terminate lines in JavaScript before 2019.
    quoted.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029").replace('\u{7f}', "\\u007f")
}

/// A literal with `\xNN` for every byte that is not printable ASCII, as Python's bytes, Go's strings and Rust's bytes
/// have it.
pub(super) fn hex_escaped(value: &[u8]) -> String {
    escaped(value, b"\"\\", |b| format!("\\x{b:02x}"))
}

/// PHP's double-quoted string, in which `$` would begin a variable.
pub(super) fn php(value: &[u8]) -> String {
    escaped(value, b"\"\\$", |b| format!("\\x{b:02X}"))
}

fn escaped(value: &[u8], special: &[u8], other: fn(u8) -> String) -> String {
    let mut out = String::from("\"");
    for &b in value {
        match b {
            b if special.contains(&b) => out.extend(['\\', char::from(b)]),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            0x20..0x7f => out.push(char::from(b)),
            b => out.push_str(&other(b)),
        }
    }
    out.push('"');
    out
}

/// A literal of Java and C#: UTF-16 escapes for everything that is not printable ASCII.
pub(super) fn utf16(text: &str) -> String {
    let mut out = String::from("\"");
    for unit in text.encode_utf16() {
        match u8::try_from(unit) {
            Ok(b @ (b'"' | b'\\')) => out.extend(['\\', char::from(b)]),
            Ok(b'\n') => out.push_str("\\n"),
            Ok(b'\r') => out.push_str("\\r"),
            Ok(b @ 0x20..0x7f) => out.push(char::from(b)),
            _ => out.push_str(&format!("\\u{unit:04x}")),
        }
    }
    out.push('"');
    out
}

/// The bytes of a field as the characters with the same numbers, which is how HTTP libraries write fields.
pub(super) fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| char::from(b)).collect()
}

/// PowerShell's single-quoted string. It takes typographic quotes for quotes too.
pub(super) fn powershell(text: &str) -> String {
    let mut out = String::from("'");
    for c in text.chars() {
        if matches!(c, '\'' | '\u{2018}'..='\u{201b}') {
            out.push(c);
        }
        out.push(c);
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_escapes_and_interpolation_are_neutralised() {
        assert_eq!(hex_escaped(b"a\"\\\n\xff\0$"), r#""a\"\\\n\xff\x00$""#);
        assert_eq!(php(b"$a {$b} \"\\\xff"), r#""\$a {\$b} \"\\\xFF""#);
        assert_eq!(utf16("\"\u{e9}\u{1f600}\t"), r#""\"\u00e9\ud83d\ude00\u0009""#);
        assert_eq!(powershell("it's \u{2019}$x`"), "'it''s \u{2019}\u{2019}$x`'");
        assert_eq!(json("\u{2028}\u{7f}"), "\"\\u2028\\u007f\"");
    }
}
