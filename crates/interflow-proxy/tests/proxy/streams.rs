//! Slow or large bodies: nothing is delayed, nothing accumulates.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use interflow_testkit::{Origin, Reply, Wire, site};
use interflow_types::MessageKind;
use tokio::sync::mpsc;

use crate::support::{Proxy, get, inside, request};

/// An origin whose `/` sends events on command.
fn events() -> (interflow_testkit::Reply, mpsc::UnboundedSender<Bytes>) {
    let (tell, told) = mpsc::unbounded_channel();
    let told = stream::unfold(told, |mut told| async { told.recv().await.map(|event| (event, told)) });
    (Reply::status(200).header("Content-Type", "text/event-stream").stream(told), tell)
}

async fn event_origin(builder: interflow_testkit::OriginBuilder) -> (Origin, mpsc::UnboundedSender<Bytes>) {
    let (reply, tell) = events();
    let reply = std::sync::Mutex::new(Some(reply));
    let origin = builder.answering(move |_| reply.lock().unwrap().take().expect("one request")).start().await;
    (origin, tell)
}

/// Each event must arrive before the next is sent.
async fn expect_events(wire: &mut Wire, tell: mpsc::UnboundedSender<Bytes>) {
    assert_eq!(wire.answer_head().await.unwrap().status, 200);
    for i in 0..5 {
        tell.send(site::event(i)).unwrap();
        assert_eq!(wire.chunk().await.unwrap(), Some(site::event(i)), "event {i}");
    }
    drop(tell);
    assert_eq!(wire.chunk().await.unwrap(), None);
}

#[tokio::test]
async fn each_event_arrives_before_the_next_is_sent() {
    let (origin, tell) = event_origin(Origin::http()).await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    wire.send(get(&origin.url("/"))).await.unwrap();
    expect_events(&mut wire, tell).await;
    let flow = proxy.flow().await;
    let kept: Vec<_> = flow.messages.iter().map(|m| (m.kind, m.payload.clone())).collect();
    assert_eq!(kept, (0..5).map(|i| (MessageKind::Event, site::event(i))).collect::<Vec<_>>());
    assert!(flow.messages.windows(2).all(|m| m[0].at < m[1].at), "each has a time of its own");
}

#[tokio::test]
async fn each_event_arrives_before_the_next_through_intercepted_tls() {
    for speaks in [&["http/1.1"][..], &["h2"]] {
        let (origin, tell) = event_origin(Origin::https().alpn(speaks)).await;
        let proxy = Proxy::trusting(&[&origin], |_| ()).await;
        let mut wire = proxy.tls(&origin.authority(), &["http/1.1"]).await;
        wire.send(inside(&origin.authority(), "/")).await.unwrap();
        expect_events(&mut wire, tell).await;
    }
}

#[tokio::test]
async fn each_event_arrives_before_the_next_over_http2() {
    for speaks in [&["http/1.1"][..], &["h2"]] {
        let (origin, tell) = event_origin(Origin::https().alpn(speaks)).await;
        let proxy = Proxy::trusting(&[&origin], |_| ()).await;
        let client = proxy.h2(&origin.authority()).await;
        let ask = http::Request::get(origin.url("/")).body(()).unwrap();
        let mut body = client.start(ask, Bytes::new()).await.unwrap().into_body();
        for i in 0..5 {
            tell.send(site::event(i)).unwrap();
            let got = tokio::time::timeout(Duration::from_secs(5), body.data()).await.expect("in time");
            assert_eq!(got.unwrap().unwrap(), site::event(i));
        }
    }
}

/// A generous bound on what socket buffers and Interflow's own may hold.
const HELD: usize = 48 << 20;

#[tokio::test]
async fn client_that_does_not_read_applies_back_pressure_to_the_origin() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let origin = Origin::raw(move |mut wire: Wire, _| {
        let sent = Arc::clone(&counted);
        async move {
            wire.head().await?;
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 4294967296\r\n\r\n").await?;
            let piece = vec![7; 1 << 20];
            for _ in 0..4096 {
                wire.send(&piece).await?;
                sent.fetch_add(piece.len(), Ordering::Relaxed);
            }
            Ok(())
        }
    })
    .await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    wire.send(get(&format!("http://{}/", origin.addr()))).await.unwrap();
    assert_eq!(wire.answer_head().await.unwrap().header("content-length"), Some("4294967296"));
    assert_stalls(&sent).await;
    drop(wire);
    origin.wait_until_idle().await;
}

#[tokio::test]
async fn origin_that_does_not_read_applies_back_pressure_to_the_client() {
    let origin = Origin::raw(|mut wire: Wire, _| async move {
        wire.head().await?;
        std::future::pending().await
    })
    .await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    wire.send(request("POST", &format!("http://{}/", origin.addr()), "Content-Length: 4294967296\r\n")).await.unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let upload = tokio::spawn(async move {
        let piece = vec![7; 1 << 20];
        for _ in 0..4096 {
            if wire.send(&piece).await.is_err() {
                return;
            }
            counted.fetch_add(piece.len(), Ordering::Relaxed);
        }
    });
    assert_stalls(&sent).await;
    upload.abort();
}

async fn assert_stalls(sent: &AtomicUsize) {
    let mut before = usize::MAX;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        let now = sent.load(Ordering::Relaxed);
        assert!(now < HELD, "{now} bytes were taken although nobody reads them");
        if now == before {
            return;
        }
        before = now;
    }
    panic!("bytes trickle on for ever: {before}");
}

#[tokio::test]
async fn early_response_does_not_wait_for_the_upload() {
    let origin = Origin::raw(|mut wire: Wire, _| async move {
        wire.head().await?;
        wire.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfull").await?;
        wire.finish().await
    })
    .await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    wire.send(request("POST", &format!("http://{}/", origin.addr()), "Content-Length: 1000000\r\n") + "part")
        .await
        .unwrap();
    let answer = wire.answer().await.unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (413, "full"));
}

/// The response is complete although the client's upload is not; the rest of it still reaches the origin.
#[tokio::test]
async fn the_end_of_an_early_response_does_not_wait_for_the_upload() {
    let (uploads, mut uploaded) = mpsc::unbounded_channel();
    let origin = Origin::raw(move |mut wire: Wire, _| {
        let uploads = uploads.clone();
        async move {
            for _ in 0..2 {
                wire.head().await?;
                wire.exactly(4).await?;
                wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\n\r\n").await?;
                uploads.send(wire.exactly(4).await?).unwrap();
            }
            Ok(())
        }
    })
    .await;
    let proxy = Proxy::start(|_| ()).await;
    let mut wire = proxy.connect().await;
    for n in 1..=2 {
        let ask = request("POST", &format!("http://{}/", origin.addr()), "Content-Length: 8\r\n");
        wire.send(ask + "part").await.unwrap();
        let answer = wire.answer().await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "yes"));
        let flow = &proxy.flows(n).await[n - 1];
        assert_eq!((&flow.sent[..], flow.tags.as_slice()), (&b"part"[..], &["request_incomplete".to_owned()][..]));
        wire.send("rest").await.unwrap();
        assert_eq!(&uploaded.recv().await.unwrap()[..], b"rest");
    }
    assert_eq!(origin.connections(), 1, "reused when both directions have ended");
}
