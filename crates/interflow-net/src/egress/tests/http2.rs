//! HTTP/2 with prior knowledge, against origins made of the `h2` crate's server side.

use super::*;
use h2::Reason;
use h2::server::{Connection, SendResponse};
use http::{HeaderMap, Response, StatusCode};
use interflow_types::{ErrorKind, Retryable};

type Stream = (http::Request<h2::RecvStream>, SendResponse<Bytes>);

/// Responds to every request with this body.
pub(super) async fn answer_all(io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin, body: &'static str) {
    let Ok(mut connection) = h2::server::handshake(io).await else { return };
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        let mut send = respond.send_response(Response::new(()), false).unwrap();
        send.send_data(body.into(), true).unwrap();
    }
}

/// Serves each stream with a closure, which is passed the connection's and the stream's number.
async fn origin<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(usize, usize, Stream) -> F + Clone + Send + 'static,
) -> Origin {
    Origin::new(move |n, stream| {
        let serve = serve.clone();
        async move {
            let mut builder = h2::server::Builder::new();
            let mut connection: Connection<_, Bytes> =
                builder.enable_connect_protocol().max_concurrent_streams(4).handshake(stream).await.unwrap();
            let mut m = 0;
            while let Some(Ok(stream)) = connection.accept().await {
                tokio::spawn(serve(n, m, stream));
                m += 1;
            }
        }
    })
    .await
}

fn h2_route(origin: &Origin) -> UpstreamRoute {
    UpstreamRoute { protocol: UpstreamProtocol::Http2, ..origin.route() }
}

fn ok() -> Response<()> {
    Response::new(())
}

async fn read_all(body: &mut h2::RecvStream) -> (Vec<u8>, Option<HeaderMap>) {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    (all, body.trailers().await.unwrap())
}

#[tokio::test]
async fn http2_requests_and_responses_carry_trailers_over_one_connection() {
    let origin = origin(|_, _, (request, mut respond)| async move {
        let (parts, mut body) = request.into_parts();
        assert_eq!((parts.uri.path(), parts.headers["x-a"].to_str().unwrap()), ("/p", "b"));
        assert!(!parts.headers.contains_key("connection") && !parts.headers.contains_key("host"));
        let (data, trailers) = read_all(&mut body).await;
        let mut send = respond.send_response(ok(), false).unwrap();
        send.send_data(data.into(), false).unwrap();
        let mut trailers = trailers.unwrap();
        // May not be trailers (RFC 9110 6.5.1).
        trailers.insert("set-cookie", "a=b".parse().unwrap());
        trailers.insert("content-length", "3".parse().unwrap());
        send.send_trailers(trailers).unwrap();
    })
    .await;
    let (egress, route) = (egress(), h2_route(&origin));
    for round in 0..3 {
        let mut body = Pieces::new(&[Some("hel"), Some("lo")]);
        body.trailers = Some([("grpc-status", "0")].into_iter().collect());
        let request = request(&route, Method::POST, "/p", &[("Connection", "X"), ("X-A", "b")], Body::stream(body));
        let mut probe = UpstreamProbe::new();
        let answer = soon(probe.send(&egress, &route, request)).await.unwrap();
        assert_eq!((answer.head.version, probe.reused()), (HttpVersion::H2, round > 0));
        let (data, received) = answer.body.collect(100).await.unwrap();
        let trailers: Headers = [("grpc-status", "0")].into_iter().collect();
        assert_eq!((&data[..], received), (&b"hello"[..], Some(trailers)));
    }
    assert_eq!(origin.accepted(), 1);
}

#[tokio::test]
async fn interim_responses_are_relayed_and_100_continue_is_waited_for() {
    let origin = origin(|_, _, (request, mut respond)| async move {
        let mut early = Response::new(());
        *early.status_mut() = StatusCode::EARLY_HINTS;
        respond.send_informational(early).unwrap();
        let mut body = request.into_body();
        assert!(tokio::time::timeout(Duration::from_millis(100), body.data()).await.is_err(), "came uncalled");
        let mut go = Response::new(());
        *go.status_mut() = StatusCode::CONTINUE;
        respond.send_informational(go).unwrap();
        assert_eq!(read_all(&mut body).await.0, b"hello");
        respond.send_response(ok(), true).unwrap();
    })
    .await;
    let route = h2_route(&origin);
    let request = request(&route, Method::POST, "/", &[("Expect", "100-continue")], Body::Full("hello".into()));
    let mut probe = UpstreamProbe::new();
    let answer = soon(probe.send(&egress(), &route, request)).await.unwrap();
    assert_eq!(answer.head.status, StatusCode::OK);
    assert_eq!(probe.interim.iter().map(|h| h.status.as_u16()).collect::<Vec<_>>(), [103, 100]);
}

