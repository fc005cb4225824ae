//! Hop-by-hop handling (RFC 9110 7.6, RFC 9112 3.2): resolves targets, strips connection-specific fields, maintains
//! `Via` and `Max-Forwards`.

use http::HeaderName;
use interflow_types::{
    Authority, Body, ByteStr, ClientResponseFields, EntryKind, Error, ErrorKind, Flow, HeaderNameMask, Headers,
    HttpVersion, Method, RequestHead, RequestId, RequestTarget, ResponseHead, Result, Scheme, StatusCode, Url,
};
use smallvec::SmallVec;

/// The destination of a tunnel, for requests in origin-form.
#[derive(Clone, Debug)]
pub(crate) struct TunnelTargetRef<'a> {
    pub scheme: Scheme,
    pub authority: &'a Authority,
}

/// The URL of a request in a tunnel, which goes where the tunnel goes. If the target names another authority (gRPC
/// clients do, for a service behind an address), that name is kept in `Host` (RFC 9112 3.2.2).
///
/// # Errors
/// The request is a CONNECT.
pub(crate) fn resolve_tunnel_url(
    target: RequestTarget,
    inside: &TunnelTargetRef<'_>,
    headers: &mut Headers,
) -> Result<Url> {
    let path = match target {
        RequestTarget::Origin(path) => path,
        RequestTarget::Asterisk => ByteStr::from_static("*"),
        RequestTarget::Absolute(url) if url.authority == *inside.authority => url.path,
        RequestTarget::Absolute(url) => {
            let host = url.authority.to_host_header(url.scheme);
            headers.set("Host", host).expect("an authority is a well-formed value");
            url.path
        }
        RequestTarget::Authority(_) => {
            let text = "CONNECT inside a tunnel is passed on only as the first bytes in it, and only where access rules and \
                        stages cover neither the tunnel nor the host that it names";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
    };
    Ok(Url { scheme: inside.scheme, authority: inside.authority.clone(), path })
}

/// Fields removed at every hop, whether `Connection` lists them or not. `Proxy-Authorization` is for this hop: an
/// origin must never see it.
const HOP_FIELDS: [&str; 8] = [
    "te",
    "upgrade",
    "connection",
    "keep-alive",
    "http2-settings",
    "proxy-connection",
    "transfer-encoding",
    "proxy-authorization",
];

fn is_hop_field(name: &[u8]) -> bool {
    // Checks the length first, which rules out most fields: these are the lengths of the names above.
    matches!(name.len(), 2 | 7 | 10 | 14 | 16 | 17 | 19)
        && HOP_FIELDS.iter().any(|hop| name.eq_ignore_ascii_case(hop.as_bytes()))
}

/// Fields that `Connection` cannot remove. A client could otherwise list a field that a proxy before this one added,
/// such as a credential, and have it stripped on the way to the origin.
fn is_protected(name: &[u8]) -> bool {
    ["host", "content-length", "content-type", "content-encoding", "trailer", "date", "authorization", "cookie"]
        .iter()
        .any(|p| name.eq_ignore_ascii_case(p.as_bytes()))
}

/// The fields that `Connection` lists as connection-specific (RFC 9110 7.6.1), without the protected ones.
fn connection_options(headers: &Headers) -> SmallVec<[Vec<u8>; 2]> {
    // The common values.
    let plain = |value: &[u8]| value.eq_ignore_ascii_case(b"keep-alive") || value.eq_ignore_ascii_case(b"close");
    if headers.get_all("connection").all(plain) {
        return SmallVec::new();
    }
    headers
        .list_items("connection")
        .filter(|t| !t.eq_ignore_ascii_case(b"keep-alive") && !t.eq_ignore_ascii_case(b"close") && !is_protected(t))
        .map(<[u8]>::to_vec)
        .collect()
}

fn strip_hop_fields(headers: &mut Headers) {
    // `Connection` is in the list, so if none of them is present, nothing else is listed either.
    const HOP_FIELD_MASK: HeaderNameMask = HeaderNameMask::from_names(&HOP_FIELDS);
    if !headers.may_contain(HOP_FIELD_MASK) {
        return;
    }
    let named = connection_options(headers);
    if named.is_empty() {
        return headers.retain(|name, _| !is_hop_field(name));
    }
    headers.retain(|name, _| !is_hop_field(name) && !named.iter().any(|n| n.eq_ignore_ascii_case(name)));
}

/// Strips a request's hop-by-hop fields. A permitted upgrade is kept, and recorded in `head.protocol`.
pub(crate) fn clean_request(head: &mut RequestHead) {
    // `TE: trailers` is restored after stripping: gRPC servers require it.
    let trailers = head.headers.has_token("te", "trailers");
    let mut upgrade = head.protocol.clone().or_else(|| requested_upgrade(head));
    // Its name has no case (RFC 6455 4.2.1), and is compared everywhere: in another spelling its messages would pass unread.
    let is_websocket = |p: &&mut ByteStr| p.split('/').next().is_some_and(|p| p.eq_ignore_ascii_case("websocket"));
    if let Some(protocol) = upgrade.as_mut().filter(is_websocket) {
        *protocol = ByteStr::from_static("websocket");
    }
    strip_hop_fields(&mut head.headers);
    if trailers {
        head.headers.append_unchecked(b"TE", b"trailers");
    }
    if let Some(protocol) = &upgrade
        && head.version.is_http1()
    {
        head.headers.append_unchecked(b"Connection", b"Upgrade");
        head.headers.append_unchecked(b"Upgrade", protocol.as_bytes());
    }
    head.protocol = upgrade;
}

/// Declines responses that are compressed with a dictionary (RFC 9842): without it, nothing in them can be read. An origin
/// may use one only for a request that names a dictionary (section 2.2).
pub(crate) fn decline_dictionaries(headers: &mut Headers) {
    headers.remove("dictionary-id");
    if headers.remove("available-dictionary") == 0 {
        return;
    }
    let is_other = |item: &&[u8]| !item.starts_with(b"dcb") && !item.starts_with(b"dcz");
    if headers.list_items("accept-encoding").all(|item| is_other(&item)) {
        return;
    }
    let rest: Vec<_> = headers.list_items("accept-encoding").filter(is_other).collect();
    let list = if rest.is_empty() { b"identity".to_vec() } else { rest.join(&b", "[..]) };
    let _ = headers.set("Accept-Encoding", list);
}

/// The protocol that an HTTP/1.1 client wants to upgrade to. `h2c` is ignored, as RFC 9113 3.1 allows: only prior
/// knowledge is supported.
fn requested_upgrade(head: &RequestHead) -> Option<ByteStr> {
    if head.version != HttpVersion::Http11 || !head.headers.has_token("connection", "upgrade") {
        return None;
    }
    // A name, and perhaps a version (RFC 9110 7.8). Others, such as `websocket;x`, are ignored: a lenient origin would take
    // them for a protocol whose messages are inspected.
    let is_protocol = |p: &&[u8]| p.split(|b| *b == b'/').all(|part| HeaderName::from_bytes(part).is_ok());
    let mut protocols = head.headers.list_items("upgrade").filter(is_protocol);
    let protocol = protocols.find(|p| !p.eq_ignore_ascii_case(b"h2c"))?;
    std::str::from_utf8(protocol).ok().map(ByteStr::from)
}

/// Adds what a response has for the client, wherever it comes from.
pub(crate) fn add_client_fields(flow: &Flow, headers: &mut Headers) {
    RequestId::echo(flow, headers);
    ClientResponseFields::put(flow, headers);
}

/// Strips a response's hop-by-hop fields; with `upgraded`, keeps those that a 101 needs.
pub(crate) fn clean_response(headers: &mut Headers, upgraded: bool) {
    // Read before stripping, which removes it.
    let protocol = if upgraded { headers.get("upgrade").map(<[u8]>::to_vec) } else { None };
    strip_hop_fields(headers);
    // Origins must not be able to request the proxy's password.
    headers.remove("proxy-authenticate");
    headers.remove("proxy-authentication-info");
    if let Some(protocol) = protocol {
        headers.append_unchecked(b"Connection", b"Upgrade");
        headers.append_unchecked(b"Upgrade", &protocol);
    }
}

/// Drops a body that the response must not have: to HEAD, or with 204 and 304 (RFC 9110 6.4.1). A streaming body is
/// kept, because the flow ends with it.
pub(crate) fn strip_forbidden_body(request: &RequestHead, head: &ResponseHead, body: Body) -> Body {
    let none =
        request.method == Method::HEAD || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    // A `Content-Length` in the head stays: to HEAD it is the length that a GET would have.
    match body {
        Body::Full(_) if none => Body::Empty,
        body => body,
    }
}

/// As [`set_host`], but if the destination came from something else than `Host` (a tunnel, a gateway route), an
/// existing `Host` is kept.
pub(crate) fn set_host_for(head: &mut RequestHead, transport: EntryKind) {
    let decided = !matches!(transport, EntryKind::Absolute | EntryKind::Internal);
    if !(decided && head.headers.contains("host")) {
        set_host(head);
    }
}

/// Sets `Host` to the URL's authority (RFC 9112 3.2.2).
pub(crate) fn set_host(head: &mut RequestHead) {
    let (url, default) = (&head.url, head.url.scheme.default_port());
    let right = head.headers.get("host").is_some_and(|host| {
        let parse = |host| Authority::parse(host, Some(default)).ok();
        url.authority.matches_text(host, default)
            || std::str::from_utf8(host).ok().and_then(parse).is_some_and(|a| a == url.authority)
    });
    if !right {
        let host = head.url.authority.to_host_header(head.url.scheme);
        head.headers.set("Host", host).expect("an authority is a well-formed value");
    }
}

/// Adds this hop to `Via` (RFC 9110 7.6.3). The version is the one in which the message was received.
pub(crate) fn add_via(headers: &mut Headers, version: HttpVersion, pseudonym: &str) {
    if !pseudonym.is_empty() {
        let version = version.as_str().trim_start_matches("HTTP/");
        let _ = headers.append("Via", format!("{version} {pseudonym}"));
    }
}

/// The effect of `Max-Forwards` on a TRACE or OPTIONS. Other methods ignore the field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MaxForwards {
    /// Forward; the field, if present, was decremented.
    Forward,
    /// This hop is the last: answer the request.
    Answer,
}

