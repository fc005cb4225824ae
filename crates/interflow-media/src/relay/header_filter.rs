//! Filters header fields in both directions.

use bytes::Bytes;
use interflow_types::{Headers, ResponseHead, StatusCode, data_file};
use std::sync::LazyLock;

/// Client fields sent upstream: range and conditional requests, and the client's language. Everything else identifies
/// the client's program and stays here.
const FORWARDED_HEADERS: [&str; 7] =
    ["Range", "If-Range", "If-None-Match", "If-Modified-Since", "If-Match", "If-Unmodified-Since", "Accept-Language"];

/// Fields of the origin's response that are returned to the client; all others are dropped, cookies among them.
static RETURNED_HEADERS: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/returned_headers.txt")).collect());

/// Fields that a link may not send upstream, because they affect framing or routing (RFC 9110 7.6.1).
static FORBIDDEN_REQUEST_HEADERS: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/forbidden_request_headers.txt")).collect());

/// Fields that a link may not set on a response, because they affect framing or the security of the embedding page.
static FORBIDDEN_RESPONSE_HEADERS: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/forbidden_response_headers.txt")).collect());

fn contains_name(name: &str, list: &[&str]) -> bool {
    list.iter().any(|l| l.eq_ignore_ascii_case(name))
}

pub fn is_request_header_allowed(name: &str) -> bool {
    !contains_name(name, &FORBIDDEN_REQUEST_HEADERS)
}

pub fn is_response_header_allowed(name: &str) -> bool {
    !contains_name(name, &FORBIDDEN_RESPONSE_HEADERS) && !name.to_ascii_lowercase().starts_with("access-control-")
}

/// Removes conditional fields: shared resources are requested unconditionally, since a 304 would be of no use to the
/// other readers.
pub fn remove_conditions(headers: &mut Headers) {
    remove_fields(headers, &["if-none-match", "if-modified-since", "if-match", "if-unmodified-since"]);
}

pub fn remove_fields(headers: &mut Headers, names: &[&str]) {
    for name in names {
        headers.remove(name);
    }
}

/// Copies the client fields to send upstream, unless the link overrides them, since the link's author knows the
/// origin.
pub fn copy_request_headers(client: &Headers, to: &mut Headers) {
    for name in FORWARDED_HEADERS {
        if !to.contains(name)
            && let Some(value) = client.get(name)
        {
            to.append_unchecked(name.as_bytes(), value);
        }
    }
}

/// The response head for an origin's response: its status, and the returned fields.
pub fn response_head(origin: &ResponseHead) -> ResponseHead {
    let mut head = ResponseHead::new(origin.status);
    for name in RETURNED_HEADERS.iter() {
        for value in origin.headers.get_all(name) {
            head.headers.append_unchecked(name.as_bytes(), value);
        }
    }
    head
}

/// Content of an origin must not be executed as a page of the gateway: it would have the gateway's origin, and with
/// it the links of other users. Called last, since endpoints and links change the media type.
pub fn set_security_headers(head: &mut ResponseHead) {
    let _ = head.headers.set("X-Content-Type-Options", "nosniff");
    let kinds = head.headers.get_all("content-type");
    let kinds: Vec<_> = kinds.map(|kind| String::from_utf8_lossy(kind).to_ascii_lowercase()).collect();
    // Any XML may be a page with scripts; of several types browsers take the last.
    let active = ["html", "xml", "svg", "xsl", "pdf", "multipart", "message/", ","];
    let is_active = |kind: &String| active.iter().any(|a| kind.contains(a));
    // A type that the browser would have to guess counts as active. A 304 has none, and refers to what was delivered
    // before.
    let is_unknown = kinds.iter().all(String::is_empty) && head.status != StatusCode::NOT_MODIFIED;
    if kinds.len() > 1 || is_unknown || kinds.iter().any(is_active) {
        head.headers.append_unchecked(b"Content-Security-Policy", b"sandbox");
    }
}

/// Presents a part of the origin's resource as a complete one, which it is to the client; returns whether it was one.
pub fn present_as_whole(head: &mut ResponseHead) -> bool {
    let is_part = head.status == StatusCode::PARTIAL_CONTENT;
    if is_part {
        (head.status, head.reason) = (StatusCode::OK, Bytes::from_static(b"OK"));
        remove_fields(&mut head.headers, &["content-range", "accept-ranges"]);
    }
    is_part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_cannot_set_cookies_nor_run_pages() {
        let origin = ResponseHead::new(StatusCode::OK)
            .with_header("Set-Cookie", "a=b")
            .with_header("Content-Type", "text/html")
            .with_header("ETag", "\"x\"")
            .with_header("Server", "s");
        let mut head = response_head(&origin);
        set_security_headers(&mut head);
        assert_eq!(head.headers.get_str("etag"), Some("\"x\""));
        assert_eq!(head.headers.get_str("content-security-policy"), Some("sandbox"));
        assert!(!head.headers.contains("set-cookie") && !head.headers.contains("server"));
        let video = response_head(&ResponseHead::new(StatusCode::OK).with_header("Content-Type", "video/mp4"));
        assert!(!video.headers.contains("content-security-policy"));
    }

    #[test]
    fn link_parameters_cannot_set_framing_or_routing_headers() {
        assert!(
            is_request_header_allowed("Referer")
                && is_request_header_allowed("Cookie")
                && !is_request_header_allowed("HOST")
                && !is_request_header_allowed("Transfer-Encoding")
        );
        assert!(
            is_response_header_allowed("Content-Type")
                && !is_response_header_allowed("Set-Cookie")
                && !is_response_header_allowed("Access-Control-Allow-Origin")
        );
    }
}
