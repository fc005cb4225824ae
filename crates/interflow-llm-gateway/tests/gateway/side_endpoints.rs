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

#[tokio::test]
async fn what_cancels_a_response_or_a_batch_may_have_an_empty_body_and_its_text_is_read() {
    let origin = vendor().await;
    let gate = Gate::start(&origin).await;
    for path in [
        "/gemini/v1beta/interactions/v1_a/cancel",
        "/gemini/v1beta/batches/b_1:cancel",
        "/openai/v1/responses/resp_1/cancel",
        "/anthropic/v1/messages/batches/b_1/cancel",
    ] {
        assert_eq!(gate.post(path, "{}").await.status, 200, "{path}");
        assert_eq!(gate.post(path, json!({ "reason": MAIL }).to_string()).await.status, 200, "{path}");
        assert!(!arrived(&origin).contains(MAIL), "{path}: {}", arrived(&origin));
    }
}

/// Google's protocols of uploads: a URL to send the file to, or the file itself.
async fn google() -> Origin {
    let answer = |request: &Request| {
        let base = format!("http://{}/upload/v1beta/files?upload_id=u1", request.header("host").unwrap());
        let reply = Reply::json(&json!({ "file": { "name": "files/f" } }));
        match request.header("x-goog-upload-command") {
            Some("start") => reply.header("X-Goog-Upload-URL", &base),
            _ => reply,
        }
    };
    Origin::http().answering(answer).start().await
}

#[tokio::test]
async fn a_file_that_is_uploaded_to_gemini_is_redacted_and_does_not_pass_the_gateway_by() {
    let origin = google().await;
    let gate = Gate::start(&origin).await;
    let json = "Content-Type: application/json\r\n";
    for path in ["/upload/v1beta/files", "/gemini/upload/v1beta/files"] {
        let fields = "X-Goog-Upload-Protocol: resumable\r\nX-Goog-Upload-Command: start\r\n\
            X-Goog-Upload-Header-Content-Length: 15\r\nX-Goog-Upload-File-Name: anna.berg@firm.com.txt\r\n";
        let named = json!({ "file": { "display_name": format!("of {MAIL}") } }).to_string();
        let started = gate.send("POST", path, &format!("{json}{fields}"), named.as_bytes()).await.unwrap();
        let url = started.header("x-goog-upload-url").unwrap_or_default().to_owned();
        assert_eq!((started.status, url.as_str()), (200, "http://gate/gemini/upload/v1beta/files?upload_id=u1"));
        let sent = origin.requests().pop().unwrap();
        assert_eq!(sent.header("x-goog-upload-header-content-length"), None, "the file's length is going to change");
        assert!(!format!("{sent:?}").contains("anna.berg") && !arrived(&origin).contains(MAIL), "{sent:?}");
        let target = url.strip_prefix("http://gate").unwrap();
        let piece = |command: &str, offset: &str| {
            format!("X-Goog-Upload-Command: {command}\r\nX-Goog-Upload-Offset: {offset}\r\n")
        };
        let put = async |fields: String, content: &[u8]| gate.send("POST", target, &fields, content).await.unwrap();
        let text = format!("SSN {SSN}");
        for media_type in ["", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n"] {
            let answer = put(piece("upload, finalize", "0") + media_type, text.as_bytes()).await;
            assert_eq!(answer.status, 200, "{media_type}: {}", answer.text());
            assert!(arrived(&origin).starts_with("SSN SSN_"), "{media_type}: {}", arrived(&origin));
        }
        let lines = format!("{{\"a\":\"{MAIL}\"}}\n{{\"a\":\"\\u0061nna.berg@firm.com\"}}\n");
        assert_eq!(put(piece("upload, finalize", "0"), lines.as_bytes()).await.status, 200);
        assert_eq!(arrived(&origin).matches("EMAIL_").count(), 2, "{}", arrived(&origin));
        let served = origin.served();
        for (command, offset) in [("upload", "0"), ("upload, finalize", "8")] {
            let answer = put(piece(command, offset), text.as_bytes()).await;
            assert!(
                answer.status == 400 && answer.text().contains("send the file in one request"),
                "{}",
                answer.text()
            );
        }
        assert_eq!(origin.served(), served);
        let picture = b"\x89PNG\r\n\x1a\n\xff\x01".as_slice();
        for (command, offset) in [("upload", "0"), ("upload, finalize", "8"), ("upload, finalize", "0")] {
            assert_eq!(put(piece(command, offset), picture).await.status, 200);
            assert_eq!(origin.requests().last().unwrap().body, picture);
        }
        let parts = format!(
            "--b\r\nContent-Type: application/json\r\n\r\n{named}\r\n--b\r\nContent-Type: text/plain\r\n\r\n{text}\r\n--b--\r\n"
        );
        let fields = "X-Goog-Upload-Protocol: multipart\r\nContent-Type: multipart/related; boundary=b\r\n";
        assert_eq!(gate.send("POST", path, fields, parts.as_bytes()).await.unwrap().status, 200);
        let sent = arrived(&origin);
        assert!(
            sent.contains("SSN_") && sent.contains("EMAIL_") && !sent.contains(SSN) && !sent.contains(MAIL),
            "{sent}"
        );
    }
}

