//! WebSockets, by upgrade and by extended CONNECT: messages recorded, changed and dropped.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use interflow_testkit::{Origin, Wire};
use interflow_types::{
    Direction, Error, ErrorKind, Flow, MaybeFuture, MessageKind, MessageVerdict, Phase, PhaseSet, PlanScope, Stage,
    StreamMessage,
};
use tokio_tungstenite::tungstenite::Message as Frame;

use crate::support::{End, Kept, Proxy};

fn messages(flow: &Kept) -> Vec<(&'static str, MessageKind, String)> {
    let text = |m: &StreamMessage| String::from_utf8_lossy(&m.payload).into_owned();
    flow.messages.iter().map(|m| (m.direction.as_str(), m.kind, text(m))).collect()
}

async fn open(wire: Wire, url: &str) -> tokio_tungstenite::WebSocketStream<Wire> {
    let (socket, answer) = tokio_tungstenite::client_async(url, wire.patience(None)).await.unwrap();
    assert_eq!(answer.status(), 101);
    socket
}

#[tokio::test]
async fn messages_pass_in_a_tunnel_and_are_recorded() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let mut socket = open(proxy.tunnel(&origin.authority()).await, &format!("ws://{}/ws", origin.authority())).await;
    for text in ["one", "two"] {
        socket.send(Frame::text(text)).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Frame::text(text));
    }
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    drop(socket);
    let flow = proxy.flow().await;
    let text = MessageKind::Text;
    let expected: Vec<_> = ["one", "two"]
        .into_iter()
        .flat_map(|t| [("request", text, t.to_owned()), ("response", text, t.to_owned())])
        .collect();
    assert_eq!(messages(&flow)[..4], expected[..]);
    assert_eq!(flow.status, Some(101));
    assert!(matches!(flow.end, Some(End::Tunnelled(b)) if b.sent > 10 && b.received > 6), "{:?}", flow.end);
}

#[tokio::test]
async fn websocket_upgrade_in_absolute_form_is_forwarded() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    let head = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        origin.url("/ws"),
        origin.authority()
    );
    // A message sent right behind the handshake is not lost.
    let masked = [0x81, 0x82, 1, 1, 1, 1, b'h' ^ 1, b'i' ^ 1];
    wire.send([head.as_bytes(), &masked].concat()).await.unwrap();
    let answer = wire.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("sec-websocket-accept")), (101, Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")));
    assert_eq!(&wire.exactly(4).await.unwrap()[..], b"\x81\x02hi");
}

/// Its answer to a key is the client's to check, except to the key of Interflow.
#[tokio::test]
async fn a_broken_origins_answer_to_the_key_is_not_corrected() {
    let wrong = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: wrong\r\n\r\n";
    let script = || interflow_testkit::Script::new().head().send(wrong).stall();
    let origin = Origin::script(script()).await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    wire.send(crate::support::request("GET", &format!("http://{}/", origin.addr()), fields)).await.unwrap();
    let answer = wire.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("sec-websocket-accept")), (101, Some("wrong")));
    let (mut send, connection) = h2::client::handshake(proxy.connect().await.patience(None)).await.unwrap();
    tokio::spawn(connection);
    send = send.ready().await.unwrap();
    crate::support::until("extended CONNECT to be offered", || send.is_extended_connect_protocol_enabled()).await;
    let connect = http::Request::builder()
        .method("CONNECT")
        .uri(format!("http://{}/", origin.addr()))
        .header("sec-websocket-version", "13")
        .extension(h2::ext::Protocol::from_static("websocket"))
        .body(())
        .unwrap();
    let (answer, _stream) = send.send_request(connect, false).unwrap();
    assert_eq!(answer.await.unwrap().status(), 502);
}

#[tokio::test]
async fn a_websocket_without_a_close_frame_is_recorded_as_cut() {
    // Bytes that are no frames hide a Close frame behind them.
    for (sent, error) in [("", Some(ErrorKind::UpstreamClosed)), ("no frames", None)] {
        let accepted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let script = interflow_testkit::Script::new().head().send(accepted.to_owned() + sent).finish();
        let origin = Origin::script(script).await;
        let proxy = Proxy::start(|_| ()).await;
        let mut wire = proxy.connect().await;
        let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
        wire.send(crate::support::request("GET", &format!("http://{}/", origin.addr()), fields)).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 101);
        assert_eq!(wire.to_end().await.unwrap(), sent.as_bytes());
        drop(wire);
        assert_eq!(proxy.flow().await.error(), error, "{sent}");
    }
}

