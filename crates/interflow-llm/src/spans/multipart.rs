//! Parts of `multipart/form-data` (RFC 7578) and of `multipart/related`, located without copying their content.

use std::ops::Range;

/// Maximum number of parts of one form.
const MAX_PARTS: usize = 1000;

/// A form: its parts in order, and what is around them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    pub parts: Vec<FormPart>,
    /// What precedes the first delimiter, and what follows the last: receivers ignore both (RFC 2046 5.1.1).
    pub around: [Range<usize>; 2],
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormPart {
    pub name: String,
    /// The file's name, if the part is a file (RFC 7578 4.2); empty for a part of `multipart/related`, which has none.
    pub file: Option<String>,
    /// The media type, lower case, without parameters.
    pub media_type: Option<String>,
    /// Whether a transfer encoding or a charset is named in which the content is not read, or one may be, in a field that
    /// parsers divide differently.
    pub is_encoded: bool,
    /// The range of the content, without the part's fields.
    pub range: Range<usize>,
    /// The texts among the part's fields: its names, and the values of fields that no standard defines.
    pub texts: Vec<HeadText>,
}

/// A text in the head of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadText {
    pub range: Range<usize>,
    pub encoding: HeadEncoding,
}

/// How a text in the head of a part is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadEncoding {
    Plain,
    /// In a quoted string, in which browsers write quotes and line breaks percent-encoded.
    Quoted,
    /// Percent-encoded (RFC 8187).
    Percent,
}

/// Why a form cannot be divided into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no multipart/form-data at byte {at}: {reason}")]
pub struct MultipartError {
    pub at: usize,
    pub reason: &'static str,
}

/// The boundary in a `Content-Type` of `multipart/form-data` or `multipart/related`; `None` for another type, or a boundary that is too
/// long.
pub fn boundary(content_type: &str) -> Option<String> {
    let mut params = content_type.split(';');
    let media_type = params.next()?.trim();
    if !["multipart/form-data", "multipart/related"].iter().any(|form| media_type.eq_ignore_ascii_case(form)) {
        return None;
    }
    let value = params.find_map(|p| {
        let (name, value) = p.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"').to_owned())
    })?;
    (!value.is_empty() && value.len() <= 200).then_some(value)
}

/// Divides a form into its parts.
///
/// # Errors
/// A missing boundary or header, or more than a thousand parts.
pub fn parse(body: &[u8], boundary: &str) -> Result<Form, MultipartError> {
    let delimiter = format!("\r\n--{boundary}");
    let fail = |at, reason| Err(MultipartError { at, reason });
    let find = |from: usize| memchr::memmem::find(body.get(from..)?, delimiter.as_bytes()).map(|at| at + from);
    // At the beginning of the body, no line break precedes the delimiter.
    let (preamble, mut at) = match body.starts_with(&delimiter.as_bytes()[2..]) {
        true => (0, delimiter.len() - 2),
        false => match find(0) {
            Some(at) => (at, at + delimiter.len()),
            None => return fail(0, "the boundary is missing"),
        },
    };
    let mut parts: Vec<FormPart> = Vec::new();
    loop {
        let rest = body.get(at..).unwrap_or_default();
        if rest.starts_with(b"--") {
            let value = |part: &FormPart| String::from_utf8_lossy(body.get(part.range.clone()).unwrap_or_default());
            let mut charsets = parts.iter().filter(|part| is_charset_field(&part.name));
            if charsets.any(|part| !has_readable_charset(&format!("charset={}", value(part)))) {
                parts.iter_mut().for_each(|part| part.is_encoded = true);
            }
            return Ok(Form { parts, around: [0..preamble, at + 2..body.len()] });
        }
        if !rest.starts_with(b"\r\n") {
            return fail(at, "a line break is missing behind the boundary");
        }
        if parts.len() >= MAX_PARTS {
            return fail(at, "too many parts");
        }
        let Some(head) = memchr::memmem::find(rest, b"\r\n\r\n") else { return fail(at, "a part's head does not end") };
        let start = at + head + 4;
        let mut part = read_head(body, at..at + head);
        // The line break before a delimiter belongs to the delimiter; that of an empty part ends its head, too.
        let Some(next) = find(start - 2) else { return fail(start, "a part does not end") };
        part.range = start..next.max(start);
        parts.push(part);
        at = next + delimiter.len();
    }
}

