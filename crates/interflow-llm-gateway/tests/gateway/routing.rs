//! The gateway's endpoints: routing, provider keys, and fallback when an upstream fails.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use interflow_llm::{LlmUpstreamConfig, TelemetryRule};
use interflow_testkit::{Ending, Origin, Reply};
use interflow_types::units::HumanDuration;
use serde_json::json;

use super::{Gate, SSN, arrived, provider};

fn at(origin: &Origin, path: &str) -> LlmUpstreamConfig {
    LlmUpstreamConfig { url: Some(origin.url(path)), ..LlmUpstreamConfig::default() }
}

#[tokio::test]
async fn each_upstream_has_an_endpoint_and_the_providers_own_paths_work() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |r| {
        r.llm.provider.insert("local".into(), at(&origin, "/base"));
        r.llm.provider.get_mut("azure").unwrap().api_version = Some("2024-10-21".into());
    })
    .await;
    for (path, arrives) in [
        ("/openai/v1/chat/completions?x=1", "/v1/chat/completions?x=1"),
        ("/anthropic/v1/messages", "/v1/messages"),
        ("/gemini/v1beta/models/m:generateContent", "/v1beta/models/m:generateContent"),
        ("/ollama/api/chat", "/api/chat"),
        ("/local/v1/chat/completions", "/base/v1/chat/completions"),
        (
            "/azure/openai/deployments/d/chat/completions",
            "/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
        (
            "/openai/deployments/d/chat/completions?api-version=1",
            "/openai/deployments/d/chat/completions?api-version=1",
        ),
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/messages", "/v1/messages"),
        ("/api/generate", "/api/generate"),
        ("/model/m/converse", "/model/m/converse"),
    ] {
        let answer = gate.post(path, "{}").await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(origin.requests().last().unwrap().target, arrives, "{path}");
    }
    assert_eq!(gate.post("/nothing/here", "{}").await.status, 404);
}

#[tokio::test]
async fn gateway_key_replaces_the_clients_key() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |r| {
        for name in ["openai", "anthropic", "gemini"] {
            r.llm.provider.get_mut(name).unwrap().api_key = Some(format!("key-of-{name}"));
        }
    })
    .await;
    for (path, name, value) in [
        ("/v1/chat/completions", "authorization", "Bearer key-of-openai"),
        ("/v1/messages", "x-api-key", "key-of-anthropic"),
        ("/v1beta/models/m:generateContent?key=mine", "x-goog-api-key", "key-of-gemini"),
        ("/api/chat", "x-api-key", "k"),
    ] {
        gate.send("POST", path, "", b"{}").await.unwrap();
        let got = origin.requests().pop().unwrap();
        assert_eq!(got.header(name), Some(value), "{path}");
        assert!(!got.target.contains("mine"));
        let keys = ["authorization", "x-api-key", "x-goog-api-key"].iter().filter(|n| got.header(n).is_some()).count();
        assert_eq!(keys, 1, "{path}");
    }
}

#[tokio::test]
async fn model_aliases_change_only_the_model_name() {
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |r| {
        r.llm.aliases.insert("fast".into(), "gpt-5-mini".into());
        r.llm.provider.get_mut("openai").unwrap().models.insert("smart".into(), "gpt-5".into());
    })
    .await;
    for (asked, arrives) in [("fast", "gpt-5-mini"), ("smart", "gpt-5"), ("other", "other")] {
        gate.post("/v1/chat/completions", format!("{{ \"messages\": [], \"model\":\"{asked}\", \"n\":1.0 }}")).await;
        assert_eq!(arrived(&origin), format!("{{ \"messages\": [], \"model\":\"{arrives}\", \"n\":1.0 }}"));
    }
}

