//! The HTTP/1 server: raw bytes in, raw bytes out.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use interflow_types::{Body, BodyFrame, BodyStream, Error, ErrorKind, ResponseHead, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::ingress::services_for_tests::{AliveCounter, ChannelBody, FunctionService, by_path, data, ok, status};
use crate::ingress::{Drain, DrainSignal, HttpOptions, HttpService, IncomingRequest, serve_http1};
use crate::io::IoStream;

fn options() -> HttpOptions {
    HttpOptions::default()
}

/// Serves one end of a pipe and returns the other.
fn serve<S: HttpService>(
    service: S,
    options: HttpOptions,
) -> (DuplexStream, tokio::task::JoinHandle<Result<(), Error>>) {
    serve_until(service, options, Drain::never())
}

fn serve_until<S: HttpService>(
    service: S,
    options: HttpOptions,
    drain: Drain,
) -> (DuplexStream, tokio::task::JoinHandle<Result<(), Error>>) {
    let (near, far) = duplex(64 * 1024);
    let service = Arc::new(service);
    let task = tokio::spawn(async move { serve_http1(IoStream::other(far), &options, drain, service).await });
    (near, task)
}

/// Sends the pieces one after another, half-closes, and reads until the end.
async fn exchange(pieces: &[&[u8]]) -> String {
    let (mut client, task) = serve(FunctionService(by_path), options());
    for piece in pieces {
        // The server may have closed after its last response.
        let _ = client.write_all(piece).await;
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }
    let _ = client.shutdown().await;
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    let _ = task.await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// Reads until the received bytes end with `end`.
async fn read_until(client: &mut DuplexStream, end: &str) -> String {
    let mut got = Vec::new();
    while !got.ends_with(end.as_bytes()) {
        let byte = client.read_u8().await.unwrap_or_else(|_| panic!("ended after {}", String::from_utf8_lossy(&got)));
        got.push(byte);
    }
    String::from_utf8(got).unwrap()
}

const OK: &str = "HTTP/1.1 200 OK\r\n";

/// Requests, and all bytes received until the connection ends.
fn table() -> Vec<(&'static str, String)> {
    let ok = |rest: &str| format!("{OK}{rest}");
    vec![
        ("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", ok("Content-Length: 4\r\n\r\nGET:")),
        ("\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n\r\n", ok("Content-Length: 4\r\n\r\nGET:")),
        (
            "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            ok("Content-Length: 4\r\nConnection: close\r\n\r\nGET:"),
        ),
        (
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            ok("Content-Length: 10\r\n\r\nPOST:hello"),
        ),
        (
            "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;x=y\r\n yo\r\n0\r\nX-T: t\r\n\r\n",
            ok("Content-Length: 15\r\n\r\nPOST:hello yo+t"),
        ),
        (
            "POST /back HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET /204 HTTP/1.1\r\nHost: a\r\n\r\n",
            ok("Content-Length: 5\r\n\r\nhelloHTTP/1.1 204 No Content\r\n\r\n"),
        ),
        (
            "POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET /204 HTTP/1.1\r\nHost: a\r\n\r\n",
            ok("Content-Length: 7\r\n\r\nignoredHTTP/1.1 204 No Content\r\n\r\n"),
        ),
        (
            "POST /ignore HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\nGET /204 HTTP/1.1\r\nHost: a\r\n\r\n",
            ok("Content-Length: 7\r\n\r\nignoredHTTP/1.1 204 No Content\r\n\r\n"),
        ),
        (
            "GET /chunks HTTP/1.1\r\nHost: a\r\n\r\n",
            ok("Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
        ),
        ("GET /chunks HTTP/1.0\r\n\r\n", ok("Connection: close\r\n\r\nonetwo")),
        ("GET /chunks HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", ok("Connection: close\r\n\r\nonetwo")),
        (
            "GET /ignore HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /ignore HTTP/1.0\r\n\r\n",
            ok("Content-Length: 7\r\nConnection: keep-alive\r\n\r\nignored")
                + &ok("Content-Length: 7\r\nConnection: close\r\n\r\nignored"),
        ),
        (
            "GET /trailers HTTP/1.1\r\nHost: a\r\n\r\n",
            ok("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 42\r\n\r\n"),
        ),
        ("HEAD /chunks HTTP/1.1\r\nHost: a\r\n\r\n", ok("\r\n")),
        (
            "HEAD /ignore HTTP/1.1\r\nHost: a\r\n\r\nGET /204 HTTP/1.1\r\nHost: a\r\n\r\n",
            ok("\r\nHTTP/1.1 204 No Content\r\n\r\n"),
        ),
        ("GET /304 HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n".into()),
        (
            "GET /hints HTTP/1.1\r\nHost: a\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".to_owned() + &ok("Content-Length: 0\r\n\r\n"),
        ),
        ("GET /hints HTTP/1.0\r\n\r\n", ok("Content-Length: 0\r\nConnection: close\r\n\r\n")),
        (
            "GET /close HTTP/1.1\r\nHost: a\r\n\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n",
            ok("Connection: close\r\nContent-Length: 0\r\n\r\n"),
        ),
        ("GET /breaks HTTP/1.1\r\nHost: a\r\n\r\n", ok("Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")),
        ("GET /short HTTP/1.1\r\nHost: a\r\n\r\n", ok("Content-Length: 5\r\n\r\nabc")),
        ("GET /abort HTTP/1.1\r\nHost: a\r\n\r\n", String::new()),
        ("CONNECT tunnel:1 HTTP/1.1\r\nHost: tunnel:1\r\n\r\nearly bytes", ok("\r\ntunnelled:early bytes")),
        (
            "GET bad HTTP/1.1\r\nHost: a\r\n\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno".into(),
        ),
        (
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno".into(),
        ),
        (
            "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".into(),
        ),
        ("GET /echo HTTP/1.1\r\nHos", String::new()),
    ]
}

#[tokio::test(start_paused = true)]
async fn request_and_response_bytes_match_the_table() {
    for (request, want) in table() {
        assert_eq!(exchange(&[request.as_bytes()]).await, want, "{request}");
    }
}

#[tokio::test(start_paused = true)]
async fn segmentation_does_not_change_a_request() {
    for (request, want) in table() {
        for at in 1..request.len() {
            let (a, b) = request.as_bytes().split_at(at);
            assert_eq!(exchange(&[a, b]).await, want, "{request:?} cut at {at}");
        }
        let bytes: Vec<&[u8]> = request.as_bytes().chunks(1).collect();
        assert_eq!(exchange(&bytes).await, want, "{request:?} byte by byte");
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let requests: String = (0..50)
        .map(|i| format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{i}", i.to_string().len()))
        .collect();
    let want: String =
        (0..50).map(|i| format!("{OK}Content-Length: {}\r\n\r\nPOST:{i}", 5 + i.to_string().len())).collect();
    assert_eq!(exchange(&[requests.as_bytes()]).await, want);
}

#[tokio::test]
async fn large_body_is_echoed_unchanged() {
    let (client, task) = serve(FunctionService(by_path), options());
    let body: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let (mut read, mut write) = tokio::io::split(client);
    let head = format!("POST /back HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    let send = async {
        write.write_all(head.as_bytes()).await.unwrap();
        write.write_all(&body).await.unwrap();
    };
    let mut answer = Vec::new();
    let (_, read) = tokio::join!(send, read.read_to_end(&mut answer));
    read.unwrap();
    let at = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    assert!(answer[at..] == body[..]);
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn each_streamed_frame_is_flushed_immediately() {
    let (feed, fed) = mpsc::unbounded_channel();
    let fed = Mutex::new(Some(fed));
    let service = FunctionService(move |_| {
        let body = Body::stream(ChannelBody(fed.lock().unwrap().take().unwrap()));
        async move { ok(body) }
    });
    let (mut client, _task) = serve(service, options());
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(read_until(&mut client, "\r\n\r\n").await, format!("{OK}Transfer-Encoding: chunked\r\n\r\n"));
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        feed.send(data(event)).unwrap();
        assert_eq!(read_until(&mut client, "\n\n\r\n").await, format!("9\r\n{event}\r\n"));
    }
    drop(feed);
    assert_eq!(read_until(&mut client, "\r\n\r\n").await, "0\r\n\r\n");
}

#[tokio::test]
async fn service_sends_100_continue_before_the_body_is_read() {
    let service = FunctionService(|request: IncomingRequest| async move {
        request.interim.send(ResponseHead::new(StatusCode::CONTINUE));
        by_path(request).await
    });
    let (mut client, _task) = serve(service, options());
    let head = b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    client.write_all(head).await.unwrap();
    assert_eq!(read_until(&mut client, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hi").await.unwrap();
    assert_eq!(read_until(&mut client, "hi").await, format!("{OK}Content-Length: 7\r\n\r\nPOST:hi"));
}

#[tokio::test(start_paused = true)]
async fn an_expectation_that_is_refused_closes_the_connection() {
    let (mut client, task) = serve(FunctionService(|_| async { status(413, Body::Empty) }), options());
    let head = b"POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    client.write_all(head).await.unwrap();
    let answer = read_until(&mut client, "\r\n\r\n").await;
    assert!(answer.ends_with("Connection: close\r\n\r\n"), "{answer}");
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_early_response_is_sent_during_the_upload() {
    let (mut client, _task) = serve(FunctionService(by_path), options());
    client.write_all(b"POST /back HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    assert_eq!(read_until(&mut client, "\r\n\r\n").await, format!("{OK}Transfer-Encoding: chunked\r\n\r\n"));
    for _ in 0..3 {
        client.write_all(b"3\r\nabc\r\n").await.unwrap();
        assert_eq!(read_until(&mut client, "abc\r\n").await, "3\r\nabc\r\n");
    }
    client.write_all(b"0\r\n\r\nGET /204 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(read_until(&mut client, "No Content\r\n\r\n").await, "0\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");
}

#[tokio::test(start_paused = true)]
async fn a_large_unread_body_closes_the_connection_after_the_response() {
    let (client, task) = serve(FunctionService(by_path), options());
    let (mut read, mut write) = tokio::io::split(client);
    let send = tokio::spawn(async move {
        let head = b"POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n";
        write.write_all(head).await.unwrap();
        write.write_all(&vec![0; 3_000_000]).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut answer = String::new();
    read.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, format!("{OK}Content-Length: 7\r\nConnection: close\r\n\r\nignored"));
    send.await.unwrap();
    task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unread_chunked_body_is_discarded_within_limits() {
    for (chunks, served) in [(10, true), (200, false)] {
        let (client, task) = serve(FunctionService(by_path), options());
        let (mut read, mut write) = tokio::io::split(client);
        let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
        let send = tokio::spawn(async move {
            let head = b"POST /ignore HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            write.write_all(head).await.unwrap();
            write.write_all(chunk.repeat(chunks).as_bytes()).await.unwrap();
            let _ = write.write_all(b"0\r\n\r\nGET /204 HTTP/1.1\r\nHost: a\r\n\r\n").await;
            let _ = write.shutdown().await;
        });
        let mut answer = String::new();
        read.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer.contains("204 No Content"), served, "{chunks}: {answer}");
        send.await.unwrap();
        let _ = task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_outlives_its_exchange_fails() {
    let (service, mut bodies) = early_response();
    let (mut client, _task) = serve(service, options());
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n").await.unwrap();
    read_until(&mut client, "\r\n\r\n").await;
    client.write_all(b"abcPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n").await.unwrap();
    read_until(&mut client, "\r\n\r\n").await;
    let mut old = bodies.recv().await.unwrap();
    let error = old.frame().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ClientGone);
}

/// A service that responds at once and hands the request's body over.
fn early_response() -> (impl HttpService, mpsc::UnboundedReceiver<Body>) {
    let (sender, bodies) = mpsc::unbounded_channel();
    let service = move |request: IncomingRequest| {
        let _ = sender.send(request.body);
        async { ok(Body::Empty) }
    };
    (FunctionService(service), bodies)
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_is_read_slowly_goes_on_after_the_response() {
    const LENGTH: usize = 1_000_000;
    let (service, mut bodies) = early_response();
    let (mut client, _task) = serve(service, options());
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    read_until(&mut client, "\r\n\r\n").await;
    let mut body = bodies.recv().await.unwrap();
    // The client is always ahead of who reads the body, which therefore never waits.
    let send = tokio::spawn(async move {
        client.write_all(&vec![0; LENGTH]).await.unwrap();
        client
    });
    let (start, pause) = (Instant::now(), options().body_timeout / 2);
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let BodyFrame::Data(data) = frame.unwrap() else { panic!("there are no trailers") };
        read += data.len();
        sleep(pause).await;
    }
    assert_eq!(read, LENGTH);
    assert!(start.elapsed() > options().body_timeout * 3, "{:?}", start.elapsed());
    let mut client = send.await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    read_until(&mut client, "\r\n\r\n").await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_body_is_told_when_its_connection_ends() {
    let (service, mut bodies) = early_response();
    let (mut client, task) = serve(service, options());
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n").await.unwrap();
    read_until(&mut client, "\r\n\r\n").await;
    let mut body = bodies.recv().await.unwrap();
    let reader = tokio::spawn(async move { body.frame().await.unwrap().unwrap_err() });
    turns().await;
    let start = Instant::now();
    task.abort();
    assert_eq!(reader.await.unwrap().kind(), ErrorKind::ClientGone);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// A connected pair over loopback, so that resets are real.
async fn tcp_pair() -> (tokio::net::TcpStream, IoStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (client, IoStream::from(server))
}

#[tokio::test]
async fn half_close_drops_a_service_paused_for_an_operator_decision() {
    let count = Arc::new(AtomicUsize::new(0));
    let alive = count.clone();
    let service = Arc::new(FunctionService(move |request: IncomingRequest| {
        let guard = AliveCounter::new(&alive);
        async move {
            request.interim.pause_timeouts(true);
            let _held = guard;
            std::future::pending().await
        }
    }));
    let (mut client, io) = tcp_pair().await;
    let task = tokio::spawn(async move { serve_http1(io, &HttpOptions::default(), Drain::never(), service).await });
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    while count.load(Ordering::SeqCst) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    client.shutdown().await.unwrap();
    assert_eq!(task.await.unwrap().unwrap_err().kind(), ErrorKind::ClientGone);
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

/// How a client disconnects while it waits for the response.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Leaves {
    Resets,
    Closes,
    HalfCloses,
}

/// Lets the server see what the client did: both run in this runtime, on one thread.
async fn turns() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A client that disconnects while the service works; returns how serving it ended, and what the client read.
async fn leaving(how: Leaves, request: &str, keep_half_closed: bool) -> (Result<(), Error>, String) {
    let count = Arc::new(AtomicUsize::new(0));
    let alive = count.clone();
    let go = Arc::new(tokio::sync::Notify::new());
    let going = go.clone();
    let service = Arc::new(FunctionService(move |incoming: IncomingRequest| {
        let guard = AliveCounter::new(&alive);
        let going = going.clone();
        async move {
            going.notified().await;
            drop((guard, incoming.body));
            ok(Body::Empty)
        }
    }));
    let (mut client, io) = tcp_pair().await;
    let options = HttpOptions { keep_half_closed, ..options() };
    let task = tokio::spawn(async move { serve_http1(io, &options, Drain::never(), service).await });
    client.write_all(request.as_bytes()).await.unwrap();
    while count.load(Ordering::SeqCst) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    match how {
        Leaves::Resets => {
            socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
            drop(client);
            (task.await.unwrap(), String::new())
        }
        Leaves::Closes => {
            drop(client);
            (task.await.unwrap(), String::new())
        }
        Leaves::HalfCloses => {
            client.shutdown().await.unwrap();
            turns().await;
            for _ in request.matches("GET ") {
                go.notify_one();
                turns().await;
            }
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            (task.await.unwrap(), answer)
        }
    }
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn a_client_that_disconnects_after_its_request_cancels_it() {
    for how in [Leaves::Resets, Leaves::Closes, Leaves::HalfCloses] {
        for request in [GET, "GET / HTTP/1.0\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"] {
            let (ended, answer) = leaving(how, request, false).await;
            assert_eq!(ended.unwrap_err().kind(), ErrorKind::ClientGone, "{how:?} {request}");
            assert_eq!(answer, "");
        }
    }
}

#[tokio::test]
async fn a_client_that_disconnects_before_its_body_was_read_cancels_the_request() {
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    let length = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf";
    for how in [Leaves::Resets, Leaves::Closes, Leaves::HalfCloses] {
        for (request, whole) in [(chunked, false), (length, false), (&format!("{chunked}0\r\n\r\n"), true)] {
            for keep_half_closed in [false, true] {
                // A complete request of a client that only half-closes is served if the options allow it.
                if whole && keep_half_closed && how != Leaves::Resets {
                    continue;
                }
                let (ended, answer) = leaving(how, request, keep_half_closed).await;
                assert_eq!(ended.unwrap_err().kind(), ErrorKind::ClientGone, "{how:?} {request}");
                assert_eq!(answer, "");
            }
        }
    }
}

#[tokio::test]
async fn a_half_closed_client_is_served_if_configured() {
    let (ended, answer) = leaving(Leaves::HalfCloses, GET, true).await;
    ended.unwrap();
    assert_eq!(answer, format!("{OK}Content-Length: 0\r\n\r\n"));
    let (ended, _) = leaving(Leaves::Resets, GET, true).await;
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ClientGone);
}

#[tokio::test]
async fn half_close_after_pipelined_requests_cancels_the_remaining_ones() {
    let (ended, answer) = leaving(Leaves::HalfCloses, &GET.repeat(2), false).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ClientGone);
}

#[tokio::test]
async fn a_client_that_disconnects_during_a_response_stops_it() {
    let count = Arc::new(AtomicUsize::new(0));
    let alive = count.clone();
    struct Endless(#[allow(dead_code)] AliveCounter);
    impl BodyStream for Endless {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
            Poll::Ready(Some(Ok(BodyFrame::Data(Bytes::from_static(&[0; 8192])))))
        }
    }
    let service = Arc::new(FunctionService(move |_| {
        let body = Body::stream(Endless(AliveCounter::new(&alive)));
        async { ok(body) }
    }));
    let (mut client, io) = tcp_pair().await;
    let task = tokio::spawn(async move { serve_http1(io, &HttpOptions::default(), Drain::never(), service).await });
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    client.read_exact(&mut [0; 10_000]).await.unwrap();
    drop(client);
    assert_eq!(task.await.unwrap().unwrap_err().kind(), ErrorKind::ClientGone);
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_applies_back_pressure_and_times_out() {
    let taken = Arc::new(AtomicUsize::new(0));
    struct Counted(Arc<AtomicUsize>);
    impl BodyStream for Counted {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
            self.0.fetch_add(8192, Ordering::SeqCst);
            Poll::Ready(Some(Ok(BodyFrame::Data(Bytes::from_static(&[0; 8192])))))
        }
    }
    let counter = taken.clone();
    let service = FunctionService(move |_| {
        let body = Body::stream(Counted(counter.clone()));
        async { ok(body) }
    });
    let (mut client, task) = serve(service, options());
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let start = Instant::now();
    let error = task.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), start.elapsed()), (ErrorKind::ClientTimeout, options().write_timeout));
    let taken = taken.load(Ordering::SeqCst);
    assert!(taken <= 256 * 1024, "{taken} bytes were taken from the origin");
}

#[tokio::test(start_paused = true)]
async fn an_unread_upload_is_not_buffered() {
    let service = FunctionService(|request: IncomingRequest| async move {
        let _body = request.body;
        std::future::pending().await
    });
    let (mut client, _task) = serve(service, options());
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n").await.unwrap();
    let mut sent = 0;
    while tokio::time::timeout(Duration::from_secs(1), client.write_all(&[0; 4096])).await.is_ok() {
        sent += 4096;
        assert!(sent < 200 * 1024, "the upload went on without a reader");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_times_out_a_connection() {
    let timed = |sent: &'static [u8]| async move {
        let (mut client, task) = serve(FunctionService(by_path), options());
        let start = Instant::now();
        client.write_all(sent).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        let error = task.await.unwrap().err().map(|e| e.kind());
        (start.elapsed(), answer.lines().next().unwrap_or_default().to_owned(), error)
    };
    let options = options();
    assert_eq!(timed(b"").await, (options.idle_timeout, String::new(), None));
    let (at, line, error) = timed(b"GET / HT").await;
    assert_eq!((line.as_str(), error), ("HTTP/1.1 408 Request Timeout", Some(ErrorKind::ClientTimeout)));
    assert!((options.head_timeout..options.head_timeout + options.drain_timeout * 2).contains(&at), "{at:?}");
    let (at, line, _) = timed(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc").await;
    assert_eq!(line, "HTTP/1.1 400 Bad Request");
    assert!((options.body_timeout..options.body_timeout + options.drain_timeout * 2).contains(&at), "{at:?}");
    let (at, line, error) = timed(b"GET /ignore HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!((at, line.as_str(), error), (options.idle_timeout, "HTTP/1.1 200 OK", None));
}

#[tokio::test(start_paused = true)]
async fn a_request_after_an_idle_period_is_served() {
    let (mut client, _task) = serve(FunctionService(by_path), options());
    for wait in [0, 2, 50, 3] {
        sleep(Duration::from_secs(wait)).await;
        client.write_all(b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert_eq!(read_until(&mut client, "GET:").await, format!("{OK}Content-Length: 4\r\n\r\nGET:"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_idle_connections_at_once_and_busy_ones_after_their_response() {
    let signal = DrainSignal::new();
    let (mut idle, idle_task) = serve_until(FunctionService(by_path), options(), signal.drain());
    let (mut busy, busy_task) = serve_until(FunctionService(by_path), options(), signal.drain());
    idle.write_all(b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    read_until(&mut idle, "GET:").await;
    busy.write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nh").await.unwrap();
    sleep(Duration::from_millis(5)).await;
    let start = Instant::now();
    signal.start();
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap(), 0);
    idle_task.await.unwrap().unwrap();
    busy.write_all(b"i").await.unwrap();
    let mut answer = String::new();
    busy.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, format!("{OK}Content-Length: 7\r\nConnection: close\r\n\r\nPOST:hi"));
    busy_task.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn an_endless_head_is_refused_at_the_limit() {
    let (client, task) = serve(FunctionService(by_path), options());
    let (mut read, mut write) = tokio::io::split(client);
    let send = tokio::spawn(async move {
        let _ = write.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n").await;
        for _ in 0..20_000 {
            if write.write_all(b"X-Fill: yyyyyyyyyyyyyyyyyyyyyyyyyy\r\n").await.is_err() {
                return;
            }
        }
        let _ = write.shutdown().await;
    });
    let mut answer = String::new();
    read.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(task.await.unwrap().unwrap_err().kind(), ErrorKind::HeadTooLarge);
    send.await.unwrap();
}

#[tokio::test]
async fn bytes_after_a_refused_connect_are_not_parsed_as_a_request() {
    let service = FunctionService(|_| async { status(502, Body::Empty) });
    let (mut client, _task) = serve(service, options());
    client
        .write_all(b"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\nGET http://evil/ HTTP/1.1\r\nHost: evil\r\n\r\n")
        .await
        .unwrap();
    client.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}

#[tokio::test]
async fn interim_responses_are_limited() {
    let service = FunctionService(|request: IncomingRequest| async move {
        for _ in 0..100_000 {
            request.interim.send(ResponseHead::new(StatusCode::PROCESSING));
        }
        ok(Body::Empty)
    });
    let (mut client, _task) = serve(service, options());
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let answer = read_until(&mut client, "Content-Length: 0\r\n\r\n").await;
    assert!(answer.len() < 40_000);
}
