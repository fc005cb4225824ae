//! Writes heads and chunks.

use std::io::Write as _;

use interflow_types::{Headers, HttpVersion, Method, ResponseHead, StatusCode};

pub const CHUNK_END: &[u8] = b"\r\n";

/// Appends a request head with its empty line. No field is added: framing and `Host` are up to the caller.
///
/// `target` must not contain whitespace; [`super::parse_request`] guarantees that.
pub fn write_request_head(out: &mut Vec<u8>, method: &Method, target: &str, version: HttpVersion, headers: &Headers) {
    out.reserve(method.as_str().len() + target.len() + 16 + headers.size() + headers.len() * 4);
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(if version == HttpVersion::Http10 { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" });
    headers.write_to(out);
    out.extend_from_slice(b"\r\n");
}

/// Appends a response head with its empty line, always as HTTP/1.1 (RFC 9110 2.5: a proxy sends its own version). No
/// field is added. A response received over HTTP/2 gets its status's standard reason phrase.
pub fn write_response_head(out: &mut Vec<u8>, head: &ResponseHead) {
    let reason: &[u8] = if head.reason.is_empty() && head.version == HttpVersion::H2 {
        head.status.canonical_reason().unwrap_or_default().as_bytes()
    } else {
        &head.reason
    };
    out.reserve(16 + reason.len() + head.headers.size() + head.headers.len() * 4);
    write_status_line(out, head.status, reason);
    head.headers.write_to(out);
    out.extend_from_slice(b"\r\n");
}

/// Appends `HTTP/1.1 status reason` and CRLF. Bytes that a reason phrase must not contain are removed.
pub fn write_status_line(out: &mut Vec<u8>, status: StatusCode, reason: &[u8]) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    // CR and LF would end the line and begin a field.
    out.extend(reason.iter().filter(|&&b| b == b'\t' || (b >= b' ' && b != 0x7f)));
    out.extend_from_slice(b"\r\n");
}

/// Appends the size line of a chunk of `len` bytes, more than 0. The data and [`CHUNK_END`] follow.
pub fn write_chunk_size(out: &mut Vec<u8>, len: usize) {
    write!(out, "{len:x}\r\n").expect("writing to a Vec cannot fail");
}

/// Appends the last chunk and the trailer section.
pub fn write_last_chunk(out: &mut Vec<u8>, trailers: Option<&Headers>) {
    out.extend_from_slice(b"0\r\n");
    if let Some(trailers) = trailers {
        trailers.write_to(out);
    }
    out.extend_from_slice(b"\r\n");
}
