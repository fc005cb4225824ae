//! The newest models from every client's format: no request is refused that could have been written in a way that the model
//! takes. The provider refuses what the real ones refuse.

use interflow_llm::LlmUpstreamConfig;
use interflow_testkit::llm;
use serde_json::{Value, json};

use super::Gate;

/// Upstream and model.
const MODELS: [(&str, &str); 17] = [
    ("anthropic", "claude-fable-5-2"),
    ("anthropic", "claude-opus-5-5"),
    ("anthropic", "claude-sonnet-5-5"),
    ("anthropic", "claude-haiku-5-5"),
    ("anthropic", "claude-opus-4-8"),
    ("anthropic", "claude-sonnet-4-6"),
    ("anthropic", "claude-haiku-4-5"),
    ("vertex", "claude-sonnet-5-5"),
    ("bedrock", "us.anthropic.claude-opus-5-5"),
    ("openai", "gpt-6.2-astra"),
    ("openai", "gpt-6-sol"),
    ("openai", "gpt-5.6-sol"),
    ("openai", "gpt-5.4"),
    ("openai", "gpt-5.5-pro"),
    ("gemini", "gemini-4-argon"),
    ("gemini", "gemini-3.8-flash"),
    ("gemini", "gemini-2.5-pro"),
];
const PATHS: [&str; 3] = ["/v1/messages", "/v1/chat/completions", "/v1/responses"];

/// A question in a client's format, with all that a case asks for.
fn body(path: &str, model: &str, case: &str) -> Value {
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"], "additionalProperties": false });
    let is_messages = path == PATHS[0];
    let mut body = match path {
        "/v1/responses" => json!({ "model": model, "input": [{ "role": "user", "content": "Hello" }] }),
        _ => json!({ "model": model, "messages": [{ "role": "user", "content": "Hello" }] }),
    };
    if is_messages {
        body["max_tokens"] = 8000.into();
    }
    if case.contains("sampling") {
        (body["temperature"], body["top_p"]) = (json!(0.4), json!(0.9));
        match path {
            "/v1/messages" => body["top_k"] = 4.into(),
            "/v1/chat/completions" => (body["stop"], body["presence_penalty"]) = (json!(["END"]), json!(0.5)),
            _ => {}
        }
    }
    if case.contains("tools") {
        body["tools"] = match path {
            "/v1/messages" => json!([{ "name": "look", "input_schema": schema }]),
            "/v1/responses" => json!([{ "type": "function", "name": "look", "parameters": schema }]),
            _ => json!([{ "type": "function", "function": { "name": "look", "parameters": schema } }]),
        };
    }
    if case.contains("forced") {
        body["tool_choice"] = if is_messages { json!({ "type": "any" }) } else { json!("required") };
    }
    if case.contains("prefill") {
        let key = if path == "/v1/responses" { "input" } else { "messages" };
        body[key].as_array_mut().unwrap().push(json!({ "role": "assistant", "content": "Well" }));
    }
    if case.contains("json") {
        match path {
            "/v1/messages" => body["output_config"] = json!({ "format": { "type": "json_schema", "schema": schema } }),
            "/v1/responses" => body["text"] = json!({ "format": { "type": "json_object" } }),
            _ => body["response_format"] = json!({ "type": "json_object" }),
        }
    }
    let effort = case.split(' ').find_map(|word| word.strip_prefix("effort="));
    match (effort, path) {
        (Some("none"), "/v1/messages") => body["thinking"] = json!({ "type": "disabled" }),
        (Some(effort), "/v1/messages") => {
            body["thinking"] = json!({ "type": "adaptive" });
            body["output_config"]["effort"] = effort.into();
        }
        (Some(effort), "/v1/responses") => body["reasoning"] = json!({ "effort": effort }),
        (Some(effort), _) => body["reasoning_effort"] = effort.into(),
        (None, _) => {}
    }
    body
}