#[tokio::test]
async fn a_cancelled_exchange_resets_only_its_stream() {
    let (sender, mut resets) = tokio::sync::mpsc::unbounded_channel();
    let origin = origin(move |_, m, (_, mut respond)| {
        let sender = sender.clone();
        async move {
            if m == 0 {
                let reason = std::future::poll_fn(|cx| respond.poll_reset(cx)).await.unwrap();
                sender.send(reason).unwrap();
            } else if m == 1 {
                let mut send = respond.send_response(ok(), false).unwrap();
                send.send_data("part".into(), false).unwrap();
                let reason = std::future::poll_fn(|cx| send.poll_reset(cx)).await.unwrap();
                sender.send(reason).unwrap();
            } else {
                respond.send_response(ok(), true).unwrap();
            }
        }
    })
    .await;
    let (egress, route) = (egress(), h2_route(&origin));
    let mut probe = UpstreamProbe::new();
    let given_up = tokio::time::timeout(Duration::from_millis(50), probe.send(&egress, &route, get(&route))).await;
    assert!(given_up.is_err());
    assert_eq!(soon(resets.recv()).await, Some(Reason::CANCEL));
    let mut body = soon(UpstreamProbe::new().send(&egress, &route, get(&route))).await.unwrap().body;
    body.frame().await.unwrap().unwrap();
    drop(body);
    assert_eq!(soon(resets.recv()).await, Some(Reason::CANCEL));
    assert_eq!(soon(fetch(&egress, &route)).await.0, "");
    assert_eq!(origin.accepted(), 1);
}

#[tokio::test]
async fn a_refused_stream_is_retried_for_any_method() {
    let origin = origin(|n, m, (request, mut respond)| async move {
        if (n, m) == (0, 0) {
            respond.send_reset(Reason::REFUSED_STREAM);
            return;
        }
        let (data, _) = read_all(&mut request.into_body()).await;
        respond.send_response(ok(), false).unwrap().send_data(data.into(), true).unwrap();
    })
    .await;
    let route = h2_route(&origin);
    let answer =
        soon(UpstreamProbe::new().send(&egress(), &route, post(&route, Body::Full("hello".into())))).await.unwrap();
    assert_eq!(text(answer.body).await, "hello");
}

#[tokio::test]
async fn after_goaway_a_new_connection_is_made() {
    let origin = Origin::new(|n, stream| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            respond.send_response(ok(), false).unwrap().send_data("ok".into(), true).unwrap();
            if n == 0 {
                connection.graceful_shutdown();
            }
        }
    })
    .await;
    let (egress, route) = (egress(), h2_route(&origin));
    assert_eq!(soon(fetch(&egress, &route)).await.0, "ok");
    turns(200).await;
    for round in 0..2 {
        let answer = soon(UpstreamProbe::new().send(&egress, &route, post(&route, Body::Empty))).await.unwrap();
        assert_eq!(text(answer.body).await, "ok", "{round}");
    }
    assert_eq!(origin.accepted(), 2);
}

#[tokio::test]
async fn a_stream_reset_before_the_response_is_reported_and_not_retried() {
    let origin = origin(|_, _, (_, mut respond)| async move { respond.send_reset(Reason::INTERNAL_ERROR) }).await;
    let (egress, route) = (egress(), h2_route(&origin));
    let error = soon(UpstreamProbe::new().send(&egress, &route, get(&route))).await.unwrap_err();
    assert_eq!((error.kind(), error.retryable()), (ErrorKind::UpstreamClosed, Retryable::No), "{error}");
    assert_eq!(origin.accepted(), 1);
}

#[tokio::test]
async fn a_stream_reset_within_the_body_is_reported() {
    let head_received = Arc::new(tokio::sync::Notify::new());
    let go = head_received.clone();
    let origin = origin(move |_, _, (_, mut respond)| {
        let go = go.clone();
        async move {
            let mut send = respond.send_response(ok(), false).unwrap();
            send.send_data("part".into(), false).unwrap();
            go.notified().await;
            send.send_reset(Reason::INTERNAL_ERROR);
        }
    })
    .await;
    let (egress, route) = (egress(), h2_route(&origin));
    let body = soon(UpstreamProbe::new().send(&egress, &route, get(&route))).await.unwrap().body;
    head_received.notify_one();
    let Err(interflow_types::CollectError::Broken(error)) = body.collect(100).await else { panic!("it was complete") };
    assert_eq!((error.kind(), origin.accepted()), (ErrorKind::UpstreamClosed, 1));
}

