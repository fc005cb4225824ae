//! Forms: decoded names and values, and the parts of a multipart body.

use std::fmt::Write as _;

use interflow_types::{Headers, percent};
use memchr::memmem;

use super::{TextKind, digits};

/// Maximum size of a part's text that is displayed, in bytes.
const MAX_PART: usize = 64 << 10;

/// `name = value`, one per line, decoded from `application/x-www-form-urlencoded` (URL standard 5.1).
pub(super) fn fields(text: &str, cap: usize) -> String {
    let mut out = String::new();
    for pair in text.trim_end().split('&').filter(|p| !p.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let _ = writeln!(out, "{} = {}", decode_component(name), decode_component(value));
        if out.len() > cap {
            break;
        }
    }
    out
}

/// Decodes `+` and `%XX`; line breaks and other control characters stay visible.
fn decode_component(text: &str) -> String {
    let mut out = String::new();
    for c in percent::decoded_form(text).chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Each part with its head; texts as they are, other bytes by their first digits and their length.
pub(super) fn parts(headers: &Headers, body: &[u8], cap: usize) -> String {
    let Some(boundary) = boundary(headers) else {
        return "# the head names no boundary\n".to_owned() + &String::from_utf8_lossy(body);
    };
    let mark = [b"--", boundary.as_bytes()].concat();
    let mut out = String::new();
    // A boundary counts only at the start of a line (RFC 2046 section 5.1.1).
    let mut places =
        memmem::find_iter(body, &mark).filter(|at| *at == 0 || body.get(at - 1) == Some(&b'\n')).peekable();
    let mut number = 0;
    while let Some(at) = places.next() {
        let from = at + mark.len();
        // The closing boundary.
        if body[from..].starts_with(b"--") || out.len() > cap {
            break;
        }
        let end = places.peek().copied().unwrap_or(body.len());
        let part = body.get(from..end).unwrap_or_default();
        number += 1;
        let _ = writeln!(out, "── part {number}");
        write_part(&mut out, part, places.peek().is_none(), cap);
    }
    out
}

fn write_part(out: &mut String, part: &[u8], cut: bool, cap: usize) {
    // Line ends without CR occur in hand-made bodies.
    let part = part.strip_prefix(b"\r\n").or_else(|| part.strip_prefix(b"\n")).unwrap_or(part);
    let (head, content) = match (memmem::find(part, b"\r\n\r\n"), memmem::find(part, b"\n\n")) {
        // A part without header fields begins with an empty line.
        _ if part.starts_with(b"\r\n") => (&part[..0], &part[2..]),
        (Some(at), _) => (&part[..at], &part[at + 4..]),
        (None, Some(at)) => (&part[..at], &part[at + 2..]),
        (None, None) => (part, &part[part.len()..]),
    };
    // The line end before the next boundary belongs to the boundary.
    let content = content.strip_suffix(b"\r\n").or_else(|| content.strip_suffix(b"\n")).unwrap_or(content);
    let head = String::from_utf8_lossy(head);
    let fields: Headers = head.lines().filter_map(|l| l.split_once(':')).map(|(n, v)| (n.trim(), v.trim())).collect();
    for line in head.lines() {
        let _ = writeln!(out, "{line}");
    }
    out.push('\n');
    match std::str::from_utf8(content) {
        Ok(text) if !text.contains('\0') => out.push_str(&format_part(&fields, text, cap)),
        _ => {
            let _ = write!(out, "{} bytes: ", content.len());
            digits(out, content);
        }
    }
    out.push_str(if cut { "\n… it ends here, before its boundary\n" } else { "\n\n" });
}

/// A part's text, rendered by its type; nested multipart bodies are left unchanged.
fn format_part(fields: &Headers, text: &str, cap: usize) -> String {
    let json = interflow_store::media_type(fields).is_some_and(|m| m.ends_with("json"));
    if json && let Ok(value) = serde_json::from_str::<serde_json::Value>(text) {
        return format!("{value:#}");
    }
    match TextKind::detect(fields, text.as_bytes()) {
        Some(kind) if kind != TextKind::Multipart => {
            super::format_text(kind, fields, text.as_bytes(), text, cap.min(MAX_PART))
        }
        _ => text[..text.floor_char_boundary(MAX_PART)].to_owned(),
    }
}

/// The boundary that a head names (RFC 2046 5.1.1).
fn boundary(headers: &Headers) -> Option<String> {
    let value = headers.get_str("content-type")?;
    let mut parameters = value.split(';').skip(1).filter_map(|p| p.trim().split_once('='));
    let (_, found) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"))?;
    let parameter = found.trim().trim_matches('"');
    // RFC 2046 limits boundaries to 70 characters.
    (!parameter.is_empty() && parameter.len() <= 70).then(|| parameter.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_fields_are_decoded_and_control_characters_escaped() {
        let text = "name=Zo%C3%AB+K&empty=&flag&bad=%zz%4&line=a%0d%0ab&x=%e2%80%ae";
        let shown = "name = Zoë K\nempty = \nflag = \nbad = %zz%4\nline = a\\r\\nb\nx = \u{202e}\n";
        assert_eq!(fields(text, 1 << 20), shown);
    }

    #[test]
    fn multipart_parts_are_shown_with_text_as_text_and_binary_as_hex() {
        let headers: Headers = [("Content-Type", "multipart/form-data; boundary=\"b 1\"")].into_iter().collect();
        let body = b"preamble\r\n--b 1\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none\r\n--b 1\r\nContent-Type: application/xml\r\n\r\n<x><y/></x>\r\n--b 1\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f.bin\"\r\n\r\n\xff\x00\x01\r\n--b 1--\r\nepilogue";
        let shown = parts(&headers, body, 1 << 20);
        for wanted in [
            "── part 1\nContent-Disposition: form-data; name=\"a\"\n\none\n",
            "<x>\n  <y/>\n</x>",
            "filename=\"f.bin\"\n\n3 bytes: 0xff0001",
        ] {
            assert!(shown.contains(wanted), "{wanted}\n---\n{shown}");
        }
        assert!(!shown.contains("epilogue") && !shown.contains("before its boundary"), "{shown}");
        let cut = parts(&headers, &body[..60], 1 << 20);
        assert!(cut.contains("before its boundary"), "{cut}");
    }

    #[test]
    fn multipart_without_a_boundary_is_shown_as_text() {
        let headers: Headers = [("Content-Type", "multipart/mixed")].into_iter().collect();
        assert!(parts(&headers, b"abc", 100).ends_with("abc"));
    }
}
