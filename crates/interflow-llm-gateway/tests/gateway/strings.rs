//! Every string of a request is read, wherever it is, and what is not read is tagged.

use interflow_redact::{OutboundMode, RedactMode};
use interflow_testkit::{Origin, Reply};
use interflow_types::units::ByteSize;
use serde_json::{Value, json};

use super::{Gate, MAIL, SSN, arrived, parrot};

#[tokio::test]
async fn no_string_of_a_body_is_left_out() {
    let origin = parrot().await;
    let gate = Gate::start(&origin).await;
    let audio = |format: &str| json!([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": format}}]);
    let image = |url: &str| json!([{"type": "image_url", "image_url": {"url": url, "detail": "auto"}}]);
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    let tool = |schema: Value| json!([{"type": "function", "function": {"name": "t", "parameters": schema}}]);
    let spelled = r#"{"model":"m","\u006dessages":[{"role":"user","content":"MAIL"}]}"#.replace("MAIL", MAIL);
    let bodies = [
        json!({"model": "m", "messages": user(json!("hi")), MAIL: true}),
        json!({"model": "m", "messages": user(json!("hi")), SSN: {"a": 1}}),
        json!({"model": "m", "messages": [{"role": "user", "content": "hi", MAIL: "x"}]}),
        json!({"model": "m", "messages": user(audio(MAIL))}),
        json!({"model": "m", "messages": user(json!("hi")), "service_tier": SSN}),
        json!({"model": "m", "messages": [{"role": MAIL, "content": "hi"}]}),
        json!({"model": "m", "messages": [{"role": "tool", "tool_call_id": MAIL, "content": "hi"}]}),
        json!({"model": "m", "messages": user(image(&format!("https://files.test/{MAIL}/a.png")))}),
        json!({"model": "m", "messages": user(image("https://files.test/4111111111111111.png"))}),
        json!({"model": "m", "messages": user(image(&format!("https://files.test/a.png?who={MAIL}")))}),
        json!({"model": "m", "messages": user(image(&format!("gs://bucket/{MAIL}")))}),
        json!({"model": "m", "input": [{"type": "input_file", "file_url": format!("https://files.test/{MAIL}")}]}),
        json!({"model": "m", "messages": user(json!("hi")), "tools": tool(json!({"type": "object", "properties": {MAIL: {"type": "string"}}}))}),
        json!({"model": "m", "messages": user(json!("hi")), "tools": tool(json!({"type": "object", "required": [MAIL]}))}),
    ];
    for body in bodies.iter().map(Value::to_string).chain([spelled]) {
        let path = if body.contains("\"input\"") { "/v1/responses" } else { "/v1/chat/completions" };
        let answer = gate.post(path, &body).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        let told = arrived(&origin);
        for value in [MAIL, SSN, "4111111111111111"] {
            assert!(!told.contains(value), "{told}");
        }
        serde_json::from_str::<Value>(&told).unwrap_or_else(|e| panic!("{e}: {told}"));
    }
}

#[tokio::test]
async fn a_model_whose_name_is_written_with_escapes_is_that_model() {
    let origin = parrot().await;
    let gate = Gate::with(&origin, |parts| {
        parts.redact.gateway = RedactMode::Off;
        let (model, mode) = (Some("team/*".into()), Some(RedactMode::Redact));
        parts.redact.route = vec![interflow_redact::RedactRoute { model, mode, ..Default::default() }];
        parts.llm.aliases.insert("team/fast".into(), "gpt-5".into());
    })
    .await;
    for model in ["team/fast", r"team\/fast", r"t\u0065am/fast"] {
        let body = format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"{MAIL}"}}]}}"#);
        assert_eq!(gate.post("/v1/chat/completions", &body).await.status, 200);
        let told = arrived(&origin);
        assert!(told.contains(r#""model":"gpt-5""#) && !told.contains(MAIL), "{told}");
    }
}

#[tokio::test]
async fn words_of_the_api_and_addresses_without_names_stay_as_they_are() {
    let origin = parrot().await;
    let gate = Gate::start(&origin).await;
    let body = json!({
        "model": "org/model:1.5-20251122", "service_tier": "auto", "x-vendor": {"mode": "fast"}, "response_format": {"type": "json_object"},
        "messages": [{"role": "user", "content": [
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            {"type": "image_url", "image_url": {"url": "https://cdn.test/u/AF1QipNx93-k/IMG_20251122_123456.jpg?w=200", "detail": "high"}}]},
            {"role": "tool", "tool_call_id": "call_a1b2", "content": "ok"}],
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {
            "type": "object", "$schema": "http://json-schema.org/draft-07/schema#", "required": ["city_name"],
            "properties": {"city_name": {"type": "string", "format": "date-time", "pattern": "^[a-z]+@x$"}}}}}]
    })
    .to_string();
    gate.post("/v1/chat/completions", &body).await;
    assert_eq!(arrived(&origin), body);
}

