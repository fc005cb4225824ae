//! With a synchronous recorder, the end of each response is withheld until its flow is stored, and the beginning of each
//! tunnel.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use interflow_proxy::config::InterceptMode;
use interflow_testkit::{Answer, H2Client, Origin, OriginBuilder, Reply, client_trusting};

use crate::support::{Proxy, inside};

/// How long it is watched that nothing arrives.
const QUIET: Duration = Duration::from_millis(200);

/// Answers in each form of framing.
async fn start(origin: OriginBuilder) -> Origin {
    let pieces = || vec![Bytes::from_static(b"one "), Bytes::from_static(b"two")];
    origin
        .answering(move |request| match &*request.target {
            "/nothing" => Reply::status(204),
            "/chunked" => Reply::status(200).pieces(pieces(), Duration::ZERO),
            "/trailers" => Reply::status(200).pieces(pieces(), Duration::ZERO).trailer("x-sum", "7"),
            _ => Reply::ok("one two"),
        })
        .start()
        .await
}

/// Does an exchange and checks that it ends once its flow is stored, and not before. `flows` ended before it. The future
/// sends the request too: what the proxy has begun earlier is not withheld.
async fn withheld(proxy: &Proxy, flows: usize, exchange: impl Future<Output = std::io::Result<Answer>>) -> Answer {
    let stored = proxy.withhold_responses();
    let mut exchange = pin!(exchange);
    let early = tokio::time::timeout(QUIET, &mut exchange).await;
    assert!(early.is_err(), "{early:?} before the flow is stored");
    // The flow has ended, or nothing could be stored.
    assert!(proxy.flows(flows + 1).await[flows].end.is_some());
    stored.send(true).unwrap();
    exchange.await.unwrap()
}

#[tokio::test]
async fn ends_of_http1_responses_are_withheld_whatever_their_framing() {
    let origin = start(Origin::http()).await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    let requests = [
        ("GET", origin.url("/length"), 200, "one two"),
        ("GET", origin.url("/chunked"), 200, "one two"),
        ("GET", origin.url("/trailers"), 200, "one two"),
        ("GET", origin.url("/nothing"), 204, ""),
        ("HEAD", origin.url("/length"), 200, ""),
    ];
    for (flows, (method, url, status, body)) in requests.into_iter().enumerate() {
        let host = origin.authority();
        let exchange = async {
            wire.send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await?;
            wire.answer_to(method).await
        };
        let answer = withheld(&proxy, flows, exchange).await;
        assert_eq!((answer.status, &*answer.text()), (status, body), "{method} {url}");
    }
}

#[tokio::test]
async fn errors_and_refusals_are_withheld_too() {
    let proxy = Proxy::start(|_| ()).await;
    for (flows, (request, status)) in [
        ("GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n", 502),
        ("GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Length: 1, 2\r\n\r\n", 400),
    ]
    .into_iter()
    .enumerate()
    {
        let mut wire = proxy.connect().await;
        let exchange = async {
            wire.send(request).await?;
            wire.answer().await
        };
        let answer = withheld(&proxy, flows, exchange).await;
        assert_eq!(answer.status, status, "{request}");
        assert!(!answer.body.is_empty());
    }
}

#[tokio::test]
async fn ends_of_http2_responses_are_withheld() {
    let origin = start(Origin::https()).await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let client: H2Client = proxy.h2(&origin.authority()).await;
    for (flows, (path, status, body)) in [
        ("/length", 200, "one two"),
        ("/chunked", 200, "one two"),
        ("/trailers", 200, "one two"),
        ("/nothing", 204, ""),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = withheld(&proxy, flows, client.get(&origin.url(path))).await;
        assert_eq!((answer.status, &*answer.text()), (status, body), "{path}");
    }
}

#[tokio::test]
async fn an_upgrade_is_withheld_until_what_there_is_of_its_flow_is_stored() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let stored = proxy.withhold_responses();
    let mut wire = proxy.connect().await;
    let head = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        origin.url("/ws"),
        origin.authority()
    );
    wire.send(head).await.unwrap();
    let flow = proxy.open_flow(|flow| flow.stored_early).await;
    assert_eq!((flow.status, flow.end.is_none()), (Some(101), true));
    wire.assert_silent(QUIET).await;
    stored.send(true).unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 101);
    // A masked text, and its echo.
    wire.send([0x81, 0x82, 1, 1, 1, 1, b'h' ^ 1, b'i' ^ 1]).await.unwrap();
    assert_eq!(&wire.exactly(4).await.unwrap()[..], b"\x81\x02hi");
    drop(wire);
    proxy.flows(1).await;
}

#[tokio::test]
async fn a_tunnel_relays_nothing_until_what_there_is_of_its_flow_is_stored() {
    let origin = start(Origin::https()).await;
    let proxy = Proxy::trusting(&[&origin], |c| c.intercept.mode = InterceptMode::None).await;
    let stored = proxy.withhold_responses();
    let tunnel = proxy.tunnel(&origin.authority()).await;
    let trusting = client_trusting(origin.ca().pem(), &["http/1.1"]);
    let mut handshake = pin!(tunnel.into_tls("127.0.0.1", trusting));
    let early = tokio::time::timeout(QUIET, &mut handshake).await;
    assert!(early.is_err(), "the tunnel carries bytes before its flow is stored");
    proxy.open_flow(|flow| flow.stored_early).await;
    stored.send(true).unwrap();
    let mut wire = handshake.await.unwrap();
    wire.send(inside(&origin.authority(), "/length")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().text(), "one two");
}

#[tokio::test]
async fn a_client_that_leaves_a_withheld_response_frees_its_connection() {
    let origin = start(Origin::http()).await;
    let proxy = Proxy::start(|_| ()).await;
    let stored = proxy.withhold_responses();
    let mut wire = proxy.connect().await;
    wire.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url("/length"))).await.unwrap();
    proxy.flows(1).await;
    drop(wire);
    // From here on, only the response itself waits for it.
    proxy.withhold_responses();
    tokio::time::timeout(Duration::from_secs(10), stored.closed()).await.expect("the response is given up");
}
