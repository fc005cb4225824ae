//! Inputs that are often handled wrongly (leaks, lost members, changed numbers), one test each.

use interflow_redact::OutboundMode;
use interflow_testkit::{Origin, Reply};
use serde_json::{Value, json};

use super::{Gate, MAIL, SSN, arrived, provider, sse};

/// Sends a body and asserts that it arrives byte for byte, except for the placeholders.
async fn only_the_values_change(path: &str, body: &str) {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::start(&origin).await;
    let answer = gate.post(path, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let got = arrived(&origin);
    assert!(!got.contains(SSN) && !got.contains(MAIL), "{got}");
    let mut rest = got.as_str();
    let mut wanted = body;
    while let Some(at) = [wanted.find(SSN), wanted.find(MAIL)].into_iter().flatten().min() {
        let value = if wanted[at..].starts_with(SSN) { SSN } else { MAIL };
        assert_eq!(&rest[..at], &wanted[..at]);
        let stands: String = rest[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        assert!(stands.starts_with("SSN_") || stands.starts_with("EMAIL_"), "{stands} in {got}");
        rest = &rest[at + stands.len()..];
        wanted = &wanted[at + value.len()..];
    }
    assert_eq!(rest, wanted);
}

#[tokio::test]
async fn v1_parts_of_a_chat_message() {
    let body = r#"{"model":"m", "messages":[{"role":"user","content":[{"type":"text","text":"SSN 123-45-6789"},{"type":"image_url","image_url":{"url":"https://a/b.png"}}]}]}"#;
    only_the_values_change("/v1/chat/completions", body).await;
}

#[tokio::test]
async fn v2_anthropic_request_with_all_fields() {
    let body = r#"{"model":"claude","max_tokens":1024,"stream":false,"temperature":1.0,"stop_sequences":["\u003cend\u003e"],
      "system":[{"type":"text","text":"User is anna.berg@firm.com","cache_control":{"type":"ephemeral"}}],
      "tools":[{"name":"f","description":"mails to anna.berg@firm.com","input_schema":{"type":"object","properties":{"ssn":{"type":"string"}}}}],
      "thinking":{"type":"enabled","budget_tokens":2000}, "unknown":{"kept":[1.50,null,true]},
      "messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"SSN 123-45-6789","signature":"Zm9v"},{"type":"tool_use","id":"toolu_01","name":"f","input":{"ssn":"123-45-6789","n":9007199254740993}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01","content":"mail anna.berg@firm.com"}]}]}"#;
    only_the_values_change("/v1/messages", body).await;
    only_the_values_change("/anthropic/v1/messages/count_tokens", body).await;
}

#[tokio::test]
async fn v3_gemini_with_system_instruction_and_function_calls() {
    let body = r#"{"systemInstruction":{"parts":[{"text":"for anna.berg@firm.com"}]},"contents":[{"role":"model","parts":[{"functionCall":{"name":"f","args":{"ssn":"123-45-6789"}}}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"type":"anna.berg@firm.com"}}}]}],"generationConfig":{"temperature":0.10,"topK":40},"safetySettings":[{"category":"X","threshold":"Y"}]}"#;
    only_the_values_change("/v1beta/models/gemini-2:generateContent", body).await;
    only_the_values_change("/v1/projects/p/locations/l/publishers/google/models/g:generateContent", body).await;
}

#[tokio::test]
async fn v4_ollama_with_its_options() {
    let body = r#"{"model":"llama","stream":false,"options":{"num_ctx":4096,"temperature":0.0},"keep_alive":"5m","format":"json","messages":[{"role":"user","content":"SSN 123-45-6789"}]}"#;
    only_the_values_change("/api/chat", body).await;
    only_the_values_change(
        "/ollama/api/generate",
        r#"{"model":"l","prompt":"SSN 123-45-6789","system":"anna.berg@firm.com"}"#,
    )
    .await;
}

