//! The HTTP/2 server, driven by a client of the `h2` crate.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use interflow_types::{Body, BodyFrame, Error, ErrorKind, Headers, ResponseHead, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::ingress::services_for_tests::{AliveCounter, ChannelBody, FunctionService, by_path, data, frames, ok};
use crate::ingress::{Drain, DrainSignal, HttpOptions, HttpService, IncomingRequest, ServiceReply, serve_http2};
use crate::io::IoStream;

struct Client {
    send: SendRequest<Bytes>,
    server: JoinHandle<Result<(), Error>>,
    client: JoinHandle<Result<(), h2::Error>>,
}

async fn connect<S: HttpService>(service: S, options: HttpOptions, drain: Drain) -> Client {
    connect_with(h2::client::Builder::new(), service, options, drain).await
}

async fn connect_with<S: HttpService>(
    builder: h2::client::Builder,
    service: S,
    options: HttpOptions,
    drain: Drain,
) -> Client {
    let (near, far) = tokio::io::duplex(16 * 1024);
    let service = Arc::new(service);
    let server = tokio::spawn(async move { serve_http2(IoStream::other(far), &options, drain, service).await });
    let (send, connection) = builder.handshake(near).await.unwrap();
    let client = tokio::spawn(connection);
    Client { send: send.ready().await.unwrap(), server, client }
}

async fn serve<S: HttpService>(service: S) -> Client {
    connect(service, HttpOptions::default(), Drain::never()).await
}

impl Client {
    fn request(&mut self, request: Request<()>, end: bool) -> (ResponseFuture, SendStream<Bytes>) {
        self.send.send_request(request, end).unwrap()
    }

    async fn get(&mut self, path: &str) -> (Response<RecvStream>, String) {
        let (response, _) = self.request(get(path), true);
        let mut response = response.await.unwrap();
        let body = text(response.body_mut()).await.unwrap();
        (response, body)
    }
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("https://a.test{path}")).body(()).unwrap()
}

fn post(path: &str) -> Request<()> {
    Request::post(format!("https://a.test{path}")).body(()).unwrap()
}

/// Reads a body to its end.
async fn text(body: &mut RecvStream) -> Result<String, h2::Error> {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        all.extend_from_slice(&data);
    }
    Ok(String::from_utf8(all).unwrap())
}