#[tokio::test]
async fn model_names_resolve_from_alias_to_upstream_to_fallback() {
    let busy = || Origin::http().answering(|_| Reply::status(503).body("busy"));
    let (first, second) = (busy().start().await, busy().start().await);
    let third = provider("application/json", r#"{"ok":true}"#).await;
    let gate = Gate::with(&first, |r| {
        r.llm.aliases.extend([("best".into(), "smart".into()), ("smart".into(), "gpt-5".into())]);
        let openai = r.llm.provider.get_mut("openai").unwrap();
        openai.fallback = vec!["second".into()];
        openai.models.insert("own".into(), "gpt-5-mini".into());
        let mut spare = at(&second, "");
        spare.models.insert("gpt-5".into(), "deploy-5".into());
        // Each other's fallback: none is tried twice.
        spare.fallback = vec!["openai".into(), "third".into()];
        r.llm.provider.insert("second".into(), spare);
        let mut last = at(&third, "");
        last.models.insert("gpt-5-mini".into(), "llama".into());
        r.llm.provider.insert("third".into(), last);
    })
    .await;
    let model = |origin: &Origin| serde_json::from_str::<serde_json::Value>(&arrived(origin)).unwrap()["model"].clone();
    for (asked, at_first, at_second, at_third) in
        [("best", "gpt-5", "deploy-5", "gpt-5"), ("own", "gpt-5-mini", "gpt-5-mini", "llama"), ("x", "x", "x", "x")]
    {
        let answer =
            gate.post("/openai/v1/chat/completions", json!({"model": asked, "messages": []}).to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!([model(&first), model(&second), model(&third)], [at_first, at_second, at_third], "{asked}");
    }
    assert_eq!((first.served(), second.served(), third.served()), (3, 3, 3));
}

#[tokio::test]
async fn agent_telemetry_is_redacted_forwarded_or_refused_as_configured() {
    let body = json!({"events": [{"event_data": {"prompt": format!("SSN {SSN}")}}]}).to_string();
    for (rule, status, leaks) in
        [(TelemetryRule::Redact, 200, false), (TelemetryRule::Pass, 200, true), (TelemetryRule::Refuse, 403, false)]
    {
        let origin = provider("application/json", "{}").await;
        let gate = Gate::with(&origin, |r| r.llm.telemetry = rule).await;
        for path in ["/anthropic/api/event_logging/batch", "/api/event_logging/batch", "/openai/v1/traces/ingest"] {
            let answer = gate.post(path, &body).await;
            assert_eq!(answer.status, status, "{path} {rule:?}: {}", answer.text());
            if status == 403 {
                assert_eq!(answer.json()["error"]["code"], "telemetry_refused");
            } else {
                assert_eq!(arrived(&origin).contains(SSN), leaks, "{path} {rule:?}");
            }
        }
    }
}

#[tokio::test]
async fn fallback_upstream_gets_its_own_key_and_model_and_redacted_content() {
    let first = Origin::http().answering(|_| Reply::status(503).body("busy")).start().await;
    let second = provider("application/json", r#"{"ok":true}"#).await;
    let gate = Gate::with(&first, |r| {
        let openai = r.llm.provider.get_mut("openai").unwrap();
        openai.fallback = vec!["spare".into()];
        openai.attempts = 2;
        openai.api_key = Some("first".into());
        let mut spare = at(&second, "");
        spare.api_key = Some("second".into());
        spare.models.insert("gpt".into(), "llama".into());
        r.llm.provider.insert("spare".into(), spare);
    })
    .await;
    let body = json!({"model": "gpt", "messages": [{"role": "user", "content": format!("SSN {SSN}")}]}).to_string();
    let answer = gate.post("/openai/v1/chat/completions", body).await;
    assert_eq!((answer.status, answer.text()), (200, r#"{"ok":true}"#.into()));
    assert_eq!(first.served(), 2);
    let got = second.only_request();
    assert_eq!((got.header("authorization"), got.target.as_str()), (Some("Bearer second"), "/v1/chat/completions"));
    let got = arrived(&second);
    assert!(got.contains("\"llama\"") && !got.contains(SSN), "{got}");
    let kept = gate.proxy.flow().await;
    assert!(!String::from_utf8_lossy(&kept.sent).contains(SSN));
    let attempts: Vec<_> = kept.attempts.iter().map(|a| (a.provider.as_str(), a.model.as_deref(), a.status)).collect();
    let busy = ("openai", Some("gpt"), Some(503));
    assert_eq!(attempts, [busy, busy, ("spare", Some("llama"), Some(200))]);
}

#[tokio::test]
async fn unreachable_upstreams_yield_an_error_in_the_clients_format() {
    let nobody = Origin::nobody().await;
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |r| {
        let dead =
            LlmUpstreamConfig { url: Some(format!("http://{nobody}")), attempts: 2, ..LlmUpstreamConfig::default() };
        r.llm.provider.insert("anthropic".into(), dead);
    })
    .await;
    let answer = gate.post("/v1/messages", r#"{"model":"m","messages":[]}"#).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (502, Some("unreachable")),
        "{}",
        answer.text()
    );
    assert_eq!(answer.json()["type"], "error");
}

#[tokio::test]
async fn failing_upstream_is_skipped_until_a_probe_succeeds() {
    let good = Arc::new(Mutex::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let (state, count) = (Arc::clone(&good), Arc::clone(&served));
    let origin = Origin::http()
        .answering(move |_| {
            count.fetch_add(1, SeqCst);
            if *state.lock().unwrap() { Reply::ok("{}") } else { Reply::status(500) }
        })
        .start()
        .await;
    let gate = Gate::with(&origin, |r| {
        let openai = r.llm.provider.get_mut("openai").unwrap();
        openai.breaker_failures = 2;
        openai.breaker_pause = HumanDuration(Duration::from_millis(1500));
    })
    .await;
    let ask = async || gate.post("/v1/chat/completions", r#"{"model":"m","messages":[]}"#).await;
    assert_eq!((ask().await.status, ask().await.status), (500, 500));
    let refused = ask().await;
    assert_eq!((refused.status, refused.json()["error"]["type"].as_str()), (503, Some("circuit_open")));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(served.load(SeqCst), 2);
    *good.lock().unwrap() = true;
    while ask().await.status != 200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(ask().await.status, 200);
}

#[tokio::test]
async fn a_connection_closed_without_a_response_counts_as_a_failure_of_the_upstream() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    let origin = Origin::http()
        .answering(move |_| match count.fetch_add(1, SeqCst) {
            0 => Reply::status(500).header("Connection", "close"),
            _ => Reply::nothing(Ending::Cut),
        })
        .start()
        .await;
    let gate = Gate::with(&origin, |r| r.llm.provider.get_mut("openai").unwrap().breaker_failures = 2).await;
    let ask = async || gate.post("/v1/chat/completions", r#"{"model":"m","messages":[]}"#).await.status;
    assert_eq!((ask().await, ask().await, ask().await), (500, 502, 503));
    assert_eq!(served.load(SeqCst), 2);
}

#[test]
fn invalid_config_is_reported_with_its_key() {
    use interflow_llm::LlmConfig;
    use interflow_llm_gateway::gateway::LlmGateway;
    let read = |text: &str| match text.starts_with("env:") {
        true => Err("the environment variable X is not set".to_owned()),
        false => Ok(text.to_owned()),
    };
    for (toml, says) in [
        (r#"{"provider":{"x":{}}}"#, "llm.provider.x.url: it is missing"),
        (r#"{"provider":{"v1":{"url":"http://a"}}}"#, "llm.provider.v1: an upstream cannot have this name"),
        (
            r#"{"provider":{"openai":{"url":"ftp://a"}}}"#,
            "llm.provider.openai.url: `ftp://a` is not a URL of a provider",
        ),
        (r#"{"provider":{"x":{"kind":"azure"}}}"#, "llm.provider.x.url: it is missing"),
        (r#"{"provider":{"openai":{"kind":"opnai"}}}"#, "openai.kind: unknown kind `opnai`: did you mean `openai`?"),
        (r#"{"provider":{"openai":{"fallback":["vertex"]}}}"#, "vertex speaks vertex, not openai"),
        (
            r#"{"provider":{"openai":{"format":"gemini"}}}"#,
            "llm.provider.openai.format: an upstream of the kind openai",
        ),
        (r#"{"provider":{"openai":{"fallback":["nobody"]}}}"#, "there is no upstream nobody"),
        (
            r#"{"provider":{"openai":{"fallback":["openai"]}}}"#,
            "llm.provider.openai.fallback: openai cannot be its own",
        ),
        (r#"{"provider":{"openai":{"retry_on":[999]}}}"#, "llm.provider.openai.retry_on: 999 is not the status"),
        (r#"{"provider":{"openai":{"models":{"a":""}}}}"#, "llm.provider.openai.models: the name of a model at `a`"),
        (r#"{"aliases":{"":"b"}}"#, "llm.aliases: the name of a model at `` is empty"),
        (r#"{"aliases":{"a":"a"}}"#, "llm.aliases.a: it is an alias of itself"),
        (r#"{"route":{"r":{"retry_on":[200],"deployments":[{"provider":"openai"}]}}}"#, "llm.route.r.retry_on: 200"),
        (r#"{"route":{"r":{"deployments":[{"provider":"azure"}]}}}"#, "azure has no url; set llm.provider.azure.url"),
        (r#"{"route":{"r":{"deployments":[{"provider":"bedrock"}]}}}"#, "set llm.provider.bedrock.region"),
        (r#"{"aliases":{"a":"b","b":"a"}}"#, "llm.aliases: the names of models a -> b -> a come to no end"),
        (
            r#"{"aliases":{"a":"b"},"provider":{"openai":{"models":{"b":"a"}}}}"#,
            "llm.provider.openai.models: the names of models b -> a -> b",
        ),
        (r#"{"provider":{"openai":{"api_key":"env:X"}}}"#, "llm.provider.openai.api_key: the environment variable X"),
        (r#"{"provider":{"bedrock":{"access_key":"env:X"}}}"#, "llm.provider.bedrock.access_key"),
        (r#"{"provider":{"openai":{"api_key":""}}}"#, "llm.provider.openai.api_key: it is empty"),
        (r#"{"provider":{"openai":{"api_key":"a\nX-Evil: 1"}}}"#, "llm.provider.openai.api_key: it is empty or holds"),
        (
            r#"{"provider":{"bedrock":{"access_key":"a","secret_key":"b","session_token":"c\r\nd"}}}"#,
            "llm.provider.bedrock.session_token: it is empty or holds",
        ),
    ] {
        let config: LlmConfig = serde_json::from_str(toml).unwrap();
        let error = LlmGateway::compile(&config, &read).err().unwrap_or_else(|| panic!("{toml}"));
        assert!(error.contains(says), "{toml}: {error}");
    }
}

#[test]
fn an_exception_from_redaction_names_an_upstream_that_exists() {
    let config: interflow_llm::LlmConfig =
        serde_json::from_str(r#"{"provider":{"local":{"url":"http://a"}}}"#).unwrap();
    let check = |upstream: &str| {
        let own = interflow_redact::RedactRoute { upstream: Some(upstream.into()), ..Default::default() };
        let redact = interflow_redact::RedactConfig { route: vec![own], ..Default::default() };
        interflow_llm_gateway::gateway::check_redact_routes(&redact, &config)
    };
    assert_eq!(["local", "groq", "gemini", "unknown"].map(check), [const { Ok(()) }; 4]);
    assert_eq!(
        check("gemni").unwrap_err(),
        "redact.route[0].upstream: unknown upstream `gemni`: did you mean `gemini`?"
    );
}

#[tokio::test]
async fn an_unreachable_provider_yields_an_error_in_the_clients_format() {
    let nobody = crate::support::Nobody::new();
    let origin = provider("application/json", "{}").await;
    let gate = Gate::with(&origin, |r| {
        for name in ["openai", "anthropic", "gemini", "bedrock", "ollama"] {
            let upstream = r.llm.provider.get_mut(name).unwrap();
            upstream.url = Some(format!("http://{}", nobody.addr()));
            upstream.breaker_failures = 2;
        }
    })
    .await;
    for (path, code) in [
        ("/v1/chat/completions", "/error/code"),
        ("/v1/messages", "/error/code"),
        ("/v1beta/models/m:generateContent", "/error/details/0/reason"),
        ("/model/m/converse", "/code"),
        ("/api/chat", "/code"),
    ] {
        for (status, says) in [(502, "unreachable"), (502, "unreachable"), (503, "upstream_unavailable")] {
            let answer = gate.post(path, r#"{"model":"m","messages":[]}"#).await;
            let body = answer.json();
            assert_eq!((answer.status, body.pointer(code).and_then(|c| c.as_str())), (status, Some(says)), "{body}");
            assert!(answer.header("x-request-id").is_some() && answer.header("retry-after").is_some(), "{path}");
        }
    }
}

#[tokio::test]
async fn cloud_tokens_are_fetched_once_and_replace_the_clients_key() {
    let origin = provider("application/json", "{}").await;
    let issuer =
        provider("application/json", r#"{"access_token":"fetched","expires_in":3600,"token_type":"Bearer"}"#).await;
    let gate = Gate::with(&origin, |r| {
        let azure = r.llm.provider.get_mut("azure").unwrap();
        azure.tenant = Some("t".into());
        azure.client_id = Some("app".into());
        azure.client_secret = Some("hush".into());
        azure.token_url = Some(issuer.url("/token"));
    })
    .await;
    for _ in 0..3 {
        let answer = gate.post("/openai/deployments/d/chat/completions", r#"{"messages":[]}"#).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let got = origin.requests().pop().unwrap();
        assert_eq!((got.header("authorization"), got.header("x-api-key")), (Some("Bearer fetched"), None));
    }
    assert_eq!(issuer.requests().len(), 1);

    let broken = Origin::http().answering(|_| Reply::status(400).body(r#"{"error":"invalid_client"}"#)).start().await;
    let gate = Gate::with(&origin, |r| {
        let azure = r.llm.provider.get_mut("azure").unwrap();
        azure.tenant = Some("t".into());
        azure.client_id = Some("app".into());
        azure.client_secret = Some("hush".into());
        azure.token_url = Some(broken.url("/token"));
    })
    .await;
    let before = origin.requests().len();
    let answer = gate.post("/openai/deployments/d/chat/completions", r#"{"messages":[]}"#).await;
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (502, Some("azure_auth_failed")));
    assert!(!answer.text().contains("hush") && origin.requests().len() == before);
}

#[tokio::test]
async fn a_route_is_followed_to_its_end_whichever_api_the_client_says_it_speaks() {
    let bad = Origin::http().answering(|_| Reply::status(503)).start().await;
    let good = provider("application/json", r#"{"choices":[{"message":{"role":"assistant","content":"x"}}]}"#).await;
    let gate = Gate::with(&bad, |r| {
        r.llm.provider.insert("first".into(), at(&bad, ""));
        r.llm.provider.insert("openai".into(), at(&good, ""));
        let route = json!({"deployments": [{"provider": "first"}, {"provider": "openai", "priority": 1}]});
        r.llm.route.insert("smart".into(), serde_json::from_value(route).unwrap());
    })
    .await;
    let body = json!({"model": "smart", "messages": [{"role": "user", "content": "x"}]}).to_string();
    for version in ["", "anthropic-version: 2023-06-01\r\n"] {
        let fields = format!("Content-Type: application/json\r\n{version}");
        let answer = gate.send("POST", "/v1/chat/completions", &fields, body.as_bytes()).await.unwrap();
        assert_eq!(
            (answer.status, answer.header("x-interflow-deployment")),
            (200, Some("openai")),
            "{version}: {}",
            answer.text()
        );
    }
}
