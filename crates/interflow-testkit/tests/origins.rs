//! The testkit's origins and clients against each other.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use interflow_testkit::{H2Client, Origin, Reply, Script, TestCa, Wire, client, client_trusting, pattern, site};
use tokio_tungstenite::tungstenite::Message;

async fn get(origin: &Origin, path: &str) -> io::Result<interflow_testkit::Answer> {
    let mut wire = Wire::connect(origin.addr()).await?;
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", origin.authority())).await?;
    wire.answer().await
}

#[tokio::test]
async fn site_serves_its_paths() {
    let origin = Origin::http().start().await;
    for (path, status, body) in [
        ("/bytes/0", 200, Bytes::new()),
        ("/bytes/70000", 200, pattern(70_000)),
        ("/chunked/9000?piece=1000", 200, pattern(9_000)),
        ("/status/404", 404, Bytes::from_static(b"status 404\n")),
        ("/sse?count=2", 200, [site::event(0), site::event(1)].concat().into()),
        ("/trailers", 200, Bytes::from_static(b"fourfive!")),
        ("/early-hints", 200, Bytes::from_static(b"hello\n")),
        ("/", 200, Bytes::from_static(b"hello\n")),
    ] {
        let answer = get(&origin, path).await.unwrap();
        assert_eq!((answer.status, &answer.body), (status, &body), "{path}");
    }
    assert_eq!(get(&origin, "/early-hints").await.unwrap().informational[0].0, 103);
    assert_eq!(get(&origin, "/trailers").await.unwrap().trailers.get_str("x-sum"), Some("9"));
    assert_eq!(origin.served(), 10);
}

#[tokio::test]
async fn keep_alive_connection_serves_and_records_many_requests() {
    let origin = Origin::http().start().await;
    let mut wire = Wire::connect(origin.addr()).await.unwrap();
    for i in 0..3 {
        wire.send(format!("POST /echo HTTP/1.1\r\nhOsT: a\r\nContent-Length: 2\r\n\r\n#{i}")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().text(), format!("#{i}"));
    }
    let requests = origin.requests();
    assert_eq!(requests.iter().map(|r| &r.body[..]).collect::<Vec<_>>(), [b"#0", b"#1", b"#2"]);
    assert!(requests[0].raw_head.windows(4).any(|w| w == b"hOsT"));
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn aborted_responses_are_errors_for_the_client() {
    let origin = Origin::http().start().await;
    for (path, kind) in [
        ("/short", io::ErrorKind::UnexpectedEof),
        ("/cut", io::ErrorKind::UnexpectedEof),
        ("/hangup", io::ErrorKind::UnexpectedEof),
        ("/reset", io::ErrorKind::ConnectionReset),
    ] {
        assert_eq!(get(&origin, path).await.unwrap_err().kind(), kind, "{path}");
    }
    let mut wire = Wire::connect(origin.addr()).await.unwrap().patience(Some(Duration::from_millis(50)));
    wire.send("GET /stall HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(wire.answer().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn slow_bodies_are_delayed() {
    let origin = Origin::http().start().await;
    let began = Instant::now();
    assert_eq!(get(&origin, "/slow/30?piece=10&gap=20").await.unwrap().body, pattern(30));
    assert!(began.elapsed() >= Duration::from_millis(40), "{:?}", began.elapsed());
}

#[tokio::test]
async fn http2_works_by_alpn_and_by_prior_knowledge() {
    let tls = Origin::https().start().await;
    let config = client_trusting(tls.ca().pem(), &["h2"]);
    let wire = Wire::connect(tls.addr()).await.unwrap().into_tls("localhost", config).await.unwrap();
    assert_eq!(wire.tls().alpn().as_deref(), Some(&b"h2"[..]));
    let h2 = H2Client::new(wire).await.unwrap();
    let answer = h2.get(&tls.url("/bytes/3000000")).await.unwrap();
    assert_eq!(answer.body, pattern(3_000_000));
    assert_eq!(tls.only_request().sni.as_deref(), Some("localhost"));

    let plain = Origin::http().start().await;
    let h2 = H2Client::new(Wire::connect(plain.addr()).await.unwrap()).await.unwrap();
    let frame = Bytes::from_static(b"\0\0\0\0\x05hello");
    let request = http::Request::post(plain.url("/grpc")).body(()).unwrap();
    let answer = h2.request(request, frame.clone()).await.unwrap();
    assert_eq!(answer.body, frame);
    assert_eq!(answer.trailers.get_str("grpc-status"), Some("0"));
}

#[tokio::test]
async fn tls_origin_serves_http1_if_negotiated() {
    let origin = Origin::https().start().await;
    let wire = Wire::connect(origin.addr()).await.unwrap();
    let mut wire = wire.into_tls("localhost", origin.ca().client(&["http/1.1"])).await.unwrap();
    wire.send("GET /bytes/5 HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(wire.answer().await.unwrap().body, pattern(5));
    let stranger = TestCa::new().client(&[]);
    let wire = Wire::connect(origin.addr()).await.unwrap();
    assert!(wire.into_tls("localhost", stranger).await.is_err());
}

#[tokio::test]
async fn a_websocket_echoes() {
    let origin = Origin::http().start().await;
    let url = format!("ws://{}/ws", origin.addr());
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    for message in [Message::text("hi"), Message::binary(vec![0, 255])] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), message);
    }
}

