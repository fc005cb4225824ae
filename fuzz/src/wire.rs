//! Entries for the codecs of `interflow-codec`. Each accepts any bytes, must not panic, and asserts invariants:
//! mostly that the result does not depend on how the bytes are split, and that nothing is lost.

use bytes::BytesMut;
use interflow_codec::h1::{self, BodyDecoder, BodyFraming, DecodeStep, HeadLimits};
use interflow_codec::socks5 as socks;
use interflow_codec::sse::SseParser;
use interflow_codec::websocket::{FrameSender, PermessageDeflate, WebSocketDecoder, WebSocketItem, WsDecoderOptions};
use interflow_codec::{
    ClientHello, aws_event_stream, client_hello as tls, grpc as grpc_frames, proxy_protocol as haproxy,
};
use interflow_types::{HttpVersion, Method, RequestTarget, Scheme};

const LIMITS: HeadLimits = HeadLimits { max_bytes: 4096, max_fields: 32, max_line: 1024 };

/// One entry over the inputs of one target.
pub type Entry = fn(&[u8]);

/// Every entry with the name of its target.
pub const ENTRIES: [(&str, Entry); 10] = [
    ("h1_request", h1_request),
    ("h1_response", h1_response),
    ("h1_chunked", h1_chunked),
    ("client_hello", client_hello),
    ("socks5", socks5),
    ("proxy_protocol", proxy_protocol),
    ("sse", sse),
    ("websocket", websocket),
    ("grpc", grpc),
    ("aws_event_stream", aws_event_stream),
];

/// A request head with its framing and body. An accepted head is serialized and parsed to an equal one.
pub fn h1_request(data: &[u8]) {
    let Ok(Some((request, used))) = h1::parse_request(data, &LIMITS) else { return };
    assert!(h1::parse_request(&data[..used - 1], &LIMITS).is_ok_and(|early| early.is_none()));
    let hosts = request.headers.get_all("host").count();
    assert!(hosts == 1 || (hosts == 0 && request.version == HttpVersion::Http10));
    assert!(request.authority(Scheme::Https).is_ok());
    let target = match &request.target {
        RequestTarget::Origin(path) => path.to_string(),
        RequestTarget::Absolute(url) if url.path == "*" => format!("{}://{}", url.scheme, url.authority),
        RequestTarget::Absolute(url) => format!("{}://{}{}", url.scheme, url.authority, url.path),
        RequestTarget::Authority(authority) => authority.to_string(),
        RequestTarget::Asterisk => "*".to_owned(),
    };
    let mut out = Vec::new();
    h1::write_request_head(&mut out, &request.method, &target, request.version, &request.headers);
    let wide = HeadLimits { max_bytes: 1 << 20, max_line: 1 << 20, ..LIMITS };
    let (again, _) = h1::parse_request(&out, &wide).expect("it holds").expect("it is whole");
    assert_eq!((&again.method, &again.target, &again.headers), (&request.method, &request.target, &request.headers));
    if let Ok(framing) = h1::request_framing(request.version, &request.method, &request.headers) {
        assert!(framing != BodyFraming::UntilClose);
        body(framing, &data[used..], data.len() % 7 + 1);
    }
}

/// A response head with its framing and body.
pub fn h1_response(data: &[u8]) {
    let Ok(Some((response, used))) = h1::parse_response(data, &LIMITS) else { return };
    assert!(h1::parse_response(&data[..used - 1], &LIMITS).is_ok_and(|early| early.is_none()));
    let mut out = Vec::new();
    h1::write_response_head(&mut out, &response);
    let wide = HeadLimits { max_bytes: 1 << 20, max_line: 1 << 20, ..LIMITS };
    let (again, _) = h1::parse_response(&out, &wide).expect("it holds").expect("it is whole");
    assert_eq!((again.status, &again.reason, &again.headers), (response.status, &response.reason, &response.headers));
    for method in [Method::GET, Method::HEAD, Method::CONNECT] {
        if let Ok(framing) = h1::response_framing(&method, &response) {
            body(framing, &data[used..], data.len() % 7 + 1);
        }
    }
}

/// A chunked body; the first byte determines how it is split.
pub fn h1_chunked(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    body(BodyFraming::Chunked, rest, usize::from(first) % 40 + 1);
}

fn body(framing: BodyFraming, data: &[u8], step: usize) {
    let decode = |step: usize| {
        let mut decoder = BodyDecoder::new(framing, &LIMITS);
        let (mut buf, mut content, mut trailers) = (BytesMut::new(), Vec::new(), None);
        for piece in data.chunks(step) {
            buf.extend_from_slice(piece);
            loop {
                match decoder.decode(&mut buf) {
                    Ok(DecodeStep::Data(bytes)) => content.extend_from_slice(&bytes),
                    Ok(DecodeStep::Trailers(t)) => trailers = Some(t),
                    Ok(DecodeStep::NeedMore | DecodeStep::Done) => break,
                    Err(_) => return None,
                }
            }
        }
        Some((content, trailers, decoder.is_done(), buf))
    };
    assert_eq!(decode(step), decode(data.len().max(1)));
}

/// A ClientHello in records, and the same bytes as a handshake split into small records.
pub fn client_hello(data: &[u8]) {
    check_hello(data);
    let records: Vec<u8> =
        data.chunks(97).flat_map(|part| [&[22, 3, 1, 0, part.len() as u8][..], part].concat()).collect();
    check_hello(&records);
}

