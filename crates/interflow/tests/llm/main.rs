//! End-to-end tests of the LLM gateway: the built binary, providers, and a data directory for each test. This file tests
//! virtual keys and limits; the modules test providers, telemetry and the redaction of texts.

mod accounts;
#[cfg(unix)]
mod admin_port;
mod attempts;
mod bad_input;
mod budgets;
mod clouds;
mod filter;
mod gateway;
mod guardrails;
mod held;
mod identity;
mod instance;
mod key_paths;
mod leaks;
mod mcp;
mod metrics;
mod providers;
mod recorded;
mod response_cache;
mod semantic_cache;
mod sockets;
mod span_content;
mod teams;
mod translated_clouds;
mod translated_replies;
mod translation;
mod upstreams;
mod wire_formats;

use instance::{Home, Running};
use interflow_testkit::{Answer, Wire};
use serde_json::Value;

const CHAT: &str = r#"{"model":"gpt-4o","max_tokens":50,"messages":[{"role":"user","content":"hello"}]}"#;

fn code(answer: &Answer) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    body["error"]["code"].as_str().unwrap_or_default().to_owned()
}

async fn chat(running: &Running, key: &str) -> Answer {
    running.post("/v1/chat/completions", &format!("Authorization: Bearer {key}\r\n"), CHAT).await
}

#[tokio::test]
async fn a_virtual_key_replaces_the_providers_key_and_is_never_sent_upstream() {
    let home = Home::new().await;
    let key = home.keys(&["add", "--id", "ann", "--owner", "Ann"]).ok().trim().to_owned();
    let running = home.start("[keys]\nrequire_virtual_key = true\n[keys.provider]\nlocalhost = \"sk-real\"\n");
    let answer = chat(&running, &key).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let seen = format!("{:?}", home.provider.only_request());
    assert!(seen.contains("Bearer sk-real") && !seen.contains("ifk_"), "{seen}");
    for (fields, expected) in [
        ("Authorization: Bearer ifk_wrong\r\n", "invalid_api_key"),
        ("Authorization: Bearer sk-of-my-own\r\n", "invalid_api_key"),
        ("", "missing_api_key"),
    ] {
        let answer = running.post("/v1/chat/completions", fields, CHAT).await;
        assert_eq!((answer.status, code(&answer).as_str()), (401, expected), "{fields}");
    }
    let in_query = running.post(&format!("/v1/chat/completions?key={key}"), "", CHAT).await;
    assert_eq!(in_query.status, 200);
    let last = format!("{:?}", home.provider.requests().last().unwrap());
    assert!(last.contains("sk-real") && !last.contains("ifk_"), "{last}");
    running.stop();
}

#[tokio::test]
async fn a_virtual_key_is_not_leaked_on_routes_to_other_origins() {
    let home = Home::new().await;
    let key = home.keys(&["add"]).ok().trim().to_owned();
    let running = home.start("");
    let answer = running.post("/echo", &format!("X-Api-Key: {key}\r\n"), "{}").await;
    assert_eq!((answer.status, code(&answer).as_str()), (403, "scope_denied_provider"));
    let without = chat(&running, &key).await;
    assert_eq!((without.status, code(&without).as_str()), (500, "provider_key_missing"));
    assert!(home.provider.requests().is_empty());
    // Clients with a provider key are admitted if no virtual key is required.
    assert_eq!(chat(&running, "sk-of-my-own").await.status, 200);
    assert!(format!("{:?}", home.provider.only_request()).contains("sk-of-my-own"));
    running.stop();
}

