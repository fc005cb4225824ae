//! Connections of the HTTP origin: TLS or plain, then HTTP/2 or HTTP/1 as the client chose.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use h2::server::SendResponse;
use interflow_types::Headers;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::client::{from_header_map, to_header_map};
use crate::message::{Framing, Request, parse_head};
use crate::origin::{Responder, Shared};
use crate::reply::{Ending, Payload, Reply, Talker};
use crate::wire::{Wire, bad};

pub(crate) async fn connection(
    mut wire: Wire,
    connection: usize,
    tls: Option<Arc<ServerConfig>>,
    respond: Responder,
    shared: Arc<Shared>,
) -> io::Result<()> {
    let peer = wire.tcp().peer_addr()?;
    if let Some(config) = tls {
        // A client that rejects the certificate is not a violation of the origin.
        wire = match wire.accept_tls(config).await {
            Ok(wire) => wire,
            Err(_) => return Ok(()),
        };
    }
    let sni = wire.tls().sni();
    let about = Arc::new(About { connection, peer, sni, respond, shared });
    // Without ALPN, the preface of HTTP/2 tells: no HTTP/1 request begins like it.
    let h2 = match wire.tls().alpn() {
        Some(protocol) => protocol == b"h2",
        None => wire.peek(3).await?.starts_with(b"PRI"),
    };
    if h2 { serve_h2(wire, about).await } else { serve_h1(wire, about).await }
}

struct About {
    connection: usize,
    peer: SocketAddr,
    sni: Option<String>,
    respond: Responder,
    shared: Arc<Shared>,
}

impl About {
    fn reply_to(&self, request: &Request) -> Reply {
        self.shared.record(request);
        (self.respond)(request)
    }
}

async fn serve_h1(mut wire: Wire, about: Arc<About>) -> io::Result<()> {
    while let Some(raw) = wire.head().await? {
        let request = read_request(&mut wire, raw, &about).await?;
        let reply = about.reply_to(&request);
        if !write_reply(&mut wire, &request, reply).await? {
            return Ok(());
        }
        let close = request.headers.has_token("connection", "close");
        // HTTP/1.0 closes unless both sides agree otherwise.
        if close || (request.version == "HTTP/1.0" && !request.headers.has_token("connection", "keep-alive")) {
            return wire.finish().await;
        }
    }
    Ok(())
}