fn check_hello(data: &[u8]) {
    if let Ok(Some(hello)) = ClientHello::parse(data) {
        assert_eq!(tls::looks_like_tls(data), Some(true));
        assert_eq!((hello.ja3().len(), hello.ja4().len()), (32, 36));
    }
}

/// Every message of the conversation, from both sides.
pub fn socks5(data: &[u8]) {
    fn check<T>(parsed: socks::SocksParseResult<T>, data: &[u8]) -> Option<T> {
        let (message, used) = parsed.ok()??;
        assert!(used <= data.len());
        Some(message)
    }
    check(socks::parse_method_offer(data), data);
    check(socks::parse_method_selection(data, true), data);
    check(socks::parse_auth_status(data), data);
    check(socks::parse_reply(data), data);
    if let Some(credentials) = check(socks::parse_credentials(data), data) {
        let written = socks::write_credentials(&mut Vec::new(), &credentials.user, &credentials.password);
        assert_eq!(written.is_ok(), !credentials.user.is_empty());
    }
    if let Some(socks::SocksCommand::Connect(target)) = check(socks::parse_request(data), data) {
        let mut out = Vec::new();
        socks::write_connect(&mut out, &target).expect("a name that was read can be written");
        assert_eq!(socks::parse_request(&out), Ok(Some((socks::SocksCommand::Connect(target), out.len()))));
    }
}

/// A PROXY header of either version.
pub fn proxy_protocol(data: &[u8]) {
    if let Ok(Some((_, used))) = haproxy::parse(data) {
        assert!(used <= data.len());
        assert_eq!(haproxy::parse(&data[..used]), haproxy::parse(data));
        assert_eq!(haproxy::parse(&data[..used - 1]), Ok(None));
    }
}

/// An event stream; the first byte determines how it is split.
pub fn sse(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let read = |step: usize| {
        let mut parser = SseParser::new(usize::MAX);
        let (mut raw, mut said) = (Vec::new(), Vec::new());
        for piece in rest.chunks(step) {
            parser.push(piece);
            while let Ok(Some(event)) = parser.next_event() {
                raw.extend_from_slice(&event.raw);
                said.push((event.event, event.data, event.id, event.retry));
            }
        }
        raw.extend_from_slice(&parser.rest());
        assert_eq!(raw, rest);
        said
    };
    assert_eq!(read(usize::from(first) % 40 + 1), read(rest.len().max(1)));
    let mut bounded = SseParser::new(64);
    bounded.push(rest);
    while let Ok(Some(event)) = bounded.next_event() {
        assert!(event.raw.len() <= 64);
    }
}

/// Frames of one side; the first byte determines side, compression and how they are split.
pub fn websocket(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let sender = if first & 1 == 0 { FrameSender::Server } else { FrameSender::Client };
    let deflate = (first & 2 != 0).then_some(PermessageDeflate {
        server_no_context_takeover: first & 4 != 0,
        client_no_context_takeover: first & 4 != 0,
    });
    let mut decoder = WebSocketDecoder::new(WsDecoderOptions { sender, deflate, max_message: 512 });
    let (mut buf, mut out, mut came) = (BytesMut::new(), 0, 0);
    'arrive: for piece in rest.chunks(usize::from(first >> 3) + 1) {
        buf.extend_from_slice(piece);
        came += piece.len();
        loop {
            match decoder.decode(&mut buf) {
                Ok(Some(WebSocketItem::Message(message))) => {
                    assert!(message.data.len() <= 512 && message.size >= message.data.len() as u64);
                    out += message.raw.len();
                }
                Ok(Some(WebSocketItem::Part { raw, .. })) => out += raw.len(),
                Ok(None) => break,
                Err(_) => break 'arrive,
            }
        }
    }
    assert_eq!(out + decoder.take_held().len() + buf.len(), came);
}

/// Length-prefixed messages.
pub fn grpc(data: &[u8]) {
    let mut buf = BytesMut::from(data);
    let mut raw = Vec::new();
    while let Ok(Some(message)) = grpc_frames::next_message(&mut buf, 256) {
        assert_eq!(message.raw.len(), message.data.len() + grpc_frames::PREFIX_LEN);
        raw.extend_from_slice(&message.raw);
    }
    raw.extend_from_slice(&buf);
    assert_eq!(raw, data);
}

/// A message as it is, and the same bytes as headers and payload with checksums that hold.
pub fn aws_event_stream(data: &[u8]) {
    let _ = aws_event_stream::next_message(&mut BytesMut::from(data), 4096);
    let Some((&headers, rest)) = data.split_first() else { return };
    let mut raw = [(rest.len() as u32 + 16).to_be_bytes(), u32::from(headers).to_be_bytes()].concat();
    raw.extend(crc32fast::hash(&raw).to_be_bytes());
    raw.extend_from_slice(rest);
    raw.extend(crc32fast::hash(&raw).to_be_bytes());
    let mut buf = BytesMut::from(&raw[..]);
    if let Ok(Some(message)) = aws_event_stream::next_message(&mut buf, usize::MAX) {
        assert!(buf.is_empty() && message.raw == raw);
        let mut out = Vec::new();
        aws_event_stream::write_message(&mut out, &message.headers, &message.payload)
            .expect("what was read can be written");
        let again = aws_event_stream::next_message(&mut BytesMut::from(&out[..]), usize::MAX).expect("it holds");
        assert_eq!(again.map(|m| (m.headers, m.payload)), Some((message.headers, message.payload)));
    }
}
