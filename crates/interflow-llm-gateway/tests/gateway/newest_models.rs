//! The newest models from every client's format: no request is refused that could have been written in a way that the model
//! takes. The provider refuses what the real ones refuse.

use interflow_llm::LlmUpstreamConfig;
use interflow_testkit::llm;
use serde_json::{Value, json};

use super::Gate;

/// Upstream and model.
const MODELS: [(&str, &str); 24] = [
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
    ("xai", "grok-4.7"),
    ("deepseek", "deepseek-v4-pro"),
    ("moonshot", "kimi-k3.1-pro"),
    ("moonshot", "kimi-k2.6"),
    ("zai", "glm-5.3"),
    ("qwencloud", "qwen3.8-max"),
    ("mistral", "mistral-large-4"),
];
/// Providers with OpenAI's Chat Completions only.
const CHAT_ONLY: [&str; 5] = ["xai", "deepseek", "moonshot", "zai", "qwencloud"];
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
    if case.contains("history") {
        let turns = match path {
            "/v1/messages" => json!([
                { "role": "assistant", "content": [{ "type": "tool_use", "id": "c1", "name": "look", "input": { "city": "Oslo" } }] },
                { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c1", "content": "rain" }] },
                { "role": "assistant", "content": "It rains." },
                { "role": "user", "content": "And now?" },
            ]),
            "/v1/responses" => json!([
                { "type": "function_call", "call_id": "c1", "name": "look", "arguments": "{\"city\":\"Oslo\"}" },
                { "type": "function_call_output", "call_id": "c1", "output": "rain" },
                { "role": "assistant", "content": "It rains." },
                { "role": "user", "content": "And now?" },
            ]),
            _ => json!([
                { "role": "assistant", "content": null, "tool_calls": [{ "id": "c1", "type": "function", "function": { "name": "look", "arguments": "{\"city\":\"Oslo\"}" } }] },
                { "role": "tool", "tool_call_id": "c1", "content": "rain" },
                { "role": "assistant", "content": "It rains." },
                { "role": "user", "content": "And now?" },
            ]),
        };
        let key = if path == "/v1/responses" { "input" } else { "messages" };
        body[key].as_array_mut().unwrap().extend(turns.as_array().unwrap().iter().cloned());
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
            let knobs = if name == "mistral" { "&mistral=1" } else { "" };
            let at = LlmUpstreamConfig {
                url: Some(origin.url(&format!("/~strict=1{knobs}"))),
                format: CHAT_ONLY.contains(&name).then(|| "openai_chat".to_owned()),
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
        ["plain", "sampling", "tools", "tools sampling", "tools forced", "history tools", "prefill", "json"]
            .map(str::to_owned)
            .into();
    for effort in ["none", "minimal", "low", "medium", "high", "xhigh", "max"] {
        cases.extend(
            ["", "tools ", "sampling ", "tools forced ", "history tools ", "prefill "]
                .map(|more| format!("{more}effort={effort}")),
        );
    }
    let (mut asked, mut refused) = (0, Vec::new());
    for (upstream, model) in MODELS {
        for path in PATHS {
            // What a client writes for the model's own API is sent as it is.
            let is_own =
                matches!((upstream, path), ("anthropic" | "vertex", "/v1/messages") | ("openai", "/v1/responses"))
                    || path == "/v1/chat/completions" && (upstream == "mistral" || CHAT_ONLY.contains(&upstream));
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
    assert!(asked > 2_000, "{asked}");
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
async fn thoughts_return_to_models_that_demand_them_of_the_history() {
    let (origin, received) = llm::start().await;
    let gate = Gate::with(&origin, |parts| {
        let at = LlmUpstreamConfig {
            url: Some(origin.url("/~strict=1&thinking=1&tool=look")),
            format: Some("openai_chat".into()),
            ..LlmUpstreamConfig::default()
        };
        parts.llm.provider.insert("deepseek".into(), at);
    })
    .await;
    let ask = |turns: Value, thinking: Value| {
        let mut body = body(PATHS[0], "deepseek-v4-pro", "tools");
        body["messages"].as_array_mut().unwrap().extend(turns.as_array().unwrap().iter().cloned());
        body["thinking"] = thinking;
        body
    };
    let sent = || serde_json::from_slice::<Value>(&origin.requests().pop().unwrap().body).unwrap();
    let adaptive = json!({ "type": "adaptive" });
    let answer = gate.post("/deepseek/v1/messages", ask(json!([]), adaptive.clone()).to_string()).await.json();
    let mut content = answer["content"].clone();
    let result = json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": content[2]["id"], "content": "rain" }] });
    let own = json!([{ "role": "assistant", "content": content }, result]);
    assert_eq!(gate.post("/deepseek/v1/messages", ask(own.clone(), adaptive.clone()).to_string()).await.status, 200);
    assert_eq!(sent()["messages"][1]["reasoning_content"], content[0]["thinking"], "its own thoughts");
    assert_eq!(
        gate.post("/deepseek/v1/messages", ask(own, json!({ "type": "disabled" })).to_string()).await.status,
        200
    );
    assert_eq!(sent()["messages"][1].get("reasoning_content"), None, "it does not think");
    assert_eq!((&sent()["thinking"]["type"], sent().get("reasoning_effort")), (&json!("disabled"), None));
    // Thoughts of another provider are not given out as the model's own.
    content[0]["signature"] = "EqABsigned".into();
    let foreign = json!([{ "role": "assistant", "content": content }, result]);
    assert_eq!(gate.post("/deepseek/v1/messages", ask(foreign, adaptive).to_string()).await.status, 200);
    assert_eq!(sent()["messages"][1]["reasoning_content"], " ");
    assert_eq!(received.refused(), 0);
}

#[tokio::test]
async fn what_a_model_refuses_in_its_own_format_is_a_tag_of_the_refused_request() {
    let (origin, _) = llm::start().await;
    let gate = Gate::with(&origin, |parts| {
        let at = LlmUpstreamConfig { url: Some(origin.url("/~strict=1")), ..LlmUpstreamConfig::default() };
        parts.llm.provider.insert("anthropic".into(), at);
    })
    .await;
    let cases = [("claude-opus-5-5", 400, &["temperature", "top_p", "top_k"][..]), ("claude-haiku-4-5", 200, &[])];
    for (flows, (model, status, tags)) in cases.into_iter().enumerate() {
        let sent = body(PATHS[0], model, "sampling").to_string();
        let fields = "Content-Type: application/json\r\nanthropic-version: 2023-06-01\r\nx-api-key: k\r\n";
        let answer = gate.send("POST", "/anthropic/v1/messages", fields, sent.as_bytes()).await.unwrap();
        assert_eq!(answer.status, status, "{model}: {}", answer.text());
        assert_eq!(origin.requests().pop().unwrap().body, sent.as_bytes(), "its bytes are the client's");
        let flow = gate.proxy.flows(flows + 1).await.remove(flows);
        let own: Vec<_> = flow.tags.iter().filter_map(|tag| tag.strip_prefix("unsupported:")).collect();
        assert_eq!(own, tags, "{model}");
    }
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
