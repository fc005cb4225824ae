//! HTTP/2 downstream and upstream, in every combination.

use std::sync::Arc;

use bytes::Bytes;
use interflow_testkit::{H2Client, Origin, Reply, Wire, pattern};
use interflow_types::{
    Flow, MaybeFuture, MessageKind, Phase, PhaseSet, PlanScope, RequestHead, RequestVerdict, Scheme, Stage,
};

use crate::support::{End, Proxy, get, inside, until};

#[tokio::test]
async fn downstream_and_upstream_may_use_different_versions() {
    for speaks in [&["h2"][..], &["http/1.1"]] {
        let origin = Origin::https().alpn(speaks).start().await;
        let proxy = Proxy::trusting(&[&origin], |_| ()).await;
        let upstream = if speaks == ["h2"] { "HTTP/2" } else { "HTTP/1.1" };
        let client = proxy.h2(&origin.authority()).await;
        let post = http::Request::post(origin.url("/echo")).header("x-a", "1").body(()).unwrap();
        let answer = client.request(post, Bytes::from_static(b"over h2")).await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "over h2"));
        let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
        wire.send(format!(
            "POST /echo HTTP/1.1\r\nHost: {}\r\nX-A: 1\r\nContent-Length: 7\r\n\r\nover h1",
            origin.authority()
        ))
        .await
        .unwrap();
        assert_eq!(wire.answer().await.unwrap().text(), "over h1");
        for seen in origin.requests() {
            assert_eq!((seen.version.as_str(), seen.header("x-a")), (upstream, Some("1")));
            assert_eq!((seen.path(), seen.authority.as_str()), ("/echo", origin.authority().as_str()));
        }
        assert!(proxy.flows(2).await.iter().all(|f| f.end == Some(End::Complete) && f.sent == f.received));
    }
}

#[tokio::test]
async fn trailers_are_forwarded_between_all_http_versions() {
    for speaks in [&["h2"][..], &["http/1.1"]] {
        let origin = Origin::https().alpn(speaks).start().await;
        let proxy = Proxy::trusting(&[&origin], |_| ()).await;
        let answer = proxy.h2(&origin.authority()).await.get(&origin.url("/trailers")).await.unwrap();
        assert_eq!((answer.text().as_str(), answer.trailers.get_str("x-sum")), ("fourfive!", Some("9")));
        let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
        let head = format!("POST /trailers HTTP/1.1\r\nHost: {}\r\nTE: trailers\r\n", origin.authority());
        wire.send(head + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-Check: yes\r\n\r\n").await.unwrap();
        let answer = wire.answer().await.unwrap();
        assert_eq!((answer.text().as_str(), answer.trailers.get_str("x-sum")), ("fourfive!", Some("9")));
        assert_eq!(origin.requests()[1].trailers.get_str("x-check"), Some("yes"));
    }
}

#[tokio::test]
async fn early_hints_are_forwarded_between_all_http_versions() {
    for speaks in [&["h2"][..], &["http/1.1"]] {
        let origin = Origin::https().alpn(speaks).start().await;
        let proxy = Proxy::trusting(&[&origin], |_| ()).await;
        let over_h2 = proxy.h2(&origin.authority()).await.get(&origin.url("/early-hints")).await.unwrap();
        let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
        wire.send(inside(&origin.authority(), "/early-hints")).await.unwrap();
        for answer in [over_h2, wire.answer().await.unwrap()] {
            let (status, hints) = &answer.informational[0];
            assert_eq!((*status, hints.get_str("link")), (103, Some("</style.css>; rel=preload")), "{speaks:?}");
            assert_eq!((answer.status, answer.text().as_str()), (200, "hello\n"), "{speaks:?}");
        }
        assert!(proxy.flows(2).await.iter().all(|f| f.interim == [103]), "{speaks:?}");
    }
}

#[tokio::test]
async fn grpc_messages_and_their_status_pass_and_are_recorded() {
    let origin = Origin::https().alpn(&["h2"]).start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let client = proxy.h2(&origin.authority()).await;
    let call =
        http::Request::post(origin.url("/grpc")).header("content-type", "application/grpc").header("te", "trailers");
    let frames = Bytes::from_static(b"\0\0\0\0\x02hi\0\0\0\0\x05there");
    let answer = client.request(call.body(()).unwrap(), frames.clone()).await.unwrap();
    assert_eq!((answer.body, answer.trailers.get_str("grpc-status")), (frames, Some("0")));
    assert_eq!(origin.only_request().header("te"), Some("trailers"));
    let flow = proxy.flow().await;
    let messages: Vec<_> = flow.messages.iter().map(|m| (m.direction.as_str(), m.kind, &m.payload[..])).collect();
    let grpc = MessageKind::Grpc;
    let (ask, reply) = ("request", "response");
    assert_eq!(
        messages,
        [(ask, grpc, &b"hi"[..]), (ask, grpc, b"there"), (reply, grpc, b"hi"), (reply, grpc, b"there")]
    );
    assert_eq!(flow.trailers.get_str("grpc-status"), Some("0"));
}

#[tokio::test]
async fn h2c_is_used_for_configured_hosts() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| c.upstream.h2c_hosts = vec!["localhost".into()]).await;
    let mut wire = proxy.connect().await;
    wire.send(get(&origin.url("/bytes/9"))).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().body.len(), 9);
    assert_eq!(origin.only_request().version, "HTTP/2");
}

