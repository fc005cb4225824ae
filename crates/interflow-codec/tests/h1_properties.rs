//! Properties of HTTP/1 parsing for any input: no panic, no dependence on segmentation, and lossless round trips.

use bytes::BytesMut;
use interflow_codec::h1::{
    BodyDecoder, BodyFraming, CHUNK_END, DecodeStep, HeadLimits, parse_request, parse_response, request_framing,
    response_framing, write_chunk_size, write_last_chunk, write_request_head, write_response_head,
};
use interflow_types::{Headers, HttpVersion, Method};
use proptest::prelude::*;

const LIMITS: HeadLimits = HeadLimits { max_bytes: 600, max_fields: 8, max_line: 120 };

/// Bytes similar enough to HTTP to get past the first line.
fn shaped() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just("GET / HTTP/1.1\r\n".to_owned()),
        Just("HTTP/1.1 200 OK\r\n".to_owned()),
        Just("Host: a\r\n".to_owned()),
        Just("Content-Length: 5\r\n".to_owned()),
        Just("Transfer-Encoding: chunked\r\n".to_owned()),
        Just("\r\n".to_owned()),
        Just("\n".to_owned()),
        Just(" ".to_owned()),
        Just("5\r\nhello\r\n".to_owned()),
        Just("0\r\n".to_owned()),
        "[ -~\\r\\n\\x00\\x80]{0,6}",
    ];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat().into_bytes())
}

/// The outcome of decoding a body in pieces: its content and end, or `None` if it was refused.
fn body(framing: BodyFraming, pieces: &[&[u8]]) -> Option<(Vec<u8>, String, bool, Vec<u8>)> {
    let mut decoder = BodyDecoder::new(framing, &LIMITS);
    let mut buf = BytesMut::new();
    let (mut data, mut trailers) = (Vec::new(), String::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buf).ok()? {
                DecodeStep::Data(bytes) => data.extend_from_slice(&bytes),
                DecodeStep::Trailers(t) => trailers = format!("{t:?}"),
                DecodeStep::NeedMore | DecodeStep::Done => break,
            }
        }
    }
    Some((data, trailers, decoder.is_done(), buf.to_vec()))
}

fn split_at_all<'a>(raw: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(raw.len() + 1)).collect();
    ends.push(raw.len());
    ends.sort_unstable();
    let mut start = 0;
    ends.into_iter().map(|end| &raw[std::mem::replace(&mut start, end)..end]).collect()
}

fn token() -> impl Strategy<Value = String> {
    "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,12}"
}

fn fields() -> impl Strategy<Value = Headers> {
    let name = token().prop_map(|n| format!("X-{n}"));
    let value = "[!-~\\x{80}-\\x{ff}]([ -~]{0,10}[!-~])?";
    prop::collection::vec((name, value), 0..6).prop_map(|f| f.into_iter().collect())
}

proptest! {
    #[test]
    fn no_input_panics(raw in prop_oneof![prop::collection::vec(any::<u8>(), 0..300), shaped()]) {
        if let Ok(Some((r, used))) = parse_request(&raw, &LIMITS) {
            prop_assert!(used <= raw.len());
            let _ = request_framing(r.version, &r.method, &r.headers);
        }
        if let Ok(Some((r, used))) = parse_response(&raw, &LIMITS) {
            prop_assert!(used <= raw.len());
            let _ = response_framing(&Method::GET, &r);
        }
        body(BodyFraming::Chunked, &[&raw]);
    }

    #[test]
    fn a_head_parses_the_same_at_any_segmentation(raw in shaped()) {
        let whole = parse_request(&raw, &LIMITS).map(|f| f.map(|(r, used)| (r.method, r.target, r.headers, used)));
        let first = (0..=raw.len()).find_map(|end| parse_request(&raw[..end], &LIMITS).transpose());
        match (whole, first) {
            (Ok(None), None) | (Err(_), Some(Err(_))) => {}
            (Ok(Some(whole)), Some(Ok((r, used)))) => {
                prop_assert_eq!(whole, (r.method, r.target, r.headers, used));
            }
            (whole, first) => prop_assert!(false, "{whole:?} but in pieces {first:?}"),
        }
        let whole = parse_response(&raw, &LIMITS).map(|f| f.map(|(r, used)| (r.status, r.reason, r.headers, used)));
        let first = (0..=raw.len()).find_map(|end| parse_response(&raw[..end], &LIMITS).transpose());
        match (whole, first) {
            (Ok(None), None) | (Err(_), Some(Err(_))) => {}
            (Ok(Some(whole)), Some(Ok((r, used)))) => {
                prop_assert_eq!(whole, (r.status, r.reason, r.headers, used));
            }
            (whole, first) => prop_assert!(false, "{whole:?} but in pieces {first:?}"),
        }
    }

    #[test]
    fn a_body_decodes_the_same_at_any_segmentation(raw in shaped(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        for framing in [BodyFraming::Chunked, BodyFraming::Length(7), BodyFraming::UntilClose] {
            let bytewise: Vec<&[u8]> = raw.chunks(1).collect();
            prop_assert_eq!(body(framing, &[&raw]), body(framing, &bytewise));
            prop_assert_eq!(body(framing, &[&raw]), body(framing, &split_at_all(&raw, &cuts)));
        }
    }

    #[test]
    fn requests_round_trip(method in token(), path in "/[!-\"$-~]{0,40}", fields in fields()) {
        prop_assume!(method != "CONNECT");
        let mut headers = fields;
        headers.append("Host", "a").unwrap();
        let mut out = Vec::new();
        write_request_head(&mut out, &method.parse().unwrap(), &path, HttpVersion::Http11, &headers);
        let (r, used) = parse_request(&out, &LIMITS).unwrap().unwrap();
        prop_assert_eq!((used, r.method.as_str(), r.headers), (out.len(), method.as_str(), headers));
        prop_assert_eq!(r.target, interflow_types::RequestTarget::Origin(path.as_str().into()));
    }

    #[test]
    fn responses_round_trip(status in 100u16..1000, reason in "([!-~][ -~]{0,20})?", headers in fields()) {
        let raw = format!("HTTP/1.1 {status} {reason}\r\n\r\n");
        let mut head = parse_response(raw.as_bytes(), &LIMITS).unwrap().unwrap().0;
        head.headers = headers;
        let mut out = Vec::new();
        write_response_head(&mut out, &head);
        let (again, used) = parse_response(&out, &LIMITS).unwrap().unwrap();
        prop_assert_eq!((used, again.status, again.reason, again.headers), (out.len(), head.status, head.reason, head.headers));
    }

    #[test]
    fn chunked_bodies_round_trip(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
        trailers in prop::option::of(fields()),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut out = Vec::new();
        for piece in &pieces {
            write_chunk_size(&mut out, piece.len());
            out.extend_from_slice(piece);
            out.extend_from_slice(CHUNK_END);
        }
        write_last_chunk(&mut out, trailers.as_ref());
        let (data, seen, done, left) = body(BodyFraming::Chunked, &split_at_all(&out, &cuts)).unwrap();
        let expected = trailers.filter(|t| !t.is_empty()).map_or_else(String::new, |t| format!("{t:?}"));
        prop_assert_eq!((data, seen, done, left), (pieces.concat(), expected, true, Vec::new()));
    }
}