async fn read_request(wire: &mut Wire, raw_head: Bytes, about: &About) -> io::Result<Request> {
    let (first, headers) = parse_head(&raw_head).map_err(bad)?;
    let mut parts = first.split(' ');
    let (Some(method), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(bad(format!("request line {first:?}")));
    };
    // Before the body is read: the client waits for it.
    if headers.has_token("expect", "100-continue") {
        wire.send("HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    let framing = Framing::of_request(&headers).map_err(bad)?;
    let (body, trailers) = wire.body(framing).await?;
    Ok(Request {
        method: method.into(),
        target: target.into(),
        version: version.into(),
        authority: headers.get_str("host").unwrap_or_default().into(),
        headers,
        body,
        trailers,
        raw_head,
        connection: about.connection,
        peer: about.peer,
        sni: about.sni.clone(),
    })
}

async fn write_reply(wire: &mut Wire, request: &Request, mut reply: Reply) -> io::Result<bool> {
    if !reply.delay.is_zero() {
        tokio::time::sleep(reply.delay).await;
    }
    if reply.headless {
        return end(wire, reply.ending).await;
    }
    let mut out = Vec::new();
    for (status, fields) in &reply.informational {
        write_head(&mut out, *status, fields);
    }
    if let Payload::WebSocket(talker) = reply.payload {
        return websocket(wire, request, out, (reply.headers, talker)).await;
    }
    frame(&mut reply, request);
    write_head(&mut out, reply.status, &reply.headers);
    if request.method == "HEAD" {
        wire.send(out).await?;
        return end(wire, reply.ending).await;
    }
    match reply.payload {
        Payload::Whole(body) => {
            // A short body goes out with its head in one write, as most servers do.
            if body.len() < 64 * 1024 {
                out.extend_from_slice(&body);
                wire.send(out).await?;
            } else {
                wire.send(out).await?;
                wire.send(body).await?;
            }
        }
        Payload::Pieces(mut pieces) => {
            wire.send(&out).await?;
            while let Some(piece) = pieces.next().await {
                out.clear();
                out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                out.extend_from_slice(&piece);
                out.extend_from_slice(b"\r\n");
                wire.send(&out).await?;
            }
            // A cut body lacks its last chunk, so that the receiver can tell.
            if reply.ending == Ending::Complete {
                out.clear();
                out.extend_from_slice(b"0\r\n");
                reply.trailers.write_to(&mut out);
                out.extend_from_slice(b"\r\n");
                wire.send(out).await?;
            }
        }
        Payload::WebSocket(_) => {}
    }
    end(wire, reply.ending).await
}

fn frame(reply: &mut Reply, request: &Request) {
    if reply.headers.contains("content-length") || reply.headers.contains("transfer-encoding") {
        return;
    }
    match (&reply.payload, reply.claimed_length) {
        (_, Some(n)) => reply.headers.append_unchecked(b"Content-Length", n.to_string().as_bytes()),
        (Payload::Pieces(_), None) => reply.headers.append_unchecked(b"Transfer-Encoding", b"chunked"),
        (Payload::Whole(body), None) if !matches!(reply.status, 204 | 304) => {
            reply.headers.append_unchecked(b"Content-Length", body.len().to_string().as_bytes());
        }
        _ => {}
    }
    if request.version == "HTTP/1.0" && request.headers.has_token("connection", "keep-alive") {
        reply.headers.append_unchecked(b"Connection", b"keep-alive");
    }
}

fn write_head(out: &mut Vec<u8>, status: u16, headers: &Headers) {
    let reason = http::StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason()).unwrap_or("Unknown");
    out.extend_from_slice(format!("HTTP/1.1 {status} {reason}\r\n").as_bytes());
    headers.write_to(out);
    out.extend_from_slice(b"\r\n");
}

async fn end(wire: &mut Wire, ending: Ending) -> io::Result<bool> {
    match ending {
        Ending::Complete => return Ok(true),
        Ending::Cut => wire.finish().await?,
        // The reset is sent when the socket is dropped.
        Ending::Reset => wire.tcp().set_zero_linger()?,
        Ending::Stall => std::future::pending().await,
    }
    Ok(false)
}

async fn websocket(
    wire: &mut Wire,
    request: &Request,
    mut out: Vec<u8>,
    (more, talker): (Headers, Option<Talker>),
) -> io::Result<bool> {
    let key = request.header("sec-websocket-key").ok_or_else(|| bad("a WebSocket request without its key"))?;
    let mut headers = Headers::new();
    headers.append_unchecked(b"Upgrade", b"websocket");
    headers.append_unchecked(b"Connection", b"Upgrade");
    headers.append_unchecked(b"Sec-WebSocket-Accept", derive_accept_key(key.as_bytes()).as_bytes());
    for (name, value) in &more {
        headers.append_unchecked(name, value);
    }
    write_head(&mut out, 101, &headers);
    wire.send(out).await?;
    converse(wire, talker).await;
    Ok(false)
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, talker: Option<Talker>) {
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    while let Some(Ok(message)) = socket.next().await {
        let answers = match (&talker, message.to_text()) {
            (Some(talker), Ok(text)) if message.is_text() => talker(text).into_iter().map(Message::text).collect(),
            _ if message.is_text() || message.is_binary() => vec![message],
            _ => Vec::new(),
        };
        for answer in answers {
            if socket.send(answer).await.is_err() {
                return;
            }
        }
    }
}

async fn serve_h2(wire: Wire, about: Arc<About>) -> io::Result<()> {
    let mut connection = h2::server::Builder::new()
        .initial_window_size(1 << 20)
        .initial_connection_window_size(16 << 20)
        .max_concurrent_streams(1000)
        .enable_connect_protocol()
        .handshake::<_, Bytes>(wire)
        .await
        .map_err(io::Error::other)?;
    let mut streams = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            Some(done) = streams.join_next() => match done {
                Ok(Ok(true)) => {}
                // The connection ends with this response.
                Ok(Ok(false)) => return Ok(()),
                // A stream that was reset is not a failure of the connection.
                Ok(Err(_)) => {}
                // A panic of the closure must fail the test.
                Err(e) => if let Ok(panic) = e.try_into_panic() { std::panic::resume_unwind(panic) },
            },
            accepted = connection.accept() => {
                let Some(Ok((request, respond))) = accepted else { return Ok(()) };
                streams.spawn(stream_h2(request, respond, about.clone()));
            }
        }
    }
}

