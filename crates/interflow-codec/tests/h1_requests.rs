//! Request heads: one table of inputs and expected results per section of RFC 9112.

use interflow_codec::h1::{BodyFraming, H1Error, HeadLimits, RequestLine, Violation, parse_request, request_framing};
use interflow_types::{ErrorKind, HttpVersion, RequestTarget, Scheme};

fn parse(raw: impl AsRef<[u8]>) -> Result<Option<(RequestLine, usize)>, H1Error> {
    parse_request(raw.as_ref(), &HeadLimits::default())
}

fn whole(raw: &str) -> RequestLine {
    let (request, used) = parse(raw).unwrap().unwrap();
    assert_eq!(used, raw.len());
    request
}

/// The framing of the body of a request head, or the rule it violates.
fn judged(raw: &[u8]) -> Result<BodyFraming, Violation> {
    let (r, _) = parse(raw).map_err(|e| e.violation())?.expect("the head is complete");
    request_framing(r.version, &r.method, &r.headers).map_err(|e| e.violation())
}

fn with_fields(fields: &[u8]) -> Vec<u8> {
    [b"POST /s HTTP/1.1\r\nHost: a\r\n", fields, b"\r\n\r\n"].concat()
}

fn target_text(target: &RequestTarget) -> String {
    match target {
        RequestTarget::Origin(path) => path.to_string(),
        RequestTarget::Absolute(url) => format!("{}|{}|{}", url.scheme, url.authority, url.path),
        RequestTarget::Authority(authority) => format!("authority {authority}"),
        RequestTarget::Asterisk => "asterisk".to_owned(),
    }
}

#[test]
fn request_head_is_parsed_and_the_following_bytes_are_left() {
    let raw = b"POST /a?b=c HTTP/1.1\r\nHost: x:8080\r\nX-Two:  1 \t\r\nx-two:\r\n\r\nbody";
    let (r, used) = parse(raw).unwrap().unwrap();
    assert_eq!(
        (r.method.as_str(), target_text(&r.target).as_str(), r.version),
        ("POST", "/a?b=c", HttpVersion::Http11)
    );
    let fields: Vec<_> = r.headers.iter().collect();
    assert_eq!(fields, [(&b"Host"[..], &b"x:8080"[..]), (b"X-Two", b"1"), (b"x-two", b"")]);
    assert_eq!(&raw[used..], b"body");
}

#[test]
fn an_incomplete_head_needs_more_bytes() {
    // A higher minor version is read as 1.1 (RFC 9110 2.5).
    for version in ["1.1", "1.2", "1.9"] {
        let raw = format!("GET http://a/ HTTP/{version}\r\nHost: a\r\nX: y\r\n\r\n");
        for end in 0..raw.len() {
            assert!(parse(&raw[..end]).unwrap().is_none(), "{end}");
        }
        assert_eq!(parse(&raw).unwrap().unwrap().0.version, HttpVersion::Http11);
        whole(&raw);
    }
}

