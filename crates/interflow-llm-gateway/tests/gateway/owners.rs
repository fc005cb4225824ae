//! The originals of one client are restored for that client alone, whatever ids another one names.

use std::sync::{Arc, Mutex};

use futures_util::{SinkExt, StreamExt};
use interflow_testkit::{Origin, Reply, Wire};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::key_scopes::key;
use super::{Gate, MAIL};

/// A provider that repeats what it was told first, over HTTP and in WebSockets.
async fn elephant() -> Origin {
    let first = Arc::new(Mutex::new(None::<String>));
    let reply = |text: &str| {
        let content = json!([{"type": "output_text", "text": text}]);
        json!({"id": "resp_7", "model": "m", "output": [{"type": "message", "content": content}]})
    };
    let respond = move |request: &interflow_testkit::Request| {
        if request.header("upgrade").is_some() {
            let first = Arc::clone(&first);
            return Reply::websocket(move |_| {
                let text = first.lock().unwrap().clone().unwrap_or_default();
                vec![json!({"type": "response.completed", "response": reply(&text)}).to_string()]
            });
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let said = body["input"].as_str().unwrap_or_default().to_owned();
        Reply::json(&reply(first.lock().unwrap().get_or_insert(said)))
    };
    Origin::http().answering(respond).start().await
}

async fn ask(gate: &Gate, input: &str, previous: Option<&str>, fields: &str) -> String {
    let body = json!({"model": "m", "input": input, "previous_response_id": previous}).to_string();
    let fields = format!("Content-Type: application/json\r\n{fields}");
    let answer = gate.send("POST", "/v1/responses", &fields, body.as_bytes()).await.unwrap().json();
    answer["output"][0]["content"][0]["text"].as_str().unwrap().to_owned()
}

async fn ask_by_websocket(gate: &Gate, key: &str) -> String {
    let told = event_of_websocket(gate, key).await;
    told["response"]["output"][0]["content"][0]["text"].as_str().unwrap().to_owned()
}

async fn event_of_websocket(gate: &Gate, key: &str) -> Value {
    let wire = Wire::connect(gate.proxy.gateway()).await.unwrap();
    let mut request = "ws://gate/openai/v1/responses".into_client_request().unwrap();
    request.headers_mut().insert("x-api-key", key.parse().unwrap());
    let (mut socket, _) = tokio_tungstenite::client_async(request, wire.patience(None)).await.unwrap();
    let event =
        json!({"type": "response.create", "model": "m", "input": "who am I?", "previous_response_id": "resp_7"});
    socket.send(Frame::text(event.to_string())).await.unwrap();
    let told = socket.next().await.expect("an event").unwrap();
    serde_json::from_str(told.to_text().unwrap()).unwrap()
}

#[tokio::test]
async fn another_clients_response_id_does_not_lead_to_its_originals() {
    let origin = elephant().await;
    let gate = Gate::start(&origin).await;
    let said = format!("I am {MAIL}");
    assert_eq!(ask(&gate, &said, None, "").await, said);
    gate.proxy.flows(1).await;
    let other = ask(&gate, "who am I?", Some("resp_7"), "Authorization: Bearer other\r\n").await;
    assert!(other.starts_with("I am EMAIL_"), "{other}");
    let other = ask_by_websocket(&gate, "other").await;
    assert!(other.starts_with("I am EMAIL_"), "{other}");
    assert_eq!(ask(&gate, "who am I?", Some("resp_7"), "").await, said, "the owner's own");
    assert_eq!(ask_by_websocket(&gate, "k").await, said, "the owner's own");
}

#[tokio::test]
async fn a_websocket_does_not_continue_the_response_of_another_key() {
    let origin = elephant().await;
    let gate = Gate::with(&origin, |parts| {
        let deployments = json!([{"provider": "openai", "model": "m"}, {"provider": "openai", "model": "n"}]);
        let route = json!({ "deployments": deployments });
        parts.llm.route.insert("smart".into(), serde_json::from_value(route).unwrap());
        parts.keys = key("k", "") + &key("l", "");
    })
    .await;
    let body = json!({"model": "smart", "input": "hello"}).to_string();
    let fields = "Content-Type: application/json\r\nAuthorization: Bearer ifk_k\r\n";
    let wire = gate.send("POST", "/v1/responses", fields, body.as_bytes()).await.unwrap();
    assert_eq!(wire.json()["id"], "resp_7", "{}", wire.text());
    let refused = event_of_websocket(&gate, "ifk_l").await;
    assert_eq!(refused["error"]["code"], "previous_response_not_found", "{refused}");
    assert_eq!(event_of_websocket(&gate, "ifk_k").await["response"]["id"], "resp_7");
}

#[tokio::test]
async fn a_response_of_the_only_provider_is_its_keys_alone() {
    for by_websocket in [false, true] {
        let origin = elephant().await;
        let gate = Gate::with(&origin, |parts| parts.keys = key("k", "") + &key("l", "")).await;
        let fields = |key: &str| format!("Content-Type: application/json\r\nAuthorization: Bearer ifk_{key}\r\n");
        let body = |previous: Option<&str>| {
            json!({"model": "m", "input": "hello", "previous_response_id": previous}).to_string()
        };
        let post = async |key: &str, previous: Option<&str>| {
            gate.send("POST", "/v1/responses", &fields(key), body(previous).as_bytes()).await.unwrap().json()
        };
        let made = match by_websocket {
            true => event_of_websocket(&gate, "ifk_k").await["response"].clone(),
            false => post("k", None).await,
        };
        assert_eq!(made["id"], "resp_7", "{made}");
        let served = origin.served();
        let by_id = gate.send("GET", "/v1/responses/resp_7", &fields("l"), b"").await.unwrap().json();
        for refused in [by_id, post("l", Some("resp_7")).await, event_of_websocket(&gate, "ifk_l").await] {
            assert_eq!(refused["error"]["code"], "previous_response_not_found", "{refused}");
        }
        assert_eq!(origin.served(), served + 1, "the provider got no request but that for the WebSocket");
        assert_eq!(post("k", Some("resp_7")).await["id"], "resp_7");
    }
}

#[tokio::test]
async fn a_stored_conversation_is_restored_for_its_owner_alone() {
    for conversation in [json!("conv_1"), json!({"id": "conv_1"})] {
        let origin = elephant().await;
        let gate = Gate::start(&origin).await;
        let turn = async |input: &str, fields: &str| {
            let body = json!({"model": "m", "input": input, "conversation": conversation}).to_string();
            let fields = format!("Content-Type: application/json\r\n{fields}");
            let answer = gate.send("POST", "/v1/responses", &fields, body.as_bytes()).await.unwrap().json();
            answer["output"][0]["content"][0]["text"].as_str().unwrap().to_owned()
        };
        let said = format!("I am {MAIL}");
        assert_eq!(turn(&said, "").await, said);
        gate.proxy.flows(1).await;
        assert_eq!(turn("who am I?", "").await, said, "{conversation}");
        let other = turn("who am I?", "Authorization: Bearer other\r\n").await;
        assert!(other.starts_with("I am EMAIL_"), "{other}");
    }
}