async fn stream_h2(
    request: http::Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    about: Arc<About>,
) -> Result<bool, h2::Error> {
    let (parts, mut stream) = request.into_parts();
    // The stream of an extended CONNECT stays open (RFC 8441 4).
    let tunnel = parts.extensions.get::<h2::ext::Protocol>().is_some();
    let mut body = BytesMut::new();
    let mut trailers = Headers::new();
    while !tunnel && let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    if !tunnel && let Some(fields) = stream.trailers().await? {
        trailers = from_header_map(&fields);
    }
    let request = Request {
        method: parts.method.to_string(),
        target: parts.uri.path_and_query().map_or_else(|| "*".into(), ToString::to_string),
        version: "HTTP/2".into(),
        authority: parts.uri.authority().map(ToString::to_string).unwrap_or_default(),
        headers: from_header_map(&parts.headers),
        body: body.freeze(),
        trailers,
        raw_head: Bytes::new(),
        connection: about.connection,
        peer: about.peer,
        sni: about.sni.clone(),
    };
    let reply = about.reply_to(&request);
    if let (true, Payload::WebSocket(talker)) = (tunnel, &reply.payload) {
        let send = respond.send_response(http::Response::new(()), false)?;
        websocket_h2(stream, send, talker.clone()).await;
        return Ok(true);
    }
    reply_h2(&request, reply, &mut respond).await
}

/// A WebSocket on a stream (RFC 8441 5).
async fn websocket_h2(mut recv: h2::RecvStream, mut send: h2::SendStream<Bytes>, talker: Option<Talker>) {
    // The WebSocket implementation needs a byte stream; an HTTP/2 stream has frames.
    let (far, near) = tokio::io::duplex(64 * 1024);
    let (mut from_socket, mut to_socket) = tokio::io::split(near);
    let incoming = async move {
        while let Some(Ok(data)) = recv.data().await {
            let _ = recv.flow_control().release_capacity(data.len());
            if to_socket.write_all(&data).await.is_err() {
                break;
            }
        }
        let _ = to_socket.shutdown().await;
    };
    let outgoing = async move {
        let mut buffer = BytesMut::new();
        while matches!(from_socket.read_buf(&mut buffer).await, Ok(1..)) {
            if send_h2(&mut send, buffer.split().freeze()).await.is_err() {
                return;
            }
        }
        let _ = send.send_data(Bytes::new(), true);
    };
    tokio::join!(incoming, outgoing, converse(far, talker));
}

async fn reply_h2(request: &Request, mut reply: Reply, respond: &mut SendResponse<Bytes>) -> Result<bool, h2::Error> {
    if !reply.delay.is_zero() {
        tokio::time::sleep(reply.delay).await;
    }
    if reply.headless {
        match reply.ending {
            Ending::Stall => std::future::pending().await,
            Ending::Cut => return Ok(false),
            Ending::Reset | Ending::Complete => respond.send_reset(h2::Reason::INTERNAL_ERROR),
        }
        return Ok(true);
    }
    for (status, fields) in &reply.informational {
        let mut head = http::Response::new(());
        *head.status_mut() = http::StatusCode::from_u16(*status).unwrap_or_default();
        *head.headers_mut() = to_header_map(fields);
        respond.send_informational(head)?;
    }
    frame(&mut reply, request);
    // HTTP/2 has no transfer codings.
    reply.headers.remove("transfer-encoding");
    let mut head = http::Response::new(());
    *head.status_mut() = http::StatusCode::from_u16(reply.status).unwrap_or_default();
    *head.headers_mut() = to_header_map(&reply.headers);
    let empty = matches!(&reply.payload, Payload::Whole(b) if b.is_empty());
    let bodiless = request.method == "HEAD" || (empty && reply.trailers.is_empty() && reply.ending == Ending::Complete);
    let mut send = respond.send_response(head, bodiless)?;
    if bodiless {
        return Ok(true);
    }
    match reply.payload {
        Payload::Whole(body) => send_h2(&mut send, body).await?,
        Payload::Pieces(mut pieces) => {
            while let Some(piece) = pieces.next().await {
                send_h2(&mut send, piece).await?;
            }
        }
        Payload::WebSocket(_) => {}
    }
    match reply.ending {
        Ending::Complete if reply.trailers.is_empty() => send.send_data(Bytes::new(), true)?,
        Ending::Complete => send.send_trailers(to_header_map(&reply.trailers))?,
        Ending::Cut => return Ok(false),
        Ending::Reset => send.send_reset(h2::Reason::INTERNAL_ERROR),
        Ending::Stall => std::future::pending().await,
    }
    Ok(true)
}

async fn send_h2(send: &mut h2::SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        // Asks for all and gets what the windows allow.
        send.reserve_capacity(data.len());
        let Some(capacity) = std::future::poll_fn(|cx| send.poll_capacity(cx)).await else { return Ok(()) };
        let n = capacity?.min(data.len());
        send.send_data(data.split_to(n), false)?;
    }
    Ok(())
}
