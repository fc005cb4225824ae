//! Providers' WebSocket APIs through the built binary: Gemini Live, keys and limits, and messages inserted by rules.

use futures_util::{SinkExt, StreamExt};
use interflow_testkit::{Answer, Origin, Reply, Wire, llm};
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;

use crate::instance::{Home, Running};

const SSN: &str = "123-45-6789";
const MAIL: &str = "anna.berg@firm.com";
const LIVE: &str = "/gemini/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent?key=k";

type Socket = WebSocketStream<Wire>;

/// Opens a WebSocket; returns the response head and the connection.
async fn knock(running: &Running, path: &str, fields: &str) -> (Answer, Wire) {
    let mut wire = Wire::connect(running.gateway).await.unwrap();
    wire.send(format!(
        "GET {path} HTTP/1.1\r\nHost: gate\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{fields}\r\n"
    ))
    .await
    .unwrap();
    let answer =
        if fields.is_empty() || fields.contains("ifk_") { wire.answer_head().await } else { wire.answer().await };
    (answer.unwrap(), wire)
}

async fn open(running: &Running, path: &str) -> Socket {
    let wire = Wire::connect(running.gateway).await.unwrap();
    tokio_tungstenite::client_async(format!("ws://gate{path}"), wire.patience(None)).await.unwrap().0
}

async fn tell(socket: &mut Socket, event: Value) {
    socket.send(Frame::text(event.to_string())).await.unwrap();
}

/// Reads events up to the one that contains this text.
async fn until(socket: &mut Socket, last: &str) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        let next = tokio::time::timeout(std::time::Duration::from_secs(10), socket.next()).await;
        let message = next.unwrap_or_else(|_| panic!("no {last} behind {all:?}")).expect("an event").unwrap();
        let text = String::from_utf8_lossy(&message.into_data()).into_owned();
        all.push(serde_json::from_str(&text).unwrap());
        if text.contains(last) {
            return all;
        }
    }
}

/// A fake Gemini Live server: echoes the text in chunks of four letters and calls a function with it.
fn live(text: &str) -> Vec<String> {
    let Ok(event) = serde_json::from_str::<Value>(text) else { return Vec::new() };
    if event["setup"].is_object() {
        return vec![json!({"setupComplete": {}}).to_string()];
    }
    let told = event.pointer("/clientContent/turns/0/parts/0/text").or(event.pointer("/realtimeInput/text"));
    let Some(told) = told.and_then(Value::as_str) else { return Vec::new() };
    let piece = |t: &[u8]| {
        let text = std::str::from_utf8(t).unwrap();
        json!({"serverContent": {"modelTurn": {"parts": [{"text": text}]}}}).to_string()
    };
    let call = json!({"toolCall": {"functionCalls": [{"id": "f1", "name": "f", "args": {"who": told}}]}}).to_string();
    let end = json!({"serverContent": {"turnComplete": true}, "usageMetadata": {"promptTokenCount": 3, "responseTokenCount": 4, "totalTokenCount": 7}});
    told.as_bytes().chunks(4).map(piece).chain([call, end.to_string()]).collect()
}

#[tokio::test]
async fn geminis_live_is_redacted_and_restored() {
    let home = Home::new().await;
    let provider = Origin::http().answering(|_| Reply::websocket(live)).start().await;
    let running = home.start(&format!("[llm.provider.gemini]\nurl = \"{}\"\n", provider.url("")));
    let mut socket = open(&running, LIVE).await;
    tell(
        &mut socket,
        json!({"setup": {"model": "models/g", "systemInstruction": {"parts": [{"text": format!("for {MAIL}")}]}}}),
    )
    .await;
    until(&mut socket, "setupComplete").await;
    let said = format!("I am {MAIL}, SSN {SSN}, grade E");
    for event in [
        json!({"clientContent": {"turns": [{"role": "user", "parts": [{"text": said}]}], "turnComplete": true}}),
        json!({"realtimeInput": {"text": said}}),
    ] {
        tell(&mut socket, event).await;
        let events = until(&mut socket, "turnComplete").await;
        let text: String =
            events.iter().filter_map(|e| e.pointer("/serverContent/modelTurn/parts/0/text")?.as_str()).collect();
        assert_eq!(text, said);
        let called = events.iter().find_map(|e| e.pointer("/toolCall/functionCalls/0/args/who"));
        assert_eq!(called, Some(&Value::from(said.as_str())));
    }
    tell(&mut socket, json!({"unheardOf": SSN})).await;
    assert!(until(&mut socket, "unknown_event").await.len() == 1, "what is not known goes no further");
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    running.stop();
    let shown = home.say(&["flows", "show", "last"]).ok();
    assert!(shown.contains("setup") && !shown.contains(SSN) && !shown.contains(MAIL), "recorded redacted: {shown}");
    // The provider echoes everything it receives, so nothing may contain the redacted values.
    let exported = home.say(&["flows", "list", "--format", "jsonl"]).ok();
    assert!(exported.contains("found:ssn") && !exported.contains(SSN), "{exported}");
}

