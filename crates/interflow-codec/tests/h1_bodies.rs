//! Bodies: chunk syntax, lengths, closes and trailers (RFC 9112 6 to 8), and round trips through the writers.

use bytes::BytesMut;
use interflow_codec::h1::{
    BodyDecoder, BodyFraming, CHUNK_END, DecodeStep, HeadLimits, Violation, parse_request, parse_response,
    write_chunk_size, write_last_chunk, write_request_head, write_response_head,
};
use interflow_types::{ErrorKind, Headers, HttpVersion, Method};

/// The result of decoding a buffer: content, trailers, whether the body ended, and what was left.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    data: Vec<u8>,
    trailers: Option<String>,
    done: bool,
    left: Vec<u8>,
}

fn text(headers: &Headers) -> String {
    let mut out = Vec::new();
    headers.write_to(&mut out);
    String::from_utf8(out).unwrap()
}

fn read(framing: BodyFraming, raw: &[u8]) -> Result<Seen, Violation> {
    let mut decoder = BodyDecoder::new(framing, &HeadLimits::default());
    let mut buf = BytesMut::from(raw);
    let mut seen = Seen::default();
    loop {
        match decoder.decode(&mut buf).map_err(|e| e.violation())? {
            DecodeStep::Data(data) => {
                assert!(!data.is_empty());
                seen.data.extend_from_slice(&data);
            }
            DecodeStep::Trailers(trailers) => seen.trailers = Some(text(&trailers)),
            DecodeStep::NeedMore => break,
            DecodeStep::Done => {
                seen.done = true;
                break;
            }
        }
    }
    assert_eq!(seen.done, decoder.is_done());
    seen.left = buf.to_vec();
    Ok(seen)
}

/// RFC 9112 7.1.
#[test]
fn well_formed_chunks_give_their_data() {
    for (raw, data, trailers, left) in [
        ("5\r\nhello\r\n0\r\n\r\n", "hello", None, ""),
        ("0\r\n\r\nGET", "", None, "GET"),
        ("2\r\nhe\r\n3\r\nllo\r\n000\r\n\r\n\0", "hello", None, "\0"),
        ("A\r\n0123456789\r\na\r\nabcdefghij\r\n0\r\n\r\n", "0123456789abcdefghij", None, ""),
        ("5;a=b;c=\"d e\"\r\nhello\r\n0;x\r\n\r\n", "hello", None, ""),
        ("5 \t ;a\r\nhello\r\n0  \r\n\r\n", "hello", None, ""),
        ("0000000000000005\r\nhello\r\n0\r\n\r\n", "hello", None, ""),
        ("0\r\nX-A: b\r\nx-c:d\r\n\r\n..", "", Some("X-A: b\r\nx-c: d\r\n"), ".."),
        ("0\r\nConnection: close\r\nCookie: c\r\n\r\n", "", None, ""),
    ] {
        let expected = Seen { data: data.into(), trailers: trailers.map(str::to_owned), done: true, left: left.into() };
        assert_eq!(read(BodyFraming::Chunked, raw.as_bytes()), Ok(expected), "{raw:?}");
    }
}

