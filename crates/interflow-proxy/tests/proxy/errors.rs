//! Faulty origins: each leads to the right error page and a failed flow, and the proxy keeps serving.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use interflow_proxy::config::GatewayRoute;
use interflow_testkit::{Origin, Reply, Script, Wire};
use interflow_types::ErrorKind;
use interflow_types::units::HumanDuration;

use crate::support::{End, Nobody, Proxy, get, inside, request, until};

#[tokio::test]
async fn each_upstream_failure_has_its_status_and_error_kind() {
    let bad_head = |text: &'static str| Script::answer(Bytes::from_static(text.as_bytes()));
    for (what, script, status, error) in [
        ("closes at once", Script::new(), 502, ErrorKind::UpstreamClosed),
        ("closes behind the request", Script::new().head(), 502, ErrorKind::UpstreamClosed),
        ("resets behind the request", Script::new().head().reset(), 502, ErrorKind::UpstreamClosed),
        ("closes within the head", bad_head("HTTP/1.1 200 OK\r\nContent-"), 502, ErrorKind::UpstreamClosed),
        ("resets within the head", bad_head("HTTP/1.1 200 OK\r\nContent-").reset(), 502, ErrorKind::UpstreamClosed),
        ("speaks something else", bad_head("SSH-2.0-OpenSSH_9.2\r\n\r\n"), 502, ErrorKind::BadResponse),
        ("has a bad status", bad_head("HTTP/1.1 2OO OK\r\n\r\n"), 502, ErrorKind::BadResponse),
        (
            "says two lengths",
            bad_head("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
            502,
            ErrorKind::BadResponse,
        ),
        (
            "has a NUL in a field",
            bad_head("HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n"),
            502,
            ErrorKind::BadResponse,
        ),
        (
            "switches unasked",
            bad_head("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
            502,
            ErrorKind::BadResponse,
        ),
        ("never answers", Script::new().head().stall(), 504, ErrorKind::UpstreamTimeout),
    ] {
        let origin = Origin::script(script).await;
        let proxy = Proxy::start(|c| c.timeouts.response_header_timeout = HumanDuration::from_millis(200)).await;
        let mut wire = proxy.connect().await;
        wire.send(get(&format!("http://{}/", origin.addr()))).await.unwrap();
        let answer = wire.answer().await.unwrap_or_else(|e| panic!("{what}: {e}"));
        let seen = (answer.status, answer.header("x-interflow-error"));
        assert_eq!(seen, (status, Some(error.as_str())), "{what}: {}", answer.text());
        let flow = proxy.flow().await;
        assert_eq!((flow.error(), flow.status), (Some(error), Some(status)), "{what}");
        assert_eq!(flow.received, answer.body, "{what}: the page is recorded as it was sent");
        assert!(answer.text().contains(answer.header("x-interflow-flow").unwrap()), "{what}: the page names the flow");
        let fine = Origin::http().start().await;
        wire.send(get(&fine.url("/"))).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 200, "{what}: the connection goes on");
    }
}

#[tokio::test]
async fn aborted_response_body_is_an_error_for_client_and_record() {
    for path in ["/reset-body", "/short", "/cut"] {
        let origin = Origin::https().start().await;
        let proxy = Proxy::trusting(&[&origin], |c| c.upstream.http1_hosts = vec!["localhost".into()]).await;
        let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
        wire.send(inside(&origin.authority(), path)).await.unwrap();
        assert!(wire.answer().await.is_err(), "{path}");
        let client = proxy.h2(&origin.authority()).await;
        assert!(client.get(&origin.url(path)).await.is_err(), "{path}");
        let flows = proxy.flows(2).await;
        assert!(flows.iter().all(|f| f.error() == Some(ErrorKind::UpstreamClosed)), "{path}: {flows:#?}");
    }
}

#[tokio::test]
async fn refused_upstream_connection_is_502_with_the_address() {
    let nobody = Nobody::new();
    let proxy = Proxy::start(|_| ()).await;
    let answer = proxy.get(&format!("http://{}/", nobody.addr())).await;
    assert_eq!((answer.status, answer.header("x-interflow-error")), (502, Some("connect")));
    assert!(answer.text().contains(&nobody.addr().to_string()), "{}", answer.text());
    assert_eq!(proxy.flow().await.error(), Some(ErrorKind::Connect));
}

#[tokio::test]
async fn stalled_body_times_out_in_either_direction() {
    let origin = Origin::http().start().await;
    let proxy = Proxy::start(|c| c.timeouts.body_idle_timeout = HumanDuration::from_millis(100)).await;
    let mut wire = proxy.connect().await;
    wire.send(get(&origin.url("/stall-body"))).await.unwrap();
    assert!(wire.answer().await.is_err());
    assert_eq!(proxy.flow().await.error(), Some(ErrorKind::UpstreamTimeout));
    let proxy = Proxy::start(|c| c.timeouts.body_idle_timeout = HumanDuration::from_millis(100)).await;
    let mut wire = proxy.connect().await;
    wire.send(request("POST", &origin.url("/echo"), "Content-Length: 10\r\n") + "half").await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 408);
    assert_eq!(proxy.flow().await.error(), Some(ErrorKind::ClientTimeout));
}

/// How a client disconnects.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    Resets,
    Closes,
    HalfCloses,
}

