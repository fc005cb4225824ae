//! Prepares and writes request heads for an HTTP/1 upstream, and interprets the connection fields of response heads.

use interflow_codec::h1;
use interflow_types::{Body, ByteStr, HttpVersion, Method, RequestHead, ResponseHead, name};
use std::borrow::Cow;

use super::conn::ProxyHop;
use super::request_writer::UploadFraming;

/// Sets the fields that belong to this hop: framing according to the body, `Host`, and what an upgrade or an HTTP
/// proxy needs. All other fields keep their position and spelling. Idempotent.
pub(crate) fn prepare(head: &mut Cow<'_, RequestHead>, body: &Body, forward: Option<&ProxyHop>) -> UploadFraming {
    if head.protocol.is_some() {
        set_upgrade_headers(head.to_mut());
    }
    if !head.headers.contains(name::HOST) {
        let host = head.url.authority.to_host_header(head.url.scheme);
        head.to_mut().headers.append_unchecked(name::HOST.as_bytes(), host.as_bytes());
    }
    // RFC 9110 10.1.4: a sender of TE lists it in Connection.
    if head.headers.contains(name::TE) && !head.headers.contains(name::CONNECTION) {
        head.to_mut().headers.append_unchecked(name::CONNECTION.as_bytes(), b"TE");
    }
    // Replaces what the client sent: those credentials were for Interflow.
    if let Some(authorization) = forward.and_then(|hop| hop.authorization.as_deref()) {
        let headers = &mut head.to_mut().headers;
        headers.remove(name::PROXY_AUTHORIZATION);
        headers.append_unchecked(name::PROXY_AUTHORIZATION.as_bytes(), authorization.as_bytes());
    }
    frame(head, body)
}

fn frame(head: &mut Cow<'_, RequestHead>, body: &Body) -> UploadFraming {
    let Some(length) = body.remaining() else {
        if head.headers.contains(name::CONTENT_LENGTH) {
            head.to_mut().headers.remove(name::CONTENT_LENGTH);
            // A length that nobody can promise any more: a stage may change the body while it streams.
        }
        if !head.headers.contains(name::TRANSFER_ENCODING) {
            head.to_mut().headers.append_unchecked(name::TRANSFER_ENCODING.as_bytes(), b"chunked");
        }
        return UploadFraming::Chunked;
    };
    // The body is complete, so its length replaces the coding of the hop before. Both fields together would allow
    // request smuggling (RFC 9112 6.3).
    if head.headers.contains(name::TRANSFER_ENCODING) {
        head.to_mut().headers.remove(name::TRANSFER_ENCODING);
    }
    let mut digits = [0; 20];
    let right = decimal(length, &mut digits);
    // Compared as text, so that a correct field keeps its spelling, and a repeated one is replaced.
    let mut lengths = head.headers.get_all(name::CONTENT_LENGTH);
    let agreed = match lengths.next() {
        Some(first) => first == right && lengths.next().is_none(),
        // Only for these methods does the absence of both fields leave open whether there is content (RFC 9110 8.6).
        None => length == 0 && !matches!(head.method, Method::POST | Method::PUT | Method::PATCH),
    };
    drop(lengths);
    if !agreed {
        head.to_mut().headers.set(name::CONTENT_LENGTH, right).expect("a number is a valid field value");
    }
    UploadFraming::Length(length)
}

/// RFC 9110 7.8.
fn set_upgrade_headers(head: &mut RequestHead) {
    let Some(protocol) = head.protocol.clone() else { return };
    // Extended CONNECT of HTTP/2 becomes an ordinary upgrade here.
    if head.method == Method::CONNECT {
        head.method = Method::GET;
    }
    let headers = &mut head.headers;
    if !headers.contains(name::UPGRADE) {
        headers.append_unchecked(name::UPGRADE.as_bytes(), protocol.as_bytes());
    }
    if !headers.has_token(name::CONNECTION, "upgrade") {
        headers.append_unchecked(name::CONNECTION.as_bytes(), b"Upgrade");
    }
}

fn decimal(mut n: u64, out: &mut [u8; 20]) -> &[u8] {
    let mut at = out.len();
    loop {
        at -= 1;
        out[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &out[at..];
        }
    }
}

pub(crate) fn write(out: &mut Vec<u8>, head: &RequestHead, absolute: bool) {
    let absolute_form;
    // Absolute-form for a cleartext request through an HTTP proxy (RFC 9112 3.2.2).
    let target = if absolute {
        absolute_form = ByteStr::from(head.url.to_string());
        absolute_form.as_str()
    } else {
        head.url.path.as_str()
    };
    h1::write_request_head(out, &head.method, target, HttpVersion::Http11, &head.headers);
}