#[tokio::test]
async fn origin_can_be_restricted_to_http1() {
    let origin = Origin::https().start().await;
    let proxy = Proxy::trusting(&[&origin], |c| c.upstream.http1_hosts = vec!["localhost".into()]).await;
    let mut wire = proxy.tls(&origin.authority(), &["h2", "http/1.1"]).await;
    assert_eq!(wire.tls().alpn().as_deref(), Some(&b"http/1.1"[..]));
    wire.send(inside(&origin.authority(), "/")).await.unwrap();
    wire.answer().await.unwrap();
    assert_eq!(origin.only_request().version, "HTTP/1.1");
}

#[tokio::test]
async fn clients_with_prior_knowledge_are_served_on_the_proxy_port_and_in_plain_tunnels() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|_| ()).await;
    let client = H2Client::new(proxy.connect().await).await.unwrap();
    assert_eq!(client.get(&origin.url("/bytes/4")).await.unwrap().body.len(), 4);
    let client = H2Client::new(proxy.tunnel(&origin.authority()).await).await.unwrap();
    assert_eq!(client.get(&origin.url("/bytes/5")).await.unwrap().body.len(), 5);
    let service = client.get("http://service.test/bytes/6").await.unwrap();
    assert_eq!(service.body.len(), 6, "a tunnel to an address may serve a service of another name");
    let seen = origin.requests();
    assert_eq!(seen[2].authority, "service.test");
    let versions: Vec<_> = seen.iter().map(|r| r.version.to_string()).collect();
    assert_eq!(versions, ["HTTP/1.1", "HTTP/2", "HTTP/2"], "who speaks it in a tunnel knows that the origin does");
}

#[tokio::test]
async fn responses_are_never_mixed_up_between_streams() {
    for speaks in [&["h2"][..], &["http/1.1"]] {
        let origin = Origin::https()
            .alpn(speaks)
            .answering(|r| Reply::ok(r.path().repeat(500)).header("x-path", r.path()))
            .start()
            .await;
        let proxy = Proxy::trusting(&[&origin], |_| ()).await;
        let client = proxy.h2(&origin.authority()).await;
        let mut streams = tokio::task::JoinSet::new();
        for i in 0..100 {
            let (client, path) = (client.clone(), format!("/stream-{i}"));
            let url = origin.url(&path);
            streams.spawn(async move {
                let answer = client.get(&url).await.unwrap();
                assert_eq!(answer.header("x-path"), Some(path.as_str()));
                assert_eq!(answer.text(), path.repeat(500));
            });
        }
        assert_eq!(streams.join_all().await.len(), 100);
    }
}

