//! HTTP/1 on the wire: framing, malformed responses, interim responses, upgrades, resets, timeouts.

use super::*;
use interflow_types::ErrorKind;

const OK: &str = "HTTP/1.1 200 OK\r\n";

/// A response, whether the origin closes after it, the expected body, and whether the connection is reused.
const GOOD: &[(&str, &str, bool, &str, bool)] = &[
    ("GET", "Content-Length: 5\r\n\r\nhello", false, "hello", true),
    ("GET", "Content-Length: 0\r\n\r\n", false, "", true),
    ("GET", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false, "hello", true),
    ("GET", "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nT: v\r\n\r\n", false, "hello", true),
    ("GET", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false, "", true),
    ("GET", "\r\nhello", true, "hello", false),
    ("GET", "Connection: close\r\nContent-Length: 5\r\n\r\nhello", true, "hello", false),
    ("GET", "Connection: close\r\nContent-Length: 5\r\n\r\nhello", false, "hello", false),
    ("HEAD", "Content-Length: 5\r\n\r\n", false, "", true),
    ("HEAD", "Content-Length: 5\r\n\r\nhello", false, "", false),
    ("GET", "Content-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n\r\n", false, "hello", false),
];

async fn serve_in_pieces(raw: String, close: bool, piece: usize) -> Origin {
    Origin::new(move |_, mut stream| {
        let raw = raw.clone();
        async move {
            while read_head(&mut stream).await.is_some() {
                for piece in raw.as_bytes().chunks(piece) {
                    // A connection that the client closes early does not matter to this origin.
                    if stream.write_all(piece).await.is_err() {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
                if close {
                    return;
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn response_bodies_of_every_framing_are_complete_at_any_segmentation() {
    for (method, rest, close, body, reusable) in GOOD {
        for piece in [usize::MAX, 7, 1] {
            let origin = serve_in_pieces(format!("{OK}{rest}"), *close, piece).await;
            let (egress, route) = (egress(), origin.route());
            let method: Method = method.parse().unwrap();
            for round in 0..2 {
                let mut probe = UpstreamProbe::new();
                let request = request(&route, method.clone(), "/", &[], Body::Empty);
                let answer = soon(probe.send(&egress, &route, request)).await.unwrap();
                assert_eq!(text(answer.body).await, *body, "{method} {rest:?} by {piece}");
                // A byte-wise close is noticed when the next request is about to be sent.
                turns(20).await;
                assert_eq!(probe.reused(), round == 1 && *reusable, "{method} {rest:?} by {piece}");
            }
        }
    }
}

#[tokio::test]
async fn small_response_body_is_returned_without_a_stream() {
    for rest in ["Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"] {
        let origin = Origin::answering(format!("{OK}{rest}")).await;
        let route = origin.route();
        let answer = UpstreamProbe::new().send(&egress(), &route, get(&route)).await.unwrap();
        assert!(matches!(&answer.body, Body::Full(b) if b == "hello"), "{:?}", answer.body);
    }
}

#[tokio::test]
async fn stream_reports_remaining_bytes_and_returns_trailers_last() {
    let origin = serve_in_pieces(format!("{OK}Content-Length: 10\r\n\r\n0123456789"), false, 4).await;
    let route = origin.route();
    let mut body = UpstreamProbe::new().send(&egress(), &route, get(&route)).await.unwrap().body;
    assert_eq!(body.remaining(), Some(10));
    let Some(Ok(BodyFrame::Data(first))) = body.frame().await else { panic!("no data") };
    assert_eq!(body.remaining(), Some(10 - first.len() as u64));

    let raw = format!("{OK}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nT: v\r\n\r\n");
    for piece in [1, usize::MAX] {
        let origin = serve_in_pieces(raw.clone(), false, piece).await;
        let route = origin.route();
        let body = UpstreamProbe::new().send(&egress(), &route, get(&route)).await.unwrap().body;
        let (data, trailers) = body.collect(100).await.unwrap();
        assert_eq!((&data[..], trailers.unwrap().get("t")), (&b"x"[..], Some(&b"v"[..])));
    }
}

#[tokio::test]
async fn connection_is_reusable_once_the_last_body_byte_was_read() {
    let origin = serve_in_pieces(format!("{OK}Content-Length: 5\r\n\r\nhello"), false, 3).await;
    let (egress, route) = (egress(), origin.route());
    let mut body = UpstreamProbe::new().send(&egress, &route, get(&route)).await.unwrap().body;
    while body.remaining() != Some(0) {
        body.frame().await.unwrap().unwrap();
    }
    // The body is still held, and its end was not polled.
    assert!(fetch(&egress, &route).await.1.reused());
    drop(body);
}

#[tokio::test]
async fn malformed_responses_are_errors() {
    use ErrorKind::{BadResponse, UpstreamClosed};
    for (raw, kind) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", UpstreamClosed),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", BadResponse),
        ("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", BadResponse),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", BadResponse),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", UpstreamClosed),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nhello", UpstreamClosed),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nZZ\r\n", BadResponse),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!!\r\n0\r\n\r\n", BadResponse),
        ("HTTP/1.1 200 OK\r\nContent-Le", UpstreamClosed),
        ("", UpstreamClosed),
        ("SSH-2.0-OpenSSH_9.2\r\n", BadResponse),
        ("<html>hello</html>", BadResponse),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: evil\r\nConnection: Upgrade\r\n\r\n", BadResponse),
    ] {
        for piece in [usize::MAX, 1] {
            let origin = serve_in_pieces(raw.to_owned(), true, piece).await;
            let route = origin.route();
            let error = match soon(UpstreamProbe::new().send(&egress(), &route, get(&route))).await {
                Ok(answer) => match answer.body.collect(1000).await {
                    Err(interflow_types::CollectError::Broken(error)) => error,
                    other => panic!("{raw:?} gave {other:?}"),
                },
                Err(error) => error,
            };
            assert_eq!(error.kind(), kind, "{raw:?} by {piece}: {error}");
            assert_eq!(origin.accepted(), 1, "{raw:?} must not be requested twice");
        }
    }
}

#[tokio::test]
async fn an_endless_head_is_refused() {
    let origin = Origin::new(|_, mut stream| async move {
        read_head(&mut stream).await.unwrap();
        stream.write_all(OK.as_bytes()).await.unwrap();
        while stream.write_all(&[b"X-Fill: ", &[b'f'; 8000][..], b"\r\n"].concat()).await.is_ok() {}
    })
    .await;
    let route = origin.route();
    let error = soon(UpstreamProbe::new().send(&egress(), &route, get(&route))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadResponse, "{error}");
}

#[tokio::test]
async fn interim_responses_are_relayed_within_a_limit() {
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let raw = format!("HTTP/1.1 102 Processing\r\n\r\n{early}{OK}Content-Length: 2\r\n\r\nok");
    for piece in [1, usize::MAX] {
        let origin = serve_in_pieces(raw.clone(), false, piece).await;
        let route = origin.route();
        let mut probe = UpstreamProbe::new();
        let answer = probe.send(&egress(), &route, get(&route)).await.unwrap();
        assert_eq!(probe.interim.iter().map(|h| h.status.as_u16()).collect::<Vec<_>>(), [102, 103]);
        assert_eq!(probe.interim[1].headers.get_str("link"), Some("</a>"));
        assert_eq!((answer.head.status.as_u16(), text(answer.body).await.as_str()), (200, "ok"));
    }
    let flood = Origin::answering(early.repeat(1000)).await;
    let route = flood.route();
    let error = soon(UpstreamProbe::new().send(&egress(), &route, get(&route))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadResponse);
}

#[tokio::test]
async fn an_upgrade_returns_the_stream_with_early_bytes() {
    let origin = Origin::new(|_, mut stream| async move {
        let head = read_head(&mut stream).await.unwrap();
        assert!(head.contains("\r\nConnection: Upgrade\r\n") && head.contains("\r\nUpgrade: websocket\r\n"), "{head}");
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly";
        stream.write_all(answer.as_bytes()).await.unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).await.unwrap();
        stream.write_all(format!(" got {all}").as_bytes()).await.unwrap();
    })
    .await;
    let route = origin.route();
    let mut request =
        request(&route, Method::GET, "/", &[("Connection", "Upgrade"), ("Upgrade", "websocket")], Body::Empty);
    request.head.protocol = Some("websocket".into());
    let mut io = UpstreamProbe::new().send(&egress(), &route, request).await.unwrap().upgrade.unwrap();
    io.write_all(b"ping").await.unwrap();
    io.shutdown().await.unwrap();
    let mut all = String::new();
    io.read_to_string(&mut all).await.unwrap();
    assert_eq!(all, "early got ping");
}

#[tokio::test]
async fn a_declined_upgrade_is_an_ordinary_response() {
    let origin = Origin::answering(format!("{OK}Content-Length: 2\r\n\r\nno")).await;
    let (egress, route) = (egress(), origin.route());
    for reused in [false, true] {
        let mut request = get(&route);
        request.head.protocol = Some("websocket".into());
        let mut probe = UpstreamProbe::new();
        let answer = probe.send(&egress, &route, request).await.unwrap();
        assert!(answer.upgrade.is_none());
        assert_eq!((text(answer.body).await.as_str(), probe.reused()), ("no", reused));
    }
}

#[tokio::test]
async fn resets_are_reported_in_every_phase() {
    for (said, phase) in [
        ("", "before the head"),
        ("HTTP/1.1 200", "in the head"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", "in the body"),
    ] {
        let origin = Origin::new(move |_, mut stream| async move {
            read_head(&mut stream).await.unwrap();
            stream.write_all(said.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            reset(stream);
        })
        .await;
        let route = origin.route();
        let error = match soon(UpstreamProbe::new().send(&egress(), &route, get(&route))).await {
            Err(error) => error,
            Ok(answer) => match answer.body.collect(100).await {
                Err(interflow_types::CollectError::Broken(error)) => error,
                other => panic!("{phase}: {other:?}"),
            },
        };
        assert_eq!((error.kind(), origin.accepted()), (ErrorKind::UpstreamClosed, 1), "{phase}: {error}");
    }
}

#[tokio::test]
async fn a_silent_origin_is_timed_out() {
    let mut options = EgressOptions::default();
    options.exchange.head_timeout = Duration::from_millis(50);
    options.exchange.body_timeout = Duration::from_millis(50);
    let egress = egress_with(options, None);
    for said in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"] {
        let origin = Origin::answering(said).await;
        let route = origin.route();
        let error = match soon(UpstreamProbe::new().send(&egress, &route, get(&route))).await {
            Err(error) => error,
            Ok(answer) => match soon(answer.body.collect(100)).await {
                Err(interflow_types::CollectError::Broken(error)) => error,
                other => panic!("{said:?}: {other:?}"),
            },
        };
        assert_eq!(error.kind(), ErrorKind::UpstreamTimeout, "{said:?}: {error}");
    }
}

#[tokio::test]
async fn timings_and_addresses_are_reported() {
    let origin = Origin::answering(format!("{OK}Content-Length: 2\r\n\r\nok")).await;
    let (egress, route) = (egress(), origin.route());
    let (_, first) = fetch(&egress, &route).await;
    let (_, second) = fetch(&egress, &route).await;
    assert!(first.timings.connect.is_some() && first.timings.request_sent <= first.timings.first_byte);
    assert!(second.timings.connect.is_none() && second.timings.first_byte.is_some());
    let (first, second) = (first.upstream.unwrap(), second.upstream.unwrap());
    assert_eq!((first.peer, first.version), (Some(origin.addr), HttpVersion::Http11));
    assert_eq!((first.connection, second.reused), (second.connection, true));
}

#[tokio::test]
async fn last_http_proxy_of_a_chain_receives_plain_requests_in_absolute_form() {
    let proxy = Origin::new(|_, mut stream| async move {
        while let Some(head) = read_head(&mut stream).await {
            let answer = format!("{OK}Content-Length: {}\r\n\r\n{head}", head.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let mut route = route("192.0.2.1:81".parse().unwrap());
    route.via = Arc::new([format!("http://us%65r:pass@{}", proxy.addr).parse().unwrap()]);
    let (seen, probe) = fetch(&egress(), &route).await;
    assert!(seen.starts_with("GET http://192.0.2.1:81/ HTTP/1.1\r\nHost: 192.0.2.1:81\r\n"), "{seen}");
    assert!(seen.contains("\r\nProxy-Authorization: Basic dXNlcjpwYXNz\r\n"), "{seen}");
    assert!(probe.upstream.unwrap().via.is_some());
}

#[tokio::test]
async fn the_address_to_connect_to_may_differ_from_the_authority() {
    let origin = Origin::new(|_, mut stream| async move {
        let head = read_head(&mut stream).await.unwrap();
        assert!(head.contains("\r\nHost: elsewhere.test\r\n"), "{head}");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    })
    .await;
    let route = UpstreamRoute {
        authority: "elsewhere.test:80".parse().unwrap(),
        connect_to: Some(origin.addr.into()),
        ..origin.route()
    };
    assert_eq!(fetch(&egress(), &route).await.0, "ok");
}

#[tokio::test]
async fn a_tunnel_is_raw_bytes() {
    let origin = Origin::new(|_, mut stream| async move {
        stream.write_all(b"220 first\r\n").await.unwrap();
    })
    .await;
    let route = origin.route();
    let mut probe = UpstreamProbe::new();
    let mut x = UpstreamReport {
        clock: &probe.clock,
        timings: &mut probe.timings,
        upstream: &mut probe.upstream,
        interim: &mut |_| panic!("a tunnel has no responses"),
    };
    let mut io = egress().connect(&route, &mut x).await.unwrap();
    let mut all = String::new();
    io.read_to_string(&mut all).await.unwrap();
    assert_eq!((all.as_str(), probe.upstream.unwrap().peer), ("220 first\r\n", Some(origin.addr)));
}
