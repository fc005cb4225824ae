//! Invalid input from clients and providers: a clear error to the right side, nothing forwarded unredacted, and
//! service continues.

use std::io::Write;
use std::time::Duration;

use interflow_redact::{MediaRule, UnknownRule};
use interflow_testkit::{Ending, Origin, Reply};
use interflow_types::units::ByteSize;
use serde_json::json;

use super::{Gate, MAIL, SSN, arrived, parrot, provider};

#[tokio::test]
async fn unredactable_requests_are_refused_and_not_sent() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |r| {
        r.redact.max_body = ByteSize(100 << 10);
        r.llm.max_body = ByteSize(100 << 10);
        r.redact.images = MediaRule::Refuse;
    })
    .await;
    let deep = format!("{{\"messages\":{}", "[".repeat(10_000));
    let large = format!("{{\"messages\":[{{\"content\":\"{SSN} {}\"}}]}}", "x".repeat(200 << 10));
    let image = json!({"messages": [{"content": [{"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", "QUJD".repeat(20))}}]}]}).to_string();
    let invalid = [b"{\"messages\":[{\"content\":\"".as_slice(), b"\xff\xfe 123-45-6789\"}]}"].concat();
    for (path, body, status, code) in [
        ("/v1/chat/completions", b"{\"model\":".to_vec(), 400, "bad_json"),
        ("/v1/chat/completions", b"<html>".to_vec(), 400, "bad_json"),
        ("/v1/chat/completions", deep.into_bytes(), 400, "bad_json"),
        ("/v1/chat/completions", invalid, 400, "bad_json"),
        ("/v1/chat/completions", large.into_bytes(), 413, "request_body_too_large"),
        ("/v1/chat/completions", image.into_bytes(), 403, "media_refused"),
        ("/v1/threads", format!("{{\"x\":\"{SSN}\"}}").into_bytes(), 400, "unknown_operation"),
        ("/openai/x/../v1/chat/completions", b"{}".to_vec(), 400, "path_not_canonical"),
    ] {
        let answer = gate.post(path, &body).await;
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_str()),
            (status, Some(code)),
            "{path}: {}",
            answer.text()
        );
        assert!(answer.json()["error"]["request_id"].is_string());
        assert!(!answer.text().contains(SSN));
    }
    assert_eq!(origin.served(), 0);
    assert_eq!(gate.post("/v1/chat/completions", r#"{"messages":[]}"#).await.status, 200, "and on it goes");
}

#[tokio::test]
async fn lone_surrogates_do_not_hide_values_or_corrupt_the_body() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::start(&origin).await;
    let body = r#"{"messages":[{"content":"\ud800 mail anna.berg@firm.com \udc00"}]}"#;
    assert_eq!(gate.post("/v1/chat/completions", body).await.status, 200);
    let got = arrived(&origin);
    assert!(
        got.starts_with(r#"{"messages":[{"content":"\ud800 mail EMAIL_"#) && got.ends_with(r#" \udc00"}]}"#),
        "{got}"
    );
}

#[tokio::test]
async fn bodies_that_the_client_compressed_are_redacted() {
    let origin = parrot().await;
    let gate = Gate::start(&origin).await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": format!("mail {MAIL}")}]}).to_string();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(body.as_bytes()).unwrap();
    let answer =
        gate.send("POST", "/v1/chat/completions", "Content-Encoding: gzip\r\n", &gzip.finish().unwrap()).await.unwrap();
    assert_eq!(answer.json()["choices"][0]["message"]["content"], format!("mail {MAIL}"));
    let got = origin.only_request();
    assert_eq!(got.header("content-encoding"), None);
    assert!(arrived(&origin).contains("EMAIL_"));
    for (coding, code) in [("gzip", "unsupported_content_encoding"), ("secret", "unsupported_content_encoding")] {
        let answer = gate
            .send("POST", "/v1/chat/completions", &format!("Content-Encoding: {coding}\r\n"), body.as_bytes())
            .await
            .unwrap();
        assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (400, Some(code)));
    }
    assert_eq!(origin.served(), 1);
}

#[tokio::test]
async fn body_without_findings_is_forwarded_unchanged() {
    let origin = provider("application/json", "{ \"a\" : 1.0 }").await;
    let gate = Gate::start(&origin).await;
    let body = "{ \"model\" : \"m\",\n\t\"messages\": [ {\"content\":\"\\u0048ello \\/ there\"} ], \"x\": 1.0e+5, \"model\": \"twice\" }\n";
    let answer = gate.post("/v1/chat/completions", body).await;
    assert_eq!(arrived(&origin), body);
    assert_eq!(answer.text(), "{ \"a\" : 1.0 }");
}

