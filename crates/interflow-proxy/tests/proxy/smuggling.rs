//! Requests that two parsers may read differently get a 400, and never reach the origin.

use bytes::Bytes;
use interflow_testkit::{H2Client, Origin, Wire};
use interflow_types::ErrorKind;

use crate::access::deny;
use crate::support::{Proxy, get, until};

/// What is between the request line and the end; `{}` becomes the origin's authority.
const SHAPES: [(&str, &str); 24] = [
    ("two lengths", "Host: {}\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
    ("two lengths in one", "Host: {}\r\nContent-Length: 3, 4\r\n\r\nabcd"),
    ("a signed length", "Host: {}\r\nContent-Length: +3\r\n\r\nabc"),
    ("a length in hex", "Host: {}\r\nContent-Length: 0x3\r\n\r\nabc"),
    ("an empty length", "Host: {}\r\nContent-Length:\r\n\r\n"),
    ("a length and chunks", "Host: {}\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("chunked twice", "Host: {}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("chunked not last", "Host: {}\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    ("chunked in quotes", "Host: {}\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"),
    ("an unknown coding", "Host: {}\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("a space before the colon", "Host: {}\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    ("a folded line", "Host: {}\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    ("a folded first line", " Host: {}\r\n\r\n"),
    ("a bare line feed", "Host: {}\nX: 1\n\n"),
    ("a bare carriage return", "Host: {}\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n"),
    ("a NUL", "Host: {}\r\nX: a\0b\r\n\r\n"),
    ("no colon", "Host: {}\r\nnonsense\r\n\r\n"),
    ("a name with a space", "Host: {}\r\nbad name: 1\r\n\r\n"),
    ("two hosts", "Host: {}\r\nHost: other\r\n\r\n"),
    ("a host with a path", "Host: {}/x\r\n\r\n"),
    ("a chunk size with a sign", "Host: {}\r\nTransfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n"),
    ("a chunk size too large", "Host: {}\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\nabc\r\n0\r\n\r\n"),
    ("a chunk longer than its size", "Host: {}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n"),
    ("a chunk line with a line feed", "Host: {}\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n"),
];

fn line_is_bad_too_late(what: &str) -> bool {
    what.starts_with("a chunk")
}

#[tokio::test]
async fn smuggling_requests_are_refused_and_the_next_client_is_served() {
    let origin = Origin::raw(|mut wire: Wire, _| async move {
        while let Some(head) = wire.head().await? {
            assert!(head.starts_with(b"GET /fine "), "{head:?}");
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await?;
        }
        Ok(())
    })
    .await;
    let proxy = Proxy::start(|_| ()).await;
    let authority = origin.addr().to_string();
    let mut refused = 0;
    for (what, rest) in SHAPES.iter().filter(|(what, _)| !line_is_bad_too_late(what)) {
        let mut wire = proxy.connect().await;
        let evil = format!("POST http://{authority}/evil HTTP/1.1\r\n{}", rest.replace("{}", &authority));
        wire.send(evil).await.unwrap();
        let answer = wire.answer().await.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(answer.status, 400, "{what}: {}", answer.text());
        assert_eq!(answer.header("x-interflow-error"), Some("bad_request"), "{what}");
        assert!(wire.to_end().await.unwrap().is_empty(), "{what}: the connection ends");
        refused += 1;
        wire = proxy.connect().await;
        wire.send(get(&format!("http://{authority}/fine"))).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 200, "{what}");
    }
    assert_eq!(proxy.errors(ErrorKind::BadRequest), refused);
    let flows = proxy.flows(2 * refused as usize).await;
    let kept = flows.iter().filter(|f| f.error() == Some(ErrorKind::BadRequest) && f.status == Some(400)).count();
    assert_eq!(kept as u64, refused, "each is kept as a flow with its error");
}

#[tokio::test]
async fn invalid_chunked_body_never_reaches_the_origin_as_complete() {
    let origin = Origin::raw(|mut wire: Wire, _| async move {
        wire.head().await?;
        let body = wire.to_end().await.unwrap_or_default();
        assert!(!body.ends_with(b"0\r\n\r\n"), "{body:?}");
        Ok(())
    })
    .await;
    let authority = origin.addr().to_string();
    for (what, rest) in SHAPES.iter().filter(|(what, _)| line_is_bad_too_late(what)) {
        let proxy = Proxy::start(|_| ()).await;
        let mut wire = proxy.connect().await;
        let evil = format!("POST http://{authority}/evil HTTP/1.1\r\n{}", rest.replace("{}", &authority));
        wire.send(evil).await.unwrap();
        let answer = wire.answer().await.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(answer.status, 400, "{what}");
        assert_eq!(proxy.flow().await.error(), Some(ErrorKind::BadRequest), "{what}");
    }
}

#[tokio::test]
async fn malformed_request_inside_intercepted_tls_is_refused() {
    let origin = Origin::https().start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    for first in ["GET\t/ HTTP/1.1", "GET /a b HTTP/1.1", "get / http/1.1", "GET /", "\0\0"] {
        let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
        wire.send(format!("{first}\r\nHost: {}\r\n\r\n", origin.authority())).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 400, "{first:?}");
    }
    assert_eq!(origin.served(), 0);
}

#[tokio::test]
async fn oversized_heads_get_their_status() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let long = "a".repeat(20_000);
    let many: String = (0..300).map(|i| format!("X-{i}: 1\r\n")).collect();
    for (request, status, message, remedy) in [
        (
            get(&origin.url(&format!("/{long}"))),
            414,
            "longer than limits.request_line_bytes allows",
            "raise limits.request_line_bytes.",
        ),
        (
            format!("GET {} HTTP/1.1\r\nHost: {}\r\n{many}\r\n", origin.url("/"), origin.authority()),
            431,
            "more fields than limits.max_headers allows",
            "limits.max_headers for its fields",
        ),
        (
            format!(
                "GET {} HTTP/1.1\r\nHost: {}\r\nX: {}\r\n\r\n",
                origin.url("/"),
                origin.authority(),
                "a".repeat(70_000)
            ),
            431,
            "limits.max_header_bytes",
            "limits.max_header_bytes for the bytes of a head",
        ),
    ] {
        let mut wire = proxy.connect().await;
        wire.send(request).await.unwrap();
        let answer = wire.answer().await.unwrap();
        assert_eq!(answer.status, status);
        let text = answer.text();
        assert!(text.contains(message) && text.contains(remedy), "{text}");
    }
    assert_eq!(origin.served(), 0);
}

#[tokio::test]
async fn oversized_heads_over_http2_get_their_status_and_a_flow() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let client = H2Client::new(proxy.connect().await).await.unwrap();
    for (n, (path, fields, status, key)) in [
        (format!("/{}", "a".repeat(20_000)), 0, 414, "limits.request_line_bytes"),
        ("/".into(), 300, 431, "limits.max_headers"),
        ("/".into(), 1, 431, "limits.max_header_bytes"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut request = http::Request::get(origin.url(&path));
        for i in 0..fields {
            let value = if fields == 1 { "a".repeat(70_000) } else { "1".into() };
            request = request.header(format!("x-{i}"), value);
        }
        let answer = client.request(request.body(()).unwrap(), Bytes::new()).await.unwrap();
        let kind = if status == 414 { "uri_too_long" } else { "head_too_large" };
        assert_eq!((answer.status, answer.header("x-interflow-error")), (status, Some(kind)));
        assert!(answer.text().contains(key), "{}", answer.text());
        let flow = proxy.flows(n + 1).await.pop().unwrap();
        assert_eq!(flow.error().map(ErrorKind::as_str), Some(kind));
    }
    // The connection goes on, and cookie crumbs are one field.
    let crumbs = (0..250).fold(http::Request::get(origin.url("/")), |r, i| r.header("cookie", format!("c{i}=1")));
    assert_eq!(client.request(crumbs.body(()).unwrap(), Bytes::new()).await.unwrap().status, 200);
    assert_eq!(origin.served(), 1);
}

/// A HEADERS frame with END_STREAM, its fields as literals without Huffman coding (RFC 7541 6.2.2).
fn h2_request(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).ok().filter(|n| *n < 127).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    const END_STREAM_AND_HEADERS: u8 = 5;
    let length = u32::try_from(block.len()).unwrap().to_be_bytes();
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    out.extend_from_slice(&[length[1], length[2], length[3], 1, END_STREAM_AND_HEADERS, 0, 0, 0, 1]);
    out.extend_from_slice(&block);
    out
}

#[tokio::test]
async fn http2_request_never_becomes_two_http1_requests() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let authority = origin.authority();
    let good = [(":method", "GET"), (":scheme", "http"), (":authority", authority.as_str()), (":path", "/evil")];
    let with = |more: &[(&'static str, &'static str)]| [&good[..], more].concat();
    let instead = |name: &str, value: &'static str| {
        good.iter().map(|&(n, v)| if n == name { (n, value) } else { (n, v) }).collect::<Vec<_>>()
    };
    let crooked = [
        with(&[("x", "a\r\nTransfer-Encoding: chunked")]),
        with(&[("x", "a\r\n\r\nGET /evil HTTP/1.1\r\n\r\n")]),
        with(&[("x", "a\nb: c")]),
        with(&[("x", "a\0b")]),
        with(&[("x\r\ny", "1")]),
        with(&[("x: y", "1")]),
        with(&[("x y", "1")]),
        with(&[("X-Upper", "1")]),
        with(&[("", "1")]),
        with(&[("transfer-encoding", "chunked")]),
        with(&[("connection", "close")]),
        with(&[("content-length", "5")]),
        with(&[("content-length", "0"), ("content-length", "5")]),
        with(&[("content-length", "+0")]),
        with(&[(":path", "/evil/twice")]),
        with(&[("host", "u:p@a/evil")]),
        instead(":path", "/evil HTTP/1.1\r\nX: y"),
        instead(":path", "/evil with spaces"),
        instead(":path", "evil"),
        instead(":path", ""),
        instead(":method", "GET /evil HTTP/1.1\r\nX: y\r\n\r\nGET"),
        instead(":method", "GE T"),
        instead(":authority", "u:p@localhost/evil"),
        instead(":authority", "localhost\r\nX: y"),
        instead(":scheme", "http://localhost/evil"),
    ];
    for fields in &crooked {
        let mut wire = proxy.connect().await;
        wire.send(h2_request(fields)).await.unwrap();
        // Reset or 400: the request is over either way.
        until("an answer to the crooked request", || proxy.engine.snapshot().active == 0).await;
        let told = tokio::time::timeout(std::time::Duration::from_secs(5), wire.exactly(40)).await;
        assert!(told.is_ok(), "{fields:?} is not answered");
    }
    assert_eq!(origin.requests().iter().map(|r| r.target.as_str()).collect::<Vec<_>>(), [""; 0]);
    let mut wire = proxy.connect().await;
    wire.send(h2_request(&good)).await.unwrap();
    origin.wait_for_requests(1).await;
    assert_eq!(origin.only_request().version, "HTTP/1.1", "the same without the crookedness passes");
}

#[tokio::test]
async fn http2_host_that_cannot_be_read_does_not_evade_access_rules() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| c.access.rule = vec![deny(|r| r.hosts = vec!["hidden.test".into()])]).await;
    for host in ["hidden.test", "hidden.test:0", "hidden.test:99999", "u@hidden.test"] {
        let mut wire = proxy.tunnel(&origin.authority()).await;
        let fields = [(":method", "GET"), (":scheme", "http"), (":path", "/"), ("host", host)];
        wire.send(h2_request(&fields)).await.unwrap();
        wire.some().await.unwrap();
        until("an answer", || proxy.engine.snapshot().active == 0).await;
    }
    assert_eq!(origin.served(), 0);
}
