//! What a virtual key that is restricted to models, paths or a budget reaches.

use interflow_proxy::config::InterceptMode;
use interflow_redact::{RedactConfig, RedactMode};
use interflow_testkit::{Answer, Origin, Reply, Script};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Gate;

/// A key of the keys file, whose secret is `ifk_` and its name.
pub fn key(id: &str, more: &str) -> String {
    let hash = hex::encode(Sha256::digest(format!("ifk_{id}")));
    format!("[[key]]\nid = \"{id}\"\nhash = \"sha256:{hash}\"\n{more}\n")
}

/// A gateway with these keys, whose provider answers each request as told.
async fn gate(origin: &Origin, keys: &[String]) -> Gate {
    Gate::with(origin, |parts| {
        parts.redact = RedactConfig { gateway: RedactMode::Off, ..RedactConfig::default() };
        parts.keys = keys.concat();
    })
    .await
}

async fn provider_of(answer: Value) -> Origin {
    Origin::http().answering(move |_| Reply::json(&answer)).start().await
}

async fn send(gate: &Gate, id: &str, method: &str, path: &str, body: &Value) -> Answer {
    let fields = format!("Authorization: Bearer ifk_{id}\r\nContent-Type: application/json\r\n");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    gate.send(method, path, &fields, body.as_bytes()).await.unwrap()
}