/// Whether the request waits for 100 (Continue) before sending its body (RFC 9110 10.1.1). Without a body there is
/// nothing to wait for.
pub(crate) fn expects_continue(head: &RequestHead, body: &Body) -> bool {
    !body.is_empty() && head.headers.has_token(name::EXPECT, "100-continue")
}

/// Whether the connection can carry another request after this response.
pub(crate) fn keeps_alive(head: &ResponseHead, framing: h1::BodyFraming) -> bool {
    // A body until the end of the connection ends the connection by definition.
    framing != h1::BodyFraming::UntilClose && h1::keeps_alive(head.version, &head.headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use interflow_types::{Headers, Scheme, Url};

    fn head(method: Method, fields: &[(&str, &str)]) -> RequestHead {
        RequestHead {
            method,
            url: Url { scheme: Scheme::Http, authority: "a.test:8080".parse().unwrap(), path: "/p?q".into() },
            version: HttpVersion::Http11,
            headers: fields.iter().copied().collect::<Headers>(),
            protocol: None,
        }
    }

    fn text(h: RequestHead, body: &Body, forward: Option<&ProxyHop>) -> String {
        let mut h = Cow::Owned(h);
        prepare(&mut h, body, forward);
        let once = h.headers.clone();
        prepare(&mut h, body, forward);
        assert_eq!(h.headers.iter().collect::<Vec<_>>(), once.iter().collect::<Vec<_>>(), "twice is once");
        let mut out = Vec::new();
        write(&mut out, &h, forward.is_some());
        String::from_utf8(out).unwrap()
    }

    struct Unknown;

    impl interflow_types::BodyStream for Unknown {
        fn poll_frame(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<interflow_types::BodyFrame, interflow_types::Error>>> {
            std::task::Poll::Ready(None)
        }
    }

    #[test]
    fn framing_follows_the_body_and_a_correct_field_keeps_its_position() {
        let five = || Body::Full(Bytes::from_static(b"hello"));
        for (method, fields, body, expected) in [
            (Method::GET, &[][..], Body::Empty, "GET /p?q HTTP/1.1\r\nHost: a.test:8080\r\n\r\n"),
            (Method::GET, &[("host", "x")], Body::Empty, "GET /p?q HTTP/1.1\r\nhost: x\r\n\r\n"),
            (Method::POST, &[("Host", "x")], Body::Empty, "POST /p?q HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"),
            (
                Method::PUT,
                &[("content-length", "5"), ("Host", "x")],
                five(),
                "PUT /p?q HTTP/1.1\r\ncontent-length: 5\r\nHost: x\r\n\r\n",
            ),
            (
                Method::PUT,
                &[("Content-Length", "7"), ("Host", "x"), ("Transfer-Encoding", "chunked")],
                five(),
                "PUT /p?q HTTP/1.1\r\nContent-Length: 5\r\nHost: x\r\n\r\n",
            ),
            (
                Method::PUT,
                &[("Content-Length", "5"), ("Host", "x"), ("Content-Length", "5")],
                five(),
                "PUT /p?q HTTP/1.1\r\nContent-Length: 5\r\nHost: x\r\n\r\n",
            ),
            (
                Method::PUT,
                &[("Content-Length", "5"), ("Host", "x")],
                Body::stream(Unknown),
                "PUT /p?q HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
            ),
            (
                Method::GET,
                &[("Host", "x"), ("TE", "trailers")],
                Body::Empty,
                "GET /p?q HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: TE\r\n\r\n",
            ),
        ] {
            assert_eq!(text(head(method, fields), &body, None), expected);
        }
    }

    #[test]
    fn an_http_proxy_gets_absolute_form_and_its_own_credentials_only() {
        let hop = ProxyHop { authorization: Some("Basic eA==".into()) };
        let h = head(Method::GET, &[("Host", "a.test:8080"), ("Proxy-Authorization", "Basic old")]);
        assert_eq!(
            text(h, &Body::Empty, Some(&hop)),
            "GET http://a.test:8080/p?q HTTP/1.1\r\nHost: a.test:8080\r\nProxy-Authorization: Basic eA==\r\n\r\n"
        );
    }

    #[test]
    fn an_extended_connect_becomes_an_upgrade() {
        let mut h = head(Method::CONNECT, &[("Host", "x"), ("Sec-WebSocket-Version", "13")]);
        h.protocol = Some("websocket".into());
        let head = text(h, &Body::Empty, None);
        assert!(
            head.starts_with("GET /p?q HTTP/1.1\r\nHost: x\r\nSec-WebSocket-Version: 13\r\nUpgrade: websocket\r\n")
        );
        assert!(head.contains("\r\nConnection: Upgrade\r\n"), "{head}");
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        for n in [0, 9, 10, 1234, u64::MAX] {
            assert_eq!(decimal(n, &mut [0; 20]), n.to_string().as_bytes());
        }
    }
}