#[tokio::test]
async fn uploads_to_gemini_that_are_no_text_follow_the_rules_for_media() {
    let origin = google().await;
    let gate = Gate::with(&origin, |parts| parts.redact.images = interflow_redact::MediaRule::Refuse).await;
    let fields = "X-Goog-Upload-Command: upload, finalize\r\nX-Goog-Upload-Offset: 0\r\n";
    let put =
        async |content: &[u8]| gate.send("POST", "/gemini/upload/v1beta/files", fields, content).await.unwrap().status;
    assert_eq!((put(b"\x89PNG\r\n\x1a\n\xff\x01").await, put(b"%PDF-1.7\n\xe2\xe3\x01\0").await), (403, 200));
}

#[tokio::test]
async fn values_of_query_parameters_are_redacted_whatever_their_names() {
    let origin = vendor().await;
    let gate = Gate::start(&origin).await;
    for name in ["order", "after", "before", "limit", "purpose", "model", "alt", "beta", "api-version"] {
        // A number behind `model` is that of a device.
        for value in [MAIL, SSN].into_iter().filter(|value| name != "model" || *value == MAIL) {
            let answer = gate.send("GET", &format!("/openai/v1/files?{name}={value}"), "", b"").await.unwrap();
            let target = origin.requests().pop().unwrap().target;
            assert!(answer.status == 200 && !target.contains(value), "{target}");
        }
    }
    let ids = [
        "resp_68af4030592c81938ec0a5fbab4a3e9f05438e46b5f69a3b",
        "msgbatch_013Zva2CMHLNnXjNJJKqJ2EF",
        "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "file-XjGxS3KTG0uNmNOK362iJua3",
        "file_011CNha8iCJcU1wXNR6q4V8w",
        "0f2a7a3e-1d3c-4f8e-9f3e-2b1c6d5e4f3a",
    ];
    let target =
        "/openai/v1/files?model=moonshotai/Kimi-K2.7&model=gpt-5.6-luna-2026-07-09&model=claude-opus-4-5@20251101";
    gate.send("GET", target, "", b"").await.unwrap();
    assert_eq!(format!("/openai{}", origin.requests().pop().unwrap().target), target);
    for value in ids {
        for name in ["after", "before"] {
            let path = format!(
                "/openai/v1/files?{name}={value}&order=desc&limit=100&purpose=batch&api-version=2026-11-01-preview"
            );
            gate.send("GET", &path, "", b"").await.unwrap();
            assert_eq!(format!("/openai{}", origin.requests().pop().unwrap().target), path);
        }
    }
}
