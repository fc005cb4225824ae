//! Connections that died while idle, and which requests may be sent twice (RFC 9110 9.2.2).

use super::*;
use interflow_types::{ErrorKind, Retryable};
use tokio::sync::Notify;

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The first connection responds once and closes after reading the second request; the others always respond.
async fn forgetful() -> Origin {
    Origin::new(|n, mut stream| async move {
        let mut served = 0;
        while read_head(&mut stream).await.is_some() {
            if n == 0 && served == 1 {
                return;
            }
            served += 1;
            stream.write_all(ANSWER.as_bytes()).await.unwrap();
        }
    })
    .await
}

#[tokio::test]
async fn idempotent_request_on_a_dead_reused_connection_is_retried_once() {
    for method in ["GET", "PUT", "DELETE", "QUERY"] {
        let origin = forgetful().await;
        let (egress, route) = (egress(), origin.route());
        fetch(&egress, &route).await;
        let body = if matches!(method, "PUT" | "QUERY") { Body::Full("hello".into()) } else { Body::Empty };
        let mut probe = UpstreamProbe::new();
        let request = request(&route, method.parse().unwrap(), "/", &[], body);
        let answer = soon(probe.send(&egress, &route, request)).await.unwrap();
        assert_eq!((text(answer.body).await.as_str(), probe.reused(), origin.accepted()), ("ok", false, 2), "{method}");
    }
}

#[tokio::test]
async fn non_replayable_request_on_a_dead_connection_is_not_retried() {
    let stream = || Body::stream(Pieces::new(&[Some("hello")]));
    for (method, body) in
        [("POST", Body::Empty), ("POST", Body::Full("x".into())), ("POST", stream()), ("PUT", stream())]
    {
        let origin = forgetful().await;
        let (egress, route) = (egress(), origin.route());
        fetch(&egress, &route).await;
        let request = request(&route, method.parse().unwrap(), "/", &[], body);
        let error = soon(UpstreamProbe::new().send(&egress, &route, request)).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.retryable()),
            (ErrorKind::UpstreamClosed, Retryable::ReusedOnly),
            "{method}: {error}"
        );
        assert_eq!(origin.accepted(), 1, "{method}");
    }
}

#[tokio::test]
async fn failure_on_a_new_connection_is_not_retried() {
    let origin = Origin::new(|_, mut stream| async move {
        read_head(&mut stream).await.unwrap();
    })
    .await;
    let route = origin.route();
    let error = soon(UpstreamProbe::new().send(&egress(), &route, get(&route))).await.unwrap_err();
    assert_eq!((error.kind(), error.retryable(), origin.accepted()), (ErrorKind::UpstreamClosed, Retryable::No, 1));
}

#[tokio::test]
async fn failed_retry_is_not_retried_again() {
    let origin = Origin::new(|n, mut stream| async move {
        if n == 0 {
            read_head(&mut stream).await.unwrap();
            stream.write_all(ANSWER.as_bytes()).await.unwrap();
        }
        read_head(&mut stream).await;
    })
    .await;
    let (egress, route) = (egress(), origin.route());
    fetch(&egress, &route).await;
    let error = soon(UpstreamProbe::new().send(&egress, &route, get(&route))).await.unwrap_err();
    assert_eq!((error.kind(), origin.accepted()), (ErrorKind::UpstreamClosed, 2));
}

#[tokio::test]
async fn connection_closed_while_idle_is_detected_before_reuse_even_for_post() {
    let origin = Origin::new(|_, mut stream| async move {
        read_head(&mut stream).await.unwrap();
        stream.write_all(ANSWER.as_bytes()).await.unwrap();
    })
    .await;
    let (egress, route) = (egress(), origin.route());
    for n in 1..4 {
        let body = Body::stream(Pieces::new(&[Some("hello")]));
        let answer = soon(UpstreamProbe::new().send(&egress, &route, post(&route, body))).await.unwrap();
        assert_eq!(text(answer.body).await, "ok");
        assert_eq!(origin.accepted(), n);
        // The origin has closed with its response; the reactor does not run before the next request.
    }
}

#[tokio::test]
async fn an_unsolicited_response_is_never_given_to_the_next_request() {
    let (answered, unsolicited) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (go, sent) = (answered.clone(), unsolicited.clone());
    let origin = Origin::new(move |_, mut stream| {
        let (go, sent) = (go.clone(), sent.clone());
        async move {
            while read_head(&mut stream).await.is_some() {
                stream.write_all(ANSWER.as_bytes()).await.unwrap();
                go.notified().await;
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil").await.unwrap();
                sent.notify_one();
            }
        }
    })
    .await;
    let (egress, route) = (egress(), origin.route());
    for n in 1..4 {
        let (body, probe) = fetch(&egress, &route).await;
        assert_eq!((body.as_str(), probe.reused(), origin.accepted()), ("ok", false, n));
        answered.notify_one();
        soon(unsolicited.notified()).await;
    }
}
