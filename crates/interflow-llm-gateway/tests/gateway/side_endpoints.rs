//! Endpoints beside those of models: what agents send their vendors, and the counting of tokens.

use interflow_testkit::{Origin, Reply, Request};
use serde_json::{Value, json};

use super::key_scopes::key;
use super::{Gate, MAIL, SSN, arrived};

async fn vendor() -> Origin {
    Origin::http().answering(|_| Reply::json(&json!({ "features": {} }))).start().await
}

#[tokio::test]
async fn other_endpoints_of_an_agent_are_redacted_wherever_they_have_text() {
    let origin = vendor().await;
    let gate = Gate::start(&origin).await;
    for path in [
        "/api/eval/sdk-zAZezfDKGoZuXXKe",
        "/v1/memory_stores/m/memories",
        "/v1/code/sessions",
        "/v1/messages/cache_touch",
    ] {
        let body = json!({ "attributes": { "deep": [{ "mail": MAIL, "odd": format!("SSN {SSN}") }] }, "forcedVariations": {} });
        let answer = gate.post(&format!("/anthropic{path}"), body.to_string()).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let got = arrived(&origin);
        assert!(!got.contains(SSN) && !got.contains(MAIL) && got.contains("forcedVariations"), "{path}: {got}");
    }
    let odd = gate.post("/anthropic/api/unknown", json!({ "x": SSN }).to_string()).await;
    assert_eq!(odd.status, 400);
}

#[tokio::test]
async fn a_response_that_was_made_in_the_background_is_restored_for_its_owner() {
    for (path, list) in [("/openai/v1/responses", "output"), ("/gemini/v1beta/interactions", "steps")] {
        let said = std::sync::Mutex::new(String::new());
        let origin = Origin::http().answering(move |request: &Request| {
            let mut said = said.lock().unwrap();
            if request.method == "POST" {
                *said = String::from_utf8_lossy(&request.body).into_owned();
                return Reply::json(&json!({ "id": "r_1", "status": "queued", "model": "m" }));
            }
            let body: Value = serde_json::from_str(&said).unwrap();
            let content = json!([{ "type": "text", "text": body["input"] }]);
            Reply::json(
                &json!({ "id": "r_1", "status": "completed", list: [{ "type": "message", "content": content }] }),
            )
        });
        let origin = origin.start().await;
        let gate = Gate::start(&origin).await;
        let asked = json!({ "model": "m", "background": true, "input": format!("I am {MAIL}") });
        assert_eq!(gate.post(path, asked.to_string()).await.status, 200);
        assert!(!arrived(&origin).contains(MAIL));
        gate.proxy.flows(1).await;
        for (key, restored) in [("", true), ("Authorization: Bearer other\r\n", false)] {
            let answer = gate.send("GET", &format!("{path}/r_1"), key, b"").await.unwrap();
            assert_eq!(answer.text().contains(MAIL), restored, "{path} {key}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn what_keeps_a_cache_is_charged_as_far_as_the_provider_reports_it() {
    for (reported, charged) in [
        (json!({ "usage": { "input_tokens": 0, "cache_read_input_tokens": 90, "output_tokens": 0 } }), vec![90]),
        (json!({ "input_tokens": 90 }), vec![]),
    ] {
        let answer = reported.clone();
        let origin = Origin::http().answering(move |_| Reply::json(&answer)).start().await;
        let gate = Gate::with(&origin, |parts| parts.keys = key("k", "")).await;
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hello" }] }).to_string();
        let fields = "Authorization: Bearer ifk_k\r\nContent-Type: application/json\r\n";
        let answer = gate.send("POST", "/anthropic/v1/messages/cache_touch", fields, body.as_bytes()).await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        gate.proxy.flows(1).await;
        let rows = gate.limits.usage().rows();
        let inputs: Vec<u64> = rows.iter().map(|row| row.input_tokens).filter(|n| *n > 0).collect();
        assert_eq!(inputs, charged, "{reported}");
    }
}

#[tokio::test]
async fn zstd_coded_requests_are_read() {
    let origin = vendor().await;
    let gate = Gate::start(&origin).await;
    let body = json!({ "model": "m", "input": format!("I am {MAIL}") }).to_string();
    // One frame (RFC 8878 3.1) with one block as it is.
    let mut coded = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, body.len() as u8];
    coded.extend(&((body.len() as u32) << 3 | 1).to_le_bytes()[..3]);
    coded.extend(body.as_bytes());
    let fields = "Content-Type: application/json\r\nContent-Encoding: zstd\r\n";
    let answer = gate.send("POST", "/openai/v1/responses", fields, &coded).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let got = arrived(&origin);
    assert!(got.contains("EMAIL_") && !got.contains(MAIL), "{got}");
}

#[tokio::test]
async fn credentials_of_a_sign_in_are_sent_as_they_are() {
    let origin = vendor().await;
    let gate = Gate::start(&origin).await;
    let body =
        json!({ "grant_type": "refresh_token", "refresh_token": "sk-ant-ort01-8Jv2kQp0Xz7Lm4Rt9Wc", "email": MAIL });
    let answer = gate.post("/anthropic/v1/oauth/token", body.to_string()).await;
    assert_eq!((answer.status, arrived(&origin)), (200, body.to_string()));
}

#[tokio::test]
async fn tokens_are_estimated_where_an_upstream_has_no_endpoint_for_them() {
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "word ".repeat(100) }] }).to_string();
    for (status, error, expected) in [
        (404, json!({ "detail": "Not Found" }), (200, Some("estimate"))),
        (405, Value::Null, (200, Some("estimate"))),
        (404, json!({ "error": { "code": "model_not_found", "message": "no such model" } }), (404, None)),
        (429, json!({ "error": { "message": "slow down" } }), (429, None)),
    ] {
        let text = error.to_string();
        let origin = Origin::http().answering(move |_| Reply::status(status).body(text.clone())).start().await;
        let gate = Gate::start(&origin).await;
        let answer = gate.post("/openai/v1/messages/count_tokens", &body).await;
        assert_eq!((answer.status, answer.header("x-interflow-token-count")), expected, "{error}: {}", answer.text());
        assert!(origin.requests().last().unwrap().path().ends_with("/responses/input_tokens"));
        if answer.status == 200 {
            assert!((100..200).contains(&answer.json()["input_tokens"].as_u64().unwrap()), "{}", answer.text());
        }
    }
}

