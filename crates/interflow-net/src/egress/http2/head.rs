//! Converts heads between Interflow's types and HTTP/2's pseudo-header fields (RFC 9113 8.3).

use http::header::{HeaderMap, HeaderValue};
use http::uri::{Authority, PathAndQuery, Uri};
use interflow_codec::h1::HeadLimits;
use interflow_types::{Body, Error, ErrorKind, Headers, HttpVersion, Method, RequestHead, ResponseHead, name};

use crate::http2_fields::field_map;

/// The request in the form of the `h2` crate.
pub(super) fn request(head: &RequestHead, body: &Body, tls: bool) -> Result<http::Request<()>, Error> {
    let tunnel = head.protocol.is_some();
    let mut message = http::Request::new(());
    *message.method_mut() = if tunnel { Method::CONNECT } else { head.method.clone() };
    *message.version_mut() = http::Version::HTTP_2;
    *message.uri_mut() = uri(head, tls)?;
    *message.headers_mut() = fields(&head.headers, tunnel);
    if let Some(protocol) = &head.protocol {
        message.extensions_mut().insert(h2::ext::Protocol::from(protocol.as_str()));
    } else {
        frame(head, body, message.headers_mut());
    }
    Ok(message)
}

/// `:scheme`, `:authority` (the `Host` field if it is a valid one) and `:path`.
fn uri(head: &RequestHead, tls: bool) -> Result<Uri, Error> {
    let invalid = |e: http::Error| {
        Error::new(ErrorKind::BadRequest, format!("{} cannot be asked for over HTTP/2", head.url)).with_source(e)
    };
    // `Host` may be a name that the client chose on purpose, for example in a tunnel to an address.
    let host = head.headers.get_str(name::HOST).and_then(|h| h.parse::<Authority>().ok());
    let authority = match host {
        Some(host) => host,
        None => {
            head.url.authority.to_host_header(head.url.scheme).parse().map_err(|e| invalid(http::Error::from(e)))?
        }
    };
    let path = PathAndQuery::from_maybe_shared(head.url.path.as_bytes().clone()).map_err(|e| invalid(e.into()))?;
    Uri::builder()
        .scheme(if tls { "https" } else { "http" })
        .authority(authority)
        .path_and_query(path)
        .build()
        .map_err(invalid)
}

/// Sets `Content-Length` if the length of the body is known (RFC 9113 8.1.1).
fn frame(head: &RequestHead, body: &Body, fields: &mut HeaderMap) {
    match body.remaining() {
        // The `h2` crate would count the body against a stated length and reset the stream.
        None => {
            fields.remove(http::header::CONTENT_LENGTH);
        }
        Some(length) => {
            let needs_length = length > 0 || matches!(head.method, Method::POST | Method::PUT | Method::PATCH);
            if needs_length || fields.contains_key(http::header::CONTENT_LENGTH) {
                fields.insert(http::header::CONTENT_LENGTH, HeaderValue::from(length));
            }
        }
    }
}

/// The fields of a request. `Host` becomes `:authority`, and extended CONNECT proves nothing with Sec-WebSocket-Key (RFC
/// 8441 5).
pub(super) fn fields(headers: &Headers, tunnel: bool) -> HeaderMap {
    field_map(headers, |field| {
        field.eq_ignore_ascii_case(b"host") || (tunnel && field.eq_ignore_ascii_case(b"sec-websocket-key"))
    })
}

/// The limits that HTTP/1 heads are parsed with.
pub(super) fn check_limits(map: &HeaderMap, limits: &HeadLimits) -> Result<(), Error> {
    // Four bytes for what separates a field from the next in HTTP/1.
    let bytes: usize = map.iter().map(|(n, v)| n.as_str().len() + v.len() + 4).sum();
    let over = match (bytes > limits.max_bytes, map.len() > limits.max_fields) {
        (true, _) => "is larger than limits.max_header_bytes allows",
        (_, true) => "has more fields than limits.max_headers allows",
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::BadResponse, format!("the origin's response was refused: the head {over}")))
}

pub(super) fn response(parts: http::response::Parts) -> ResponseHead {
    ResponseHead {
        status: parts.status,
        reason: bytes::Bytes::new(),
        version: HttpVersion::H2,
        headers: headers(&parts.headers),
    }
}

pub(super) fn headers(map: &HeaderMap) -> Headers {
    let bytes = map.iter().map(|(n, v)| n.as_str().len() + v.len()).sum();
    let mut headers = Headers::with_capacity(map.len(), bytes);
    for (field, value) in map {
        headers.append_unchecked(field.as_str().as_bytes(), value.as_bytes());
    }
    headers
}

/// The length of the body, if the response states it. The `h2` crate enforces it.
pub(super) fn length(request: &RequestHead, response: &ResponseHead) -> Option<u64> {
    // It states the length that GET would have (RFC 9110 8.6).
    if request.method == Method::HEAD {
        return Some(0);
    }
    let mut lengths = response.headers.get_all(name::CONTENT_LENGTH);
    let length = std::str::from_utf8(lengths.next()?).ok()?.parse().ok()?;
    // A repeated field is not trusted as a length.
    lengths.next().is_none().then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;
    use interflow_types::{Scheme, Url};

    fn head(fields: &[(&str, &str)]) -> RequestHead {
        RequestHead {
            method: Method::GET,
            url: Url { scheme: Scheme::Https, authority: "a.test:443".parse().unwrap(), path: "/p?q".into() },
            version: HttpVersion::Http11,
            headers: fields.iter().copied().collect(),
            protocol: None,
        }
    }

    #[test]
    fn connection_fields_are_removed_and_host_becomes_the_authority() {
        let head = head(&[
            ("Host", "b.test:8443"),
            ("Connection", "TE, x"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Connection", "keep-alive"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("TE", "trailers"),
            ("TE", "gzip"),
            ("Cookie", "a=1; b=2"),
            ("X-Two", "1"),
            ("x-two", "2"),
        ]);
        let message = request(&head, &Body::Empty, true).unwrap();
        assert_eq!(message.uri().to_string(), "https://b.test:8443/p?q");
        let fields: Vec<_> = message.headers().iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect();
        assert_eq!(fields, ["te: trailers", "cookie: a=1; b=2", "x-two: 1", "x-two: 2"]);
    }

    #[test]
    fn an_upgrade_becomes_an_extended_connect() {
        let mut head = head(&[("Sec-WebSocket-Key", "x"), ("Sec-WebSocket-Version", "13"), ("Upgrade", "websocket")]);
        head.protocol = Some("websocket".into());
        let message = request(&head, &Body::Empty, true).unwrap();
        assert_eq!(message.method(), Method::CONNECT);
        assert_eq!(message.uri().to_string(), "https://a.test/p?q");
        assert_eq!(message.extensions().get::<h2::ext::Protocol>().map(|p| p.as_str()), Some("websocket"));
        assert_eq!(message.headers().keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["sec-websocket-version"]);
    }

    #[test]
    fn content_length_follows_the_body() {
        let five = || Body::Full("hello".into());
        for (method, said, body, expected) in [
            (Method::GET, None, Body::Empty, None),
            (Method::POST, None, Body::Empty, Some("0")),
            (Method::POST, Some("7"), five(), Some("5")),
            (Method::GET, None, five(), Some("5")),
        ] {
            let mut head = head(&[]);
            head.method = method;
            if let Some(said) = said {
                head.headers.append("Content-Length", said).unwrap();
            }
            let message = request(&head, &body, true).unwrap();
            assert_eq!(message.headers().get("content-length").map(|v| v.to_str().unwrap()), expected);
        }
    }
}
