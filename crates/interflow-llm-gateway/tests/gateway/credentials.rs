//! The operator's keys, which a provider may repeat in an error, get to no client and into no record.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{SinkExt, StreamExt};
use interflow_testkit::{Origin, Reply, Wire};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message as Frame;

use super::{Gate, sse};

const KEY: &str = "sk-operator-Ab12/Cd34+Ef56";

async fn gate(origin: &Origin) -> Gate {
    Gate::with(origin, |parts| {
        for name in ["openai", "anthropic"] {
            parts.llm.provider.get_mut(name).unwrap().api_key = Some(KEY.into());
        }
        // Sent by the gateway itself, since it may have to be repeated.
        parts.llm.provider.get_mut("anthropic").unwrap().attempts = 2;
    })
    .await
}

/// What an error says that repeats the key in every encoding.
fn complaint() -> String {
    let packed = STANDARD.encode(format!("Bearer {KEY}"));
    json!({"error": {
        "message": format!("Incorrect API key provided: {KEY}."),
        "debug": [packed, hex::encode(KEY), KEY.replace('/', "%2F").replace('+', "%2B")],
    }})
    .to_string()
}

fn assert_masked(text: &str) {
    let packed = STANDARD.encode(format!("Bearer {KEY}"));
    for part in [KEY, "Cd34", "Ef56", &hex::encode("operator"), &packed[12..30]] {
        assert!(!text.contains(part), "{part} in {text}");
    }
    assert!(text.contains("***"), "{text}");
}

#[tokio::test]
async fn an_error_that_repeats_the_key_is_masked_for_client_and_record() {
    let origin = Origin::http()
        .answering(|request| {
            let reply = Reply::status(401).header("Content-Type", "application/json").header("X-Debug", KEY);
            if request.target.contains("zipped") {
                let mut zip = GzEncoder::new(Vec::new(), Compression::fast());
                zip.write_all(complaint().as_bytes()).unwrap();
                return reply.header("Content-Encoding", "gzip").body(zip.finish().unwrap());
            }
            reply.body(complaint())
        })
        .start()
        .await;
    let gate = gate(&origin).await;
    let chat = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let requests = [
        ("GET", "/openai/v1/files", ""),
        ("GET", "/openai/v1/zipped", ""),
        ("POST", "/openai/v1/chat/completions", chat.as_str()),
        ("POST", "/anthropic/v1/messages", chat.as_str()),
    ];
    for (method, path, body) in requests {
        let answer = gate.send(method, path, "", body.as_bytes()).await.unwrap();
        assert_eq!(answer.status, 401, "{path}: {}", answer.text());
        assert_masked(&answer.text());
        assert!(answer.header("x-debug").is_none_or(|shown| !shown.contains("operator")), "{path}");
    }
    // The attempts are flows of their own.
    for flow in gate.proxy.flows(5).await {
        let text = String::from_utf8_lossy(&flow.received).into_owned();
        assert!(!text.contains("Cd34") && !text.contains("operator"), "recorded: {text}");
    }
}

#[tokio::test]
async fn an_error_within_a_stream_or_a_websocket_is_masked() {
    let event = json!({"error": {"message": format!("the key {KEY} is over its quota")}});
    let stream = sse(&[json!({"choices": [{"index": 0, "delta": {"content": "begun"}}]}), event.clone()]);
    let origin = Origin::http()
        .answering(move |request| match request.header("upgrade") {
            Some(_) => {
                let event = json!({"type": "error", "error": event["error"].clone()}).to_string();
                Reply::websocket(move |_| vec![event.clone()])
            }
            None => Reply::ok(stream.clone()).header("Content-Type", "text/event-stream"),
        })
        .start()
        .await;
    let gate = gate(&origin).await;
    for path in ["/openai/v1/chat/completions", "/anthropic/v1/chat/completions"] {
        let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]}).to_string();
        let text = gate.post(path, body).await.text();
        assert_masked(&text);
    }
    let wire = Wire::connect(gate.proxy.gateway()).await.unwrap();
    let address = "ws://gate/openai/v1/realtime?model=m";
    let (mut socket, _) = tokio_tungstenite::client_async(address, wire.patience(None)).await.unwrap();
    socket.send(Frame::text(json!({"type": "response.create"}).to_string())).await.unwrap();
    let told = socket.next().await.expect("an event").unwrap();
    assert_masked(told.to_text().unwrap());
}

#[tokio::test]
async fn words_of_a_reply_that_equal_a_short_key_stay() {
    let origin = Origin::http()
        .answering(|_| {
            Reply::json(&json!({"choices": [{"message": {"role": "assistant", "content": "use lm-studio"}}]}))
        })
        .start()
        .await;
    let gate = Gate::with(&origin, |parts| {
        parts.llm.provider.get_mut("openai").unwrap().api_key = Some("lm-studio".into());
    })
    .await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let answer = gate.post("/openai/v1/chat/completions", body).await;
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "use lm-studio");
}
