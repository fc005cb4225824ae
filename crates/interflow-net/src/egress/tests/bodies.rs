//! Requests with bodies: framing, early responses, 100-continue, large bodies and slow readers.

use super::*;
use interflow_types::ErrorKind;
use std::sync::atomic::AtomicU64;

/// Responds to every request with the bytes of the request, once `end` was received.
async fn echo_until(end: &'static str) -> Origin {
    Origin::new(move |_, mut stream| async move {
        let mut seen = String::new();
        while !seen.ends_with(end) {
            seen.push(stream.read_u8().await.unwrap().into());
        }
        let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{seen}");
        stream.write_all(answer.as_bytes()).await.unwrap();
    })
    .await
}

#[tokio::test]
async fn the_body_decides_the_framing_on_the_wire() {
    let mut known = Pieces::new(&[Some("hel"), Some("lo")]);
    known.length = Some(5);
    let mut trailed = Pieces::new(&[Some("hello")]);
    trailed.trailers = Some([("T", "v")].into_iter().collect());
    let chunked = |s: &str| format!("Transfer-Encoding: chunked\r\n\r\n{s}");
    for (body, end, expected) in [
        (Body::Full("hello".into()), "hello", "Content-Length: 5\r\n\r\nhello".to_owned()),
        (Body::stream(known), "hello", "Content-Length: 5\r\n\r\nhello".to_owned()),
        (
            Body::stream(Pieces::new(&[Some("hel"), Some("lo")])),
            "0\r\n\r\n",
            chunked("3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"),
        ),
        (Body::stream(trailed), "T: v\r\n\r\n", chunked("5\r\nhello\r\n0\r\nT: v\r\n\r\n")),
        (Body::Empty, "\r\n\r\n", "Content-Length: 0\r\n\r\n".to_owned()),
    ] {
        let origin = echo_until(end).await;
        let route = origin.route();
        let answer = soon(UpstreamProbe::new().send(&egress(), &route, post(&route, body))).await.unwrap();
        let seen = text(answer.body).await;
        assert_eq!(seen, format!("POST / HTTP/1.1\r\nHost: {}\r\n{expected}", origin.addr));
    }
}