#[tokio::test]
async fn requests_are_answered_with_their_bodies_and_trailers() {
    let mut client = serve(FunctionService(by_path)).await;
    let (response, body) = client.get("/echo").await;
    assert_eq!((body.as_str(), &response.headers()["content-length"]), ("GET:", &HeaderValue::from_static("4")));

    let (response, mut send) = client.request(post("/echo"), false);
    send.send_data("hello".into(), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-t", HeaderValue::from_static("t"));
    send.send_trailers(trailers).unwrap();
    assert_eq!(text(response.await.unwrap().body_mut()).await.unwrap(), "POST:hello+t");

    let (response, _) = client.request(get("/trailers"), true);
    let mut response = response.await.unwrap();
    assert!(!response.headers().contains_key("content-length"));
    assert_eq!(text(response.body_mut()).await.unwrap(), "hello");
    assert_eq!(response.body_mut().trailers().await.unwrap().unwrap()["x-sum"], "42");
}

#[tokio::test]
async fn messages_without_content_have_no_body() {
    let mut client = serve(FunctionService(by_path)).await;
    let (response, body) = client.get("/204").await;
    assert_eq!((response.status().as_u16(), body.as_str()), (204, ""));
    let (response, body) = client.get("/304").await;
    assert_eq!((response.headers()["content-length"].to_str().unwrap(), body.as_str()), ("500", ""));
    let (response, body) = client.get("/trailers-only").await;
    assert_eq!((response.headers().get("content-length"), body.as_str()), (None, ""));
    let (response, _) = client.request(Request::head("https://a.test/chunks").body(()).unwrap(), true);
    assert!(response.await.unwrap().body().is_end_stream());
}

#[tokio::test]
async fn early_hints_precede_the_response() {
    let mut client = serve(FunctionService(by_path)).await;
    let (mut response, _) = client.request(get("/hints"), true);
    let hints = poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
    assert_eq!((hints.status().as_u16(), hints.headers()["link"].to_str().unwrap()), (103, "</a>"));
    assert_eq!(response.await.unwrap().status(), 200);
}

#[tokio::test]
async fn large_body_is_echoed_unchanged() {
    let mut client = serve(FunctionService(by_path)).await;
    let body: Bytes = (0..3_000_000u32).map(|i| b'a' + (i % 26) as u8).collect();
    let (response, mut send) = client.request(post("/back"), false);
    let sent = body.clone();
    tokio::spawn(async move {
        let mut rest = sent;
        while !rest.is_empty() {
            send.reserve_capacity(rest.len());
            let capacity = poll_fn(|cx| send.poll_capacity(cx)).await.unwrap().unwrap();
            send.send_data(rest.split_to(capacity.min(rest.len())), false).unwrap();
        }
        send.send_data(Bytes::new(), true).unwrap();
    });
    let got = text(response.await.unwrap().body_mut()).await.unwrap();
    assert!(got.as_bytes() == body);
}

#[tokio::test]
async fn each_streamed_frame_is_flushed_immediately() {
    let (feed, fed) = mpsc::unbounded_channel();
    let fed = Mutex::new(Some(fed));
    let service = FunctionService(move |_| {
        let body = Body::stream(ChannelBody(fed.lock().unwrap().take().unwrap()));
        async move { ok(body) }
    });
    let mut client = serve(service).await;
    let (response, _) = client.request(get("/"), true);
    let mut body = response.await.unwrap().into_body();
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        feed.send(data(event)).unwrap();
        assert_eq!(body.data().await.unwrap().unwrap(), event);
    }
    drop(feed);
    assert_eq!(text(&mut body).await.unwrap(), "");
}

/// Sends through a tunnel and returns what was received.
async fn through_tunnel(client: &mut Client, request: Request<()>) -> String {
    let (response, mut send) = client.request(request, false);
    send.send_data("early ".into(), false).unwrap();
    let mut response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(!response.headers().contains_key("content-length"));
    send.send_data("bytes".into(), true).unwrap();
    text(response.body_mut()).await.unwrap()
}

#[tokio::test]
async fn connect_and_extended_connect_become_tunnels() {
    let mut client = serve(FunctionService(by_path)).await;
    let connect = Request::connect("tunnel:1").body(()).unwrap();
    assert_eq!(through_tunnel(&mut client, connect).await, "tunnelled:early bytes");
    let mut extended = Request::connect("https://a.test/ws").body(()).unwrap();
    extended.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    assert!(client.send.is_extended_connect_protocol_enabled());
    assert_eq!(through_tunnel(&mut client, extended).await, "tunnelled:early bytes");
}

#[tokio::test]
async fn heads_are_converted_to_the_shared_types() {
    let (seen, mut heads) = mpsc::unbounded_channel();
    let service = FunctionService(move |request: IncomingRequest| {
        let _ = seen.send(request);
        async { ok(Body::Empty) }
    });
    let mut client = serve(service).await;
    let mut request = get("/x?y");
    request.headers_mut().append("cookie", HeaderValue::from_static("a=1"));
    request.headers_mut().append("cookie", HeaderValue::from_static("b=2"));
    client.request(request, true).0.await.unwrap();
    let got = heads.recv().await.unwrap();
    let mut fields = Vec::new();
    got.headers.write_to(&mut fields);
    assert_eq!(String::from_utf8(fields).unwrap(), "Host: a.test\r\ncookie: a=1; b=2\r\n");
    let interflow_types::RequestTarget::Absolute(url) = got.target else { panic!("{:?}", got.target) };
    assert_eq!(url.to_string(), "https://a.test/x?y");
    assert!(got.body.is_empty());
}