#[tokio::test]
async fn html_error_of_a_provider_is_relayed_with_its_status() {
    let page = "<html><body>502 Bad Gateway</body></html>";
    let origin = Origin::http()
        .answering(move |_| Reply::status(502).header("Content-Type", "text/html").body(page))
        .start()
        .await;
    let gate = Gate::start(&origin).await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": MAIL}]}).to_string();
    let answer = gate.post("/v1/chat/completions", body).await;
    assert_eq!((answer.status, answer.text()), (502, page.to_owned()));
}

#[tokio::test]
async fn a_stream_cut_in_the_middle_of_an_event_is_an_error_for_the_client() {
    let origin = Origin::http()
        .answering(|_| {
            let piece = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"EMAIL";
            let cut = Reply::status(200).pieces(vec![piece.into()], Duration::ZERO).ending(Ending::Cut);
            cut.header("Content-Type", "text/event-stream")
        })
        .start()
        .await;
    let gate = Gate::start(&origin).await;
    let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": MAIL}]}).to_string();
    assert!(gate.send("POST", "/v1/chat/completions", "", body.as_bytes()).await.is_err());
    assert!(gate.proxy.flow().await.error().is_some());
}

#[tokio::test]
async fn multipart_forms_and_files_are_redacted() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::start(&origin).await;
    let line = json!({"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [{"content": format!("SSN {SSN}")}]}});
    let body = format!(
        "--B\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"b.jsonl\"\r\n\r\n{line}\n{line}\n\r\n--B\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nmail {MAIL}\r\n--B--\r\n"
    );
    let answer = gate
        .send("POST", "/v1/files", "Content-Type: multipart/form-data; boundary=B\r\n", body.as_bytes())
        .await
        .unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let got = arrived(&origin);
    assert!(!got.contains(SSN) && !got.contains(MAIL), "{got}");
    assert_eq!(got.matches("SSN_").count(), 2);
    assert!(
        got.starts_with("--B\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--B\r\n")
            && got.ends_with("\r\n--B--\r\n")
    );
}

#[tokio::test]
async fn images_are_dropped_by_rule_and_text_files_are_read() {
    use base64::Engine as _;
    let base64 = |t: &str| base64::engine::general_purpose::STANDARD.encode(t);
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |r| r.redact.images = MediaRule::Drop).await;
    let text = base64(&format!("My mail is {MAIL}, and that is all there is to say."));
    let body = json!({"contents": [{"parts": [
        {"inlineData": {"mimeType": "image/png", "data": base64(&"x".repeat(60))}}, {"inlineData": {"mimeType": "text/plain", "data": text}}]}]});
    assert_eq!(gate.post("/v1beta/models/m:generateContent", body.to_string()).await.status, 200);
    let got: serde_json::Value = serde_json::from_str(&arrived(&origin)).unwrap();
    let parts = &got["contents"][0]["parts"];
    assert_eq!(parts[0], json!({"text": "[image removed]"}));
    let file =
        base64::engine::general_purpose::STANDARD.decode(parts[1]["inlineData"]["data"].as_str().unwrap()).unwrap();
    assert!(String::from_utf8(file).unwrap().starts_with("My mail is EMAIL_"));
}

#[tokio::test]
async fn unknown_requests_pass_if_configured() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |r| r.redact.unknown = UnknownRule::Pass).await;
    assert_eq!(gate.post("/v1/threads", "no JSON").await.status, 200);
    assert_eq!(arrived(&origin), "no JSON");
}

#[tokio::test]
async fn unknown_requests_are_scanned_as_text_if_configured() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |r| r.redact.unknown = UnknownRule::Scan).await;
    for body in [
        json!({"model": MAIL, "type": SSN, "deep": [{"id": MAIL}]}).to_string(),
        json!({ MAIL: 1 }).to_string(),
        format!("no JSON, but {MAIL}"),
    ] {
        let answer = gate.post("/v1/threads", body.clone()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let got = arrived(&origin);
        assert!(!got.contains(MAIL) && !got.contains(SSN) && got.contains("EMAIL_"), "{body}: {got}");
    }
    let binary = gate.post("/v1/threads", [&[0xff, 0xfe][..], MAIL.as_bytes()].concat()).await;
    assert_eq!(binary.status, 400, "{}", binary.text());
}