#[tokio::test]
async fn a_body_of_the_wrong_length_fails_the_request() {
    for (pieces, length) in [(&[Some("hello")][..], 4), (&[Some("hello")][..], 6)] {
        let origin = Origin::answering("").await;
        let route = origin.route();
        let mut body = Pieces::new(pieces);
        body.length = Some(length);
        let error =
            soon(UpstreamProbe::new().send(&egress(), &route, post(&route, Body::stream(body)))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    }
}

#[tokio::test]
async fn an_early_refusal_ends_the_upload() {
    let origin = Origin::new(|_, mut stream| async move {
        read_head(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").await.unwrap();
        std::future::pending().await
    })
    .await;
    let (egress, route) = (egress(), origin.route());
    let mut probe = UpstreamProbe::new();
    let body = Pieces::new(&[Some("begin"), None]);
    let polls = body.polls.clone();
    let answer = soon(probe.send(&egress, &route, post(&route, Body::stream(body)))).await.unwrap();
    assert_eq!(answer.head.status.as_u16(), 413);
    assert_eq!(soon(text(answer.body)).await, "no");
    assert_eq!(Arc::strong_count(&polls), 1, "nobody holds the request's body any more");
    assert_eq!(egress.idle_connections(), 0, "a connection with half a request on it is not used again");
}

#[tokio::test]
async fn a_refusal_is_received_even_if_the_origin_closes_during_the_upload() {
    let origin = Origin::new(|_, mut stream| async move {
        read_head(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno").await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        reset(stream);
    })
    .await;
    let route = origin.route();
    let body = Endless { left: u64::MAX, taken: Arc::default() };
    let answer = soon(UpstreamProbe::new().send(&egress(), &route, post(&route, Body::stream(body)))).await.unwrap();
    assert_eq!(answer.head.status.as_u16(), 413);
}

#[tokio::test]
async fn an_early_response_streams_along_with_the_upload() {
    for (field, idle) in [("X", 1), ("Connection", 0)] {
        hand_in_hand(field, idle).await;
    }
}

/// A body of the pieces that are sent through the channel.
pub(super) struct OnDemand(pub(super) tokio::sync::mpsc::UnboundedReceiver<&'static str>);

impl BodyStream for OnDemand {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|p| Ok(BodyFrame::Data(p.into()))))
    }
}

/// Each piece of the request is answered by a piece of the response before the next is sent.
async fn hand_in_hand(field: &'static str, idle: usize) {
    let origin = Origin::new(move |_, mut stream| async move {
        read_head(&mut stream).await.unwrap();
        let head = format!("HTTP/1.1 200 OK\r\n{field}: close\r\nTransfer-Encoding: chunked\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut chunk = [0; 6];
        for _ in 0..3 {
            stream.read_exact(&mut chunk).await.unwrap();
            stream.write_all(&chunk).await.unwrap();
        }
        stream.read_exact(&mut chunk[..5]).await.unwrap();
        stream.write_all(&chunk[..5]).await.unwrap();
        read_head(&mut stream).await;
    })
    .await;
    let (egress, route) = (egress(), origin.route());
    let (pieces, body) = tokio::sync::mpsc::unbounded_channel();
    let answer =
        soon(UpstreamProbe::new().send(&egress, &route, post(&route, Body::stream(OnDemand(body))))).await.unwrap();
    let mut answer = answer.body;
    for piece in ["a", "b", "c"] {
        pieces.send(piece).unwrap();
        let Some(Ok(BodyFrame::Data(data))) = soon(answer.frame()).await else { panic!("no answer to {piece}") };
        assert_eq!(data, piece);
    }
    drop(pieces);
    assert!(soon(answer.frame()).await.is_none());
    assert_eq!(egress.idle_connections(), idle, "both directions ended well");
}

async fn expecting(origin: &Origin, probe: &mut UpstreamProbe) -> (Result<UpstreamResponse, Error>, usize) {
    let route = origin.route();
    let body = Pieces::new(&[Some("hello")]);
    let polls = body.polls.clone();
    let request = request(&route, Method::POST, "/", &[("Expect", "100-continue")], Body::stream(body));
    let answer = soon(probe.send(&egress(), &route, request)).await;
    (answer, polls.load(Ordering::Relaxed))
}

#[tokio::test]
async fn the_body_waits_for_100_continue() {
    let origin = Origin::new(|_, mut stream| async move {
        read_head(&mut stream).await.unwrap();
        let quiet = tokio::time::timeout(Duration::from_millis(100), stream.read_u8()).await;
        assert!(quiet.is_err(), "the body came before it was called for");
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
        let mut body = [0; 15];
        stream.read_exact(&mut body).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    })
    .await;
    let mut probe = UpstreamProbe::new();
    let (answer, _) = expecting(&origin, &mut probe).await;
    assert_eq!(answer.unwrap().head.status.as_u16(), 200);
    assert_eq!(probe.interim.iter().map(|h| h.status.as_u16()).collect::<Vec<_>>(), [100]);
}

#[tokio::test]
async fn a_refusal_instead_of_100_continue_skips_the_body() {
    let origin = Origin::answering("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n").await;
    let (answer, polls) = expecting(&origin, &mut UpstreamProbe::new()).await;
    assert_eq!((answer.unwrap().head.status.as_u16(), polls), (417, 0));
}

#[tokio::test]
async fn body_is_sent_after_one_second_without_100_continue() {
    let origin = Origin::new(|_, mut stream| async move {
        read_head(&mut stream).await.unwrap();
        stream.read_exact(&mut [0; 15]).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    })
    .await;
    let begun = std::time::Instant::now();
    let (answer, _) = expecting(&origin, &mut UpstreamProbe::new()).await;
    assert_eq!(answer.unwrap().head.status.as_u16(), 200);
    assert!(begun.elapsed() >= Duration::from_millis(900));
}

/// A body of many bytes, and a count of those that were taken from it.
struct Endless {
    left: u64,
    taken: Arc<AtomicU64>,
}

const BLOCK: &[u8] = &[b'x'; 32 * 1024];

impl BodyStream for Endless {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Error>>> {
        let n = self.left.min(BLOCK.len() as u64);
        self.left -= n;
        self.taken.fetch_add(n, Ordering::Relaxed);
        Poll::Ready((n > 0).then(|| Ok(BodyFrame::Data(Bytes::from_static(&BLOCK[..n as usize])))))
    }

    fn remaining(&self) -> Option<u64> {
        Some(self.left)
    }
}

/// Accepts requests of any length and responds with this many bytes.
async fn mirror(length: u64) -> Origin {
    Origin::new(move |_, mut stream| async move {
        read_head(&mut stream).await.unwrap();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let mut buf = vec![0; 64 * 1024];
        let mut left = length;
        while left > 0 {
            left -= stream.read(&mut buf).await.unwrap() as u64;
        }
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut left = length;
        while left > 0 {
            let n = left.min(buf.len() as u64) as usize;
            if stream.write_all(&buf[..n]).await.is_err() {
                return;
            }
            left -= n as u64;
        }
    })
    .await
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[tokio::test]
async fn large_bodies_stream_in_constant_memory_both_ways() {
    const LENGTH: u64 = 256 * 1024 * 1024;
    let origin = mirror(LENGTH).await;
    let (egress, route) = (egress(), origin.route());
    let before = resident_mib();
    let body = Body::stream(Endless { left: LENGTH, taken: Arc::default() });
    let mut answer = UpstreamProbe::new().send(&egress, &route, post(&route, body)).await.unwrap().body;
    let (mut got, mut largest, mut peak) = (0, 0, 0);
    while let Some(frame) = answer.frame().await {
        let BodyFrame::Data(data) = frame.unwrap() else { panic!("no trailers were sent") };
        got += data.len() as u64;
        largest = largest.max(data.len());
        if got % (16 << 20) < data.len() as u64 {
            peak = peak.max(resident_mib());
        }
    }
    assert_eq!(got, LENGTH);
    assert!(largest <= 128 * 1024, "a frame of {largest} bytes");
    assert!(peak < before + 64, "memory grew from {before} to {peak} MiB");
}

#[tokio::test]
async fn an_upload_stops_while_the_origin_reads_nothing() {
    const LENGTH: u64 = 256 * 1024 * 1024;
    // What the origin and the kernel do not buffer stays in the body.
    let deaf = Origin::new(|_, stream| async move {
        let _open = stream;
        std::future::pending().await
    })
    .await;
    let route = deaf.route();
    let taken = Arc::new(AtomicU64::new(0));
    let body = Body::stream(Endless { left: LENGTH, taken: taken.clone() });
    let egress = egress();
    let mut probe = UpstreamProbe::new();
    let taken = tokio::select! {
        sent = probe.send(&egress, &route, post(&route, body)) => panic!("{:?}", sent.err()),
        taken = settled(|| taken.load(Ordering::Relaxed)) => taken,
    };
    assert!((1..32 << 20).contains(&taken), "{taken} bytes were taken");
}

#[tokio::test]
async fn a_download_stops_while_the_reader_reads_nothing() {
    const LENGTH: u64 = 256 * 1024 * 1024;
    // What the kernel does not buffer stays with the origin.
    let given = Arc::new(AtomicU64::new(0));
    let count = given.clone();
    let source = Origin::new(move |_, mut stream| {
        let count = count.clone();
        async move {
            read_head(&mut stream).await.unwrap();
            stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").as_bytes()).await.unwrap();
            while let Ok(n) = stream.write(BLOCK).await {
                count.fetch_add(n as u64, Ordering::Relaxed);
            }
        }
    })
    .await;
    let route = source.route();
    let mut answer = UpstreamProbe::new().send(&egress(), &route, get(&route)).await.unwrap().body;
    answer.frame().await.unwrap().unwrap();
    let given = settled(|| given.load(Ordering::Relaxed)).await;
    assert!((1..32 << 20).contains(&given), "{given} bytes were given");
}