#[test]
fn one_empty_line_may_precede_the_request_line() {
    assert_eq!(parse("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap().unwrap().1, 2 + 27);
    assert_eq!(parse("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap_err().violation(), Violation::RequestLine);
    assert!(parse("\n GET / HTTP/1.1\r\nHost: a\r\n\r\n").is_err());
    assert!(parse(" \r\n\r\n").is_err());
}

/// RFC 9112 3.2.
#[test]
fn request_targets_are_parsed_in_every_form() {
    for (line, expected) in [
        ("GET /", "/"),
        ("GET //x/../y?a#".trim_end_matches('#'), "//x/../y?a"),
        ("GET http://Example.com", "http|example.com:80|/"),
        ("GET HTTP://a:81/p?q", "http|a:81|/p?q"),
        ("GET http://a?q", "http|a:80|/?q"),
        ("GET https://[::1]/", "https|[::1]:443|/"),
        ("GET ws://a/chat", "http|a:80|/chat"),
        ("OPTIONS http://a", "http|a:80|*"),
        ("OPTIONS http://a/", "http|a:80|/"),
        ("OPTIONS http://a?q", "http|a:80|/?q"),
        ("OPTIONS *", "asterisk"),
        ("CONNECT a:443", "authority a:443"),
        ("CONNECT [::1]:443", "authority [::1]:443"),
        ("GET /s\u{e9}", "/s%C3%A9"),
        ("M-SEARCH /", "/"),
    ] {
        let r = whole(&format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(target_text(&r.target), expected, "{line}");
    }
}

/// RFC 9112 3.
#[test]
fn malformed_request_lines_are_refused() {
    let long = format!("GET /{} HTTP/1.1", "a".repeat(20_000));
    let method = format!("{} / HTTP/1.1", "M".repeat(20_000));
    for line in [
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET\t/\tHTTP/1.1",
        "GET / x HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET /\0x HTTP/1.1",
        "GET /\rx HTTP/1.1",
        "GET /\nX: y HTTP/1.1",
        "GET /\u{1} HTTP/1.1",
        "GET /\u{7f} HTTP/1.1",
        "GET /#frag HTTP/1.1",
        "GET /",
        "GET",
        "GET / HTTP/2.0",
        "GET / HTTP/0.9",
        "GET / HTTP/1.1x",
        "GET / HTTP/ 1.1",
        "GET / HTTP/1.32",
        "GET / HTTP/4294967297.1",
        "GET / http/1.1",
        "G=\"(e)[T];? / HTTP/1.1",
        "GE\0T / HTTP/1.1",
        " GET / HTTP/1.1",
        "GET * HTTP/1.1",
        "PRI * HTTP/2.0",
        "GET a HTTP/1.1",
        "GET a:80 HTTP/1.1",
        "GET ftp://a/ HTTP/1.1",
        "GET gopherx://a/ HTTP/1.1",
        "GET http:/a/ HTTP/1.1",
        "GET http:///s HTTP/1.1",
        "GET http://a:99999/ HTTP/1.1",
        "GET http://a:0/ HTTP/1.1",
        "GET http://u:p@a/ HTTP/1.1",
        "GET http://a\\@b/ HTTP/1.1",
        "GET http://a%00b/ HTTP/1.1",
        "GET http://\u{e9}/ HTTP/1.1",
        "CONNECT a HTTP/1.1",
        "CONNECT a: HTTP/1.1",
        "CONNECT /x HTTP/1.1",
        "CONNECT http://a/ HTTP/1.1",
        "CONNECT u@a:443 HTTP/1.1",
        "CONNECT * HTTP/1.1",
        long.as_str(),
        method.as_str(),
    ] {
        let got = parse(format!("{line}\r\nHost: a\r\n\r\n"));
        assert!(got.is_err(), "{}", &line[..line.len().min(60)]);
    }
    assert!(parse(b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n").is_err());
}

#[test]
fn errors_carry_the_kind_that_picks_the_status() {
    for (raw, kind) in [
        ("GET / HTTP/2.0\r\n\r\n".to_owned(), ErrorKind::Unsupported),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), ErrorKind::Unsupported),
        ("GET /a b HTTP/1.1\r\n\r\n".to_owned(), ErrorKind::BadRequest),
        (format!("GET /{}", "a".repeat(20_000)), ErrorKind::UriTooLong),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "a".repeat(70_000)), ErrorKind::HeadTooLarge),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(200)), ErrorKind::HeadTooLarge),
        ("GET / HTTP/1.1x\r\nHost: a\r\n\r\n".to_owned(), ErrorKind::BadRequest),
        ("\x16\x03\x01\x02\x00".to_owned(), ErrorKind::BadRequest),
    ] {
        let e = parse(&raw).unwrap_err();
        assert_eq!(e.kind(), kind, "{e}");
        let flow = interflow_types::Error::from(e);
        assert_eq!((flow.kind(), flow.error_source()), (kind, kind.error_source()));
    }
}

#[test]
fn garbage_is_refused_before_the_head_ends() {
    for raw in ["GET\t", "SSH-2.0-OpenSSH_9.2\r\n", "GET / HTTP/1.1\r\nX : ", "\0", "GET / HTTP/2"] {
        assert!(parse(raw).is_err(), "{raw:?}");
    }
}

#[test]
fn header_count_at_the_limit_is_accepted() {
    let raw = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(127));
    assert_eq!(whole(&raw).headers.len(), 128);
}