#[tokio::test]
async fn messages_injected_by_a_rule_are_redacted_or_refused() {
    let home = Home::new().await;
    let (builder, received) = llm::provider(Origin::http());
    received.watch_for(SSN);
    let provider = builder.start().await;
    let rules = r#"rules:
- when: {message: '*session.updated*', from: server}
  then: [{inject_message: {text: '{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":"my SSN is 123-45-6789"}]}}', to: back}}]
- when: {message: '*response.done*', from: server}
  then: [{inject_message: {text: '${message} of 123-45-6789', to: back}}]
"#;
    std::fs::write(home.dir.path().join("rules.yaml"), rules).unwrap();
    let running = home.start(&format!(
        "[rules]\nfiles = [\"{}\"]\n[llm.provider.openai]\nurl = \"{}\"\n",
        home.dir.path().join("rules.yaml").display(),
        provider.url("")
    ));
    let mut socket = open(&running, "/openai/v1/realtime?model=m&echo=1").await;
    tell(&mut socket, json!({"type": "session.update", "session": {}})).await;
    let added = until(&mut socket, "conversation.item.added").await;
    assert!(added.last().unwrap().to_string().contains(SSN), "it reached the provider, and its answer is restored");
    tell(&mut socket, json!({"type": "response.create"})).await;
    let events = until(&mut socket, "unknown_event").await;
    assert!(events.iter().any(|e| e["type"] == "response.done"), "{events:?}");
    tell(&mut socket, json!({"type": "session.update", "session": {}})).await;
    until(&mut socket, "session.updated").await;
    received.assert_nothing_leaked();
    drop(socket);
    running.stop();
}

#[tokio::test]
async fn virtual_keys_and_limits_apply_to_websockets() {
    let home = Home::new().await;
    let once = home.keys(&["add", "--id", "once", "--requests", "1/h"]).ok().trim().to_owned();
    let listed = home.keys(&["add", "--id", "listed", "--model", "gpt-*"]).ok().trim().to_owned();
    std::fs::write(home.dir.path().join("provider.key"), "sk-real\n").unwrap();
    let running = home.start(&format!(
        "[keys]\nrequire_virtual_key = true\n[llm.provider.openai]\nurl = \"{}\"\napi_key = \"file:{}\"\n",
        home.provider.url(""),
        home.dir.path().join("provider.key").display()
    ));
    let path = "/openai/v1/responses?chunks=3";
    for (fields, status, says) in [
        ("X: y\r\n".to_owned(), 401, "missing_api_key"),
        ("Authorization: Bearer ifx_wrong\r\n".to_owned(), 401, "invalid_api_key"),
    ] {
        let answer = knock(&running, path, &fields).await.0;
        assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (status, Some(says)));
    }
    let (refused, mut wire) = knock(&running, path, &format!("Authorization: Bearer {listed}\r\n")).await;
    assert_eq!(refused.status, 403, "a list of models cannot be held against a connection");
    assert!(String::from_utf8_lossy(&wire.some().await.unwrap()).contains("scope_denied_model"));
    assert!(home.provider.requests().is_empty());
    // The model list may be fetched.
    let models = running.ask("GET", "/openai/v1/models", &format!("Authorization: Bearer {listed}\r\n"), "").await;
    assert_eq!((models.status, models.json()["object"].as_str()), (200, Some("list")));

    let (opened, wire) = knock(&running, path, &format!("Authorization: Bearer {once}\r\n")).await;
    assert_eq!(opened.status, 101);
    let role = tokio_tungstenite::tungstenite::protocol::Role::Client;
    let mut socket = WebSocketStream::from_raw_socket(wire.patience(None), role, None).await;
    tell(
        &mut socket,
        json!({"type": "response.create", "model": "gpt-4o", "input": [{"role": "user", "content": "hello"}]}),
    )
    .await;
    until(&mut socket, "response.completed").await;
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    let seen = format!("{:?}", home.provider.requests().last().unwrap());
    assert!(seen.contains("Bearer sk-real") && !seen.contains("ifk_"), "{seen}");
    running
        .until(async || {
            let usage = running.admin("GET", "/api/v1/limits", "").await.json()["usage"].clone();
            usage.as_array().unwrap().iter().any(|u| u["key"] == "once" && u["output_tokens"].as_u64() > Some(0))
        })
        .await;
    let again = knock(&running, path, &format!("Authorization: Bearer {once}\r\n")).await.0;
    assert_eq!((again.status, again.header("retry-after").is_some()), (429, true));
    running.stop();
}