#[tokio::test]
async fn v5_bedrock_converse_with_tools() {
    let body = r#"{"messages":[{"role":"user","content":[{"text":"SSN 123-45-6789"},{"toolResult":{"toolUseId":"t","content":[{"json":{"mail":"anna.berg@firm.com","n":1e400}}]}}]}],"toolConfig":{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{"type":"object"}}}}]},"additionalModelRequestFields":{"top_k":5}}"#;
    only_the_values_change("/model/anthropic.claude/converse", body).await;
}

#[tokio::test]
async fn v6_integers_beyond_floats_in_nested_arguments() {
    let body = r#"{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"id\": 9007199254740993, \"who\": \"anna.berg@firm.com\", \"lt\": \"<&>\"}"}}]}]}"#;
    only_the_values_change("/v1/chat/completions", body).await;
}

#[tokio::test]
async fn v7_requests_and_responses_without_bodies() {
    let origin = Origin::http()
        .answering(|r| if r.method == "DELETE" { Reply::status(204) } else { Reply::json(&json!({"data": []})) });
    let origin = origin.start().await;
    let gate = Gate::start(&origin).await;
    assert_eq!(gate.send("GET", "/openai/v1/models", "", b"").await.unwrap().json(), json!({"data": []}));
    assert_eq!(gate.send("DELETE", "/v1/files/f", "", b"").await.unwrap().status, 204);
    assert_eq!(gate.send("POST", "/v1/chat/completions", "Content-Length: 0\r\n", b"").await.unwrap().status, 200);
}

#[tokio::test]
async fn v8_compressed_responses_are_inspected() {
    use std::io::Write;
    let text = json!({"choices": [{"message": {"content": format!("SSN {SSN}")}}]}).to_string();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    for coding in ["gzip", "unknown"] {
        let body = gzip.clone();
        let answer = move |_: &interflow_testkit::Request| {
            Reply::ok(body.clone()).header("Content-Type", "application/json").header("Content-Encoding", coding)
        };
        let origin = Origin::http().answering(answer).start().await;
        let gate = Gate::with(&origin, |r| r.redact.responses = OutboundMode::Block).await;
        let answer = gate.post("/v1/chat/completions", r#"{"model":"m","messages":[]}"#).await;
        let (status, code) = if coding == "gzip" { (403, "outbound_blocked") } else { (502, "response_unreadable") };
        assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (status, Some(code)), "{coding}");
        assert_eq!(origin.only_request().header("accept-encoding"), Some("identity"));
    }
}

