//! The fake LLM provider conforms to the providers' wire formats.

use interflow_testkit::{Answer, Origin, Wire, llm};
use serde_json::{Value, json};

async fn post(origin: &Origin, path: &str, body: &Value) -> Answer {
    let body = body.to_string();
    let mut wire = Wire::connect(origin.addr()).await.unwrap();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer k\r\nContent-Length: {}\r\n\r\n", body.len());
    wire.send(head + &body).await.unwrap();
    wire.answer().await.unwrap()
}

fn question(stream: bool) -> Value {
    json!({ "model": "fake-large", "max_tokens": 9, "stream": stream, "messages": [{ "role": "user", "content": "hi é there" }] })
}

fn data(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let text = answer.text();
    let lines: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("data: ")).collect();
    lines.into_iter().filter(|d| *d != "[DONE]").map(|d| serde_json::from_str(d).unwrap()).collect()
}

fn joined(events: &[Value], path: &str) -> String {
    events.iter().filter_map(|e| e.pointer(path).and_then(Value::as_str)).collect()
}

#[tokio::test]
async fn concatenated_deltas_equal_the_text_in_every_format() {
    let (origin, _) = llm::start().await;
    let cases = [
        ("/v1/messages?echo=1&chunks=3", "/delta/text"),
        ("/v1/chat/completions?echo=1&chunks=3", "/choices/0/delta/content"),
    ];
    for (path, pointer) in cases {
        let events = data(&post(&origin, path, &question(true)).await);
        assert_eq!(joined(&events, pointer), "hi é there", "{path}");
    }
    let asked = json!({ "model": "m", "input": "hi é there", "stream": true });
    let events = data(&post(&origin, "/v1/responses?echo=1&chunks=3", &asked).await);
    assert_eq!(joined(&events[..events.len() - 1], "/delta"), "hi é there");
    let numbers: Vec<u64> = events.iter().map(|e| e["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.last().unwrap()["response"]["output"][0]["content"][0]["text"], "hi é there");
}

#[tokio::test]
async fn an_anthropic_stream_opens_and_closes_each_block_once() {
    let (origin, _) = llm::start().await;
    let answer = post(&origin, "/v1/messages?chunks=5&size=100&tool=weather&thinking=1", &question(true)).await;
    let events = data(&answer);
    let count = |kind: &str| events.iter().filter(|e| e["type"] == kind).count();
    assert_eq!((count("content_block_start"), count("content_block_stop")), (3, 3));
    assert_eq!(events.iter().filter(|e| e["delta"]["type"] == "text_delta").count(), 5);
    assert_eq!(joined(&events, "/delta/partial_json"), r#"{"city":"Paris","days":3}"#);
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    let stop = &events[events.len() - 2];
    assert_eq!((&stop["delta"]["stop_reason"], &stop["usage"]["output_tokens"]), (&json!("tool_use"), &json!(25)));
}

#[tokio::test]
async fn whole_responses_contain_text_tools_and_usage() {
    let (origin, _) = llm::start().await;
    let anthropic = post(&origin, "/v1/messages?text=a+b&tool=t", &question(false)).await.json();
    assert_eq!(anthropic["content"][0]["text"], "a b");
    assert_eq!(anthropic["content"][1]["input"]["city"], "Paris");
    assert_eq!(anthropic["usage"]["output_tokens"], 1);
    let chat = post(&origin, "/v1/chat/completions?tool=t", &question(false)).await.json();
    assert_eq!(chat["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "t");
    assert_eq!(chat["choices"][0]["finish_reason"], "tool_calls");
    let asked = json!({ "model": "m", "input": "x" });
    let responses = post(&origin, "/v1/responses?thinking=1", &asked).await.json();
    assert_eq!(responses["output"][0]["type"], "reasoning");
    let count = post(&origin, "/v1/messages/count_tokens", &question(false)).await.json();
    assert!(count["input_tokens"].as_u64().unwrap() > 10);
}

#[tokio::test]
async fn errors_have_the_providers_format() {
    let (origin, received) = llm::start().await;
    let limited = post(&origin, "/v1/messages?status=429", &question(true)).await;
    assert_eq!((limited.status, limited.header("retry-after")), (429, Some("1")));
    assert_eq!(limited.json()["error"]["type"], "rate_limit_error");
    assert_eq!(post(&origin, "/v1/messages?status=529", &question(true)).await.status, 529);
    assert_eq!(received.refused(), 0);
    assert_eq!(post(&origin, "/v1/chat/completions", &json!({ "model": "m" })).await.status, 400);
    assert_eq!(post(&origin, "/v1/nothing", &question(true)).await.status, 404);
    assert_eq!(received.refused(), 1);
}

#[tokio::test]
async fn markers_are_found_in_bodies_and_heads() {
    let (origin, received) = llm::start().await;
    received.watch_for("hi é");
    received.watch_for("Bearer k");
    received.watch_for("not there");
    post(&origin, "/v1/messages", &question(false)).await;
    let seen: Vec<u64> = received.sightings().iter().map(|(_, n)| *n).collect();
    assert_eq!(seen, [1, 1, 0]);
    assert!(std::panic::catch_unwind(|| received.assert_nothing_leaked()).is_err());
}

#[tokio::test]
async fn equal_requests_get_equal_bytes_unless_stamped() {
    let (origin, _) = llm::start().await;
    let plain = "/v1/messages?chunks=2";
    assert_eq!(post(&origin, plain, &question(true)).await.body, post(&origin, plain, &question(true)).await.body);
    let stamped = post(&origin, "/v1/messages?chunks=2&stamp=1&gap=3", &question(true)).await;
    let times: Vec<u64> = data(&stamped)
        .iter()
        .filter_map(|e| e.pointer("/delta/text").and_then(Value::as_str).map(|t| t[..19].parse().unwrap()))
        .collect();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    assert!(times.len() == 2 && times[0] < times[1] && times[1] <= now, "{times:?} {now}");
    assert!(now - times[0] < 60_000_000_000, "{times:?} {now}");
}

#[tokio::test]
async fn models_refuse_what_their_providers_document() {
    let (origin, received) = llm::start().await;
    let messages = |more: Value| {
        let mut body =
            json!({ "model": "claude-opus-5-5", "max_tokens": 9, "messages": [{ "role": "user", "content": "q" }] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let tool = json!([{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }]);
    let chat = |model: &str, effort: Value| {
        let mut body = json!({ "model": model, "tools": tool, "messages": [{ "role": "user", "content": "q" }] });
        if !effort.is_null() {
            body["reasoning_effort"] = effort;
        }
        body
    };
    let thought = json!([{ "role": "user", "content": "q" }, { "role": "assistant", "content": [
        { "type": "thinking", "thinking": "", "signature": "EqQB" }, { "type": "text", "text": "a" },
    ] }, { "role": "user", "content": "more" }]);
    for (path, body, why) in [
        ("/v1/messages", messages(json!({ "temperature": 1 })), "temperature"),
        ("/v1/messages", messages(json!({ "thinking": { "type": "disabled" } })), "thinking"),
        ("/v1/messages", messages(json!({ "messages": thought })), "bound to a different conversation"),
        ("/v1/chat/completions", chat("gpt-6.2-sol", Value::Null), "Function tools"),
        ("/v1/chat/completions", chat("gpt-6.2-sol", json!("none")), "reasoning_effort"),
        ("/v1/chat/completions", chat("gpt-5.4", Value::Null), ""),
        ("/v1/messages", messages(json!({ "thinking": { "type": "adaptive" } })), ""),
    ] {
        let version = "anthropic-version: 2026-10-21\r\nx-strict: 1\r\n";
        let body = body.to_string();
        let mut wire = Wire::connect(origin.addr()).await.unwrap();
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer k\r\n{version}Content-Length: {length}\r\n\r\n"
        );
        wire.send(head + &body).await.unwrap();
        let answer = wire.answer().await.unwrap();
        assert_eq!(answer.status, if why.is_empty() { 200 } else { 400 }, "{body}: {}", answer.text());
        assert!(answer.text().contains(why), "{}", answer.text());
    }
    assert_eq!(received.refused(), 5);
}
