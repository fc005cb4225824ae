//! Parts of `multipart/form-data` (RFC 7578), located without copying their content.

use std::ops::Range;

/// Maximum number of parts of one form.
const MAX_PARTS: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormPart {
    pub name: String,
    /// The file's name, if the part is a file (RFC 7578 4.2).
    pub file: Option<String>,
    /// The media type, lower case, without parameters.
    pub media_type: Option<String>,
    /// The range of the content, without the part's fields.
    pub range: Range<usize>,
}

/// Why a form cannot be divided into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no multipart/form-data at byte {at}: {reason}")]
pub struct MultipartError {
    pub at: usize,
    pub reason: &'static str,
}

/// The boundary in a `Content-Type` of `multipart/form-data`; `None` for another type, or a boundary that is too
/// long.
pub fn boundary(content_type: &str) -> Option<String> {
    let mut params = content_type.split(';');
    if !params.next()?.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let value = params.find_map(|p| {
        let (name, value) = p.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"').to_owned())
    })?;
    (!value.is_empty() && value.len() <= 200).then_some(value)
}

/// The parts of a form, in order.
///
/// # Errors
/// A missing boundary or header, or more than a thousand parts.
pub fn parts(body: &[u8], boundary: &str) -> Result<Vec<FormPart>, MultipartError> {
    let delimiter = format!("--{boundary}");
    let fail = |at, reason| Err(MultipartError { at, reason });
    let find = |from: usize| memchr::memmem::find(body.get(from..)?, delimiter.as_bytes()).map(|at| at + from);
    let Some(mut at) = find(0) else { return fail(0, "the boundary is missing") };
    let mut parts = Vec::new();
    loop {
        at += delimiter.len();
        let rest = body.get(at..).unwrap_or_default();
        // The closing delimiter (RFC 2046 5.1.1); what follows it is ignored.
        if rest.starts_with(b"--") {
            return Ok(parts);
        }
        if !rest.starts_with(b"\r\n") {
            return fail(at, "a line break is missing behind the boundary");
        }
        if parts.len() >= MAX_PARTS {
            return fail(at, "too many parts");
        }
        let Some(head) = memchr::memmem::find(rest, b"\r\n\r\n") else { return fail(at, "a part's head does not end") };
        let start = at + head + 4;
        let mut part = read_head(rest.get(..head).unwrap_or_default());
        let Some(next) = find(start) else { return fail(start, "a part does not end") };
        // The line break before a delimiter belongs to the delimiter.
        part.range = start..next.saturating_sub(2).max(start);
        parts.push(part);
        at = next;
    }
}

fn read_head(head: &[u8]) -> FormPart {
    let mut part = FormPart { name: String::new(), file: None, media_type: None, range: 0..0 };
    for line in String::from_utf8_lossy(head).split("\r\n") {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-disposition") {
            part.name = parameter(value, "name").unwrap_or_default();
            part.file = parameter(value, "filename");
        } else if name.eq_ignore_ascii_case("content-type") {
            part.media_type = value.split(';').next().map(|t| t.trim().to_ascii_lowercase());
        }
    }
    part
}

fn parameter(value: &str, name: &str) -> Option<String> {
    value.split(';').skip(1).find_map(|p| {
        let (n, v) = p.split_once('=')?;
        n.trim().eq_ignore_ascii_case(name).then(|| v.trim().trim_matches('"').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_files_are_found() {
        let body = b"--XX\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nAnna\r\n--XX\r\n\
            Content-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\nContent-Type: Application/JSONL; x=y\r\n\r\n{}\n{}\r\n--XX--\r\n";
        let found = parts(body, "XX").unwrap();
        let text = |p: &FormPart| String::from_utf8(body[p.range.clone()].to_vec()).unwrap();
        assert_eq!((found[0].name.as_str(), text(&found[0])), ("prompt", "Anna".to_owned()));
        assert_eq!(
            (found[1].file.as_deref(), found[1].media_type.as_deref()),
            (Some("a.jsonl"), Some("application/jsonl"))
        );
        assert_eq!(text(&found[1]), "{}\n{}");
    }

    #[test]
    fn truncated_multipart_is_an_error() {
        for body in ["", "x", "--XX", "--XX\r\n", "--XX\r\nContent-Disposition: form-data; name=a\r\n\r\nAnna"] {
            assert!(parts(body.as_bytes(), "XX").is_err(), "{body:?}");
        }
    }

    #[test]
    fn multipart_boundary_is_parsed() {
        assert_eq!(boundary("multipart/form-data; boundary=\"a b\"").as_deref(), Some("a b"));
        assert_eq!(boundary("Multipart/Form-Data;Boundary=x; charset=utf-8").as_deref(), Some("x"));
        assert_eq!(boundary("application/json"), None);
    }
}
