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

fn zipped(text: &str) -> Vec<u8> {
    let mut zip = GzEncoder::new(Vec::new(), Compression::fast());
    zip.write_all(text.as_bytes()).unwrap();
    zip.finish().unwrap()
}

/// The key as encoders write it that escape more than they need to.
fn escaped_keys() -> [String; 3] {
    let all = |form: &dyn Fn(u32) -> String| KEY.chars().map(|c| form(c as u32)).collect::<String>();
    [
        KEY.replace('+', "\\u002B").replace('k', "\\u006b"),
        all(&|c| format!("\\u{c:04X}")),
        all(&|c| format!("%{c:02x}")),
    ]
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
                return reply.header("Content-Encoding", "gzip").body(zipped(&complaint()));
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
    for flow in gate.proxy.flows(4).await {
        let text = String::from_utf8_lossy(&flow.received).into_owned();
        assert!(!text.contains("Cd34") && !text.contains("operator"), "recorded: {text}");
    }
}

#[tokio::test]
async fn an_error_with_a_status_of_success_is_masked_in_any_coding_and_type() {
    let origin = Origin::http()
        .answering(|request| {
            let error = json!({"error": {"message": format!("bad key {KEY} x")}}).to_string();
            let reply = match request.target.contains("bare") || request.target.contains("beta") {
                true => Reply::status(200),
                false => Reply::status(200).header("Content-Type", "application/json"),
            };
            match request.header("x-form") {
                Some("plain") => reply.body(error),
                Some("odd") => reply.header("Content-Encoding", "x-odd").body(error),
                _ => reply.header("Content-Encoding", "gzip").body(zipped(&error)),
            }
        })
        .start()
        .await;
    let gate = gate(&origin).await;
    let chat = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let embed = json!({"model": "m", "input": "hi"}).to_string();
    let mut sent = 0;
    for form in ["plain", "gzip", "odd"] {
        for (path, body) in [
            ("/openai/v1/chat/completions", &chat),
            ("/openai/v1/chat/completions?bare", &chat),
            ("/anthropic/v1/messages", &chat),
            ("/anthropic/v1/messages?beta=true", &chat),
            ("/openai/v1/embeddings", &embed),
        ] {
            let fields = format!("Content-Type: application/json\r\nAccept-Encoding: gzip\r\nx-form: {form}\r\n");
            let answer = gate.send("POST", path, &fields, body.as_bytes()).await.unwrap();
            assert!(answer.text().contains("bad key ***"), "{form} {path}: {} {}", answer.status, answer.text());
            assert!(!answer.text().contains("Cd34"), "{form} {path}: {}", answer.text());
            sent += 1;
        }
    }
    for flow in gate.proxy.flows(sent).await {
        let text = String::from_utf8_lossy(&flow.received).into_owned();
        assert!(!text.contains("Cd34"), "recorded: {text}");
    }
}

#[tokio::test]
async fn a_reply_in_a_coding_keeps_its_text() {
    let reply = json!({"data": [{"embedding": [0.5]}], "note": "sk-operator is not a key"}).to_string();
    let body = reply.clone();
    let origin = Origin::http()
        .answering(move |_| {
            let reply = Reply::ok(zipped(&body)).header("Content-Type", "application/json");
            reply.header("Content-Encoding", "gzip")
        })
        .start()
        .await;
    let gate = gate(&origin).await;
    let answer = gate.post("/openai/v1/embeddings", json!({"model": "m", "input": "hi"}).to_string()).await;
    assert_eq!((answer.text(), answer.header("content-encoding")), (reply, None));
}

#[tokio::test]
async fn a_key_is_masked_whichever_of_its_characters_are_escaped() {
    for form in escaped_keys() {
        let told = format!(r#"{{"error":{{"message":"bad key {form}.","type":"x"}}}}"#);
        for status in [200, 401] {
            let told = told.clone();
            let origin = Origin::http()
                .answering(move |_| Reply::status(status).header("Content-Type", "application/json").body(told.clone()))
                .start()
                .await;
            let gate = gate(&origin).await;
            let body =
                json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}).to_string();
            for path in ["/openai/v1/chat/completions", "/anthropic/v1/messages", "/openai/v1/embeddings"] {
                let text = gate.post(path, &body).await.json()["error"]["message"].to_string();
                assert!(
                    text.contains("bad key **") && !text.contains('%') && !text.contains("Cd34"),
                    "{status} {path}: {text}"
                );
            }
        }
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