/// Sends a request, waits until the origin has it, and disconnects; returns the connection if any of it is left.
async fn ask_and_leave(mut wire: Wire, request: String, origin: &Origin, how: Leaves) -> Option<Wire> {
    wire.send(request).await.unwrap();
    until("the origin to be asked", || origin.received().len() == 1).await;
    match how {
        Leaves::Resets => wire.reset(),
        Leaves::Closes => drop(wire),
        Leaves::HalfCloses => {
            wire.finish().await.unwrap();
            return Some(wire);
        }
    }
    None
}

#[tokio::test]
async fn client_disconnect_cancels_the_upstream_exchange() {
    for how in [Leaves::Resets, Leaves::Closes, Leaves::HalfCloses] {
        for way in ["absolute", "HTTP/1.0", "gateway", "tunnel"] {
            let origin = Origin::script(Script::new().head().to_end()).await;
            let to = format!("http://{}", origin.addr());
            let proxy = Proxy::start(|c| {
                c.gateway.route = vec![GatewayRoute {
                    path: "/".into(),
                    hosts: Vec::new(),
                    to: to.clone(),
                    strip_path: false,
                    preserve_host: false,
                }];
            })
            .await;
            let (wire, request) = match way {
                "absolute" => (proxy.connect().await, get(&format!("{to}/"))),
                "HTTP/1.0" => (proxy.connect().await, format!("GET {to}/ HTTP/1.0\r\n\r\n")),
                "gateway" => (Wire::connect(proxy.gateway()).await.unwrap(), inside("gate", "/")),
                _ => (proxy.tunnel(&origin.authority()).await, inside(&origin.authority(), "/")),
            };
            let left = ask_and_leave(wire, request, &origin, how).await;
            origin.wait_until_idle().await;
            assert_eq!(proxy.flow().await.error(), Some(ErrorKind::ClientGone), "{way} {how:?}");
            until("the connection to end", || proxy.engine.snapshot().connections_open == 0).await;
            drop(left);
        }
    }
}

#[tokio::test]
async fn client_disconnect_in_an_intercepted_tunnel_cancels_the_exchange() {
    let origin = Origin::https().answering(|_| Reply::ok("late").delay(Duration::from_secs(600))).start().await;
    let proxy = Proxy::trusting(&[&origin], |_| ()).await;
    let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
    wire.send(inside(&origin.authority(), "/")).await.unwrap();
    origin.wait_for_requests(1).await;
    drop(wire);
    assert_eq!(proxy.flow().await.error(), Some(ErrorKind::ClientGone));
    until("the connection to end", || proxy.engine.snapshot().connections_open == 0).await;
}

#[tokio::test]
async fn client_disconnect_during_an_idle_stream_cancels_it() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
    let origin = Origin::script(Script::new().head().send(head).to_end()).await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    wire.send(get(&format!("http://{}/", origin.addr()))).await.unwrap();
    wire.answer_head().await.unwrap();
    drop(wire);
    origin.wait_until_idle().await;
    assert_eq!(proxy.flow().await.error(), Some(ErrorKind::ClientGone));
}

#[tokio::test]
async fn half_closed_client_gets_its_response_if_configured() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate";
    let origin = Origin::script(Script::new().head().pause(Duration::from_millis(50)).send(answer)).await;
    let proxy = Proxy::start(|c| c.proxy.keep_half_closed = true).await;
    let mut wire = proxy.connect().await;
    wire.send(get(&format!("http://{}/", origin.addr()))).await.unwrap();
    wire.finish().await.unwrap();
    assert_eq!(wire.answer().await.unwrap().text(), "late");
}

#[tokio::test]
async fn request_on_a_dead_reused_connection_is_retried() {
    let origin = Origin::raw(|mut wire: interflow_testkit::Wire, n| async move {
        wire.head().await?;
        wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{n}")).await?;
        if n == 0 {
            // The next request on this connection fails.
            wire.head().await?;
            return Ok(());
        }
        wire.to_end().await.map(drop)
    })
    .await;
    let url = format!("http://{}/", origin.addr());
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    for expected in ["0", "1"] {
        wire.send(get(&url)).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().text(), expected);
    }
}

#[tokio::test]
async fn local_requests_fail_with_the_same_error_kinds() {
    let origin = Origin::http().start().await;
    let nobody = Nobody::new();
    let proxy = Proxy::start(|_| ()).await;
    let ask = |authority: String| interflow_types::Request {
        head: interflow_types::RequestHead {
            method: interflow_types::Method::GET,
            url: interflow_types::Url {
                scheme: interflow_types::Scheme::Http,
                authority: authority.parse().unwrap(),
                path: "/bytes/3".into(),
            },
            version: interflow_types::HttpVersion::Http11,
            headers: interflow_types::Headers::new(),
            protocol: None,
        },
        body: interflow_types::Body::Empty,
    };
    let engine = Arc::clone(&proxy.engine);
    let (_, response) = engine.send(ask(origin.authority()), None).await;
    let (body, _) = response.unwrap().body.collect(10).await.unwrap();
    assert_eq!(body.len(), 3);
    assert_eq!(engine.send(ask(nobody.addr().to_string()), None).await.1.unwrap_err().kind(), ErrorKind::Connect);
    let own = engine.send(ask(proxy.addr().to_string()), None).await;
    assert_eq!(own.1.unwrap_err().kind(), ErrorKind::Loop);
    let flows = proxy.flows(3).await;
    assert_eq!(flows[0].end, Some(End::Complete));
    assert_eq!((flows[1].error(), flows[1].transport.as_str()), (Some(ErrorKind::Connect), "internal"));
}