#[tokio::test]
async fn extended_connect_opens_a_byte_stream() {
    let origin = origin(|_, _, (request, mut respond)| async move {
        assert_eq!(request.method(), Method::CONNECT);
        assert_eq!(request.extensions().get::<h2::ext::Protocol>().unwrap().as_str(), "websocket");
        let mut send = respond.send_response(ok(), false).unwrap();
        send.send_data("early ".into(), false).unwrap();
        let (data, _) = read_all(&mut request.into_body()).await;
        send.send_data(data.into(), true).unwrap();
    })
    .await;
    let (egress, route) = (egress(), h2_route(&origin));
    let mut request = get(&route);
    request.head.protocol = Some("websocket".into());
    let mut io = soon(UpstreamProbe::new().send(&egress, &route, request)).await.unwrap().upgrade.unwrap();
    io.write_all(b"ping").await.unwrap();
    io.shutdown().await.unwrap();
    let mut all = String::new();
    soon(io.read_to_string(&mut all)).await.unwrap();
    assert_eq!(all, "early ping");
}

#[tokio::test]
async fn extended_connect_is_not_sent_without_support() {
    let origin = Origin::new(|_, stream| answer_all(stream, "ok")).await;
    let (egress, route) = (egress(), h2_route(&origin));
    let mut request = get(&route);
    request.head.protocol = Some("websocket".into());
    let error = soon(UpstreamProbe::new().send(&egress, &route, request)).await.unwrap_err();
    assert_eq!((error.kind(), error.retryable()), (ErrorKind::Unsupported, Retryable::Yes));
    assert_eq!(soon(fetch(&egress, &route)).await.0, "ok");
}

#[tokio::test]
async fn excess_streams_open_another_connection_up_to_the_limit() {
    let origin = origin(|_, _, (_, mut respond)| async move {
        tokio::time::sleep(Duration::from_millis(30)).await;
        respond.send_response(ok(), false).unwrap().send_data("ok".into(), true).unwrap();
    })
    .await;
    let pool = PoolLimits { http2_per_host: 2, ..PoolLimits::default() };
    let egress = egress_with(EgressOptions { pool, ..EgressOptions::default() }, None);
    let route = h2_route(&origin);
    fetch(&egress, &route).await;
    let all = futures_util::future::join_all((0..20).map(|_| fetch(&egress, &route)));
    assert!(soon(all).await.iter().all(|(body, _)| body == "ok"));
    assert_eq!(origin.accepted(), 2);
}

#[tokio::test]
async fn flow_control_window_opens_only_as_the_body_is_read() {
    let given = Arc::new(AtomicUsize::new(0));
    let count = given.clone();
    let origin = origin(move |_, _, (_, mut respond)| {
        let count = count.clone();
        async move {
            let mut send = respond.send_response(ok(), false).unwrap();
            for n in 0..256 {
                let piece = Bytes::from(vec![0; 64 * 1024]);
                send.reserve_capacity(piece.len());
                while send.capacity() < piece.len() {
                    if !matches!(std::future::poll_fn(|cx| send.poll_capacity(cx)).await, Some(Ok(_))) {
                        return;
                    }
                }
                count.fetch_add(piece.len(), Ordering::Relaxed);
                send.send_data(piece, n == 255).unwrap();
            }
        }
    })
    .await;
    let (egress, route) = (egress(), h2_route(&origin));
    let body = soon(UpstreamProbe::new().send(&egress, &route, get(&route))).await.unwrap().body;
    let sent = settled(|| given.load(Ordering::Relaxed)).await;
    assert!((1..=1024 * 1024).contains(&sent), "{sent} bytes were sent");
    let (all, _) = soon(body.collect(usize::MAX)).await.unwrap();
    assert_eq!(all.len(), 256 * 64 * 1024);
}

#[tokio::test]
async fn idle_http2_connections_are_closed() {
    let origin = Origin::new(|_, stream| answer_all(stream, "ok")).await;
    let pool = PoolLimits { idle_timeout: Duration::from_secs(40), ..PoolLimits::default() };
    let egress = egress_with(EgressOptions { pool, ..EgressOptions::default() }, None);
    let route = h2_route(&origin);
    fetch(&egress, &route).await;
    fetch(&egress, &route).await;
    assert_eq!(origin.accepted(), 1);
    pass(Duration::from_secs(60)).await;
    fetch(&egress, &route).await;
    assert_eq!(origin.accepted(), 2);
}