#[test]
fn malformed_chunks_are_refused() {
    for (rule, raws) in [
        (
            Violation::ChunkSize,
            &[
                &b"0x5\r\nhello\r\n0\r\n\r\n"[..],
                b"+5\r\nhello\r\n0\r\n\r\n",
                b"-5\r\nhello\r\n0\r\n\r\n",
                b"-0x0\r\n\r\n",
                b"0_5\r\nhello\r\n0\r\n\r\n",
                b" 5\r\nhello\r\n0\r\n\r\n",
                b"5these-bytes\r\nhello\r\n0\r\n\r\n",
                b"Z",
                b"10000000000000005\r\nhello",
                b"FFFFFFFFFFFFFFFF\r\nhello",
                b"8000000000000000\r\nhello",
                b"00000000000000005\r\nhello",
                b"\r\nhello\r\n0\r\n\r\n",
                b"5\r\nhello\r\n\r\n0\r\n\r\n",
                b"5\nhello\r\n0\r\n\r\n",
                b"5\rhello\r\n0\r\n\r\n",
                b"2;\nxx\r\n4c\r\n0\r\n\r\n",
                b"5;a\rX\r\nhello\r\n0\r\n\r\n",
                b"5;a\0b\r\nhello\r\n0\r\n\r\n",
                b"5\r\r;a\r\nhello\r\n0\r\n\r\n",
                b"+0\r\n\r\n",
                b"5 x\r\nhello\r\n",
            ][..],
        ),
        (
            Violation::ChunkEnd,
            &[b"5\r\nhello0\r\n\r\n", b"5\r\nhello!!\r\n0\r\n\r\n", b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello\r0\r\n\r\n"],
        ),
        (Violation::BareLf, &[b"0\r\n\n", b"0\r\nA: b\n\r\n"]),
        (
            Violation::Field,
            &[b"0\r\nnonsense\r\n\r\n", b"0\r\nA : b\r\n\r\n", b"0\r\nA: b\r\n c\r\n\r\n", b"0\r\nA: b\0\r\n\r\n"],
        ),
        (
            Violation::Trailer,
            &[
                b"0\r\nContent-Length: 44\r\n\r\n",
                b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"0\r\nhost: evil\r\n\r\n",
            ],
        ),
    ] {
        for raw in raws {
            assert_eq!(read(BodyFraming::Chunked, raw), Err(rule), "{}", raw.escape_ascii());
        }
    }
}

/// RFC 9112 7.1.1.
#[test]
fn extensions_are_bounded() {
    let one = format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(70_000));
    assert_eq!(read(BodyFraming::Chunked, one.as_bytes()), Err(Violation::ChunkOverhead));
    let many = format!("1;{}\r\nx\r\n", "a".repeat(1000)).repeat(100);
    assert_eq!(read(BodyFraming::Chunked, many.as_bytes()), Err(Violation::ChunkOverhead));
    let signed = format!("400;sig={}\r\n{}\r\n", "f".repeat(64), "x".repeat(1024)).repeat(1000);
    assert!(read(BodyFraming::Chunked, signed.as_bytes()).is_ok());
}

#[test]
fn trailers_are_bounded() {
    let long = format!("0\r\nA: {}", "a".repeat(70_000));
    assert_eq!(read(BodyFraming::Chunked, long.as_bytes()), Err(Violation::HeadTooLarge));
    let many = format!("0\r\n{}\r\n", "A: b\r\n".repeat(129));
    assert_eq!(read(BodyFraming::Chunked, many.as_bytes()), Err(Violation::TooManyFields));
}

#[test]
fn length_delimited_body_leaves_the_following_bytes() {
    let seen = read(BodyFraming::Length(5), b"helloGET").unwrap();
    assert_eq!((seen.data, seen.done, seen.left), (b"hello".to_vec(), true, b"GET".to_vec()));
    assert_eq!(read(BodyFraming::None, b"GET").unwrap(), Seen { done: true, left: b"GET".to_vec(), ..Seen::default() });
}

/// RFC 9112 8.
#[test]
fn only_close_delimited_bodies_end_with_the_connection() {
    let limits = HeadLimits::default();
    for (framing, raw, whole) in [
        (BodyFraming::UntilClose, "hello", true),
        (BodyFraming::UntilClose, "", true),
        (BodyFraming::None, "", true),
        (BodyFraming::Length(5), "hello", true),
        (BodyFraming::Length(5), "hell", false),
        (BodyFraming::Chunked, "0\r\n\r\n", true),
        (BodyFraming::Chunked, "", false),
        (BodyFraming::Chunked, "50\r\nhello", false),
        (BodyFraming::Chunked, "5\r\nhello\r\n", false),
        (BodyFraming::Chunked, "0\r\n", false),
    ] {
        let mut decoder = BodyDecoder::for_response(framing, &limits);
        let mut buf = BytesMut::from(raw);
        while matches!(decoder.decode(&mut buf).unwrap(), DecodeStep::Data(_)) {}
        let ended = decoder.eof();
        assert_eq!(ended.is_ok(), whole, "{framing:?} {raw:?}");
        if let Err(e) = ended {
            assert_eq!(e.kind(), ErrorKind::UpstreamClosed);
        }
    }
    let mut request = BodyDecoder::new(BodyFraming::Length(1), &limits);
    assert_eq!(request.eof().unwrap_err().kind(), ErrorKind::ClientGone);
}