/// Applies `Max-Forwards` (RFC 9110 7.6.2).
pub(crate) fn max_forwards(head: &mut RequestHead) -> MaxForwards {
    if head.method != Method::TRACE && head.method != Method::OPTIONS {
        return MaxForwards::Forward;
    }
    match head.headers.get_str("max-forwards").and_then(|v| v.trim().parse::<u32>().ok()) {
        Some(0) => MaxForwards::Answer,
        Some(n) => {
            // Decremented in place; the value was at least 1.
            head.headers.set("Max-Forwards", (n - 1).to_string()).expect("a number is a well-formed value");
            MaxForwards::Forward
        }
        None => MaxForwards::Forward,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(version: HttpVersion, fields: &[(&str, &str)]) -> RequestHead {
        RequestHead {
            method: Method::GET,
            url: Url { scheme: Scheme::Http, authority: "a:80".parse().unwrap(), path: "/".into() },
            version,
            headers: fields.iter().copied().collect(),
            protocol: None,
        }
    }

    fn names(headers: &Headers) -> Vec<String> {
        headers.iter().map(|(n, _)| String::from_utf8(n.to_vec()).unwrap()).collect()
    }

    #[test]
    fn every_hop_by_hop_field_is_recognised_in_any_case() {
        for name in HOP_FIELDS {
            assert!(is_hop_field(name.to_ascii_uppercase().as_bytes()), "{name}");
        }
    }

    #[test]
    fn responses_that_only_a_dictionary_decodes_are_declined() {
        for (accepted, left) in [
            ("gzip, deflate, br, zstd, dcb, dcz", Some("gzip, deflate, br, zstd")),
            ("dcb;q=1, *;q=0.1", Some("*;q=0.1")),
            ("dcz", Some("identity")),
            ("gzip, br", Some("gzip, br")),
        ] {
            let fields = [
                ("Accept-Encoding", accepted),
                ("Available-Dictionary", ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=:"),
                ("Dictionary-ID", "\"d1\""),
            ];
            let mut headers: Headers = fields.into_iter().collect();
            decline_dictionaries(&mut headers);
            assert_eq!((headers.get_str("accept-encoding"), names(&headers).len()), (left, 1), "{accepted}");
        }
    }

    #[test]
    fn hop_by_hop_and_connection_listed_fields_are_removed() {
        let mut h = head(
            HttpVersion::Http11,
            &[
                ("Host", "a"),
                ("Connection", "keep-alive, X-Hop, Content-Length, Host"),
                ("X-Hop", "1"),
                ("Keep-Alive", "timeout=5"),
                ("Proxy-Connection", "keep-alive"),
                ("Proxy-Authorization", "Basic x"),
                ("Transfer-Encoding", "chunked"),
                ("TE", "trailers, deflate"),
                ("Content-Length", "3"),
                ("X-End", "1"),
            ],
        );
        clean_request(&mut h);
        assert_eq!(names(&h.headers), ["Host", "Content-Length", "X-End", "TE"]);
        assert_eq!(h.headers.get("te"), Some(&b"trailers"[..]));
        assert_eq!(h.protocol, None);
    }

    #[test]
    fn websocket_upgrade_is_forwarded_but_h2c_is_not() {
        for (named, protocol) in [
            ("websocket", Some("websocket")),
            ("WebSocket/13", Some("websocket")),
            ("websocket;x, other", Some("other")),
            ("websocket\u{a0}", None),
            ("websocket/", None),
        ] {
            let mut h = head(HttpVersion::Http11, &[("Connection", "Upgrade"), ("Upgrade", named)]);
            clean_request(&mut h);
            assert_eq!((h.protocol.as_deref(), h.headers.get_str("upgrade")), (protocol, protocol), "{named}");
        }
        let mut h = head(
            HttpVersion::Http11,
            &[("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAM")],
        );
        clean_request(&mut h);
        assert!(h.headers.is_empty() && h.protocol.is_none());
    }

    #[test]
    fn proxy_authenticate_of_an_origin_is_removed() {
        let mut h: Headers = [("Proxy-Authenticate", "Basic"), ("Upgrade", "h2,h2c"), ("A", "1")].into_iter().collect();
        clean_response(&mut h, false);
        assert_eq!(names(&h), ["A"]);
    }

    #[test]
    fn host_follows_the_target() {
        for (given, becomes) in [(Some("b"), "a"), (Some("A:80"), "A:80"), (Some("a"), "a"), (None, "a")] {
            let mut h = head(HttpVersion::Http11, &[]);
            if let Some(given) = given {
                h.headers.append("Host", given).unwrap();
            }
            set_host(&mut h);
            assert_eq!(h.headers.get_str("host"), Some(becomes), "{given:?}");
        }
    }

    #[test]
    fn max_forwards_counts_down_for_trace_and_options_only() {
        for (method, value, verdict, left) in [
            (Method::OPTIONS, "5", MaxForwards::Forward, "4"),
            (Method::OPTIONS, "0", MaxForwards::Answer, "0"),
            (Method::TRACE, "0", MaxForwards::Answer, "0"),
            (Method::GET, "0", MaxForwards::Forward, "0"),
            (Method::OPTIONS, "x", MaxForwards::Forward, "x"),
        ] {
            let mut h = head(HttpVersion::Http11, &[("Max-Forwards", value)]);
            h.method = method;
            assert_eq!(max_forwards(&mut h), verdict);
            assert_eq!(h.headers.get_str("max-forwards"), Some(left));
        }
    }

    #[test]
    fn tunnel_requests_are_resolved_against_the_tunnel_target() {
        let authority: Authority = "a:443".parse().unwrap();
        let inside = TunnelTargetRef { scheme: Scheme::Https, authority: &authority };
        let mut headers: Headers = [("Host", "a")].into_iter().collect();
        let url = resolve_tunnel_url(RequestTarget::Origin("/x".into()), &inside, &mut headers).unwrap();
        assert_eq!(url.to_string(), "https://a/x");
        let other = Url { scheme: Scheme::Https, authority: "b:443".parse().unwrap(), path: "/y".into() };
        let url = resolve_tunnel_url(RequestTarget::Absolute(other), &inside, &mut headers).unwrap();
        assert_eq!((url.to_string().as_str(), headers.get_str("host")), ("https://a/y", Some("b")));
        let connect = RequestTarget::Authority("b:443".parse().unwrap());
        assert!(resolve_tunnel_url(connect, &inside, &mut headers).is_err());
    }
}