/// A serialized frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Whether a client's bytes contain the head of a request.
fn has_request(sent: &[u8]) -> bool {
    let mut at = 24;
    while let Some(&[a, b, c, kind]) = sent.get(at..at + 4) {
        if kind == 1 {
            return true;
        }
        at += 9 + (usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c));
    }
    false
}

#[tokio::test]
async fn frames_that_carry_no_response_are_limited() {
    let (head, unfinished) = (frame(1, 4, 1, &[0x88]), frame(1, 0, 1, &[0x88]));
    for (what, before, flood) in [
        ("PING", Vec::new(), frame(6, 0, 0, &[0; 8])),
        ("SETTINGS", Vec::new(), frame(4, 0, 0, &[])),
        ("PRIORITY", Vec::new(), frame(2, 0, 9, &[0, 0, 0, 3, 7])),
        ("unknown", Vec::new(), frame(0xbb, 0, 0, b"x")),
        ("WINDOW_UPDATE", Vec::new(), frame(8, 0, 0, &[0, 0, 0, 1])),
        ("empty DATA", head, frame(0, 0, 1, &[])),
        ("empty CONTINUATION", unfinished, frame(9, 0, 1, &[])),
    ] {
        let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
        let origin = Origin::new(move |_, stream| {
            let (before, flood, sender) = (before.clone(), flood.clone(), sender.clone());
            async move {
                let (mut read, mut write) = tokio::io::split(stream);
                let mut sent = Vec::new();
                while !has_request(&sent) && read.read_buf(&mut sent).await.is_ok_and(|n| n > 0) {}
                write.write_all(&[frame(4, 0, 0, &[]), before].concat()).await.unwrap();
                let reading = tokio::spawn(async move {
                    while read.read_buf(&mut sent).await.is_ok_and(|n| n > 0) {}
                    sent
                });
                for _ in 0..5000 {
                    if write.write_all(&flood).await.is_err() {
                        break;
                    }
                }
                let _ = sender.send(reading.await.unwrap());
            }
        })
        .await;
        let (egress, route) = (egress(), h2_route(&origin));
        let mut probe = UpstreamProbe::new();
        let error = match soon(probe.send(&egress, &route, request(&route, Method::GET, "/", &[], Body::Empty))).await {
            Ok(answer) => match soon(answer.body.collect(100)).await.unwrap_err() {
                interflow_types::CollectError::Broken(e) => e,
                interflow_types::CollectError::TooLarge(_) => panic!("{what}: there was no body"),
            },
            Err(e) => e,
        };
        assert_eq!((error.kind(), error.retryable()), (ErrorKind::BadResponse, Retryable::No), "{what}: {error}");
        // CONTINUATION frames, empty or not, are limited by the `h2` crate.
        let says = if what == "empty CONTINUATION" { "violates the HTTP/2 protocol" } else { "too many HTTP/2 frames" };
        assert!(error.message().contains(says), "{what}: {error}");
        let sent = soon(received.recv()).await.unwrap();
        assert!(sent.windows(4).any(|w| w == [0, 0, 0, 0xb]), "{what}: no GOAWAY with ENHANCE_YOUR_CALM");
    }
}

/// An origin that takes `limit` requests per connection, announces its end after the last one, and drops what comes
/// later, as nginx does (`keepalive_requests`).
async fn recycling(limit: u32) -> Origin {
    Origin::new(move |_, stream| async move {
        let mut connection = h2::server::Builder::new().handshake::<_, Bytes>(stream).await.unwrap();
        let mut taken = 0;
        while let Some(Ok((mut request, mut respond))) = connection.accept().await {
            taken += 1;
            if taken == limit {
                connection.graceful_shutdown();
            }
            if taken > limit {
                respond.send_reset(Reason::REFUSED_STREAM);
                continue;
            }
            tokio::spawn(async move {
                let (data, _) = read_all(request.body_mut()).await;
                let mut send = respond.send_response(ok(), false).unwrap();
                send.send_data(data.into(), true).unwrap();
            });
        }
        // Closed by the client: what it has sent meanwhile must not cause a reset, by which the GOAWAY could be lost.
        std::future::pending::<()>().await;
    })
    .await
}