#[tokio::test]
async fn provider_key_is_added_for_remote_clients_only_with_a_virtual_key() {
    for (required, remote_without) in [("", 401), ("[keys]\nrequire_virtual_key = false\n", 200)] {
        let home = Home::new().await;
        let key = home.keys(&["add"]).ok().trim().to_owned();
        let running = home.start(&format!(
            "{required}[proxy]\nproxy_protocol_trusted = [\"127.0.0.1/32\"]\n\
             [llm.provider.openai]\nurl = \"{}\"\napi_key = \"sk-real\"\n",
            home.provider.url("").trim_end_matches('/')
        ));
        let ask = async |client: &str, fields: &str| {
            let (n, to) = (CHAT.len(), running.gateway);
            let mut wire = Wire::connect(to).await.unwrap();
            let head = format!(
                "PROXY TCP4 {client} 127.0.0.1 4711 80\r\nPOST /openai/v1/chat/completions HTTP/1.1\r\nHost: {to}\r\n\
                 Content-Type: application/json\r\nContent-Length: {n}\r\n{fields}\r\n{CHAT}"
            );
            wire.send(head).await.unwrap();
            wire.answer().await.unwrap().status
        };
        assert_eq!(ask("192.0.2.7", "").await, remote_without, "{required}");
        assert_eq!(ask("192.0.2.7", "Authorization: Bearer guess\r\n").await, remote_without, "{required}");
        assert_eq!(ask("192.0.2.7", &format!("Authorization: Bearer {key}\r\n")).await, 200, "{required}");
        assert_eq!(ask("127.0.0.1", "").await, 200, "{required}");
        let spent = home.provider.requests();
        assert_eq!(spent.len(), if remote_without == 401 { 2 } else { 4 });
        assert!(spent.iter().all(|r| r.header("authorization") == Some("Bearer sk-real")), "{spent:?}");
        running.stop();
    }
}

#[tokio::test]
async fn scopes_are_enforced_with_errors_in_the_providers_format() {
    let home = Home::new().await;
    let key = home.keys(&["add", "--model", "claude-*", "--path", "/v1/messages"]).ok().trim().to_owned();
    let running = home.start("[keys.provider]\nlocalhost = \"sk-real\"\n");
    let fields = format!("x-api-key: {key}\r\nanthropic-version: 2023-06-01\r\n");
    let ask =
        |model: &str| format!(r#"{{"model":"{model}","max_tokens":5,"messages":[{{"role":"user","content":"x"}}]}}"#);
    let good = running.post("/v1/messages", &fields, &ask("claude-sonnet-4-5")).await;
    assert_eq!(good.status, 200, "{good:?}");
    let bad = running.post("/v1/messages", &fields, &ask("gpt-5")).await;
    let body: Value = serde_json::from_slice(&bad.body).unwrap();
    assert_eq!((bad.status, body["error"]["type"].as_str()), (403, Some("permission_error")), "{body}");
    assert_eq!(body["error"]["code"], "scope_denied_model");
    let twice = r#"{"model":"claude-x","model":"gpt-5","messages":[]}"#;
    assert_eq!(running.post("/v1/messages", &fields, twice).await.status, 403);
    let other = chat(&running, &key).await;
    assert_eq!((other.status, code(&other).as_str()), (403, "scope_denied_path"));
    running.stop();
}

#[tokio::test]
async fn a_revoked_key_is_refused_without_a_restart() {
    let home = Home::new().await;
    let running = home.start("[keys.provider]\nlocalhost = \"sk-real\"\n");
    let key = home.keys(&["add", "--id", "k"]).ok().trim().to_owned();
    running.until(async || chat(&running, &key).await.status == 200).await;
    assert!(home.keys(&["list"]).ok().contains("k   -      active"), "{:?}", home.keys(&["list"]));
    home.keys(&["revoke", "k"]).ok();
    running.until(async || chat(&running, &key).await.status == 401).await;
    let listed: Value = serde_json::from_str(&home.keys(&["list", "--json"]).ok()).unwrap();
    assert_eq!(listed[0]["state"], "revoked");
    assert!(home.keys(&["revoke", "nobody"]).fails(1).contains("no such key: nobody"));
    running.stop();
}

#[tokio::test]
async fn exceeded_limit_returns_429_with_retry_after() {
    let home = Home::new().await;
    let key = home.keys(&["add", "--requests", "2/h"]).ok().trim().to_owned();
    let running = home.start("[keys.provider]\nlocalhost = \"sk-real\"\n");
    for status in [200, 200, 429] {
        let answer = chat(&running, &key).await;
        assert_eq!(answer.status, status, "{answer:?}");
        if status == 429 {
            let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=1800).contains(&wait), "{wait}");
            assert_eq!(code(&answer), "rate_limit_exceeded");
        }
    }
    assert_eq!(home.provider.requests().len(), 2);
    running.stop();
}