#[tokio::test]
async fn refused_upgrade_is_an_ordinary_response() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    for _ in 0..2 {
        wire.send(crate::support::request(
            "GET",
            &origin.url("/bytes/2"),
            "Connection: Upgrade\r\nUpgrade: websocket\r\n",
        ))
        .await
        .unwrap();
        let answer = wire.answer().await.unwrap();
        assert_eq!((answer.status, answer.body.len()), (200, 2));
    }
}

#[tokio::test]
async fn http2_websocket_client_reaches_an_http1_origin() {
    let origin = Origin::https().alpn(&["http/1.1"]).start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let wire = proxy.tls(&origin.authority(), &["h2"]).await.patience(None);
    let (mut send, connection) = h2::client::handshake(wire).await.unwrap();
    tokio::spawn(connection);
    send = send.ready().await.unwrap();
    crate::support::until("extended CONNECT to be offered", || send.is_extended_connect_protocol_enabled()).await;
    let connect = http::Request::builder()
        .method("CONNECT")
        .uri(origin.url("/ws"))
        .header("sec-websocket-version", "13")
        .extension(h2::ext::Protocol::from_static("websocket"))
        .body(())
        .unwrap();
    let (answer, mut stream) = send.send_request(connect, false).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(!answer.headers().contains_key("sec-websocket-accept"));
    stream.send_data(Bytes::from_static(&[0x81, 0x82, 1, 1, 1, 1, b'h' ^ 1, b'i' ^ 1]), false).unwrap();
    let mut body = answer.into_body();
    assert_eq!(&body.data().await.unwrap().unwrap()[..], b"\x81\x02hi");
    let seen = origin.only_request();
    assert_eq!(
        (seen.method.as_str(), seen.version.as_str(), seen.header("upgrade")),
        ("GET", "HTTP/1.1", Some("websocket"))
    );
    drop((stream, body, send));
    let flow = proxy.flow().await;
    assert_eq!(messages(&flow)[..2].iter().map(|m| m.2.as_str()).collect::<Vec<_>>(), ["hi", "hi"]);
}

#[tokio::test]
async fn http1_websocket_client_reaches_an_http2_only_origin() {
    let origin = Origin::https().alpn(&["h2"]).start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
    // The handshake checks `Sec-WebSocket-Accept`, which HTTP/2 origins do not send.
    let mut socket = open(wire, &format!("wss://{}/ws", origin.authority())).await;
    for text in ["over", "both versions"] {
        socket.send(Frame::text(text)).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Frame::text(text));
    }
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    drop(socket);
    let seen = origin.only_request();
    assert_eq!((seen.method.as_str(), seen.version.as_str(), seen.path()), ("CONNECT", "HTTP/2", "/ws"));
    assert_eq!((seen.header("sec-websocket-key"), seen.header("sec-websocket-version")), (None, Some("13")));
    let flow = proxy.flow().await;
    assert_eq!((flow.status, messages(&flow)[0].2.as_str()), (Some(101), "over"));
}

#[tokio::test]
async fn http2_websocket_client_reaches_an_http2_only_origin() {
    let origin = Origin::https().alpn(&["h2"]).start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let wire = proxy.tls(&origin.authority(), &["h2"]).await.patience(None);
    let (mut send, connection) = h2::client::handshake(wire).await.unwrap();
    tokio::spawn(connection);
    send = send.ready().await.unwrap();
    crate::support::until("extended CONNECT to be offered", || send.is_extended_connect_protocol_enabled()).await;
    let connect = http::Request::builder()
        .method("CONNECT")
        .uri(origin.url("/ws"))
        .header("sec-websocket-version", "13")
        .extension(h2::ext::Protocol::from_static("websocket"))
        .body(())
        .unwrap();
    let (answer, mut stream) = send.send_request(connect, false).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 200);
    stream.send_data(Bytes::from_static(&[0x81, 0x82, 1, 1, 1, 1, b'h' ^ 1, b'i' ^ 1]), false).unwrap();
    assert_eq!(&answer.into_body().data().await.unwrap().unwrap()[..], b"\x81\x02hi");
    assert_eq!(origin.only_request().method, "CONNECT");
}