fn read_head(body: &[u8], head: Range<usize>) -> FormPart {
    let mut part = FormPart { file: Some(String::new()), ..FormPart::default() };
    let mut at = head.start;
    for line in body.get(head).unwrap_or_default().split(|b| *b == b'\n') {
        let line_at = at;
        at += line.len() + 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A field on several lines (RFC 5322 2.2.3), or a line break of some parsers.
        part.is_encoded |= line.starts_with(b" ") || line.starts_with(b"\t") || line.contains(&b'\r');
        let Some(colon) = memchr::memchr(b':', line) else {
            // No field, but it may be a text.
            part.texts.extend((!line.is_empty()).then(|| plain(line_at..line_at + line.len())));
            continue;
        };
        let (name, value) =
            (line[..colon].trim_ascii().to_ascii_lowercase(), line_at + colon + 1..line_at + line.len());
        match name.as_slice() {
            b"content-disposition" => {
                part.file = part.file.filter(|name| !name.is_empty());
                read_disposition(body, value, &mut part);
            }
            b"content-type" => {
                let text = String::from_utf8_lossy(&body[value.clone()]).into_owned();
                part.media_type = text.split(';').next().map(|t| t.trim().to_ascii_lowercase());
                part.is_encoded |= !has_readable_charset(&text);
                // Clients write a file's name here, too.
                let mut parameters = FormPart::default();
                read_disposition(body, value, &mut parameters);
                part.texts.append(&mut parameters.texts);
            }
            b"content-transfer-encoding" => {
                let encoding = body[value].trim_ascii().to_ascii_lowercase();
                part.is_encoded |= !matches!(encoding.as_slice(), b"" | b"7bit" | b"8bit" | b"binary");
            }
            b"content-length" => {}
            _ => part.texts.push(plain(value)),
        }
    }
    part
}

/// Whether a media type names no charset, or one in which ASCII is itself and what is valid UTF-8 can be read.
pub fn has_readable_charset(media_type: &str) -> bool {
    const READABLE: [&str; 6] = ["utf-8", "utf8", "us-ascii", "ascii", "iso-8859-", "windows-125"];
    let media_type: String = media_type.split_whitespace().collect::<String>().to_ascii_lowercase();
    let mut charsets = media_type.split("charset=").skip(1).map(|rest| rest.trim_start_matches('"'));
    charsets.all(|charset| READABLE.iter().any(|known| charset.starts_with(known)))
}

/// Whether a field of a form names the charset of the others (HTML, 4.10.22.5).
pub fn is_charset_field(name: &str) -> bool {
    name.trim().eq_ignore_ascii_case("_charset_")
}

const fn plain(range: Range<usize>) -> HeadText {
    HeadText { range, encoding: HeadEncoding::Plain }
}

fn read_disposition(body: &[u8], value: Range<usize>, part: &mut FormPart) {
    let mut at = value.start;
    while at < value.end {
        // Parameters end at a semicolon outside of quotes.
        let (mut end, mut quoted) = (at, false);
        while end < value.end && (quoted || body[end] != b';') {
            quoted ^= body[end] == b'"';
            end += 1 + usize::from(quoted && body[end] == b'\\');
        }
        let end = end.min(value.end);
        if let Some(equals) = memchr::memchr(b'=', &body[at..end]) {
            let name = body[at..at + equals].trim_ascii().to_ascii_lowercase();
            let mut range = trimmed(body, at + equals + 1..end);
            let is_quoted = range.len() > 1 && body[range.start] == b'"' && body[range.end - 1] == b'"';
            let mut encoding = HeadEncoding::Plain;
            if is_quoted {
                (range, encoding) = (range.start + 1..range.end - 1, HeadEncoding::Quoted);
            }
            if name.ends_with(b"*") {
                // The charset and a language precede the value: UTF-8'en'name.
                let quote = |from: usize| memchr::memchr(b'\'', &body[from..range.end]).map(|i| from + i + 1);
                range.start = quote(range.start).and_then(quote).unwrap_or(range.start);
                encoding = HeadEncoding::Percent;
            }
            let text = || String::from_utf8_lossy(&body[range.clone()]).into_owned();
            match name.as_slice() {
                b"name" => part.name = text(),
                b"filename" | b"filename*" => part.file = Some(text()),
                _ => {}
            }
            part.texts.push(HeadText { range, encoding });
        }
        at = end + 1;
    }
}