#[tokio::test]
async fn quota_rules_limit_cost_and_are_reloaded() {
    let home = Home::new().await;
    let rule = |dollars: &str| format!("[[quota.rule]]\nname = \"all\"\nallow = {{ money_per_day = {dollars} }}\n");
    let running = home.start_with_log(&rule("0.0"));
    let answer = chat(&running, "sk-own").await;
    assert_eq!((answer.status, code(&answer).as_str()), (429, "daily_quota_exceeded"));
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    home.write_config(&rule("5.0"));
    running.until(async || chat(&running, "sk-own").await.status == 200).await;
    // An invalid file leaves the old rules active.
    home.write_config("[[quota.rule]]\nname = \"all\"\n");
    running.until(async || home.file("log").contains("configuration not reloaded")).await;
    assert_eq!(chat(&running, "sk-own").await.status, 200);
    running.stop();
}

#[tokio::test]
async fn model_without_a_price_is_refused_where_money_is_counted_and_nothing_is_sent() {
    let home = Home::new().await;
    let rule = "[[quota.rule]]\nname = \"all\"\nallow = { money_per_day = 5 }\n";
    let running = home.start(rule);
    let ask = async || {
        let body = CHAT.replace("gpt-4o", "nobody-knows");
        running.post("/v1/chat/completions", "Authorization: Bearer sk-own\r\n", &body).await
    };
    let refused = ask().await;
    assert_eq!((refused.status, code(&refused).as_str()), (403, "model_unpriced"));
    let message = refused.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
    for part in ["nobody-knows", "the limit `all`", "quota.prices", "quota.unpriced = \"allow\""] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(home.provider.requests().is_empty());
    let usage = running.admin("GET", "/api/v1/limits", "").await.json();
    assert_eq!((&usage["usage"][0]["refused"], &usage["usage"][0]["input_tokens"]), (&1.into(), &0.into()), "{usage}");
    home.write_config(&format!("[quota]\nunpriced = \"allow\"\n{rule}"));
    running.until(async || ask().await.status == 200).await;
    running.stop();
}

#[tokio::test]
async fn invalid_keys_rules_and_prices_are_reported_at_startup() {
    let home = Home::new().await;
    for (file, text, config, says) in [
        ("keys.toml", "[[key]]\nid = \"a\"\nhash = \"plain\"\n", "", "keys.toml: line 1: the key `a`"),
        ("prices.json", "{\"prices\": 5}", "[quota]\nprices = \"prices.json\"\n", "quota.prices"),
        ("none", "", "[keys.provider]\nopenai = \"env:NOT_SET_ANYWHERE\"\n", "keys.provider.openai"),
        ("none", "", "[[quota.rule]]\nallow = { requests = \"5/y\" }\n", "`5/y` is not a rate"),
        ("none", "", "[quota.shared]\nredis = \"http://x\"\n", "quota.shared.redis"),
    ] {
        std::fs::write(home.dir.path().join(file), text).unwrap();
        let said = home.refuses_to_start(config);
        assert!(said.contains(says), "{says}: {said}");
        std::fs::remove_file(home.dir.path().join(file)).unwrap();
    }
}

#[tokio::test]
async fn missing_proxy_protocol_header_is_logged_once() {
    let home = Home::new().await;
    let running = home.start_with_log("[proxy]\nproxy_protocol_trusted = [\"127.0.0.0/8\"]\n");
    for _ in 0..3 {
        let mut wire = Wire::connect(running.proxy).await.unwrap();
        wire.send("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
        assert!(wire.answer().await.is_err());
    }
    running.stop();
    let log = home.file("log");
    let told: Vec<&str> = log.lines().filter(|l| l.contains("proxy.proxy_protocol_trusted")).collect();
    assert!(matches!(told[..], [line] if line.contains("127.0.0.1:") && line.contains("send-proxy-v2")), "{log}");
}