/// RFC 9112 5.
#[test]
fn malformed_field_lines_are_refused() {
    for field in [
        &b"X-A : b"[..],
        b"X-A\t: b",
        b"X-A: b\r\n c",
        b"X-A: b\r\n\tc",
        b"X-A:\r\n b",
        b" X: y",
        b"nonsense",
        b"Te\nst: test",
        b": x",
        b"X[a]: b",
        b"X A: b",
        b"X\x85: b",
        b"X\0A: b",
        b"X-A: b\0c",
        b"X-A: b\rX-Evil: c",
        b"X-A: b\nX-Evil: c",
        b"X-A: b\r",
        b"X-A: a\x01b",
        b"X-A: a\x7fb",
        b"X-A: b\n",
    ] {
        assert!(judged(&with_fields(field)).is_err(), "{}", field.escape_ascii());
    }
    assert_eq!(judged(&with_fields(b"X-A: \xff\xfe\ttab")), Ok(BodyFraming::None));
    assert!(judged(b"GET / HTTP/1.1\r\n Host: a\r\nHost: a\r\n\r\n").is_err());
    assert!(judged(b"GET / HTTP/1.1\nHost: a\n\n").is_err());
    assert!(parse(b"GET / HTTP/1.1\rHost: a\r\r").is_err());
}

/// RFC 9112 3.2.
#[test]
fn a_request_has_one_valid_host() {
    for (fields, rule) in [
        ("", Some(Violation::NoHost)),
        ("Host: a\r\nHost: a\r\n", Some(Violation::ManyHosts)),
        ("Host: a\r\nhost: b\r\n", Some(Violation::ManyHosts)),
        ("Host: a\r\n", None),
        ("Host:\r\n", None),
        ("Host: [::1]:80\r\n", None),
    ] {
        let got = parse(format!("GET / HTTP/1.1\r\n{fields}\r\n")).map_err(|e| e.violation());
        assert_eq!(got.as_ref().err(), rule.as_ref(), "{fields}");
    }
    for value in ["x@a", "a, b", "a b", "a/", "a:x", "::1", "[::1", "a%20", "http://a"] {
        let got = parse(format!("GET http://a/ HTTP/1.1\r\nHost: {value}\r\n\r\n"));
        assert!(matches!(got.unwrap_err().violation(), Violation::Host(_)), "{value}");
    }
    assert!(parse("GET / HTTP/1.0\r\n\r\n").unwrap().is_some());
    assert!(parse("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n").is_err());
}

