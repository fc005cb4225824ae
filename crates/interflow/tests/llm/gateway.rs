//! Common handling of gateway requests: request IDs and the concurrency limit.

use interflow_testkit::{Answer, Origin, Reply, Wire, client_trusting};
use serde_json::{Value, json};

use crate::instance::{Home, Running};
use crate::{CHAT, code};

const PATH: &str = "/openai/v1/chat/completions";

fn upstreams(provider: &Origin) -> String {
    format!("[llm.provider.openai]\nurl = \"{}\"\n", provider.url(""))
}

fn request_id(answer: &Answer) -> String {
    answer.header("x-request-id").expect("every answer has an id").to_owned()
}

#[tokio::test]
async fn request_id_is_the_same_for_client_provider_recording_and_audit_log() {
    let home = Home::new().await;
    let provider =
        Origin::http().answering(|_| Reply::json(&json!({})).header("X-Request-Id", "req_theirs")).start().await;
    let running = home.start(&format!("[audit]\nenabled = true\n{}", upstreams(&provider)));
    let answer = running.post(PATH, "X-Request-Id: mine-1 ~\r\n", CHAT).await;
    assert_eq!((answer.status, request_id(&answer).as_str()), (200, "mine-1 ~"));
    assert_eq!(answer.header("x-upstream-request-id"), Some("req_theirs"));
    assert_eq!(provider.requests().last().unwrap().header("x-request-id"), Some("mine-1 ~"));
    // An invalid ID is replaced by the flow ID.
    let long = format!("X-Request-Id: {}\r\n", "x".repeat(129));
    for fields in ["", "X-Request-Id: caf\u{e9}\r\n", "X-Request-Id: a\r\nX-Request-Id: b\r\n", &long] {
        let id = request_id(&running.post(PATH, fields, CHAT).await);
        assert!(id.len() == 26 && id.bytes().all(|b| b.is_ascii_alphanumeric()), "{fields}: {id}");
        assert_eq!(provider.requests().last().unwrap().header("x-request-id"), Some(id.as_str()), "{fields}");
    }
    running.until(async || home.file("audit.jsonl").lines().count() == 5).await;
    let line: Value = serde_json::from_str(home.file("audit.jsonl").lines().next().unwrap()).unwrap();
    assert_eq!(line["request_id"], "mine-1 ~");
    assert_ne!(line["document_id"], "mine-1 ~");
    running.stop();
    let kept = home.say(&["flows", "export", "--format", "har"]).ok();
    assert_eq!(kept.matches("mine-1 ~").count(), 2, "the record has it in the request and in the response");
}

#[tokio::test]
async fn gateway_error_responses_carry_the_request_id() {
    let home = Home::new().await;
    let nobody = Origin::nobody().await;
    let config = format!("[keys]\nrequire_virtual_key = true\n[llm.provider.local]\nurl = \"http://{nobody}\"\n");
    let key = home.keys(&["add"]).ok().trim().to_owned();
    let running = home.start(&config);
    let known = format!("X-Interflow-Key: {key}\r\nAuthorization: Bearer own\r\n");
    for (path, fields, status) in [
        ("/local/v1/chat/completions", "", 401),
        ("/local/v1/chat/completions", known.as_str(), 502),
        ("/local/v1//chat", known.as_str(), 400),
        ("/no/such/route", "", 404),
    ] {
        let answer = running.post(path, &format!("X-Request-Id: mine\r\n{fields}"), CHAT).await;
        let text = answer.text();
        assert_eq!((answer.status, request_id(&answer).as_str()), (status, "mine"), "{path}: {text}");
        if status != 404 {
            assert_eq!(answer.json()["error"]["request_id"], "mine", "{text}");
            assert!(answer.header("x-interflow-flow").is_some_and(|id| id.len() == 26));
        }
    }
    running.stop();
}