#[test]
fn remaining_length_is_known_only_for_length_delimited_bodies() {
    let limits = HeadLimits::default();
    let mut decoder = BodyDecoder::new(BodyFraming::Length(5), &limits);
    assert_eq!(decoder.remaining(), Some(5));
    decoder.decode(&mut BytesMut::from("he")).unwrap();
    assert_eq!(decoder.remaining(), Some(3));
    assert_eq!(BodyDecoder::new(BodyFraming::Chunked, &limits).remaining(), None);
    assert_eq!(BodyDecoder::new(BodyFraming::None, &limits).remaining(), Some(0));
}

#[test]
fn written_heads_parse_back() {
    let limits = HeadLimits::default();
    let headers: Headers = [("Host", "a"), ("x-Odd", ""), ("X-Odd", "\u{e9}")].into_iter().collect();
    let mut out = Vec::new();
    write_request_head(&mut out, &Method::POST, "/a?b", HttpVersion::H2, &headers);
    assert!(out.starts_with(b"POST /a?b HTTP/1.1\r\nHost: a\r\nx-Odd: \r\n"));
    let (request, used) = parse_request(&out, &limits).unwrap().unwrap();
    assert_eq!((used, request.headers), (out.len(), headers));

    for (head, line) in [
        ("HTTP/1.0 200 Fine\r\nA: b\r\n\r\n", "HTTP/1.1 200 Fine\r\n"),
        ("HTTP/1.1 404\r\nA: b\r\n\r\n", "HTTP/1.1 404 \r\n"),
    ] {
        let head = parse_response(head.as_bytes(), &limits).unwrap().unwrap().0;
        let mut out = Vec::new();
        write_response_head(&mut out, &head);
        assert_eq!(String::from_utf8(out).unwrap(), format!("{line}A: b\r\n\r\n"));
    }
}

#[test]
fn a_reason_phrase_cannot_split_the_head() {
    let mut head = parse_response(b"HTTP/1.1 200 OK\r\n\r\n", &HeadLimits::default()).unwrap().unwrap().0;
    head.reason = bytes::Bytes::from_static(b"a\r\nX: b\0");
    let mut out = Vec::new();
    write_response_head(&mut out, &head);
    assert_eq!(out, b"HTTP/1.1 200 aX: b\r\n\r\n");
    head.reason = bytes::Bytes::new();
    head.version = HttpVersion::H2;
    out.clear();
    write_response_head(&mut out, &head);
    assert_eq!(out, b"HTTP/1.1 200 OK\r\n\r\n");
}

#[test]
fn written_chunks_parse_back() {
    let mut out = Vec::new();
    for piece in [&b"hello "[..], &[b'x'; 300]] {
        write_chunk_size(&mut out, piece.len());
        out.extend_from_slice(piece);
        out.extend_from_slice(CHUNK_END);
    }
    let trailers: Headers = [("Grpc-Status", "0")].into_iter().collect();
    write_last_chunk(&mut out, Some(&trailers));
    let seen = read(BodyFraming::Chunked, &out).unwrap();
    assert_eq!(seen.data, [&b"hello "[..], &[b'x'; 300]].concat());
    assert_eq!(seen.trailers.as_deref(), Some("Grpc-Status: 0\r\n"));
    assert!(seen.done);
}