#[tokio::test]
async fn numbers_of_any_spelling_are_found() {
    let origin = parrot().await;
    let gate = Gate::start(&origin).await;
    for number in ["4111111111111111.0", "4.111111111111111e15", "4.111111111111111E+15", "4111111111111111"] {
        let call = format!(r#"[{{"type":"tool_use","id":"t","name":"f","input":{{"card":{number}}}}}]"#);
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":{call}}}]}}"#);
        let answer = gate.post("/v1/chat/completions", &body).await;
        let told = arrived(&origin);
        assert!(!told.contains(number) && !told.contains("4111111111111111"), "{told}");
        assert!(answer.text().contains("4111111111111111"), "restored: {}", answer.text());
    }
}

#[tokio::test]
async fn names_of_files_and_what_is_around_the_parts_of_a_form_are_redacted() {
    let origin = Origin::http().answering(|_| Reply::json(&json!({"text": "ok"}))).start().await;
    let gate = Gate::start(&origin).await;
    let fields = "Content-Type: multipart/form-data; boundary=XX\r\n";
    let encoded = MAIL.replace('@', "%40");
    let body = format!(
        "to {MAIL}\r\n--XX\r\nContent-Disposition: form-data; name=\"{MAIL}\"\r\n\r\nhi\r\n--XX\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"cv of {MAIL} \\\"x\\\".txt\"; filename*=UTF-8''{encoded}\r\n\
         X-Note: {SSN}\r\nContent-Type: text/plain\r\n\r\nhello\r\n--XX--\r\nfrom {MAIL}"
    );
    let answer = gate.send("POST", "/v1/images/edits", fields, body.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let told = arrived(&origin);
    for value in [MAIL, SSN, "anna"] {
        assert!(!told.contains(value), "{told}");
    }
    assert!(told.contains("\\\"x\\\".txt\"") && told.contains("\r\n\r\nhello\r\n--XX--"), "{told}");
    // A name that cannot be read is refused.
    let latin = [b"--XX\r\nContent-Disposition: form-data; name=\"\xe9\"\r\n\r\nx\r\n--XX--".as_slice()].concat();
    let refused = gate.send("POST", "/v1/images/edits", fields, &latin).await.unwrap();
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (400, Some("bad_form")));
}

#[tokio::test]
async fn what_is_too_large_to_be_flagged_is_tagged() {
    let long = json!({"choices": [{"message": {"role": "assistant", "content": "x".repeat(2_000)}}]});
    let origin = Origin::http().answering(move |_| Reply::json(&long)).start().await;
    let gate = Gate::with(&origin, |parts| {
        parts.redact.gateway = RedactMode::Flag;
        parts.redact.responses = OutboundMode::Flag;
        parts.redact.max_body = ByteSize(1_000);
    })
    .await;
    let chat = |text: String| json!({"model": "m", "messages": [{"role": "user", "content": text}]}).to_string();
    for text in ["y".repeat(2_000), "short".to_owned()] {
        let answer = gate.post("/v1/chat/completions", chat(text)).await;
        assert_eq!(answer.status, 200);
    }
    for flow in gate.proxy.flows(2).await {
        assert!(flow.tags.iter().any(|tag| tag == "redact:unread"), "{:?}", flow.tags);
    }
}

#[tokio::test]
async fn events_whose_words_are_written_with_escapes_are_restored() {
    let reply = |told: &str| {
        let escaped: String = told.chars().map(|c| format!("\\u{:04x}", c as u32)).collect();
        let (first, second) = escaped.split_at(escaped.len() / 12 * 6);
        let event = |kind: &str, rest: &str| {
            let word = |text: &str| text.chars().map(|c| format!("\\u{:04x}", c as u32)).collect::<String>();
            format!("data: {{\"{}\":\"{}\",\"index\":0{rest}}}\n\n", word("type"), word(kind))
        };
        let delta = |text: &str| format!(",\"delta\":{{\"type\":\"text_delta\",\"te\\u0078t\":\"{text}\"}}");
        [
            event("content_block_delta", &delta(first)),
            event("content_block_delta", &delta(second)),
            event("content_block_stop", ""),
        ]
        .concat()
    };
    let origin = Origin::http()
        .answering(move |request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let told = body["messages"][0]["content"].as_str().unwrap();
            Reply::ok(reply(told)).header("Content-Type", "text/event-stream")
        })
        .start()
        .await;
    let gate = Gate::start(&origin).await;
    // The text ends with what may be the beginning of a placeholder: it has to be sent before the end of its block.
    let said = format!("{MAIL}, grade E");
    let body = json!({"model": "m", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": said}]});
    let fields = "Content-Type: application/json\r\nanthropic-version: 2023-06-01\r\n";
    let answer = gate.send("POST", "/v1/messages", fields, body.to_string().as_bytes()).await.unwrap().text();
    let events: Vec<Value> =
        answer.lines().filter_map(|l| l.strip_prefix("data: ")).map(|d| serde_json::from_str(d).unwrap()).collect();
    let text: String = events.iter().filter_map(|e| e["delta"]["text"].as_str()).collect();
    assert_eq!(text, said, "{answer}");
    assert_eq!(events.last().map(|e| &e["type"]), Some(&json!("content_block_stop")), "{answer}");
}