#[tokio::test]
async fn a_virtual_key_in_two_places_is_sent_to_no_provider() {
    let home = Home::new().await;
    let provider = Origin::http().answering(|_| Reply::json(&json!({"choices": []}))).start().await;
    let key = home.keys(&["add"]).ok().trim().to_owned();
    let running = home.start(&upstreams(&provider));
    for (query, field) in [
        (String::new(), format!("Authorization: Bearer {key}\r\n")),
        (String::new(), format!("x-api-key: {key}\r\n")),
        (String::new(), format!("api-key: {key}\r\n")),
        (String::new(), format!("Authorization: Bearer own\r\nx-goog-api-key: {key}\r\n")),
        (format!("?key={key}"), String::new()),
    ] {
        let fields = format!("X-Interflow-Key: {key}\r\n{field}");
        let answer = running.post(&format!("{PATH}{query}"), &fields, CHAT).await;
        assert_eq!(code(&answer), "provider_key_missing", "{field}{query}");
    }
    let own = format!("X-Interflow-Key: {key}\r\nAuthorization: Bearer own\r\n");
    assert_eq!(running.post(PATH, &own, CHAT).await.status, 200);
    let requests = provider.requests();
    assert_eq!(requests.last().unwrap().header("authorization"), Some("Bearer own"), "the client's own is kept");
    for request in requests {
        let head = String::from_utf8_lossy(&request.raw_head);
        assert!(!head.contains(&key), "{head}");
    }
    running.stop();
}

#[tokio::test]
async fn gateway_serves_tls_with_its_own_ca_if_configured() {
    let home = Home::new().await;
    let provider = Origin::http().answering(|_| Reply::json(&json!({"choices": []}))).start().await;
    let running = home.start(&format!("[gateway]\ntls_self_signed = true\n{}", upstreams(&provider)));
    let ca = home.say(&["ca", "export"]).ok();
    // The certificate covers the gateway's names and its address, which SNI cannot carry; for other names the address
    // certificate is used.
    for (name, good) in [("localhost", true), ("127.0.0.1", true), ("bank.example", false)] {
        let wire = Wire::connect(running.gateway).await.unwrap();
        let opened = wire.into_tls(name, client_trusting(&ca, &["http/1.1"])).await;
        assert_eq!(opened.is_ok(), good, "{name}");
        let Ok(mut wire) = opened else { continue };
        let n = CHAT.len();
        wire.send(format!("POST {PATH} HTTP/1.1\r\nHost: {name}\r\nContent-Length: {n}\r\n\r\n{CHAT}")).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 200, "{name}");
    }
    assert_eq!(running.post(PATH, "", CHAT).await.status, 200, "cleartext is served beside it");
    running.stop();
}

/// A request whose body has not been sent yet.
async fn begun(running: &Running) -> Wire {
    let mut wire = Wire::connect(running.gateway).await.unwrap();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        CHAT.len()
    );
    wire.send(head).await.unwrap();
    // 100 Continue is sent only to admitted requests.
    let interim = wire.head().await.unwrap().unwrap();
    assert!(interim.starts_with(b"HTTP/1.1 100"), "{interim:?}");
    wire
}

#[tokio::test]
async fn requests_over_the_concurrency_limit_get_503_and_slots_are_released() {
    let home = Home::new().await;
    let provider = Origin::http().answering(|_| Reply::json(&json!({"choices": []}))).start().await;
    let running = home.start(&format!("[gateway]\nmax_concurrent_requests = 2\n{}", upstreams(&provider)));
    let (mut first, second) = (begun(&running).await, begun(&running).await);
    let refused = running.post(PATH, "", CHAT).await;
    let body = refused.json();
    assert_eq!((refused.status, code(&refused).as_str()), (503, "concurrency_exceeded"), "{body}");
    assert_eq!((&body["error"]["type"], refused.header("retry-after")), (&json!("capacity"), Some("1")));
    assert_eq!(provider.served(), 0);
    let page = running.admin("GET", "/metrics", "").await.text();
    for line in [
        "interflow_llm_requests_in_flight_limit 2",
        "interflow_llm_requests_in_flight 2",
        "interflow_llm_rejected_requests_total{code=\"concurrency_exceeded\"} 1",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    // Texts take slots too; health probes are always answered.
    assert_eq!(running.ask("POST", "/api/filter", "Content-Type: text/plain\r\n", "x").await.status, 503);
    assert_eq!(running.ask("GET", "/livez", "", "").await.status, 200);
    // One request completes and one is cancelled: both slots are free again.
    first.send(CHAT).await.unwrap();
    assert_eq!(first.answer().await.unwrap().status, 200);
    drop(second);
    running
        .until(async || {
            let (third, fourth) =
                (running.post(PATH, "", CHAT).await.status, running.post(PATH, "", CHAT).await.status);
            (third, fourth) == (200, 200)
        })
        .await;
    // A slot is released just after its response.
    let in_flight = "interflow_llm_requests_in_flight 0";
    running.until(async || running.admin("GET", "/metrics", "").await.text().contains(in_flight)).await;
    drop((begun(&running).await, begun(&running).await));
    running.stop();
}
