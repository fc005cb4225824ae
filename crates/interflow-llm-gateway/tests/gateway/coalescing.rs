//! Equal requests at the same time: one is sent, and the others get its response from the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use interflow_testkit::{Answer, Origin, Reply, Wire};
use serde_json::json;

use super::Gate;

const PATH: &str = "/openai/v1/chat/completions";
/// How long the provider takes: longer than equal requests take to arrive.
const SLOW: Duration = Duration::from_millis(400);

async fn gate(origin: &Origin) -> Gate {
    let gate = Gate::start(origin).await;
    let config = serde_json::from_value(json!({ "store": "memory" })).unwrap();
    let cache = gate.gateway.cache();
    cache.activate(cache.prepare(&config, None, &[7; 32]).unwrap());
    gate
}

fn body(text: &str, stream: bool) -> String {
    json!({ "model": "m", "stream": stream, "messages": [{ "role": "user", "content": text }] }).to_string()
}

fn said() -> Reply {
    Reply::json(&json!({ "id": "c", "choices": [{ "message": { "content": "so" }, "finish_reason": "stop" }] }))
}

async fn ask_all(gate: &Gate, n: usize, body: &str) -> Vec<Answer> {
    join_all((0..n).map(|_| gate.post(PATH, body))).await
}

fn count(answers: &[Answer], cached: &str) -> usize {
    answers.iter().filter(|answer| answer.header("x-interflow-cache") == Some(cached)).count()
}

#[tokio::test]
async fn equal_requests_at_the_same_time_are_sent_once() {
    for stream in [false, true] {
        let chunk = |text: &str| {
            let delta = json!({ "delta": { "content": text }, "finish_reason": null });
            Bytes::from(format!("data: {}\n\n", json!({ "choices": [delta] })))
        };
        let pieces = [chunk("a"), chunk("b"), Bytes::from_static(b"data: [DONE]\n\n")].to_vec();
        let reply = move |_: &_| match stream {
            true => Reply::ok("").header("Content-Type", "text/event-stream").pieces(pieces.clone(), SLOW),
            false => said().delay(SLOW),
        };
        let origin = Origin::http().answering(reply).start().await;
        let gate = gate(&origin).await;
        let answers = ask_all(&gate, 20, &body("q", stream)).await;
        assert_eq!((origin.requests().len(), count(&answers, "MISS"), count(&answers, "HIT")), (1, 1, 19));
        assert!(answers.iter().all(|answer| answer.status == 200 && answer.body == answers[0].body), "{answers:?}");
        // Another request is not held up by it, nor is it answered with its response.
        gate.post(PATH, body("other", stream)).await;
        assert_eq!(origin.requests().len(), 2);
    }
}

#[tokio::test]
async fn requests_of_other_owners_are_sent_themselves() {
    let origin = Origin::http().answering(|_| said().delay(SLOW)).start().await;
    let gate = gate(&origin).await;
    let (body, gate) = (body("q", false), &gate);
    let ask = |key: &'static str| {
        let (fields, body) = (format!("Authorization: Bearer {key}\r\n"), body.clone());
        async move { gate.send("POST", PATH, &fields, body.as_bytes()).await.unwrap() }
    };
    let answers = join_all(["a", "b", "a", "b"].map(ask)).await;
    assert_eq!((origin.requests().len(), count(&answers, "HIT")), (2, 2));
}

#[tokio::test]
async fn a_failure_is_not_shared() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count_of = Arc::clone(&asked);
    let answer = move |_: &_| match count_of.fetch_add(1, SeqCst) {
        0 => Reply::status(400).body("{}").delay(SLOW),
        _ => said(),
    };
    let origin = Origin::http().answering(answer).start().await;
    let gate = gate(&origin).await;
    let answers = ask_all(&gate, 6, &body("q", false)).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 400).count(), 1, "{answers:?}");
    assert!(asked.load(SeqCst) > 1);
    assert_eq!(gate.post(PATH, body("q", false)).await.header("x-interflow-cache"), Some("HIT"));
}

#[tokio::test]
async fn a_client_that_leaves_takes_no_other_with_it() {
    let origin = Origin::http().answering(|_| said().delay(SLOW)).start().await;
    let gate = gate(&origin).await;
    // A request to Ollama ends with its client; others are answered all the same, since they are billed.
    let (path, body) = ("/ollama/v1/chat/completions", body("q", false));
    let mut leaving = Wire::connect(gate.proxy.gateway()).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: gate\r\nx-api-key: k\r\nContent-Length: {}\r\nContent-Type: application/json\r\n\r\n",
        body.len()
    );
    leaving.send([head.as_bytes(), body.as_bytes()].concat()).await.unwrap();
    while origin.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let others = join_all((0..5).map(|_| gate.post(path, &body)));
    let leave = async {
        tokio::time::sleep(SLOW / 4).await;
        drop(leaving);
    };
    let (answers, ()) = tokio::join!(others, leave);
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    assert_eq!((origin.requests().len(), count(&answers, "MISS"), count(&answers, "HIT")), (2, 1, 4));
}
