//! Converts heads between HTTP/2's form and Interflow's types (RFC 9113 8.2 and 8.3).

use http::{HeaderMap, HeaderName, HeaderValue, Uri, request};
use interflow_codec::h1::{H1Error, HeadLimits, Violation, is_forbidden_trailer};
use interflow_types::{
    Authority, ByteStr, Error, ErrorKind, Headers, Method, RequestTarget, ResponseHead, Scheme, Url, name,
};

use crate::http2_fields::field_map;

pub(super) struct Http2RequestHead {
    pub method: Method,
    pub target: RequestTarget,
    pub headers: Headers,
    pub protocol: Option<ByteStr>,
}

/// Converts a request's head. A `Host` field is inserted first if there was only `:authority`, and cookie crumbs are
/// joined into one field (RFC 9113 8.2.3).
///
/// # Errors
/// A head over a limit, a target without an origin, a `Host` with a different one, or a protocol that is no token.
pub(super) fn request(parts: request::Parts, limits: &HeadLimits) -> Result<Http2RequestHead, Error> {
    let request::Parts { method, uri, headers, extensions, .. } = parts;
    check_limits(&method, &uri, &headers, limits)?;
    let protocol = extensions.get::<h2::ext::Protocol>().map(|p| ByteStr::from(p.as_str()));
    // A lenient origin takes `websocket ` for `websocket`, whose messages are inspected.
    if protocol.as_ref().is_some_and(|p| HeaderName::from_bytes(p.as_bytes()).is_err()) {
        return Err(bad_request(":protocol is not a token"));
    }
    let scheme =
        uri.scheme_str().map(|s| Scheme::parse(s).ok_or_else(|| bad_request("the scheme is neither http nor https")));
    let scheme = scheme.transpose()?;
    // An extended CONNECT has a scheme and a path, like any other request (RFC 8441 4).
    let tunnel = method == Method::CONNECT && protocol.is_none();
    // A CONNECT names its port (RFC 9110 9.3.6); other requests may leave out the scheme's default.
    let default_port = if tunnel { None } else { scheme.map(Scheme::default_port) };
    let authority = match uri.authority() {
        Some(a) => {
            Some(Authority::parse(a.as_str(), default_port).map_err(|e| bad_request(&format!(":authority: {e}")))?)
        }
        None => None,
    };
    let host = host(&headers)?;
    match (host, &authority) {
        // For a CONNECT, the port of `:authority` is the one to compare with.
        (Some(host), Some(authority)) => check_agreement(host, authority, default_port.unwrap_or(authority.port))?,
        // Access rules must see what a lenient origin reads in it.
        (Some(host), None) if !host.is_empty() => {
            Authority::parse(host, default_port.or(Some(80))).map_err(|e| bad_request(&format!("Host: {e}")))?;
        }
        _ => {}
    }
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let path = ByteStr::from(if path.is_empty() { "/" } else { path });
    let target = match (tunnel, authority, scheme) {
        (true, Some(authority), _) => RequestTarget::Authority(authority),
        (false, Some(authority), Some(scheme)) => RequestTarget::Absolute(Url { scheme, authority, path }),
        // RFC 9113 8.3.1 allows a client to send only `Host`.
        (false, None, _) if host.is_some() => RequestTarget::Origin(path),
        _ => return Err(bad_request("the request names no authority")),
    };
    let authority_text = uri.authority().filter(|_| host.is_none()).map(|a| a.as_str());
    Ok(Http2RequestHead { method, target, headers: fields(&headers, authority_text), protocol })
}

/// Applies the limits of HTTP/1 to the size that the head would have there.
fn check_limits(method: &Method, uri: &Uri, headers: &HeaderMap, limits: &HeadLimits) -> Result<(), Error> {
    let path = uri.path_and_query().map_or(1, |p| p.as_str().len());
    let line = method.as_str().len() + path + "  HTTP/1.1".len();
    // Cookie crumbs are one field (RFC 9113 8.2.3).
    let crumbs = headers.get_all(http::header::COOKIE).iter().count();
    let authority = uri.authority().filter(|_| !headers.contains_key(http::header::HOST));
    let fields = headers.len() - crumbs.saturating_sub(1) + usize::from(authority.is_some());
    let host = authority.map_or(0, |a| "Host: \r\n".len() + a.as_str().len());
    let size: usize = headers.iter().map(|(n, v)| n.as_str().len() + v.len() + ": \r\n".len()).sum();
    let rule = if line > limits.max_line {
        Violation::LineTooLong
    } else if fields > limits.max_fields {
        Violation::TooManyFields
    } else if line + "\r\n\r\n".len() + host + size > limits.max_bytes {
        Violation::HeadTooLarge
    } else {
        return Ok(());
    };
    Err(H1Error::request(rule).into())
}

fn bad_request(what: &str) -> Error {
    Error::new(ErrorKind::BadRequest, format!("the HTTP/2 request was refused: {what}"))
}

/// The `Host` field; more than one is an error.
fn host(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    let mut hosts = headers.get_all(http::header::HOST).iter();
    let first = hosts.next();
    if hosts.next().is_some() {
        return Err(bad_request("there is more than one Host field"));
    }
    first.map(|h| h.to_str().map_err(|_| bad_request("the Host field is not valid text"))).transpose()
}

/// RFC 9113 8.3.1: a `Host` that differs from the authority is refused, because recipients could route it
/// differently.
fn check_agreement(host: &str, authority: &Authority, default_port: u16) -> Result<(), Error> {
    match Authority::parse(host, Some(default_port)) {
        Ok(host) if host == *authority => Ok(()),
        _ => Err(bad_request("Host and :authority name different origins")),
    }
}