#[test]
fn the_target_takes_precedence_over_the_host_field() {
    let named = |raw: &str| whole(raw).authority(Scheme::Https).unwrap().map(|a| a.to_string());
    assert_eq!(named("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap(), "a:443");
    assert_eq!(named("OPTIONS * HTTP/1.1\r\nHost: a:1\r\n\r\n").unwrap(), "a:1");
    assert_eq!(named("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n").unwrap(), "b:80");
    assert_eq!(named("CONNECT c:9 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap(), "c:9");
    assert_eq!(named("GET / HTTP/1.1\r\nHost:\r\n\r\n"), None);
    assert_eq!(named("GET / HTTP/1.0\r\n\r\n"), None);
}

/// RFC 9112 6.3, RFC 9110 8.6.
#[test]
fn content_length_must_be_one_plain_number() {
    for (fields, expected) in [
        (&b"X: y"[..], Ok(BodyFraming::None)),
        (b"Content-Length: 0", Ok(BodyFraming::None)),
        (b"Content-Length: 5", Ok(BodyFraming::Length(5))),
        (b"content-length:\t5 \t", Ok(BodyFraming::Length(5))),
        (b"Content-Length: 9223372036854775807", Ok(BodyFraming::Length(i64::MAX as u64))),
        (b"Content-Length: 9223372036854775808", Err(Violation::ContentLength)),
        (b"Content-Length: 5\r\nContent-Length: 5", Err(Violation::ManyContentLengths)),
        (b"Content-Length: 5\r\nContent-Length: 10", Err(Violation::ManyContentLengths)),
        (b"Content-Length: 5, 5", Err(Violation::ManyContentLengths)),
        (b"Content-Length: 5, 10", Err(Violation::ManyContentLengths)),
        (b"Content-Length: \r\nContent-Length: 5", Err(Violation::ContentLength)),
        (b"Content-Length : 5", Err(Violation::Field)),
        (b"Content-Length: 5\0", Err(Violation::Field)),
        (b"Content-Length: \x0b5", Err(Violation::Field)),
    ] {
        assert_eq!(judged(&with_fields(fields)), expected, "{}", fields.escape_ascii());
    }
    for value in [
        "-1",
        "-0",
        "+5",
        "0x5",
        "0o5",
        "1_0",
        "1 0",
        "",
        "abc",
        "5.0",
        "5;x",
        "18446744073709551621",
        "0000005",
        "\u{663}",
    ] {
        let got = judged(&with_fields(format!("Content-Length: {value}").as_bytes()));
        assert_eq!(got, Err(Violation::ContentLength), "{value}");
    }
}

/// RFC 9112 6.1.
#[test]
fn transfer_encoding_must_be_chunked_alone() {
    for value in ["chunked", "ChUnKeD", "chunked \t"] {
        let fields = format!("Transfer-Encoding:{value}");
        assert_eq!(judged(&with_fields(fields.as_bytes())), Ok(BodyFraming::Chunked), "{value}");
        let both = format!("{fields}\r\nContent-Length: 5");
        assert_eq!(judged(&with_fields(both.as_bytes())), Err(Violation::BothFramings), "{value}");
    }
    for value in [
        "xchunked",
        "chunkedx",
        "chunked, chunked",
        "chunked, identity",
        "identity, chunked",
        "identity",
        "chunked, gzip",
        "gzip, chunked",
        "gzip",
        ",chunked",
        "chunked,",
        "\"chunked\"",
        "chunked;q=1",
        "",
        "foo",
        "\u{a0}chunked",
    ] {
        let got = judged(&with_fields(format!("Transfer-Encoding: {value}").as_bytes()));
        assert_eq!(got, Err(Violation::TransferEncoding), "{value}");
    }
    for fields in [
        &b"Transfer-Encoding : chunked"[..],
        b"Transfer-Encoding\t: chunked",
        b"Transfer-Encoding:\r\n chunked",
        b"Transfer-Encoding: \x0bchunked",
        b"Transfer-Encoding: \x0cchunked",
        b"Transfer-Encoding: chunked\0",
        b"Transfer-Encoding\x85: chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"X-A: b\r\n Transfer-Encoding: chunked",
        b"X-A: b\nTransfer-Encoding: chunked",
    ] {
        assert!(judged(&with_fields(fields)).is_err(), "{}", fields.escape_ascii());
    }
    assert_eq!(judged(&with_fields(b"Transfer_Encoding: chunked\r\nContent-Length: 5")), Ok(BodyFraming::Length(5)));
    let old = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(judged(old), Err(Violation::TransferEncodingIn10));
}

/// RFC 9110 9.3.6.
#[test]
fn connect_has_no_body() {
    let connect = |field: &str| judged(format!("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n{field}\r\n").as_bytes());
    assert_eq!(connect(""), Ok(BodyFraming::None));
    assert_eq!(connect("Content-Length: 0\r\n"), Ok(BodyFraming::None));
    assert_eq!(connect("Content-Length: 1\r\n"), Err(Violation::ConnectBody));
    assert_eq!(connect("Transfer-Encoding: chunked\r\n"), Err(Violation::ConnectBody));
}