#[tokio::test]
async fn a_model_in_the_body_opens_no_path_that_does_not_use_it() {
    let origin = provider_of(json!({})).await;
    let keys = [
        key("narrow", "models = [\"gpt-4o*\"]"),
        key("wide", "models = [\"gpt-4o*\"]\npaths = [\"/v1/batches*\", \"/v1/evals\"]"),
    ];
    let gate = gate(&origin, &keys).await;
    let body = json!({
        "model": "gpt-4o",
        "session": {"model": "o3"},
        "requests": [{"custom_id": "a", "params": {"model": "claude-opus-4-5", "max_tokens": 5}}],
    });
    for path in [
        "/anthropic/v1/sessions",
        "/anthropic/v1/skills",
        "/openai/v1/batches",
        "/openai/v1/conversations",
        "/openai/v1/organization/admin_api_keys",
        "/openai/v1/vector_stores",
        "/openai/v1/responses/resp_1/cancel",
        "/openai/v1/threads/runs",
        "/openai/v1/realtime/client_secrets",
        "/openai/v1/containers",
        "/openai/v1/evals",
        "/openai/v1/files",
        "/mistral/v1/agents/completions",
        "/ollama/api/pull",
    ] {
        let answer = send(&gate, "narrow", "POST", path, &body).await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.text());
        assert!(answer.text().contains("--path"), "{path}: {}", answer.text());
    }
    // A batch of models that are allowed, and the ones of a body that selects its model.
    let batch = |model: &str| json!({"requests": [{"params": {"model": "gpt-4o"}}, {"params": {"model": model}}]});
    let batches = "/anthropic/v1/messages/batches";
    assert_eq!(send(&gate, "narrow", "POST", batches, &body).await.status, 403);
    assert_eq!(send(&gate, "narrow", "POST", batches, &json!({"model": "gpt-4o", "requests": []})).await.status, 403);
    assert_eq!(send(&gate, "narrow", "POST", batches, &batch("claude-opus-4-5")).await.status, 403);
    assert!(origin.requests().is_empty());
    assert_eq!(send(&gate, "narrow", "POST", batches, &batch("gpt-4o-mini")).await.status, 200);
    for path in ["/openai/v1/chat/completions", "/openai/v1/embeddings", "/openai/v1/moderations", "/ollama/api/chat"] {
        let answer = send(&gate, "narrow", "POST", path, &json!({"model": "gpt-4o", "messages": []})).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
    // The operator allowed these paths, but not another model.
    for (model, status) in [(json!("gpt-4o"), 200), (Value::Null, 200), (json!("o3"), 403)] {
        let answer = send(&gate, "wide", "POST", "/openai/v1/batches", &json!({"model": model})).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
}

#[tokio::test]
async fn every_model_of_a_body_has_to_be_of_the_list() {
    let origin = provider_of(json!({})).await;
    let gate = gate(&origin, &[key("narrow", "models = [\"gpt-4o*\"]"), key("free", "")]).await;
    let chat = "/openai/v1/chat/completions";
    let responses = "/openai/v1/responses";
    for (path, more, status) in [
        (chat, json!({}), 200),
        (chat, json!({"models": ["gpt-4o-mini"]}), 200),
        (chat, json!({"models": ["gpt-4o-mini", "o3"]}), 403),
        (chat, json!({"fallbacks": [{"model": "o3"}]}), 403),
        (chat, json!({"preset": "mine"}), 403),
        (chat, json!({"Model": "o3"}), 403),
        (chat, json!({"model": "gpt-4o@preset/mine"}), 403),
        (responses, json!({"prompt": {"id": "pmpt_1"}}), 403),
        ("/gemini/v1beta/interactions", json!({}), 200),
        ("/gemini/v1beta/interactions", json!({"agent": "deep-research"}), 403),
        ("/gemini/v1beta/interactions", json!({"agent": "gpt-4o-agent"}), 200),
        (responses, json!({"tools": [{"type": "web_search"}]}), 200),
        (responses, json!({"tools": [{"type": "image_generation", "model": "gpt-image-1"}]}), 403),
        (responses, json!({"tools": [{"type": "image_generation"}]}), 403),
        (
            responses,
            json!({"tools": [{"type": "function", "name": "f", "parameters": {"properties": {"model": {"type": "string"}}}}]}),
            200,
        ),
    ] {
        let mut body = json!({"model": "gpt-4o", "messages": [], "input": "x"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = send(&gate, "narrow", "POST", path, &body).await;
        assert_eq!(answer.status, status, "{more}: {}", answer.text());
        assert_eq!(send(&gate, "free", "POST", path, &body).await.status, 200, "{more}");
    }
}

#[tokio::test]
async fn patterns_of_paths_match_with_and_without_the_name_of_the_provider() {
    let origin = provider_of(json!({})).await;
    let keys = [
        key("bare", "paths = [\"/v1/chat/*\", \"/v1/files*\"]"),
        key("named", "paths = [\"/openai/v1/chat/*\", \"/openai/v1/files*\"]"),
    ];
    let gate = gate(&origin, &keys).await;
    let chat = json!({"model": "gpt-4o", "messages": []});
    for (method, path, body, bare, named) in [
        ("POST", "/openai/v1/chat/completions", &chat, 200, 200),
        ("POST", "/v1/chat/completions", &chat, 200, 200),
        ("GET", "/openai/v1/files", &Value::Null, 200, 200),
        ("GET", "/v1/files", &Value::Null, 200, 200),
        ("POST", "/mistral/v1/chat/completions", &chat, 200, 403),
        ("POST", "/openai/v1/embeddings", &chat, 403, 403),
        ("GET", "/openai/v1/models", &Value::Null, 403, 403),
    ] {
        for (id, status) in [("bare", bare), ("named", named)] {
            let answer = send(&gate, id, method, path, body).await;
            assert_eq!(answer.status, status, "{id} {method} {path}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn a_path_that_an_upstream_may_read_as_another_one_is_refused() {
    let origin = provider_of(json!({})).await;
    let keys = [
        key("models", "models = [\"gpt-4o*\", \"openai*\"]"),
        key("paths", "paths = [\"/v1/files*\"]"),
        key("free", ""),
    ];
    let gate = gate(&origin, &keys).await;
    for (id, path) in [
        ("models", "/openai/v1/models/gpt-4o%2F..%2F..%2Forganization"),
        ("models", "/openai/v1/models/gpt-4o%5c..%5c..%5cfiles"),
        ("models", "/openai/v1/models/gpt-4o/%252e%252e/%252e%252e/files"),
        ("models", "/openai/v1/models/gpt-4o/..;/..;/files"),
        ("models", "/openai/v1/models/gpt-4o%252f%25252e%252e%252ffiles"),
        ("paths", "/openai/v1/files..%2f..%2forganization"),
        ("paths", "/v1/files/..%3bx/organization"),
        ("free", "/openai/v1/a%2F.."),
    ] {
        let answer = send(&gate, id, "GET", path, &Value::Null).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
        assert!(answer.text().contains("path_not_canonical"), "{path}: {}", answer.text());
    }
    assert!(origin.requests().is_empty());
    for (id, path) in [("models", "/openai/v1/models/openai%2Fgpt-4o"), ("paths", "/openai/v1/files/a..b")] {
        assert_eq!(send(&gate, id, "GET", path, &Value::Null).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_model_that_only_the_upstream_reads_is_refused_for_keys_limited_to_models() {
    let origin = provider_of(json!({})).await;
    let gate = gate(&origin, &[key("models", "models = [\"gpt-4o*\"]"), key("free", "")]).await;
    let chat = |model: &str| json!({"model": model, "messages": []});
    for (path, body) in [
        ("/openai/Deployments/o3/chat/completions", chat("gpt-4o")),
        ("/openai/%64eployments/o3/chat/completions", chat("gpt-4o")),
        ("/openai/%2564eployments/o3/chat/completions", chat("gpt-4o")),
        ("/openai/openai/deployments/o3/chat/completions", chat("gpt-4o")),
        ("/openai/v1/engines/o3/chat/completions", chat("gpt-4o")),
        ("/openai/v1/Models/o3/chat/completions", chat("gpt-4o")),
        ("/openai/v1/chat/completions", chat("gpt-4o/../../o3")),
        ("/openai/v1/chat/completions", chat("gpt-4o,o3")),
        ("/openai/v1/chat/completions", chat("gpt-4o\no3")),
        ("/openai/v1/chat/completions", chat("gpt-4o\\o3")),
        ("/openai/v1/chat/completions", json!({"model": "gpt-4o", "models": ["gpt-4o,o3"], "messages": []})),
    ] {
        let answer = send(&gate, "models", "POST", path, &body).await;
        assert_eq!(answer.status, 403, "{path} {body}: {}", answer.text());
    }
    assert!(origin.requests().is_empty());
    for (id, path, model) in [
        ("models", "/openai/v1/chat/completions", "gpt-4o-mini"),
        ("free", "/openai/v1/engines/o3/chat/completions", "gpt-4o,o3"),
    ] {
        assert_eq!(send(&gate, id, "POST", path, &chat(model)).await.status, 200, "{path} {model}");
    }
}

#[tokio::test]
async fn batches_and_background_responses_are_charged_what_they_may_use() {
    let origin = provider_of(json!({"id": "b", "object": "response", "status": "queued", "usage": null})).await;
    let budget = "limits = { tokens_per_day = 50000 }";
    let keys = [
        key("batch", budget),
        key("back", budget),
        key("file", budget),
        key("many", budget),
        key("wide", &format!("{budget}\npaths = [\"/v1/batches\"]")),
    ];
    let gate = gate(&origin, &keys).await;
    let item = json!({"params": {"model": "claude-opus-4-5", "max_tokens": 10_000, "messages": []}});
    let batch = |count: usize| json!({ "requests": vec![item.clone(); count] });
    let batches = "/anthropic/v1/messages/batches";
    let response = json!({"model": "gpt-4o", "input": "x", "background": true, "max_output_tokens": 30_000});
    let requests = [
        ("many", batches, batch(20), 429),
        ("batch", batches, batch(3), 200),
        ("batch", batches, batch(3), 429),
        ("batch", batches, json!({"requests": []}), 403),
        ("back", "/openai/v1/responses", response.clone(), 200),
        ("back", "/openai/v1/responses", response, 429),
        ("file", "/openai/v1/batches", json!({"input_file_id": "f"}), 403),
        ("wide", "/openai/v1/batches", json!({"input_file_id": "f"}), 200),
    ];
    for (sent, (id, path, body, status)) in (1..).zip(requests) {
        let answer = send(&gate, id, "POST", path, &body).await;
        assert_eq!(answer.status, status, "{id} {path}: {}", answer.text());
        // The reservation ends with the flow.
        gate.proxy.flows(sent).await;
    }
}

#[tokio::test]
async fn keys_are_checked_where_tunnels_are_not_intercepted() {
    let origin = provider_of(json!({})).await;
    let gate = Gate::with(&origin, |parts| {
        parts.keys = key("k", "");
        parts.intercept = InterceptMode::None;
    });
    let gate = gate.await;
    let body = json!({ "model": "gpt-5", "messages": [] });
    for (id, status) in [("unknown", 401), ("k", 200)] {
        let answer = send(&gate, id, "POST", "/openai/v1/chat/completions", &body).await;
        assert_eq!(answer.status, status, "{id}");
    }
    assert_eq!(origin.requests().len(), 1, "a request with an unknown key reaches no provider");
}

#[tokio::test]
async fn clients_of_gemini_list_the_models_of_an_upstream_with_another_api() {
    let origin = provider_of(json!({})).await;
    let gate = Gate::with(&origin, |parts| {
        parts.redact = RedactConfig { gateway: RedactMode::Off, ..RedactConfig::default() };
        parts.keys = [key("wide", ""), key("narrow", "models = [\"claude-opus-5-5\", \"fast\"]")].concat();
        parts.llm.aliases.insert("fast".into(), "claude-haiku-5-5".into());
    })
    .await;
    let names = |answer: &Answer| -> Vec<String> {
        let list = answer.json()["models"].as_array().unwrap().clone();
        list.iter().map(|model| model["name"].as_str().unwrap().to_owned()).collect()
    };
    let list = "/anthropic/v1beta/models?pageSize=50";
    let answer = send(&gate, "wide", "GET", list, &Value::Null).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let all = names(&answer);
    for name in ["models/claude-opus-5-5", "models/claude-haiku-5-5", "models/fast"] {
        assert!(all.iter().any(|listed| listed == name), "{name}: {all:?}");
    }
    assert!(!all.iter().any(|name| name.contains("gpt") || name.contains('*')), "{all:?}");
    let narrow = send(&gate, "narrow", "GET", list, &Value::Null).await;
    assert_eq!(names(&narrow), ["models/claude-opus-5-5", "models/fast"]);
    for (id, model, status) in [
        ("narrow", "claude-opus-5-5", 200),
        ("narrow", "claude-haiku-5-5", 403),
        ("wide", "claude-haiku-5-5", 200),
        ("wide", "nothing", 404),
    ] {
        let answer = send(&gate, id, "GET", &format!("/anthropic/v1beta/models/{model}"), &Value::Null).await;
        assert_eq!(answer.status, status, "{model}: {}", answer.text());
        if status == 200 {
            let model = answer.json();
            assert_eq!(model["supportedGenerationMethods"][0], "generateContent", "{model}");
            assert!(model["inputTokenLimit"].as_u64() > Some(100_000), "{model}");
        }
    }
    assert_eq!(send(&gate, "none", "GET", list, &Value::Null).await.status, 401);
    // Google's SDK for Python asks at the path that others have, too.
    let answer = gate.send("GET", "/anthropic/v1/models", "x-goog-api-key: ifk_narrow\r\n", b"").await.unwrap();
    assert_eq!(names(&answer), ["models/claude-opus-5-5", "models/fast"]);
    assert_eq!(origin.served(), 0, "the gateway answers itself");
    // Google has a list of its own.
    send(&gate, "wide", "GET", "/gemini/v1beta/models", &Value::Null).await;
    assert_eq!(origin.served(), 1);
}

#[tokio::test]
async fn a_list_of_models_that_is_to_be_forwarded_as_it_comes_is_refused() {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nIncremental: ?1\r\nTransfer-Encoding: chunked\r\n\r\n";
    // It does not end: nothing but a refusal answers it.
    let origin = Origin::script(Script::new().request().send(format!("{head}2\r\n{{\"\r\n")).stall()).await;
    let gate = gate(&origin, &[key("narrow", "models = [\"gpt-4o*\"]")]).await;
    let answer = send(&gate, "narrow", "GET", "/openai/v1/models", &Value::Null).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (501, &json!("incremental_refused")));
}

#[tokio::test]
async fn a_virtual_key_where_it_would_be_forwarded_is_refused() {
    let origin = provider_of(json!({})).await;
    let gate = gate(&origin, &[key("k", "")]).await;
    let stray = format!("ifk_{}", "a1B2".repeat(11));
    let chat = "/openai/v1/chat/completions";
    let encoded = stray.replace("ifk_", "%69fk%5F");
    for (path, field, status) in [
        (chat.to_owned(), String::new(), 200),
        (chat.to_owned(), "X-Note: ifk_short\r\n".to_owned(), 200),
        (chat.to_owned(), format!("X-Foo: {stray}\r\n"), 400),
        (chat.to_owned(), format!("Cookie: a=b; key={stray}\r\n"), 400),
        (format!("{chat}?x={stray}"), String::new(), 400),
        (format!("{chat}?x={encoded}"), String::new(), 400),
        (format!("/openai/v1/files/{stray}"), String::new(), 400),
    ] {
        for credential in ["Authorization: Bearer ifk_k", "Authorization: Bearer sk-own"] {
            let fields = format!("{credential}\r\n{field}Content-Type: application/json\r\n");
            let answer = gate.send("POST", &path, &fields, br#"{"model":"m","messages":[]}"#).await.unwrap();
            assert_eq!(answer.status, status, "{path} {fields}: {}", answer.text());
            assert_eq!(answer.text().contains("misplaced_key"), status == 400, "{}", answer.text());
        }
    }
}

#[tokio::test]
async fn parallel_requests_for_many_answers_do_not_exceed_a_budget() {
    let origin = provider_of(json!({"choices": [{"text": "a", "message": {"content": "a"}}]})).await;
    let limits = "limits = { tokens_per_day = 2000 }";
    let form = |n: &str| {
        let field = |name: &str, value: &str| {
            format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        format!("{}{}{}--B--\r\n", field("model", "imagen-3.0-generate-001"), field("prompt", "x"), field("n", n))
    };
    let (chat, legacy) = ("/openai/v1/chat/completions", "/openai/v1/completions");
    let gemini = "/gemini/v1beta/models/gemini-3.8-flash:generateContent";
    let config =
        |count: u32| json!({"contents": [], "generation_config": {"max_output_tokens": 100, "candidate_count": count}});
    for (path, small, large) in [
        (chat, json!({"model": "m", "max_tokens": 100, "n": "2"}), json!({"model": "m", "max_tokens": 100, "n": "90"})),
        (
            legacy,
            json!({"model": "m", "max_tokens": 100, "prompt": ["x", "y"]}),
            json!({"model": "m", "max_tokens": 100, "prompt": vec!["x"; 90]}),
        ),
        (gemini, config(2), config(90)),
    ] {
        for (body, status) in [(small, 200), (large, 429)] {
            let gate = gate(&origin, &[key("k", limits)]).await;
            assert_eq!(send(&gate, "k", "POST", path, &body).await.status, status, "{path} {body}");
        }
    }
    let money = key("k", "limits = { money_per_day = 0.1 }");
    for (n, status) in [("1", 200), ("10", 429)] {
        let gate = gate(&origin, std::slice::from_ref(&money)).await;
        let fields = "Authorization: Bearer ifk_k\r\nContent-Type: multipart/form-data; boundary=B\r\n";
        let answer = gate.send("POST", "/openai/v1/images/edits", fields, form(n).as_bytes()).await.unwrap();
        assert_eq!(answer.status, status, "{n}: {}", answer.text());
        assert!(status == 200 || answer.text().contains("budget of $0.10 is"), "{}", answer.text());
    }
}

#[tokio::test]
async fn a_guardrail_of_a_model_covers_it_by_an_alias_a_route_and_in_capitals() {
    let origin = provider_of(json!({"choices": [{"message": {"content": "a"}}]})).await;
    let gate = Gate::with(&origin, |parts| {
        parts.redact = RedactConfig { gateway: RedactMode::Off, ..RedactConfig::default() };
        let guard = json!({"kind": "words", "words": ["Blue Heron"], "action": "block", "models": ["gpt-6-sol"]});
        parts.llm.guardrail.insert("g".into(), serde_json::from_value(guard).unwrap());
        parts.llm.aliases.insert("solalias".into(), "gpt-6-sol".into());
        let route = json!({"deployments": [{"provider": "openai", "model": "gpt-6-sol"}]});
        parts.llm.route.insert("smart".into(), serde_json::from_value(route).unwrap());
    })
    .await;
    let body = |model: &str| format!("{{{model}\"messages\":[{{\"role\":\"user\",\"content\":\"Blue Heron\"}}]}}");
    let chat = "/openai/v1/chat/completions";
    for (path, model, status) in [
        (chat, r#""model":"gpt-6-sol","#, 400),
        (chat, r#""model":"solalias","#, 400),
        (chat, r#""model":"smart","#, 400),
        (chat, r#""model":"GPT-6-Sol","#, 400),
        (chat, r#""model":"gpt-6-sol","model":"gpt-4o","#, 400),
        (chat, r#""model":"gpt-4o","Model":"gpt-6-sol","#, 400),
        (chat, r#""model":"gpt-4o","#, 200),
        ("/azure/openai/deployments/GPT-6-SOL/chat/completions", "", 400),
        ("/azure/openai/deployments/gpt%2D6-sol/chat/completions", "", 400),
    ] {
        let answer = gate.post(path, body(model)).await;
        assert_eq!(answer.status, status, "{path} {model}: {}", answer.text());
    }
}