#[tokio::test]
async fn a_script_is_followed_and_its_bytes_kept() {
    let script = Script::new().head().send("220 hi\r\n").exactly(3).finish().to_end();
    let origin = Origin::script(script).await;
    let mut wire = Wire::connect(origin.addr()).await.unwrap();
    wire.send("A: b\r\n\r\n").await.unwrap();
    assert_eq!(wire.line().await.unwrap(), "220 hi");
    wire.send("xyzrest").await.unwrap();
    assert!(wire.to_end().await.unwrap().is_empty());
    wire.finish().await.unwrap();
    origin.wait_until_idle().await;
    assert_eq!(origin.received(), [b"A: b\r\n\r\nxyzrest".to_vec()]);
}

#[tokio::test]
async fn a_panic_in_an_origin_fails_the_test_that_owns_it() {
    let origin = Origin::http().answering(|_| panic!("it is wrong")).start().await;
    assert!(get(&origin, "/").await.is_err());
    origin.wait_until_idle().await;
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(origin)));
    assert!(dropped.unwrap_err().downcast_ref::<String>().unwrap().contains("it is wrong"));
}

#[tokio::test]
async fn a_malformed_request_fails_the_test_that_owns_the_origin() {
    let origin = Origin::http().start().await;
    let mut wire = Wire::connect(origin.addr()).await.unwrap();
    wire.send("GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    assert!(wire.to_end().await.is_ok());
    origin.wait_until_idle().await;
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(origin))).is_err());
}

#[tokio::test]
async fn origins_can_share_a_ca_and_use_a_handler_closure() {
    let ca = Arc::new(TestCa::new());
    let origin = Origin::https().ca(ca.clone()).names(&["example.test"]).answering(|r| Reply::ok(r.method.clone()));
    let origin = origin.start().await;
    let wire = Wire::connect(origin.addr()).await.unwrap();
    let mut wire = wire.into_tls("example.test", ca.client(&[])).await.unwrap();
    wire.send("PURGE / HTTP/1.1\r\nHost: example.test\r\n\r\n").await.unwrap();
    assert_eq!(wire.answer().await.unwrap().text(), "PURGE");
}

#[tokio::test]
async fn socks_and_connect_requests_are_encoded_correctly() {
    assert_eq!(client::socks5_request("a.b", 80), [5, 1, 0, 3, 3, b'a', b'.', b'b', 0, 80]);
    assert_eq!(client::socks5_request("1.2.3.4", 443)[3..], [1, 1, 2, 3, 4, 1, 187]);
    assert_eq!(client::socks5_request("[::1]", 1)[3], 4);
    let proxy = Origin::script(Script::answer("HTTP/1.1 200 OK\r\n\r\nearly")).await;
    let mut tunnel = client::connect_tunnel(proxy.addr(), "a:1", None).await.unwrap();
    assert_eq!(&tunnel.to_end().await.unwrap()[..], b"early");
    assert_eq!(proxy.received()[0], b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
}