#[tokio::test]
async fn no_client_meets_a_refusal_that_translation_could_avoid() {
    let (origin, received) = llm::start().await;
    let gate = Gate::with(&origin, |parts| {
        for (name, _) in MODELS {
            let at = LlmUpstreamConfig {
                url: Some(origin.url("/~strict=1")),
                project: Some("p".into()),
                access_key: Some("AKIA".into()).filter(|_| name == "bedrock"),
                secret_key: Some("s".into()).filter(|_| name == "bedrock"),
                api_key: Some("k".into()).filter(|_| name != "bedrock"),
                ..LlmUpstreamConfig::default()
            };
            parts.llm.provider.insert(name.into(), at);
        }
    })
    .await;
    let mut cases: Vec<String> =
        ["plain", "sampling", "tools", "tools sampling", "tools forced", "prefill", "json"].map(str::to_owned).into();
    for effort in ["none", "minimal", "low", "medium", "high", "xhigh", "max"] {
        cases.extend(
            ["", "tools ", "sampling ", "tools forced ", "prefill "].map(|more| format!("{more}effort={effort}")),
        );
    }
    let (mut asked, mut refused) = (0, Vec::new());
    for (upstream, model) in MODELS {
        for path in PATHS {
            // What a client writes for the model's own API is sent as it is.
            let is_own =
                matches!((upstream, path), ("anthropic" | "vertex", "/v1/messages") | ("openai", "/v1/responses"));
            let is_chat = (upstream, path) == ("openai", "/v1/chat/completions");
            for case in &cases {
                let is_only_moved =
                    is_chat && (case.contains("sampling") || case.contains("effort") || case.contains("prefill"));
                if is_own || is_only_moved {
                    continue;
                }
                let answer = gate.post(&format!("/{upstream}{path}"), body(path, model, case).to_string()).await;
                asked += 1;
                if answer.status != 200 {
                    refused.push(format!("{path} to {model}, {case}: {}", answer.text()));
                }
            }
        }
    }
    assert!(asked > 1_000, "{asked}");
    assert_eq!((refused.len(), received.refused()), (0, 0), "{asked} asked:\n{}", refused.join("\n"));
}

#[tokio::test]
async fn tools_with_reasoning_are_moved_to_responses_and_the_client_reads_its_own_format() {
    let (origin, received) = llm::start().await;
    let gate = Gate::with(&origin, |parts| {
        let at = LlmUpstreamConfig { url: Some(origin.url("/~strict=1&tool=look")), ..LlmUpstreamConfig::default() };
        parts.llm.provider.insert("openai".into(), at);
    })
    .await;
    for (path, model, case, sent_to) in [
        ("/v1/chat/completions", "gpt-6.2-sol", "tools", "/v1/responses"),
        ("/v1/chat/completions", "gpt-6-sol", "tools effort=none", "/v1/chat/completions"),
        ("/v1/chat/completions", "gpt-6-sol", "tools effort=high", "/v1/responses"),
        ("/v1/chat/completions", "gpt-6.2-sol", "plain", "/v1/chat/completions"),
        ("/v1/chat/completions", "gpt-5.1", "tools", "/v1/chat/completions"),
        ("/v1/messages", "gpt-6.2-sol", "tools", "/v1/responses"),
        ("/v1/messages", "gpt-6.2-sol", "plain", "/v1/chat/completions"),
    ] {
        for stream in [false, true] {
            let mut body = body(path, model, case);
            body["stream"] = stream.into();
            let answer = gate.post(&format!("/openai{path}"), body.to_string()).await;
            assert_eq!(answer.status, 200, "{path} {model} {case}: {}", answer.text());
            let sent = origin.requests().pop().unwrap();
            assert!(sent.path().ends_with(sent_to), "{path} {model} {case}: {}", sent.path());
            let text = answer.text();
            let called = if path == "/v1/messages" { "\"tool_use\"" } else { "\"tool_calls\"" };
            assert!(text.contains(called) && text.contains("look"), "{text}");
            assert!(!text.contains("response.completed"), "{text}");
        }
    }
    assert_eq!(received.refused(), 0);
}

#[tokio::test]
async fn what_is_moved_is_sent_with_the_gateways_key_and_charged_once() {
    let (origin, received) = llm::start().await;
    received.watch_for("ifk_k");
    let gate = Gate::with(&origin, |parts| {
        parts.keys = super::key_scopes::key("k", "");
        let at = LlmUpstreamConfig { url: Some(origin.url("/~strict=1&tool=look")), ..LlmUpstreamConfig::default() };
        parts.llm.provider.insert("openai".into(), at);
    })
    .await;
    for stream in [false, true] {
        let mut body = body(PATHS[1], "gpt-6.2-sol", "tools");
        body["stream"] = stream.into();
        let fields = "Authorization: Bearer ifk_k\r\nContent-Type: application/json\r\n";
        let answer =
            gate.send("POST", "/openai/v1/chat/completions", fields, body.to_string().as_bytes()).await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        // The client did not ask for usage.
        assert!(!stream || !answer.text().contains("\"prompt_tokens\""), "{}", answer.text());
        let sent = origin.requests().pop().unwrap();
        assert_eq!(
            (sent.header("authorization"), sent.path().ends_with("/v1/responses")),
            (Some("Bearer sk-real"), true)
        );
    }
    let charged = || gate.limits.usage().rows().iter().map(|row| (row.requests, row.input_tokens)).collect::<Vec<_>>();
    super::support::until("the charge", || charged().iter().any(|(requests, input)| *requests == 2 && *input > 20))
        .await;
    received.assert_nothing_leaked();
}