#[tokio::test]
async fn tokens_are_estimated_where_an_upstream_of_the_same_api_has_no_endpoint_for_them() {
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "word ".repeat(100) }] }).to_string();
    let not_found =
        |message: &str| json!({ "type": "error", "error": { "type": "not_found_error", "message": message } });
    for (status, error, expected) in [
        (404, json!({ "detail": "Not Found" }), (200, Some("estimate"))),
        (404, not_found("Not Found"), (200, Some("estimate"))),
        (405, Value::Null, (200, Some("estimate"))),
        (501, Value::Null, (200, Some("estimate"))),
        (404, not_found("model: m"), (404, None)),
        (429, json!({ "error": { "message": "slow down" } }), (429, None)),
        (200, json!({ "input_tokens": 7 }), (200, None)),
    ] {
        let text = error.to_string();
        let answering =
            move |_: &Request| Reply::status(status).header("Content-Type", "application/json").body(text.clone());
        let origin = Origin::http().answering(answering).start().await;
        let gate = Gate::start(&origin).await;
        let answer = gate.post("/anthropic/v1/messages/count_tokens", &body).await;
        assert_eq!((answer.status, answer.header("x-interflow-token-count")), expected, "{error}: {}", answer.text());
        match expected {
            (200, Some(_)) => assert!((100..200).contains(&answer.json()["input_tokens"].as_u64().unwrap())),
            _ => assert_eq!(answer.json(), error),
        }
    }
}