#[tokio::test]
async fn requests_that_a_recycling_origin_did_not_process_are_sent_again() {
    for limit in [1, 7, 50] {
        let origin = recycling(limit).await;
        let (egress, route) = (Arc::new(egress()), h2_route(&origin));
        for wave in 0..5 {
            let requests = (0..60).map(|i| {
                let (egress, route) = (egress.clone(), route.clone());
                tokio::spawn(async move {
                    // Neither idempotent nor in memory: only what was certainly not processed may be sent again.
                    let body = Body::stream(Pieces::new(&[Some("hel"), Some("lo")]));
                    let request = post(&route, body);
                    let answer = UpstreamProbe::new().send(&egress, &route, request).await;
                    let answer = answer.unwrap_or_else(|e| panic!("{limit} per connection, wave {wave}, {i}: {e}"));
                    text(answer.body).await
                })
            });
            for answer in requests.collect::<Vec<_>>() {
                assert_eq!(soon(answer).await.unwrap(), "hello");
            }
        }
    }
}

#[tokio::test]
async fn an_origin_that_refuses_everything_is_asked_a_few_times() {
    let refused = Arc::new(AtomicUsize::new(0));
    let count = refused.clone();
    let origin = origin(move |_, _, (_, mut respond)| {
        count.fetch_add(1, Ordering::Relaxed);
        async move { respond.send_reset(Reason::REFUSED_STREAM) }
    })
    .await;
    let (egress, route) = (egress(), h2_route(&origin));
    let error = soon(UpstreamProbe::new().send(&egress, &route, get(&route))).await.unwrap_err();
    assert_eq!((error.kind(), refused.load(Ordering::Relaxed)), (ErrorKind::UpstreamClosed, 6), "{error}");
}

/// Answers each request with a part of a body, and a cancelled one with more of it, which was on its way. Ends the first
/// stream after `cancelled` of the others were cancelled.
async fn answer_with_late_frames(mut stream: TcpStream, cancelled: usize) {
    let mut left = cancelled;
    let mut buf = bytes::BytesMut::new();
    while buf.len() < 24 {
        stream.read_buf(&mut buf).await.unwrap();
    }
    let _ = buf.split_to(24);
    stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    loop {
        let head: Option<[u8; 9]> = buf.get(..9).and_then(|head| head.try_into().ok());
        let length = head.map_or(0, |[a, b, c, ..]| usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c));
        let Some([_, _, _, kind, flags, id @ ..]) = head.filter(|_| buf.len() >= 9 + length) else {
            match stream.read_buf(&mut buf).await {
                Ok(n) if n > 0 => continue,
                _ => return,
            }
        };
        let payload = buf.split_to(9 + length).split_off(9);
        let id = u32::from_be_bytes(id);
        let answer = match kind {
            1 => [frame(1, 4, id, &[0x88]), frame(0, 0, id, b"begun ")].concat(),
            // CANCEL; late frames may be answered with STREAM_CLOSED.
            3 if payload[..] == [0, 0, 0, 8] => {
                left -= 1;
                let end = if left == 0 { frame(0, 1, 1, b"ended") } else { Vec::new() };
                [frame(0, 0, id, b"late"), frame(0, 0, id, b"later"), end].concat()
            }
            4 if flags == 0 => frame(4, 1, 0, &[]),
            6 if flags == 0 => frame(6, 1, 0, &payload),
            _ => continue,
        };
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn cancelled_downloads_do_not_end_those_of_others() {
    const CANCELLED: usize = 4000;
    let origin = Origin::new(|_, stream| answer_with_late_frames(stream, CANCELLED)).await;
    let (egress, route) = (egress(), h2_route(&origin));
    let long = soon(UpstreamProbe::new().send(&egress, &route, get(&route))).await.unwrap();
    for _ in 0..CANCELLED / 50 {
        let mut answers = Vec::new();
        for _ in 0..50 {
            answers.push(soon(UpstreamProbe::new().send(&egress, &route, get(&route))).await.unwrap());
        }
    }
    assert_eq!(soon(text(long.body)).await, "begun ended");
    assert_eq!(origin.accepted(), 1);
}

#[tokio::test]
async fn a_response_head_over_the_limit_is_refused_with_the_key() {
    let origin = origin(|_, _, (request, mut respond)| async move {
        let mut head = Response::new(());
        let fields = match request.uri().path() {
            "/long" => vec!["y".repeat(5000)],
            "/many" => vec!["y".to_owned(); 30],
            _ => vec!["y".repeat(50_000)],
        };
        for value in fields {
            head.headers_mut().append("x-field", value.parse().unwrap());
        }
        drop(respond.send_response(head, true));
    })
    .await;
    let mut options = EgressOptions::default();
    options.exchange.head.max_bytes = 4000;
    options.exchange.head.max_fields = 20;
    let (egress, route) = (egress_with(options, None), h2_route(&origin));
    for (path, says) in
        [("/long", "limits.max_header_bytes"), ("/many", "limits.max_headers"), ("/far", "limits.max_header_bytes")]
    {
        let request = request(&route, Method::GET, path, &[], Body::Empty);
        let error = soon(UpstreamProbe::new().send(&egress, &route, request)).await.unwrap_err();
        assert!(error.kind() == ErrorKind::BadResponse && error.message().contains(says), "{path}: {error}");
    }
    assert_eq!(origin.accepted(), 1, "only their streams are reset");
}

/// A server may answer before it has read the request (RFC 9113 8.1): the response ends, and the upload goes on.
#[tokio::test]
async fn the_end_of_a_response_does_not_wait_for_the_upload() {
    let (uploads, mut uploaded) = tokio::sync::mpsc::unbounded_channel();
    let origin = origin(move |_, m, (mut request, mut respond)| {
        let uploads = uploads.clone();
        async move {
            request.body_mut().data().await.unwrap().unwrap();
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "7".parse().unwrap());
            match m {
                0 => drop(respond.send_response(ok(), true).unwrap()),
                1 => respond.send_response(ok(), false).unwrap().send_data("yes".into(), true).unwrap(),
                _ => respond.send_response(ok(), false).unwrap().send_trailers(trailers).unwrap(),
            }
            uploads.send(read_all(request.body_mut()).await.0).unwrap();
        }
    })
    .await;
    let (egress, route) = (egress(), h2_route(&origin));
    for (expected, ends_at_once) in [("", true), ("yes", false), ("", false)] {
        let (pieces, body) = tokio::sync::mpsc::unbounded_channel();
        pieces.send("part").unwrap();
        let body = Body::stream(super::bodies::OnDemand(body));
        let mut answer = soon(UpstreamProbe::new().send(&egress, &route, post(&route, body))).await.unwrap().body;
        assert_eq!(answer.is_empty(), ends_at_once, "the end goes with the head");
        let mut got = Vec::new();
        while let Some(frame) = soon(answer.frame()).await {
            if let BodyFrame::Data(data) = frame.unwrap() {
                got.extend_from_slice(&data);
            }
        }
        assert_eq!(got, expected.as_bytes());
        drop(answer);
        pieces.send("rest").unwrap();
        drop(pieces);
        assert_eq!(soon(uploaded.recv()).await.unwrap(), b"rest");
    }
}

