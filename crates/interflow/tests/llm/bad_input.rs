//! Malformed input from clients and providers: each case gets the right error, nothing is forwarded unredacted, and the
//! process survives.

use std::time::Duration;

use interflow_testkit::{Ending, Origin, Reply, Wire};
use serde_json::json;

use crate::instance::Home;
use crate::{CHAT, code};

const SSN: &str = "123-45-6789";
const PATH: &str = "/openai/v1/chat/completions";

fn chat(content: &str) -> Vec<u8> {
    json!({"model": "m", "messages": [{"role": "user", "content": content}]}).to_string().into_bytes()
}

#[tokio::test]
async fn invalid_request_bodies_are_refused_by_cause_and_never_sent() {
    let home = Home::new().await;
    let provider = Origin::http().answering(|_| Reply::json(&json!({"choices": []}))).start().await;
    let running = home.start(&format!("[llm.provider.openai]\nurl = \"{}\"\n", provider.url("")));
    let deep = format!("{{\"messages\":{}\"{SSN}\"{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let mut invalid = chat(SSN);
    let at = invalid.len() - 5;
    invalid[at] = 0xff;
    let huge = chat(&format!("{SSN} {}", "word ".repeat(11 << 20)));
    for (what, body, status, says) in [
        ("broken JSON", format!("{{\"messages\": [\"{SSN}\"").into_bytes(), 400, "bad_json"),
        ("no JSON", format!("my SSN is {SSN}").into_bytes(), 400, "bad_json"),
        ("100,000 levels", deep.into_bytes(), 400, "bad_json"),
        ("invalid UTF-8", invalid, 400, "bad_json"),
        ("over 50 MB", huge, 413, "request_body_too_large"),
    ] {
        let mut wire = Wire::connect(running.gateway).await.unwrap().patience(Some(Duration::from_secs(60)));
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nHost: gate\r\nAuthorization: Bearer k\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        // A server that rejects a body need not read all of it.
        let _ = wire.send([head.as_bytes(), &body].concat()).await;
        let answer = wire.answer().await.unwrap();
        assert_eq!((answer.status, code(&answer).as_str()), (status, says), "{what}");
        assert!(!answer.text().contains(SSN), "{what}: {}", answer.text());
    }
    assert!(provider.requests().is_empty());
    // A lone surrogate is valid JSON by grammar: the text around it is redacted, and the surrogate is forwarded
    // unchanged.
    let lone = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"\ud83d SSN {SSN}"}}]}}"#);
    assert_eq!(running.post(PATH, "Authorization: Bearer k\r\n", &lone).await.status, 200);
    let seen = String::from_utf8_lossy(&provider.only_request().body).into_owned();
    assert!(seen.contains(r#""\ud83d SSN SSN_"#) && !seen.contains(SSN), "{seen}");
    running.stop();
}

#[tokio::test]
async fn an_html_response_of_a_provider_is_handled_by_response_mode() {
    let home = Home::new().await;
    let page = "<html>maintenance</html>";
    let provider =
        Origin::http().answering(move |_| Reply::ok(page).header("Content-Type", "application/json")).start().await;
    for (outbound, status) in [("off", 200), ("redact", 502)] {
        let running = home.start(&format!(
            "[redact]\nresponses = \"{outbound}\"\n[llm.provider.openai]\nurl = \"{}\"\n",
            provider.url("")
        ));
        let answer = running.post(PATH, "Authorization: Bearer k\r\n", CHAT).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        match outbound {
            "off" => assert_eq!(answer.text(), page),
            _ => assert_eq!(code(&answer), "response_unreadable"),
        }
        running.stop();
    }
}

#[tokio::test]
async fn signed_thinking_blocks_are_unchanged_when_responses_are_redacted() {
    let home = Home::new().await;
    let thought = r#"{"type":"thinking","thinking":"SSN 123-45-6789","signature":"EqQBCgIYAhIM"}"#;
    let whole = format!(
        r#"{{"id":"m","type":"message","role":"assistant","content":[{thought},{{"type":"text","text":"SSN 123-45-6789"}}]}}"#
    );
    let delta = |index: u8, delta: &str| {
        format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{index},\"delta\":{delta}}}\n\n"
        )
    };
    let thinks = delta(0, r#"{"type":"thinking_delta","thinking":"SSN 123-45-6789"}"#);
    let signs = delta(0, r#"{"type":"signature_delta","signature":"EqQBCgIYAhIM"}"#);
    let stream = format!(
        "{thinks}{signs}{}event: message_stop\ndata: {{\"type\":\"message_stop\"}}\n\n",
        delta(1, r#"{"type":"text_delta","text":"SSN 123-45-6789"}"#)
    );
    for (body, media_type, kept) in [(&whole, "application/json", thought), (&stream, "text/event-stream", &thinks)] {
        let answer = body.clone();
        let provider = Origin::http()
            .answering(move |_| Reply::ok(answer.clone()).header("Content-Type", media_type))
            .start()
            .await;
        for (outbound, passes) in [("redact", true), ("block", false)] {
            let running = home.start(&format!(
                "[redact]\nresponses = \"{outbound}\"\n[llm.provider.anthropic]\nurl = \"{}\"\n",
                provider.url("")
            ));
            let ask = r#"{"model":"claude-x","max_tokens":9,"messages":[{"role":"user","content":"hello"}]}"#;
            let said = running.post("/anthropic/v1/messages", "x-api-key: k\r\n", ask).await.text();
            assert_eq!(said.contains(kept), passes, "{outbound}: {said}");
            assert_eq!(said.matches("123-45-6789").count(), usize::from(passes), "{outbound}: {said}");
            running.stop();
        }
    }
}

#[tokio::test]
async fn policy_with_an_unknown_kind_prevents_startup() {
    let home = Home::new().await;
    std::fs::write(home.dir.path().join("policy.toml"), "[kind.shoe-size]\nstrategy = { use = \"mask\" }\n").unwrap();
    let policy = home.dir.path().join("policy.toml").display().to_string();
    let said = home.refuses_to_start(&format!("[redact]\npolicy = \"{policy}\"\n"));
    assert!(said.contains("redact.policy") && said.contains("shoe-size"), "{said}");
}

#[tokio::test]
async fn a_stream_that_ends_inside_an_event_ends_with_an_error() {
    let home = Home::new().await;
    let provider = Origin::http()
        .answering(|request| {
            let told = String::from_utf8_lossy(&request.body).into_owned();
            let at = told.find("SSN_").unwrap();
            let event =
                json!({"choices": [{"index": 0, "delta": {"content": format!("it is {}", &told[at..at + 12])}}]});
            let cut = if request.path().starts_with("/whole") { 0 } else { 9 };
            let event = format!("data: {event}\n\ndata: {event}");
            let reply = Reply::ok(event[..event.len() - cut].to_owned()).header("Content-Type", "text/event-stream");
            let broken = request.path().starts_with("/broken");
            if broken { reply.claim_length(event.len() as u64 + 99).ending(Ending::Cut) } else { reply }
        })
        .start()
        .await;
    let upstream = |name: &str| format!("[llm.provider.{name}]\nurl = \"{}/{name}\"\n", provider.url(""));
    for outbound in ["off", "redact"] {
        let upstreams = ["whole", "cut", "broken"].map(upstream).concat();
        let running = home.start(&format!("[redact]\nresponses = \"{outbound}\"\n{upstreams}"));
        for (name, restored) in [("whole", 2), ("cut", 1), ("broken", 1)] {
            let body = String::from_utf8(chat(SSN)).unwrap();
            let path = format!("/{name}/v1/chat/completions");
            let mut wire = Wire::connect(running.gateway).await.unwrap();
            let length = body.len();
            wire.send(format!(
                "POST {path} HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            ))
            .await
            .unwrap();
            let said = String::from_utf8_lossy(&wire.to_end().await.unwrap()).into_owned();
            let cut = said.contains("\"code\":\"response_cut\"");
            assert_eq!(cut, name != "whole", "{name}, outbound {outbound}: {said}");
            assert_eq!(said.matches("\"code\":").count(), usize::from(cut), "one error: {said}");
            assert!(!said.contains("SSN_"), "{name}, outbound {outbound}: {said}");
            if outbound == "off" {
                assert_eq!(said.matches(&format!("it is {SSN}")).count(), restored, "{name}: {said}");
            }
        }
        running.stop();
    }
}