#[tokio::test]
async fn v9_a_number_cut_across_deltas_in_text_and_in_arguments() {
    let chunk = |delta: Value| json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    let text = |t: &str| chunk(json!({"content": t}));
    let arguments = |t: &str| chunk(json!({"tool_calls": [{"index": 0, "function": {"arguments": t}}]}));
    let done = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let stream = sse(&[
        text("His SSN is 123-"),
        text("45-"),
        text("6789."),
        arguments("{\"ssn\": \"123-"),
        arguments("45-"),
        arguments("6789\"}"),
        done,
    ]);
    for mode in [OutboundMode::Redact, OutboundMode::Block, OutboundMode::Flag] {
        let origin = provider("text/event-stream", stream.clone()).await;
        let gate = Gate::with(&origin, |r| r.redact.responses = mode).await;
        let path = "/v1/chat/completions";
        let got = gate.send("POST", path, "", br#"{"model":"m","stream":true,"messages":[]}"#).await;
        match mode {
            OutboundMode::Redact => {
                let got = got.unwrap().text();
                assert!(!got.contains("6789") && !got.contains("123-"), "{got}");
                assert_eq!(super::chat_text(&got), "His SSN is {{{REDACTED-ssn}}}.");
                assert!(got.contains(r#"{\"ssn\": \"{{{REDACTED-ssn}}}\"}"#), "{got}");
                assert!(got.ends_with("data: [DONE]\n\n") && got.contains("\"finish_reason\":\"stop\""), "{got}");
            }
            OutboundMode::Block => {
                let got = got.unwrap().text();
                assert!(got.contains("outbound_blocked") && !got.contains("6789") && !got.contains("[DONE]"), "{got}");
            }
            _ => assert_eq!(got.unwrap().body, stream),
        }
    }
}

#[tokio::test]
async fn v10_route_without_responses_option_keeps_the_default() {
    let origin =
        provider("application/json", format!("{{\"content\":[{{\"type\":\"text\",\"text\":\"{SSN}\"}}]}}")).await;
    let gate = Gate::with(&origin, |r| {
        r.redact.responses = OutboundMode::Block;
        r.redact.route = vec![interflow_redact::RedactRoute { model: Some("claude*".into()), ..Default::default() }];
    })
    .await;
    let answer = gate.post("/v1/messages", r#"{"model":"claude-x","messages":[]}"#).await;
    assert_eq!((answer.status, answer.json()["error"]["type"].as_str()), (403, Some("permission_error")));
}

#[tokio::test]
async fn v11_gemini_streaming_array_is_treated_as_a_stream() {
    let part = |t: &str| {
        json!({"candidates": [{"content": {"parts": [{"text": t}], "role": "model"}, "index": 0}]}).to_string()
    };
    let body = format!("[{}\n,\r\n{}\n,\r\n{}\n]\n", part("SSN 123-"), part("45-67"), part("89 there"));
    for (mode, cut) in [(OutboundMode::Block, true), (OutboundMode::Redact, false)] {
        let origin = provider("application/json; charset=UTF-8", body.clone()).await;
        let gate = Gate::with(&origin, |r| r.redact.responses = mode).await;
        let got = gate.send("POST", "/v1beta/models/g:streamGenerateContent", "", br#"{"contents":[]}"#).await;
        let got = got.unwrap();
        if cut {
            let last = got.json().as_array().unwrap().last().unwrap().clone();
            assert_eq!(last["error"]["details"][0]["reason"], "outbound_blocked", "{last}");
            assert!(!got.text().contains("6789"), "{}", got.text());
            continue;
        }
        let texts: String = got
            .json()
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["candidates"][0]["content"]["parts"][0]["text"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(texts, "SSN {{{REDACTED-ssn}}} there");
    }
}

#[tokio::test]
async fn v12_responses_api_response() {
    let body = json!({"id": "resp_1", "object": "response", "output": [
        {"type": "message", "content": [{"type": "output_text", "text": format!("mail {MAIL}"), "annotations": []}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": format!("{{\"ssn\": \"{SSN}\"}}")}]});
    let origin = provider("application/json", body.to_string()).await;
    let gate = Gate::with(&origin, |r| r.redact.responses = OutboundMode::Redact).await;
    let got = gate.post("/v1/responses", r#"{"model":"m","input":"hi"}"#).await.json();
    assert_eq!(got["output"][0]["content"][0]["text"], "mail {{{REDACTED-email-address}}}");
    assert_eq!(got["output"][1]["arguments"], "{\"ssn\": \"{{{REDACTED-ssn}}}\"}");
    assert_eq!(got["id"], "resp_1");
}

#[tokio::test]
async fn v13_a_percent_encoded_model_is_signed_for_bedrock() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |r| {
        let bedrock = r.llm.provider.get_mut("bedrock").unwrap();
        bedrock.access_key = Some("AKID".into());
        bedrock.secret_key = Some("secret".into());
        bedrock.region = Some("eu-west-1".into());
    })
    .await;
    let path = "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Fx/converse";
    let signed = "Authorization: AWS4-HMAC-SHA256 Credential=other/20250101/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=00\r\n";
    let body = format!("{{\"messages\":[{{\"role\":\"user\",\"content\":[{{\"text\":\"SSN {SSN}\"}}]}}]}}");
    let answer = gate.send("POST", path, signed, body.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let got = origin.only_request();
    assert_eq!(got.path(), path);
    let value = got.header("authorization").unwrap();
    assert!(
        value.starts_with("AWS4-HMAC-SHA256 Credential=AKID/") && value.contains("/eu-west-1/bedrock/aws4_request,"),
        "{value}"
    );
    assert!(!arrived(&origin).contains(SSN));
}