/// A success without a switch of protocols must not open a tunnel whose data is the page.
#[tokio::test]
async fn extended_connect_to_an_origin_that_does_not_switch_fails() {
    let origin = Origin::https().alpn(&["http/1.1"]).start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let wire = proxy.tls(&origin.authority(), &["h2"]).await.patience(None);
    let (mut send, connection) = h2::client::handshake(wire).await.unwrap();
    tokio::spawn(connection);
    send = send.ready().await.unwrap();
    crate::support::until("extended CONNECT to be offered", || send.is_extended_connect_protocol_enabled()).await;
    for (n, (path, expected)) in [("/bytes/5", 502), ("/status/204", 502), ("/status/404", 404)].into_iter().enumerate()
    {
        let connect = http::Request::builder()
            .method("CONNECT")
            .uri(origin.url(path))
            .header("sec-websocket-version", "13")
            .extension(h2::ext::Protocol::from_static("websocket"))
            .body(())
            .unwrap();
        let (answer, _stream) = send.send_request(connect, false).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), expected, "{path}");
        let kind = answer.headers().get("x-interflow-error").map(|kind| kind.to_str().unwrap());
        assert_eq!(kind, (expected == 502).then_some("bad_response"), "{path}");
        drop(answer);
        let flow = proxy.flows(n + 1).await.pop().unwrap();
        assert_eq!((flow.status, flow.error().is_some()), (Some(expected), expected == 502), "{path}");
    }
}

/// Replaces `yes` by `no`, drops `secret`, and ends the connection at `stop`.
struct Censor;

impl Stage for Censor {
    fn name(&self) -> &'static str {
        "censor"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::Message)
    }
    fn message<'a>(&'a self, _: &'a mut Flow, message: &'a mut StreamMessage) -> MaybeFuture<'a, MessageVerdict> {
        MaybeFuture::Ready(match &message.payload[..] {
            b"yes" => {
                message.payload = Bytes::from_static(b"no");
                MessageVerdict::Continue
            }
            b"secret" => MessageVerdict::Drop,
            b"stop" => MessageVerdict::Deny(Error::new(ErrorKind::Denied, "that word ends it")),
            _ => MessageVerdict::Continue,
        })
    }
}

#[tokio::test]
async fn a_stage_changes_and_drops_messages() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::with(vec![Arc::new(Censor)], |_| ()).await;
    let mut socket = open(proxy.tunnel(&origin.authority()).await, &format!("ws://{}/ws", origin.authority())).await;
    for (said, heard) in [("yes", Some("no")), ("secret", None), ("fine", Some("fine"))] {
        socket.send(Frame::text(said)).await.unwrap();
        if let Some(heard) = heard {
            assert_eq!(socket.next().await.unwrap().unwrap(), Frame::text(heard), "{said}");
        }
    }
    socket.send(Frame::text("stop")).await.unwrap();
    assert!(matches!(socket.next().await, Some(Ok(Frame::Close(Some(_))))), "the connection is over");
    let flow = proxy.flow().await;
    assert_eq!(flow.error(), Some(ErrorKind::Denied));
    let said: Vec<_> = messages(&flow).into_iter().filter(|m| m.0 == "request").map(|m| m.2).collect();
    assert_eq!(said, ["no", "fine"], "what is recorded is what went on");
}

/// An origin that agrees to permessage-deflate and sends one compressed message.
#[tokio::test]
async fn compressed_messages_are_recorded_decompressed_and_forwarded_unchanged() {
    // "Hello" with permessage-deflate, the example of RFC 7692 7.2.3.1.
    const HELLO: [u8; 9] = [0xc1, 0x07, 0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    let origin = Origin::raw(|mut wire: Wire, _| async move {
        wire.head().await?;
        wire.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
        )
        .await?;
        wire.send(HELLO).await?;
        wire.to_end().await.map(drop)
    })
    .await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.tunnel(&origin.addr().to_string()).await;
    wire.send(
        "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
    )
    .await
    .unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 101);
    assert_eq!(wire.exactly(9).await.unwrap()[..], HELLO);
    drop(wire);
    let flow = proxy.flow().await;
    assert_eq!((flow.messages[0].direction, &flow.messages[0].payload[..]), (Direction::Response, &b"Hello"[..]));
}

/// Requires that messages be read.
struct Reading;

impl Stage for Reading {
    fn name(&self) -> &'static str {
        "reading"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::Message)
    }
    fn unreadable_message<'a>(
        &'a self,
        _: &'a mut Flow,
        _: &'a mut StreamMessage,
        why: &'a Error,
    ) -> MaybeFuture<'a, Result<(), Error>> {
        let kind = if why.kind() == ErrorKind::BodyTooLarge { why.kind() } else { ErrorKind::Denied };
        MaybeFuture::Ready(Err(Error::new(kind, why.message().to_owned())))
    }
}