fn fields(map: &HeaderMap, authority: Option<&str>) -> Headers {
    let bytes: usize = map.iter().map(|(n, v)| n.as_str().len() + v.len()).sum();
    let mut headers = Headers::with_capacity(map.len() + 4, bytes + 64 + authority.map_or(0, str::len));
    if let Some(authority) = authority {
        headers.append_unchecked(name::HOST.as_bytes(), authority.as_bytes());
    }
    let mut crumbs = map.get_all(http::header::COOKIE).iter().map(HeaderValue::as_bytes).peekable();
    for (n, v) in map {
        if n != http::header::COOKIE {
            headers.append_unchecked(n.as_str().as_bytes(), v.as_bytes());
        // All crumbs are joined at the position of the first one.
        } else if crumbs.peek().is_some() {
            // The iterator is used up here, so later crumbs are skipped.
            let joined = crumbs.by_ref().collect::<Vec<_>>().join(&b"; "[..]);
            headers.append_unchecked(b"cookie", &joined);
        }
    }
    headers
}

pub(super) fn trailers(map: &HeaderMap) -> Headers {
    map.iter()
        .filter(|(n, _)| !is_forbidden_trailer(n.as_str().as_bytes()))
        .map(|(n, v)| (n.as_str(), v.as_bytes()))
        .collect()
}

/// Converts a response's head without the fields that HTTP/2 forbids.
pub(super) fn response(head: &ResponseHead) -> http::Response<()> {
    let mut response = http::Response::new(());
    *response.status_mut() = head.status;
    *response.headers_mut() = field_map(&head.headers, |_| false);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(method: &str, uri: &str, fields: &[(&str, &str)]) -> request::Parts {
        let mut request = http::Request::builder().method(method).uri(uri);
        for (n, v) in fields {
            request = request.header(*n, *v);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn text(headers: &Headers) -> String {
        let mut out = Vec::new();
        headers.write_to(&mut out);
        String::from_utf8(out).unwrap().replace("\r\n", "|")
    }

    #[test]
    fn http2_request_targets_are_resolved() {
        for (method, uri, fields, want) in [
            ("GET", "https://a.test/x?y", &[][..], "https://a.test/x?y"),
            ("GET", "http://a.test:8080", &[], "http://a.test:8080/"),
            ("GET", "https://a.test/", &[("host", "A.test:443")], "https://a.test/"),
            ("OPTIONS", "*", &[("host", "a.test")], "*"),
            ("CONNECT", "a.test:22", &[], "a.test:22"),
        ] {
            let found = match request(parts(method, uri, fields), &HeadLimits::default()).unwrap().target {
                RequestTarget::Absolute(url) => url.to_string(),
                RequestTarget::Authority(a) => a.to_string(),
                RequestTarget::Origin(path) => path.to_string(),
                RequestTarget::Asterisk => "asterisk".into(),
            };
            assert_eq!(found, want, "{method} {uri}");
        }
    }

    #[test]
    fn requests_without_a_unique_origin_are_refused() {
        for (method, uri, fields) in [
            ("GET", "/x", &[][..]),
            ("GET", "/x", &[("host", "a.test:0")]),
            ("GET", "/x", &[("host", "a.test:99999")]),
            ("GET", "/x", &[("host", "u@a.test")]),
            ("GET", "https://a.test/", &[("host", "b.test")]),
            ("GET", "https://a.test/", &[("host", "a.test:80")]),
            ("GET", "https://a.test/", &[("host", "a.test"), ("host", "a.test")]),
            ("GET", "https://u@a.test/", &[]),
            ("GET", "ftp://a.test/", &[]),
            ("CONNECT", "a.test", &[]),
        ] {
            assert!(request(parts(method, uri, fields), &HeadLimits::default()).is_err(), "{method} {uri} {fields:?}");
        }
    }

    #[test]
    fn the_protocol_of_an_extended_connect_is_a_token() {
        for (protocol, is_read) in
            [("websocket", true), ("webtransport", true), ("websocket ", false), ("websocket,x", false), ("", false)]
        {
            let mut parts = parts("CONNECT", "https://a.test/", &[]);
            parts.extensions.insert(h2::ext::Protocol::from(protocol));
            let head = request(parts, &HeadLimits::default());
            assert_eq!(head.ok().map(|head| head.protocol), is_read.then(|| Some(protocol.into())), "{protocol:?}");
        }
    }

    #[test]
    fn host_is_added_and_split_cookie_fields_are_joined() {
        let fields = [("x", "1"), ("cookie", "a=1"), ("y", "2"), ("cookie", "b=2"), ("cookie", "c=3")];
        let head = request(parts("GET", "https://a.test/", &fields), &HeadLimits::default());
        assert_eq!(text(&head.unwrap().headers), "Host: a.test|x: 1|cookie: a=1; b=2; c=3|y: 2|");
    }

    #[test]
    fn hop_by_hop_fields_are_removed_from_responses() {
        let headers: Headers =
            [("Connection", "x"), ("Keep-Alive", "1"), ("X-A", "1"), ("Transfer-Encoding", "chunked"), ("x-a", "2")]
                .into_iter()
                .collect();
        let map = field_map(&headers, |_| false);
        assert_eq!(map.len(), 2);
        assert_eq!(map.get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
    }

    #[test]
    fn framing_fields_are_removed_from_trailers() {
        let mut map = HeaderMap::new();
        map.insert("content-length", HeaderValue::from_static("3"));
        map.insert("proxy-authorization", HeaderValue::from_static("Basic YTpi"));
        map.insert("grpc-status", HeaderValue::from_static("0"));
        assert_eq!(text(&trailers(&map)), "grpc-status: 0|");
    }
}