fn trimmed(body: &[u8], range: Range<usize>) -> Range<usize> {
    let text = &body[range.clone()];
    let start = range.start + (text.len() - text.trim_ascii_start().len());
    start..start + text.trim_ascii().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_files_are_found() {
        let body = b"--XX\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nAnna\r\n--XX\r\n\
            Content-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\nContent-Type: Application/JSONL; x=y\r\n\r\n{}\n{}\r\n--XX--\r\n";
        let found = parse(body, "XX").unwrap().parts;
        let text = |p: &FormPart| String::from_utf8(body[p.range.clone()].to_vec()).unwrap();
        assert_eq!((found[0].name.as_str(), text(&found[0])), ("prompt", "Anna".to_owned()));
        assert_eq!(
            (found[1].file.as_deref(), found[1].media_type.as_deref()),
            (Some("a.jsonl"), Some("application/jsonl"))
        );
        assert_eq!(text(&found[1]), "{}\n{}");
    }

    #[test]
    fn every_text_beside_the_contents_is_found() {
        let body = b"before\r\n--XX\r\nContent-Disposition: form-data; name=\"a;b\"; filename=\"Anna \\\"B\\\".pdf\"; \
            filename*=UTF-8'en'Anna%20Berg.pdf\r\nX-Note: Anna \r\nContent-Type: text/plain; name=\"Anna\"\r\n\r\nx--XX\r\ny\r\n--XX\r\n\
            Content-Disposition: form-data; name=plain\r\n\r\n\r\n--XX--\r\nafter";
        let form = parse(body, "XX").unwrap();
        let text = |range: &Range<usize>| String::from_utf8(body[range.clone()].to_vec()).unwrap();
        assert_eq!(form.around.each_ref().map(text), ["before", "\r\nafter"]);
        let texts: Vec<_> = form.parts[0].texts.iter().map(|t| (text(&t.range), t.encoding)).collect();
        let expected = [
            ("a;b", HeadEncoding::Quoted),
            ("Anna \\\"B\\\".pdf", HeadEncoding::Quoted),
            ("Anna%20Berg.pdf", HeadEncoding::Percent),
            (" Anna ", HeadEncoding::Plain),
            ("Anna", HeadEncoding::Quoted),
        ];
        assert_eq!(texts, expected.map(|(text, encoding)| (text.to_owned(), encoding)));
        assert_eq!(text(&form.parts[0].range), "x--XX\r\ny", "a delimiter begins a line");
        assert_eq!((form.parts[1].name.as_str(), text(&form.parts[1].range)), ("plain", String::new()));
    }

    #[test]
    fn contents_that_are_not_read_as_they_are_are_known_by_their_fields() {
        for (fields, is_encoded) in [
            ("Content-Transfer-Encoding: Quoted-Printable", true),
            ("content-transfer-encoding : base64", true),
            ("Content-Transfer-Encoding: 8BIT", false),
            ("Content-Type: text/plain; charset=\"UTF-8\"", false),
            ("Content-Type: text/plain; charset=iso-8859-1", false),
            ("Content-Type: text/plain; format=flowed; charset=utf-16le", true),
            ("Content-Type: text/plain; charset=utf-8; charset=utf-7", true),
            ("Content-Transfer-Encoding:\r\n quoted-printable", true),
            ("Content-Type: text/plain;\r\n\tcharset=utf-7", true),
            ("Content-Type: text/plain;\n charset=utf-8", true),
            ("Content-Type: text/plain\rContent-Transfer-Encoding: base64", true),
        ] {
            let body = format!("--XX\r\n{fields}\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n--XX--");
            assert_eq!(parse(body.as_bytes(), "XX").unwrap().parts[0].is_encoded, is_encoded, "{fields}");
        }
    }

    #[test]
    fn parts_without_a_disposition_are_files() {
        let body = b"--XX\r\nContent-Type: text/plain\r\n\r\nx\r\n--XX\r\nContent-Disposition: form-data; name=a\r\n\r\ny\r\n--XX--";
        let files = parse(body, "XX").unwrap().parts.into_iter().map(|part| part.file);
        assert_eq!(files.collect::<Vec<_>>(), [Some(String::new()), None]);
    }

    #[test]
    fn truncated_multipart_is_an_error() {
        for body in ["", "x", "--XX", "--XX\r\n", "--XX\r\nContent-Disposition: form-data; name=a\r\n\r\nAnna"] {
            assert!(parse(body.as_bytes(), "XX").is_err(), "{body:?}");
        }
    }

    #[test]
    fn multipart_boundary_is_parsed() {
        assert_eq!(boundary("multipart/form-data; boundary=\"a b\"").as_deref(), Some("a b"));
        assert_eq!(boundary("Multipart/Form-Data;Boundary=x; charset=utf-8").as_deref(), Some("x"));
        assert_eq!(boundary("multipart/related; boundary=x").as_deref(), Some("x"));
        assert_eq!(boundary("application/json"), None);
    }
}
