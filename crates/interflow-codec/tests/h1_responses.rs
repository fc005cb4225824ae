//! Response heads and the framing of their bodies (RFC 9112 4 and 6.3).

use interflow_codec::h1::{BodyFraming, H1Error, HeadLimits, Violation, keeps_alive, parse_response, response_framing};
use interflow_types::{ErrorKind, HttpVersion, Method, ResponseHead};

fn parse(raw: impl AsRef<[u8]>) -> Result<Option<(ResponseHead, usize)>, H1Error> {
    parse_response(raw.as_ref(), &HeadLimits::default())
}

fn whole(raw: &str) -> ResponseHead {
    let (head, used) = parse(raw).unwrap().unwrap();
    assert_eq!(used, raw.len());
    head
}

fn framing(method: Method, raw: &str) -> Result<BodyFraming, Violation> {
    let head = parse(raw).map_err(|e| e.violation())?.expect("the head is complete").0;
    response_framing(&method, &head).map_err(|e| e.violation())
}

#[test]
fn status_lines_are_read() {
    for (line, status, reason, version) in [
        ("HTTP/1.1 200 OK", 200, &b"OK"[..], HttpVersion::Http11),
        ("HTTP/1.0 404 Not Here", 404, b"Not Here", HttpVersion::Http10),
        ("HTTP/1.1 200", 200, b"", HttpVersion::Http11),
        ("HTTP/1.1 200 ", 200, b"", HttpVersion::Http11),
        ("HTTP/1.1 999 Odd", 999, b"Odd", HttpVersion::Http11),
        ("HTTP/1.1 200 caf\u{e9}", 200, "caf\u{e9}".as_bytes(), HttpVersion::Http11),
    ] {
        let head = whole(&format!("{line}\r\nA: b\r\n\r\n"));
        assert_eq!((head.status.as_u16(), &head.reason[..], head.version), (status, reason, version), "{line}");
    }
}

#[test]
fn malformed_response_heads_are_refused() {
    for raw in [
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1 200 O\rK\r\n\r\n",
        "HTTP/1.1 200 O\0K\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.2 200 OK\r\n\r\n",
        "HTTX/1.1 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "<html>hello</html>",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\nA: b\n\n",
        "HTTP/1.1 200 OK\r\n A: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\rX: c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\0c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX(a): b\r\n\r\n",
    ] {
        let e = parse(raw).expect_err(raw);
        assert_eq!(e.kind(), ErrorKind::BadResponse, "{raw:?}");
    }
    let endless = format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(20_000));
    assert_eq!(parse(endless).unwrap_err().violation(), Violation::HeadTooLarge);
}

/// RFC 9112 5.1 and 5.2: a proxy repairs these in responses, so that no client sees them.
#[test]
fn space_before_a_colon_and_folding_are_repaired() {
    let head = whole("HTTP/1.1 200 OK\r\nA : b\r\nB: c\r\n \t d \r\n\te\r\nC:\r\n f\r\nD: \r\n \r\n\r\n");
    let fields: Vec<_> = head.headers.iter().collect();
    assert_eq!(fields, [(&b"A"[..], &b"b"[..]), (b"B", b"c d e"), (b"C", b"f"), (b"D", b"")]);
    let smuggled = "HTTP/1.1 200 OK\r\nTransfer-Encoding :\r\n chunked\r\n\r\n";
    assert_eq!(framing(Method::GET, smuggled), Ok(BodyFraming::Chunked));
}

#[test]
fn an_incomplete_head_needs_more_bytes() {
    let raw = "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n";
    for end in 0..raw.len() {
        assert!(parse(&raw[..end]).unwrap().is_none(), "{end}");
    }
}

/// RFC 9112 6.3.
#[test]
fn body_framing_follows_rfc_9112() {
    let both = "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n";
    for (method, status, fields, expected) in [
        ("GET", 200, "", Ok(BodyFraming::UntilClose)),
        ("GET", 200, "Content-Length: 0\r\n", Ok(BodyFraming::None)),
        ("GET", 200, "Content-Length: 5\r\n", Ok(BodyFraming::Length(5))),
        ("GET", 200, "Content-Length: 0005\r\n", Ok(BodyFraming::Length(5))),
        ("GET", 200, "Transfer-Encoding: chunked\r\n", Ok(BodyFraming::Chunked)),
        ("HEAD", 200, "Content-Length: 44\r\n", Ok(BodyFraming::None)),
        ("HEAD", 200, "Transfer-Encoding: chunked\r\n", Ok(BodyFraming::None)),
        ("GET", 103, "Content-Length: 44\r\n", Ok(BodyFraming::None)),
        ("GET", 101, "", Ok(BodyFraming::None)),
        ("GET", 204, "Transfer-Encoding: chunked\r\n", Ok(BodyFraming::None)),
        ("GET", 304, "Content-Length: 44\r\n", Ok(BodyFraming::None)),
        ("CONNECT", 200, both, Ok(BodyFraming::None)),
        ("CONNECT", 403, "Content-Length: 5\r\n", Ok(BodyFraming::Length(5))),
        ("GET", 200, both, Err(Violation::BothFramings)),
        ("GET", 200, "Content-Length: 5\r\nContent-Length: 49\r\n", Err(Violation::ManyContentLengths)),
        ("GET", 200, "Content-Length: 5, 49\r\n", Err(Violation::ManyContentLengths)),
        ("GET", 200, "Content-Length: -5\r\n", Err(Violation::ContentLength)),
        ("GET", 200, "Content-Length: +5\r\n", Err(Violation::ContentLength)),
        ("GET", 200, "Content-Length: five\r\n", Err(Violation::ContentLength)),
        ("GET", 200, "Content-Length: 18446744073709551621\r\n", Err(Violation::ContentLength)),
        ("GET", 200, "Transfer-Encoding: xchunked\r\n", Err(Violation::TransferEncoding)),
        ("GET", 200, "Transfer-Encoding: chunked, gzip\r\n", Err(Violation::TransferEncoding)),
        ("HEAD", 200, "Content-Length: 1, 2\r\n", Err(Violation::ManyContentLengths)),
    ] {
        let raw = format!("HTTP/1.1 {status} X\r\n{fields}\r\n");
        let method = method.parse().unwrap();
        assert_eq!(framing(method, &raw), expected, "{raw}");
    }
    let old = "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(framing(Method::GET, old), Err(Violation::TransferEncodingIn10));
}

/// RFC 9112 9.3.
#[test]
fn persistence_follows_version_and_connection() {
    for (line, fields, kept) in [
        ("HTTP/1.1", "", true),
        ("HTTP/1.1", "Connection: x, Close\r\n", false),
        ("HTTP/1.0", "", false),
        ("HTTP/1.0", "Connection: Keep-Alive\r\n", true),
        ("HTTP/1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let head = whole(&format!("{line} 200 OK\r\n{fields}\r\n"));
        assert_eq!(keeps_alive(head.version, &head.headers), kept, "{line} {fields}");
    }
}