/// Reads as soon as bytes arrive, and tells of each request whether its body came with its head.
fn read_requests(mut stream: std::net::TcpStream, sender: &tokio::sync::mpsc::UnboundedSender<bool>) {
    use std::io::{Read, Write};
    stream.set_nonblocking(false).unwrap();
    stream.write_all(&frame(4, 0, 0, &[])).unwrap();
    let (mut preface, mut buf) = ([0; 24], vec![0; 64 * 1024]);
    stream.read_exact(&mut preface).unwrap();
    let mut head_came = false;
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        let (mut rest, mut is_together) = (&buf[..n], false);
        while let Some((&[a, b, c, kind, _, ref id @ ..], after)) = rest.split_first_chunk::<9>() {
            rest = &after[usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)..];
            is_together |= kind == 1;
            head_came |= kind == 1;
            if kind == 0 && std::mem::take(&mut head_came) {
                sender.send(is_together).unwrap();
                stream.write_all(&frame(1, 5, u32::from_be_bytes(*id), &[0x88])).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_head_and_the_beginning_of_its_body_are_written_at_once() {
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let origin = Origin::new(move |_, stream| {
        let (stream, sender) = (stream.into_std().unwrap(), sender.clone());
        async move { tokio::task::spawn_blocking(move || read_requests(stream, &sender)).await.unwrap() }
    })
    .await;
    let (egress, route) = (egress(), h2_route(&origin));
    for round in 0..30 {
        let request = request(&route, Method::POST, "/", &[], Body::Full("hello".into()));
        soon(UpstreamProbe::new().send(&egress, &route, request)).await.unwrap();
        let is_together = soon(received.recv()).await.unwrap();
        // The first waits for the settings.
        assert!(is_together || round == 0, "request {round}");
    }
}
