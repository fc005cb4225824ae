//! Nothing of a prompt reaches the provider or the recorder, and the client gets everything back.

use interflow_redact::{AddressRule, OutboundMode, RedactMode};
use interflow_testkit::{Ending, Origin, Reply, Wire, llm};
use serde_json::{Value, json};

use super::{Gate, MAIL, SSN, arrived, parrot};

fn prompt() -> String {
    format!("I am Anna Berg, {MAIL}, SSN {SSN}, card 4111 1111 1111 1111.")
}

fn bodies(stream: bool) -> [(&'static str, Value); 3] {
    [
        (
            "/v1/chat/completions",
            json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": prompt()}]}),
        ),
        (
            "/v1/messages",
            json!({"model": "m", "max_tokens": 9, "stream": stream, "messages": [{"role": "user", "content": [{"type": "text", "text": prompt()}]}]}),
        ),
        ("/v1/responses", json!({"model": "m", "stream": stream, "input": prompt()})),
    ]
}

fn watched(
    builder: interflow_testkit::OriginBuilder,
) -> (interflow_testkit::OriginBuilder, std::sync::Arc<llm::Received>) {
    let (builder, received) = llm::provider(builder);
    for marker in [SSN, MAIL, "Berg", "4111"] {
        received.watch_for(marker);
    }
    (builder, received)
}

/// The texts of a response, buffered or streamed, in any of the three formats.
fn said(body: &str, stream: bool) -> String {
    let text = |v: &Value| {
        let places = [
            "/choices/0/message/content",
            "/content/0/text",
            "/output/0/content/0/text",
            "/choices/0/delta/content",
            "/delta/text",
        ];
        let delta = (v["type"] == "response.output_text.delta").then(|| &v["delta"]);
        let found = places.iter().find_map(|p| v.pointer(p)).or(delta);
        found.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    if !stream {
        return text(&serde_json::from_str(body).unwrap());
    }
    let data = body.lines().filter_map(|l| l.strip_prefix("data: "));
    data.filter_map(|d| serde_json::from_str::<Value>(d).ok()).map(|v| text(&v)).collect()
}

#[tokio::test]
async fn gateway_leaks_nothing_in_whole_and_streamed_requests() {
    let (origin, received) = watched(Origin::http());
    let origin = origin.start().await;
    let gate = Gate::start(&origin).await;
    for stream in [false, true] {
        for (path, body) in bodies(stream) {
            for chunks in [1, 7, 40] {
                // With the field, other paths too go to Anthropic, and are translated.
                let version = if path == "/v1/messages" { "anthropic-version: 2023-06-01\r\n" } else { "" };
                let fields = format!("Content-Type: application/json\r\nx-echo: 1\r\nx-chunks: {chunks}\r\n{version}");
                let answer = gate.send("POST", path, &fields, body.to_string().as_bytes()).await.unwrap();
                assert_eq!(answer.status, 200, "{}", answer.text());
                assert_eq!(said(&answer.text(), stream), prompt(), "{path} {stream} {chunks}: {}", answer.text());
            }
        }
    }
    assert_eq!(received.refused(), 0);
    received.assert_nothing_leaked();
    for kept in gate.proxy.flows(18).await {
        for side in [&kept.sent, &kept.received] {
            let text = String::from_utf8_lossy(side);
            assert!(!text.contains(SSN) && !text.contains(MAIL) && !text.is_empty(), "the recorder saw {text}");
        }
        assert!(!kept.messages.iter().any(|m| String::from_utf8_lossy(&m.payload).contains(SSN)));
        assert!(
            kept.tags.contains(&"redacted".to_owned()) && kept.tags.contains(&"found:ssn".to_owned()),
            "{:?}",
            kept.tags
        );
    }
}

#[tokio::test]
async fn intercepted_requests_are_flagged_by_default_and_redacted_if_configured() {
    for mode in [RedactMode::Flag, RedactMode::Redact, RedactMode::Off] {
        let (origin, received) = watched(Origin::https());
        let origin = origin.start().await;
        let gate = Gate::with(&origin, |r| {
            r.redact.proxied = mode;
            // Where requests are only flagged, responses pass as well.
            r.redact.responses = if mode == RedactMode::Redact { OutboundMode::Off } else { OutboundMode::Block };
            r.trusted = vec![&origin];
        })
        .await;
        let body = bodies(true)[0].1.to_string();
        let mut wire = gate.proxy.tls(&origin.authority(), &["http/1.1"]).await;
        let head = format!(
            "POST /v1/chat/completions?echo=1&chunks=9 HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer k\r\nContent-Length: {}\r\n\r\n",
            origin.authority(),
            body.len()
        );
        wire.send(head + &body).await.unwrap();
        let answer = wire.answer().await.unwrap();
        assert_eq!(said(&answer.text(), true), prompt());
        let leaked = received.sightings().iter().any(|(_, n)| *n > 0);
        assert_eq!(leaked, mode != RedactMode::Redact, "{mode:?}");
        let tags = gate.proxy.flow().await.tags;
        let has = |t: &str| tags.iter().any(|x| x == t);
        assert_eq!(
            (has("redacted"), has("redact:flagged"), has("found:ssn")),
            (mode == RedactMode::Redact, mode == RedactMode::Flag, mode != RedactMode::Off),
            "{tags:?}"
        );
    }
}

#[tokio::test]
async fn recorded_conversations_are_redacted_on_any_host_port_and_path() {
    let origin = Origin::https().answering(|_| Reply::json(&json!({}))).start().await;
    let gate = Gate::with(&origin, |r| {
        r.redact.proxied = RedactMode::Redact;
        r.trusted = vec![&origin];
    })
    .await;
    let prompt = format!("Her SSN is {SSN}, write to {MAIL}");
    let turn = json!([{"role": "user", "content": prompt}]);
    let json_type = "application/json";
    let form = format!("--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n{prompt}\r\n--b--\r\n");
    let cases = [
        ("/api/chat", json_type, json!({"model": "m", "messages": turn}).to_string()),
        ("/api/chat", "text/plain", json!({"messages": turn}).to_string()),
        ("/proxy/api/generate", json_type, json!({"model": "m", "prompt": prompt}).to_string()),
        ("/api/embed", json_type, json!({"model": "m", "input": [prompt]}).to_string()),
        ("/api/embeddings", json_type, json!({"model": "m", "prompt": prompt}).to_string()),
        ("/v1/images/generations", json_type, json!({"prompt": prompt}).to_string()),
        ("/v1/images/edits", "multipart/form-data; boundary=b", form),
        ("/V1/Chat/Completions", json_type, json!({"messages": turn}).to_string()),
        ("/ask", json_type, json!({"model": "m", "messages": turn}).to_string()),
        ("/ask", json_type, json!({"model": "m", "instructions": "be kind", "input": prompt}).to_string()),
        ("/ask", json_type, json!({"contents": [{"parts": [{"text": prompt}]}]}).to_string()),
        ("/ask", json_type, json!({"messages": [{"role": "user", "content": [{"text": prompt}]}]}).to_string()),
        ("/lambda/invoke", json_type, json!({"messages": turn}).to_string()),
        // A byte order mark, and half of a surrogate pair.
        ("/ask", json_type, format!("\u{feff}{}", json!({"model": "m", "messages": turn}))),
        ("/ask", json_type, format!(r#"{{"model":"m","messages":[{{"role":"user","content":"\ud83d {prompt}"}}]}}"#)),
    ];
    for (path, media_type, body) in cases {
        let mut wire = gate.proxy.tls(&origin.authority(), &["http/1.1"]).await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\r\n",
            origin.authority(),
            body.len()
        );
        wire.send(head + &body).await.unwrap();
        let answer = wire.answer().await.unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let got = arrived(&origin);
        assert!(!got.contains(SSN) && !got.contains(MAIL), "{path}: {got}");
    }
    // A request that is not an LLM call is forwarded byte for byte.
    let body = json!({"room": "lobby", "text": prompt}).to_string();
    let mut wire = gate.proxy.tls(&origin.authority(), &["http/1.1"]).await;
    let (at, length) = (origin.authority(), body.len());
    let head = format!(
        "POST /api/chat HTTP/1.1\r\nHost: {at}\r\nContent-Type: {json_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    wire.send(head + &body).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    assert_eq!(arrived(&origin), body);
    // One that may be a call, and is to be forwarded as it comes, is not forwarded unread.
    let mut wire = gate.proxy.tls(&origin.authority(), &["http/1.1"]).await;
    let head = format!("POST /ask HTTP/1.1\r\nHost: {at}\r\nContent-Type: {json_type}\r\nIncremental: ?1");
    wire.send(format!("{head}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{\"\r\n")).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 501);
}

#[tokio::test]
async fn flagged_findings_are_reported_for_any_size_and_ending() {
    let text = |size: usize| format!("SSN {SSN}. {}", "and so it goes on ".repeat(size / 18));
    let chat = |size: usize| json!({"model": "m", "messages": [{"role": "user", "content": text(size)}]}).to_string();
    for (body, path, tag) in [
        (chat(100), "/v1/chat/completions", "found:ssn"),
        (chat(60 << 10), "/v1/chat/completions", "found:ssn"),
        (chat(300 << 10), "/v1/chat/completions", "found:ssn"),
        ("{\"model\": ".to_owned(), "/v1/chat/completions", "redact:unread"),
    ] {
        for answers in [true, false] {
            let origin = match answers {
                true => Origin::https().answering(|_| Reply::ok("{}")).start().await,
                false => Origin::https().answering(|_| Reply::nothing(Ending::Cut)).start().await,
            };
            let gate = Gate::with(&origin, |r| {
                r.redact.proxied = RedactMode::Flag;
                r.trusted = vec![&origin];
            })
            .await;
            let mut wire = gate.proxy.tls(&origin.authority(), &["http/1.1"]).await;
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
                origin.authority(),
                body.len()
            );
            wire.send(head + &body).await.unwrap();
            assert_eq!(wire.answer().await.unwrap().status, if answers { 200 } else { 502 });
            let tags = gate.proxy.flow().await.tags;
            assert!(tags.iter().any(|t| t == tag), "{} bytes, answers: {answers}: {tags:?}", body.len());
            assert_eq!(tags.iter().any(|t| t == "redact:flagged"), tag == "found:ssn", "{tags:?}");
        }
    }
}

#[tokio::test]
async fn tool_arguments_are_restored_with_correct_escaping() {
    let origin = Origin::http()
        .answering(|r| {
            let body: Value = serde_json::from_slice(&r.body).unwrap();
            let told = body["messages"][0]["content"].as_str().unwrap().to_owned();
            let half = told.len() / 2;
            let chunk = |t: &str| json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": t}}]}}]});
            let arguments = format!("{{\"path\": \"{told}\"}}");
            let (a, b) = arguments.split_at(half + 10);
            Reply::ok(super::sse(&[chunk(a), chunk(b)])).header("Content-Type", "text/event-stream")
        })
        .start()
        .await;
    let policy = std::env::temp_dir().join(format!("interflow-gate-{}.toml", std::process::id()));
    std::fs::write(&policy, "[[terms]]\nname = 'user'\nterms = ['C:\\Users\\\"Anna\"']\n").unwrap();
    let gate = Gate::with(&origin, |r| r.redact.policy = Some(policy.clone())).await;
    let content = "C:\\Users\\\"Anna\"";
    let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": content}]});
    let answer = gate.post("/v1/chat/completions", body.to_string()).await.text();
    std::fs::remove_file(&policy).unwrap();
    assert!(!arrived(&origin).contains("Anna"));
    let arguments: String = answer
        .lines()
        .filter_map(|l| serde_json::from_str::<Value>(l.strip_prefix("data: ")?).ok())
        .filter_map(|v| v["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str().map(str::to_owned))
        .collect();
    let arguments: Value = serde_json::from_str(&arguments).unwrap_or_else(|e| panic!("{e}: {arguments}"));
    assert_eq!(arguments["path"], content);
}

#[tokio::test]
async fn placeholders_are_stable_within_a_conversation_and_differ_between_them() {
    let origin = parrot().await;
    let gate = Gate::start(&origin).await;
    let ask = async |first: &str, fields: &str| {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": format!("{first} {MAIL}")}, {"role": "user", "content": "more"}]});
        gate.send("POST", "/v1/chat/completions", fields, body.to_string().as_bytes()).await.unwrap();
        let got: Value = serde_json::from_str(&arrived(&origin)).unwrap();
        got["messages"][0]["content"].as_str().unwrap().split(' ').next_back().unwrap().to_owned()
    };
    let first = ask("a", "").await;
    assert_eq!(ask("a", "").await, first);
    assert_ne!(ask("b", "").await, first);
    assert_ne!(ask("a", "Authorization: Bearer other\r\n").await, first);
    let named = ask("a", "x-session-id: s\r\n").await;
    assert_eq!(ask("b", "x-session-id: s\r\n").await, named);
}

#[tokio::test]
async fn conversation_continued_by_response_id_keeps_its_originals() {
    let origin = Origin::http()
        .answering(|r| {
            let body: Value = serde_json::from_slice(&r.body).unwrap();
            let first = body["input"].as_str().filter(|t| t.contains("EMAIL_")).map(str::to_owned);
            static LAST: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());
            if let Some(first) = first {
                *LAST.lock().unwrap() = first;
            }
            let text = LAST.lock().unwrap().clone();
            interflow_testkit::Reply::json(&json!({"id": "resp_7", "model": "m", "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}]}))
        })
        .start()
        .await;
    let gate = Gate::start(&origin).await;
    gate.post("/v1/responses", json!({"model": "m", "input": format!("I am {MAIL}")}).to_string()).await;
    gate.proxy.flows(1).await;
    let later = gate
        .post(
            "/v1/responses",
            json!({"model": "m", "input": "who am I?", "previous_response_id": "resp_7"}).to_string(),
        )
        .await;
    assert_eq!(later.json()["output"][0]["content"][0]["text"], format!("I am {MAIL}"));
}

#[tokio::test]
async fn keys_and_numbers_of_embedded_json_are_redacted() {
    let inner = json!({"anna.berg@firm.com": {"card": 4_111_111_111_111_111_u64, "ssn": 536_228_726}});
    let origin = parrot().await;
    let gate = Gate::start(&origin).await;
    for content in [json!(inner.to_string()), json!([{"type": "tool_use", "id": "t", "name": "f", "input": inner}])] {
        let body = json!({"model": "m", "seed": 4_111_111_111_111_111_u64, "messages": [{"role": "user", "content": content}]});
        let answer = gate.post("/v1/chat/completions", body.to_string()).await.text();
        let told = arrived(&origin);
        for value in ["anna.berg", "536228726"] {
            assert!(!told.contains(value) && answer.contains(value), "{told} {answer}");
        }
        assert_eq!(told.matches("4111111111111111").count(), 1, "a member of the API is not text: {told}");
        let told: Value = serde_json::from_str(&told).unwrap();
        if let Some(text) = told["messages"][0]["content"].as_str() {
            serde_json::from_str::<Value>(text).unwrap();
        }
    }
}

#[tokio::test]
async fn values_beside_and_among_the_settings_are_redacted() {
    let origin = parrot().await;
    let gate = Gate::start(&origin).await;
    let head = r#""model":"m","seed":4111111111111111,"messages":[{"role":"user","content":[{"type":"text","text":"x""#;
    let tail = r#"}]}]"#;
    for (part, member) in [
        ("", r#""zz":4111111111111111"#),
        ("", r#""zz":4.111111111111111e15"#),
        ("", r#""stream_options":{"x":"anna.berg@firm.com"}"#),
        ("", r#""logit_bias":{"anna.berg@firm.com":1}"#),
        ("", r#""include":["anna.berg@firm.com"]"#),
        (r#","cache_control":{"type":"ephemeral","note":"anna.berg@firm.com"}"#, r#""n":1"#),
    ] {
        gate.post("/v1/chat/completions", format!("{{{head}{part}{tail},{member}}}")).await;
        let told: Value = serde_json::from_str(&arrived(&origin)).unwrap();
        let text = told.to_string();
        assert!(!text.contains("anna") && !text.contains("4.111") && text.matches("4111").count() == 1, "{text}");
    }
    let plain = format!(
        r#"{{{head},"cache_control":{{"type":"ephemeral","ttl":"1h"}}{tail},"stream_options":{{"include_usage":true}},"logit_bias":{{"50256":-100}},"include":["message.output_text.logprobs"]}}"#
    );
    gate.post("/v1/chat/completions", &plain).await;
    assert_eq!(arrived(&origin), plain);
}

#[tokio::test]
async fn signed_and_routing_fields_are_forwarded_unchanged() {
    let origin = parrot().await;
    let gate = Gate::start(&origin).await;
    let body = json!({
        "model": "m", "max_tokens": 9, "prompt_cache_key": "019aab12-4111", "metadata": {"user_id": "user_5f2_account__session_4a1"},
        "tools": [{"type": "web_search", "name": "w", "allowed_domains": ["anna-berg.com"], "user_location": {"type": "approximate", "city": "Oslo"}}],
        "system": "Today's date: 2025-11-22",
        "messages": [
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": format!("EMAIL_abcdefgh is {MAIL}"), "signature": "EqQBCgIYAhIM"},
                {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpP"}]},
            {"role": "user", "content": "go on"}]
    })
    .to_string();
    gate.post("/v1/messages", &body).await;
    assert_eq!(arrived(&origin), body);
}

/// The length of two bodies' common prefix.
fn common(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

#[tokio::test]
async fn prompt_prefix_is_identical_across_sessions_for_prompt_caching() {
    let origin = parrot().await;
    let gate = Gate::start(&origin).await;
    let system = format!("You are the assistant of Jenny Gibson, {MAIL}. {}", "Answer briefly. ".repeat(50));
    let mut sent = Vec::new();
    for session in ["a", "b"] {
        let body = json!({"system": system, "tools": [{"name": "mail", "description": format!("mails {MAIL}")}],
            "messages": [{"role": "user", "content": format!("{session}: who is {MAIL}, and bob@example.org?")}]});
        // Tools and system prompt first, as clients send them.
        let body =
            format!("{{\"tools\":{},\"system\":{},\"messages\":{}}}", body["tools"], body["system"], body["messages"]);
        let fields = format!("Content-Type: application/json\r\nx-session-id: {session}\r\n");
        gate.send("POST", "/v1/messages", &fields, body.as_bytes()).await.unwrap();
        sent.push(arrived(&origin));
    }
    let prefix = sent[0].find("\"messages\"").unwrap();
    assert!(sent.iter().all(|s| !s.contains(MAIL) && !s.contains("Jenny")), "{sent:?}");
    assert!(common(&sent[0], &sent[1]) > prefix, "{} of {prefix}: {sent:?}", common(&sent[0], &sent[1]));
    // Values only in the conversation have a different placeholder in each.
    let bob = |s: &str| s.rsplit("and ").next().map(str::to_owned);
    assert_ne!(bob(&sent[0]), bob(&sent[1]));
}

#[tokio::test]
async fn placeholders_in_responses_and_histories_are_never_replaced_again() {
    let origin = parrot().await;
    let gate = Gate::with(&origin, |r| r.redact.responses = OutboundMode::Redact).await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": prompt()}]}).to_string();
    let answer = gate.post("/v1/chat/completions", &body).await.text();
    assert_eq!(said(&answer, false), prompt());
    let first: Value = serde_json::from_str(&arrived(&origin)).unwrap();
    let history =
        json!({"model": "m", "messages": [{"role": "user", "content": first["messages"][0]["content"]}]}).to_string();
    gate.post("/v1/chat/completions", &history).await;
    assert_eq!(arrived(&origin), history);
}

#[tokio::test]
async fn provider_errors_are_scanned_and_restored_in_any_format() {
    let echo = |request: &interflow_testkit::Request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let text =
            format!("bad request: {} (SSN 536-22-8726)", body["messages"][0]["content"].as_str().unwrap_or_default());
        let media_type = request.header("x-form").unwrap_or("text/plain").to_owned();
        let text = if media_type.contains("json") { json!({"error": {"message": text}}).to_string() } else { text };
        Reply::status(400).body(text).header("Content-Type", media_type)
    };
    let origin = Origin::http().answering(echo).start().await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": format!("mail {MAIL}")}]}).to_string();
    for form in ["text/plain", "application/json", "text/html", "application/octet+words"] {
        let fields = format!("Content-Type: application/json\r\nx-form: {form}\r\n");
        let gate = Gate::start(&origin).await;
        let answer = gate.send("POST", "/v1/chat/completions", &fields, body.as_bytes()).await.unwrap().text();
        assert!(answer.contains(MAIL) && answer.contains("536-22-8726"), "{form}: {answer}");
        let flow = gate.proxy.flow().await;
        assert!(!String::from_utf8_lossy(&flow.received).contains(MAIL));
        let gate = Gate::with(&origin, |r| r.redact.responses = OutboundMode::Redact).await;
        let answer = gate.send("POST", "/v1/chat/completions", &fields, body.as_bytes()).await.unwrap().text();
        assert!(answer.contains(MAIL) && !answer.contains("536-22-8726"), "{form}: {answer}");
    }
}

#[tokio::test]
async fn urls_and_header_fields_are_scanned_or_refused() {
    let origin = parrot().await;
    let path = format!("/v1/chat/completions?user=anna.berg%40firm.com&key=AIzaSyD&id=req_012&note=SSN+{SSN}");
    let key = "sk-proj-Q7rT2mZx9KpLw4VbN8sYd3HfJ6gCa5EuR1tXoBiM0vPzWqSn";
    // The latter is base64 of an address.
    let path =
        format!("{path}&with={key}&to=YW5uYS5iZXJnQGZpcm0uY29t&anna.berg@firm.com=1&of%5Banna.berg@firm.com%5D=2");
    let fields = format!(
        "Content-Type: application/json\r\nX-User: {MAIL}\r\nX-Request-Id: 5f2-{SSN}\r\nBaggage: ssn={SSN}\r\nX-Note: {key}\r\n"
    );
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let heads = |origin: &Origin| {
        let requests = origin.requests();
        let last = requests.last().unwrap();
        String::from_utf8_lossy(&last.raw_head).into_owned()
    };
    let gate = Gate::start(&origin).await;
    gate.send("POST", &path, &fields, body.as_bytes()).await.unwrap();
    let head = heads(&origin);
    assert!(
        !head.contains("anna.berg")
            && !head.contains(&format!("note=SSN+{SSN}"))
            && !head.contains(&format!("ssn={SSN}"))
            && !head.contains(key)
            && !head.contains("YW5uY"),
        "{head}"
    );
    assert!(head.contains("id=req_012") && head.contains("5f2-"), "{head}");
    let refuse = |r: &mut super::Components<'_>| r.redact.url = AddressRule::Refuse;
    let gate = Gate::with(&origin, refuse).await;
    let answer = gate.send("GET", "/v1/files/anna.berg%40firm.com", "", b"").await.unwrap();
    assert!(answer.text().contains("address_refused"));
    let gate = Gate::with(&origin, |r| (r.redact.url, r.redact.headers) = (AddressRule::Pass, AddressRule::Pass)).await;
    gate.send("POST", &path, &fields, body.as_bytes()).await.unwrap();
    assert!(heads(&origin).contains("anna.berg"));
}

#[tokio::test]
async fn fields_that_repeat_or_are_not_utf8_are_redacted_in_their_places() {
    let origin = parrot().await;
    let gate = Gate::start(&origin).await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: gate\r\nContent-Length: {}\r\nX-User: caf\u{e9}, {MAIL}\r\n\
         X-Note: {MAIL}\r\nX-Note: fine\r\nContent-Type: application/json\r\n\r\n",
        body.len()
    );
    let head: Vec<u8> = head.chars().map(|c| u8::try_from(c).unwrap()).collect();
    let mut wire = Wire::connect(gate.proxy.gateway()).await.unwrap();
    wire.send([&head, body.as_bytes()].concat()).await.unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    let sent: String = origin.requests().last().unwrap().raw_head.iter().map(|b| char::from(*b)).collect();
    assert!(sent.contains("X-User: caf\u{e9}, ") && !sent.contains("anna.berg"), "{sent}");
    let notes: Vec<&str> = sent.lines().filter_map(|line| line.strip_prefix("X-Note: ")).collect();
    assert!(notes.len() == 2 && notes[1] == "fine", "{sent}");
}

#[tokio::test]
async fn json_at_an_unknown_path_is_redacted_however_its_type_is_spelled() {
    let origin = Origin::https().answering(|_| Reply::json(&json!({}))).start().await;
    let gate = Gate::with(&origin, |parts| {
        parts.redact.proxied = RedactMode::Redact;
        parts.trusted = vec![&origin];
    })
    .await;
    let (authority, body) = (origin.authority(), bodies(false)[0].1.to_string());
    let mut wire = gate.proxy.tls(&authority, &["http/1.1"]).await;
    let head = format!(
        "POST /any/path HTTP/1.1\r\nHost: {authority}\r\nContent-Type: Application/JSON\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    wire.send(head + &body).await.unwrap();
    wire.answer().await.unwrap();
    assert!(!arrived(&origin).contains(SSN), "{}", arrived(&origin));
}
