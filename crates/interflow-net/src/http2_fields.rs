//! Header fields as HTTP/2 has them (RFC 9113 8.2).

use http::header::{HeaderMap, HeaderName, HeaderValue};
use interflow_types::Headers;

/// Connection-specific fields, which HTTP/2 forbids (RFC 9113 8.2.2).
const CONNECTION_SPECIFIC: [&str; 6] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "http2-settings"];

/// The fields that HTTP/2 can carry, but for those that are `left_out`. One that it cannot was valid in HTTP/1, and the
/// message is worth more.
pub(crate) fn field_map(headers: &Headers, left_out: impl Fn(&[u8]) -> bool) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if CONNECTION_SPECIFIC.iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes())) || left_out(name) {
            continue;
        }
        // RFC 9113 8.2.2: TE may have no other value than `trailers`.
        if name.eq_ignore_ascii_case(b"te") && !value.eq_ignore_ascii_case(b"trailers") {
            continue;
        }
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            map.append(name, value);
        }
    }
    map
}