#[tokio::test]
async fn cancelled_streams_leave_no_active_flows() {
    let origin = Origin::https().alpn(&["h2"]).start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let client = proxy.h2(&origin.authority()).await;
    for path in ["/stall", "/stall-body", "/slow/100000?piece=10&gap=50"] {
        let mut streams = Vec::new();
        for _ in 0..80 {
            let (client, url) = (client.clone(), origin.url(path));
            streams.push(tokio::spawn(async move { client.get(&url).await }));
        }
        tokio::task::yield_now().await;
        streams.iter().for_each(|s| s.abort());
    }
    until("all flows to end", || proxy.engine.snapshot().active == 0).await;
    assert!(proxy.h2(&origin.authority()).await.get(&origin.url("/bytes/3")).await.unwrap().body.len() == 3);
}

#[tokio::test]
async fn unread_stream_does_not_block_other_streams() {
    let origin = Origin::https().alpn(&["h2"]).start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let client = proxy.h2(&origin.authority()).await;
    let big = http::Request::get(origin.url("/bytes/20000000")).body(()).unwrap();
    let _unread = client.start(big, Bytes::new()).await.unwrap();
    for _ in 0..3 {
        assert!(client.get(&origin.url("/bytes/100000")).await.unwrap().body == pattern(100_000));
    }
}

#[tokio::test]
async fn a_connect_over_http2_is_a_tunnel() {
    let origin = Origin::raw(|mut wire: Wire, _| async move {
        let bytes = wire.exactly(4).await?;
        wire.send(bytes).await?;
        wire.finish().await
    })
    .await;
    let proxy = Proxy::start(|_| ()).await;
    let wire = proxy.connect().await.patience(None);
    let (mut send, connection) = h2::client::handshake(wire).await.unwrap();
    tokio::spawn(connection);
    let connect = http::Request::connect(origin.authority()).body(()).unwrap();
    let (answer, mut stream) = send.send_request(connect, false).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 200);
    stream.send_data(Bytes::from_static(b"ping"), true).unwrap();
    let mut body = answer.into_body();
    assert_eq!(&body.data().await.unwrap().unwrap()[..], b"ping");
    while let Some(rest) = body.data().await {
        assert!(rest.unwrap().is_empty(), "nothing but the end");
    }
}

/// Sends requests to another origin over cleartext.
struct Remaps(interflow_types::Authority);

impl Stage for Remaps {
    fn name(&self) -> &'static str {
        "remaps"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::RequestHead)
    }
    fn request_head<'a>(&'a self, _: &'a mut Flow, head: &'a mut RequestHead) -> MaybeFuture<'a, RequestVerdict> {
        head.url.scheme = Scheme::Http;
        head.url.authority = self.0.clone();
        MaybeFuture::Ready(RequestVerdict::Continue)
    }
}

#[tokio::test]
async fn an_http2_request_that_a_stage_sends_to_a_cleartext_origin_uses_http1() {
    let (secure, plain) = (Origin::https().start().await, Origin::http().start().await);
    let stage: Arc<dyn Stage> = Arc::new(Remaps(plain.authority().parse().unwrap()));
    let proxy = Proxy::build(&[&secure], vec![stage], |_| ());
    let over_tls = proxy.h2(&secure.authority()).await;
    assert_eq!(over_tls.get(&secure.url("/bytes/3")).await.unwrap().body.len(), 3);
    // In cleartext, too: that the client's own origin supports HTTP/2 says nothing about this one.
    let other = Origin::http().start().await;
    let prior_knowledge = H2Client::new(proxy.tunnel(&other.authority()).await).await.unwrap();
    assert_eq!(prior_knowledge.get(&other.url("/bytes/3")).await.unwrap().body.len(), 3);
    let versions: Vec<_> = plain.requests().into_iter().map(|r| r.version).collect();
    assert_eq!(versions, ["HTTP/1.1", "HTTP/1.1"]);
    // gRPC needs HTTP/2 wherever it goes.
    let call = http::Request::post(secure.url("/grpc")).header("content-type", "application/grpc");
    let answer = over_tls.request(call.body(()).unwrap(), Bytes::from_static(b"\0\0\0\0\x02hi")).await.unwrap();
    assert_eq!(answer.trailers.get_str("grpc-status"), Some("0"));
    assert_eq!(plain.requests()[2].version, "HTTP/2");
}