#[tokio::test]
async fn host_header_that_contradicts_the_authority_is_refused() {
    let mut client = serve(FunctionService(by_path)).await;
    let mut request = get("/echo");
    request.headers_mut().insert("host", HeaderValue::from_static("b.test"));
    assert_eq!(client.request(request, true).0.await.unwrap().status(), 400);
}

#[tokio::test]
async fn hop_by_hop_fields_do_not_reach_the_client() {
    let service = FunctionService(|_| async {
        let head = ResponseHead::new(StatusCode::OK)
            .with_header("Connection", "x")
            .with_header("Keep-Alive", "1")
            .with_header("X-A", "b");
        ServiceReply::Response(interflow_types::Response { head, body: Body::Empty })
    });
    let mut client = serve(service).await;
    let (response, _) = client.get("/").await;
    let names: Vec<_> = response.headers().keys().map(|n| n.as_str()).collect();
    assert_eq!(names, ["x-a"]);
}

#[tokio::test]
async fn incomplete_responses_reset_their_stream() {
    let mut client = serve(FunctionService(by_path)).await;
    let error = client.request(get("/abort"), true).0.await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
    for path in ["/breaks", "/short"] {
        let error = match client.request(get(path), true).0.await {
            Ok(mut response) => text(response.body_mut()).await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{path}");
    }
    assert_eq!(client.get("/echo").await.1, "GET:");
}

#[tokio::test]
async fn request_body_shorter_than_its_content_length_is_an_error() {
    let (seen, mut outcome) = mpsc::unbounded_channel();
    let service = FunctionService(move |request: IncomingRequest| {
        let seen = seen.clone();
        async move {
            let _ = seen.send(request.body.collect(100).await.is_err());
            ok(Body::Empty)
        }
    });
    let mut client = serve(service).await;
    let mut request = post("/");
    request.headers_mut().insert("content-length", HeaderValue::from_static("5"));
    let (_response, mut send) = client.request(request, false);
    send.send_data("abc".into(), true).unwrap();
    assert!(matches!(timeout(Duration::from_secs(5), outcome.recv()).await, Ok(Some(true) | None)));
}

#[tokio::test]
async fn a_cancelled_request_drops_only_its_service_call() {
    let count = Arc::new(AtomicUsize::new(0));
    let alive = count.clone();
    let go = Arc::new(Notify::new());
    let going = go.clone();
    let service = FunctionService(move |_| {
        let guard = AliveCounter::new(&alive);
        let going = going.clone();
        async move {
            going.notified().await;
            drop(guard);
            ok(Body::Empty)
        }
    });
    let mut client = serve(service).await;
    let (first, mut send) = client.request(post("/"), false);
    let (second, _) = client.request(get("/"), true);
    while count.load(Ordering::SeqCst) < 2 {
        sleep(Duration::from_millis(1)).await;
    }
    send.send_reset(Reason::CANCEL);
    drop(first);
    while count.load(Ordering::SeqCst) > 1 {
        sleep(Duration::from_millis(1)).await;
    }
    go.notify_one();
    assert_eq!(second.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn an_unread_upload_stops_at_the_window() {
    let service = FunctionService(|request: IncomingRequest| async move {
        let _body = request.body;
        std::future::pending().await
    });
    let options = HttpOptions { stream_window: 100_000, ..HttpOptions::default() };
    let mut client = connect(service, options, Drain::never()).await;
    sleep(Duration::from_millis(10)).await;
    let (_response, mut send) = client.request(post("/"), false);
    let mut sent = 0;
    loop {
        send.reserve_capacity(8192);
        match timeout(Duration::from_secs(1), poll_fn(|cx| send.poll_capacity(cx))).await {
            Ok(capacity) => {
                let n = capacity.unwrap().unwrap().min(8192);
                send.send_data(Bytes::from(vec![0; n]), false).unwrap();
                sent += n;
            }
            Err(_) => break,
        }
    }
    assert_eq!(sent, 100_000);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_applies_back_pressure_and_times_out() {
    let taken = Arc::new(AtomicUsize::new(0));
    struct Counted(Arc<AtomicUsize>);
    impl interflow_types::BodyStream for Counted {
        fn poll_frame(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Option<Result<BodyFrame, Error>>> {
            self.0.fetch_add(8192, Ordering::SeqCst);
            std::task::Poll::Ready(Some(Ok(BodyFrame::Data(Bytes::from_static(&[0; 8192])))))
        }
    }
    let counter = taken.clone();
    let service = FunctionService(move |_| {
        let body = Body::stream(Counted(counter.clone()));
        async { ok(body) }
    });
    let mut client = serve(service).await;
    let (response, _) = client.request(get("/"), true);
    let mut response = response.await.unwrap();
    let error = loop {
        if let Err(error) = response.body_mut().data().await.unwrap() {
            break error;
        }
    };
    assert_eq!(error.reason(), Some(Reason::CANCEL));
    let taken = taken.load(Ordering::SeqCst);
    assert!(taken < 400 * 1024, "{taken} bytes were taken from the origin");
}

#[tokio::test(start_paused = true)]
async fn only_an_idle_connection_times_out() {
    let service = FunctionService(|_| async {
        sleep(Duration::from_secs(500)).await;
        ok(Body::Empty)
    });
    let mut client = serve(service).await;
    let start = Instant::now();
    let (response, _) = client.request(get("/"), true);
    assert_eq!(response.await.unwrap().status(), 200);
    client.server.await.unwrap().unwrap();
    let idle = HttpOptions::default().idle_timeout;
    assert_eq!(start.elapsed().as_secs(), 500 + idle.as_secs());
    client.client.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_finishes_active_requests_and_accepts_no_new_ones() {
    let service = FunctionService(|_| async {
        sleep(Duration::from_secs(5)).await;
        ok(frames(vec![data("done")]))
    });
    let signal = DrainSignal::new();
    let mut client = connect(service, HttpOptions::default(), signal.drain()).await;
    let (response, _) = client.request(get("/"), true);
    sleep(Duration::from_secs(1)).await;
    signal.start();
    sleep(Duration::from_secs(1)).await;
    let refused = match client.send.clone().ready().await {
        Ok(mut send) => match send.send_request(get("/"), true) {
            Ok((response, _)) => response.await.is_err(),
            Err(_) => true,
        },
        Err(_) => true,
    };
    assert!(refused, "a request was taken during the drain");
    let mut response = response.await.unwrap();
    assert_eq!(text(response.body_mut()).await.unwrap(), "done");
    drop((response, client.send));
    client.server.await.unwrap().unwrap();
}

#[tokio::test]
async fn excessive_cancellations_close_the_connection() {
    let mut client = serve(FunctionService(|_| std::future::pending())).await;
    for _ in 0..3000 {
        let Ok(mut send) = client.send.clone().ready().await else { break };
        let Ok((response, mut stream)) = send.send_request(post("/"), false) else { break };
        tokio::task::yield_now().await;
        stream.send_reset(Reason::CANCEL);
        drop(response);
        client.send = send;
    }
    let ended = timeout(Duration::from_secs(10), client.server).await.expect("the connection goes on").unwrap();
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Limited);
    assert_eq!(client.client.await.unwrap().unwrap_err().reason(), Some(Reason::ENHANCE_YOUR_CALM));
}

#[tokio::test(start_paused = true)]
async fn a_missing_preface_times_out() {
    let (_near, far) = tokio::io::duplex(1024);
    let service = Arc::new(FunctionService(by_path));
    let error = serve_http2(IoStream::other(far), &HttpOptions::default(), Drain::never(), service).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ClientTimeout);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_times_out() {
    let body = Bytes::from(vec![0; 100_000]);
    let service = Arc::new(FunctionService(move |_| {
        let body = Body::from(body.clone());
        async { ok(body) }
    }));
    let (near, far) = tokio::io::duplex(1024);
    let server = tokio::spawn(async move {
        serve_http2(IoStream::other(far), &HttpOptions::default(), Drain::never(), service).await
    });
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 20);
    let (mut send, mut connection) = builder.handshake::<_, Bytes>(near).await.unwrap();
    let _response = send.send_request(get("/"), true).unwrap();
    // The request is sent, and from then on the client does not read.
    let _ = timeout(
        Duration::from_millis(100),
        poll_fn(|cx| {
            let _ = std::pin::Pin::new(&mut connection).poll(cx);
            std::task::Poll::Ready(())
        }),
    )
    .await;
    let ended = timeout(Duration::from_secs(600), server).await.expect("the connection is held for ever");
    assert!(ended.unwrap().is_err());
}

#[tokio::test]
async fn response_with_only_trailers_is_complete() {
    let service = FunctionService(|_| async {
        let trailers: Headers = [("grpc-status", "0")].into_iter().collect();
        ok(frames(vec![Ok(BodyFrame::Trailers(trailers))]))
    });
    let mut client = serve(service).await;
    let mut response = client.request(post("/"), true).0.await.unwrap();
    assert_eq!(text(response.body_mut()).await.unwrap(), "");
    assert_eq!(response.body_mut().trailers().await.unwrap().unwrap()["grpc-status"], "0");
}

/// A serialized frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A client that opens a connection, sends `before`, and then `flood` repeatedly; returns what it received and how
/// serving it ended.
async fn flooding(before: &[u8], flood: &[u8], times: usize) -> (Vec<u8>, Option<ErrorKind>) {
    let (near, far) = tokio::io::duplex(1 << 16);
    let service = Arc::new(FunctionService(|_| std::future::pending()));
    let server = tokio::spawn(async move {
        serve_http2(IoStream::other(far), &HttpOptions::default(), Drain::never(), service).await
    });
    let (mut read, mut write) = tokio::io::split(near);
    let received = tokio::spawn(async move {
        let mut received = Vec::new();
        let _ = read.read_to_end(&mut received).await;
        received
    });
    let opening = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(4, 0, 0, &[])[..], before].concat();
    write.write_all(&opening).await.unwrap();
    for _ in 0..times {
        if write.write_all(flood).await.is_err() {
            break;
        }
    }
    let ended = timeout(Duration::from_secs(5), server).await.ok().and_then(|ended| ended.unwrap().err());
    drop(write);
    (received.await.unwrap(), ended.map(|e| e.kind()))
}

#[tokio::test]
async fn frames_that_carry_no_request_are_limited() {
    // GET https://a/ in HPACK's static table.
    let head = [0x82, 0x87, 0x84, 0x41, 0x01, b'a'];
    let open = frame(1, 4, 1, &head);
    let unfinished = frame(1, 0, 1, &head);
    let calm = [0, 0, 0, 0xb];
    for (what, before, flood) in [
        ("PING", &[][..], frame(6, 0, 0, &[0; 8])),
        ("SETTINGS", &[], frame(4, 0, 0, &[])),
        ("PRIORITY", &[], frame(2, 0, 9, &[0, 0, 0, 3, 7])),
        ("unknown", &[], frame(0xbb, 0, 0, b"x")),
        ("WINDOW_UPDATE", &[], frame(8, 0, 0, &[0, 0, 0, 1])),
        ("empty DATA", &open, frame(0, 0, 1, &[])),
        ("empty CONTINUATION", &unfinished, frame(9, 0, 1, &[])),
    ] {
        let (received, ended) = flooding(before, &flood, 5000).await;
        assert!(matches!(ended, Some(ErrorKind::Limited)), "{what}: {ended:?}");
        let goaway = received.windows(4).rposition(|w| w == calm);
        assert!(goaway.is_some(), "{what}: no GOAWAY with ENHANCE_YOUR_CALM");
    }
}