/// A frame of a server, without a mask.
fn unmasked(first: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![first, 127];
    frame.extend((content.len() as u64).to_be_bytes());
    frame.extend(content);
    frame
}

#[tokio::test]
async fn a_stage_decides_about_messages_that_cannot_be_read() {
    let mut bomb = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut bomb, &vec![b' '; 20 << 20]).unwrap();
    let part = vec![b' '; 3 << 20];
    let fragments = (0..6).flat_map(|i| unmasked([0x01, 0, 0, 0, 0, 0x80][i], &part)).collect::<Vec<_>>();
    let large = vec![b' '; 17 << 20];
    for (frames, extension, code) in [
        (unmasked(0x81, &large), "", 1009_u16),
        (fragments, "", 1009),
        (unmasked(0xc1, &bomb.finish().unwrap()), "permessage-deflate", 1009),
        (b"\xa1\x06needle".to_vec(), "", 1008),
        (b"\xc1\x06needle".to_vec(), "", 1008),
        (b"\x81\x06needle".to_vec(), "x-other", 1008),
    ] {
        let origin = Origin::raw(move |mut wire: Wire, _| {
            let frames = frames.clone();
            async move {
                let asked = wire.head().await?.unwrap_or_default();
                assert!(!String::from_utf8_lossy(&asked).contains("x-other"), "the offer is not forwarded");
                let agreed = format!("Sec-WebSocket-Extensions: {extension}\r\n");
                let agreed = if extension.is_empty() { "" } else { &agreed };
                let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
                wire.send(format!("{head}{agreed}\r\n")).await?;
                let _ = wire.send(frames).await;
                wire.to_end().await.map(drop)
            }
        })
        .await;
        let proxy = Proxy::with(vec![Arc::new(Reading)], |_| ()).await;
        let mut wire = proxy.tunnel(&origin.addr().to_string()).await;
        wire.send(
            "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Extensions: x-other; a=1, permessage-deflate\r\n\r\n",
        )
        .await
        .unwrap();
        assert_eq!(wire.answer_head().await.unwrap().status, 101);
        let end = wire.to_end().await.unwrap();
        assert_eq!((end[0], &end[2..4]), (0x88, &code.to_be_bytes()[..]), "nothing but a close frame, {extension}");
    }
}

/// An origin that answers a Close with its own, and then runs `then`.
async fn closing_origin<F, G>(then: F) -> Origin
where
    F: Fn(Wire) -> G + Clone + Send + Sync + 'static,
    G: Future<Output = std::io::Result<()>> + Send + 'static,
{
    Origin::raw(move |mut wire: Wire, _| {
        let then = then.clone();
        async move {
            wire.head().await?;
            wire.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await?;
            wire.exactly(6).await?;
            wire.send(b"\x88\x00").await?;
            then(wire).await
        }
    })
    .await
}

/// A client that has sent Close and received the origin's.
async fn closed_client(proxy: &Proxy, origin: &Origin) -> Wire {
    let mut wire = proxy.connect().await;
    let head = format!(
        "GET http://{}/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        origin.addr()
    );
    wire.send(head).await.unwrap();
    assert_eq!(wire.answer_head().await.unwrap().status, 101);
    wire.send(b"\x88\x80\x01\x02\x03\x04").await.unwrap();
    assert_eq!(&wire.exactly(2).await.unwrap()[..], b"\x88\x00");
    wire
}

#[tokio::test]
async fn abrupt_disconnect_after_both_close_frames_is_not_an_error() {
    let heard = Arc::new(tokio::sync::Notify::new());
    let told = Arc::clone(&heard);
    let origin = closing_origin(move |wire| {
        let told = Arc::clone(&told);
        async move {
            told.notified().await;
            wire.reset();
            Ok(())
        }
    })
    .await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = closed_client(&proxy, &origin).await;
    heard.notify_one();
    assert!(wire.to_end().await.unwrap().is_empty());
    drop(wire);
    let flow = proxy.flow().await;
    assert!(matches!(flow.end, Some(End::Tunnelled(_))), "{:?}", flow.end);
}

#[tokio::test]
async fn websocket_held_open_after_both_close_frames_is_closed() {
    let origin = closing_origin(|wire| async move { wire.patience(None).to_end().await.map(drop) }).await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = closed_client(&proxy, &origin).await;
    // Within the ten-second timeout of a `Wire`.
    assert!(wire.to_end().await.unwrap().is_empty());
    assert!(matches!(proxy.flow().await.end, Some(End::Tunnelled(_))));
}
