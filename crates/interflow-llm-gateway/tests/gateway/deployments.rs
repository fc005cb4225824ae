//! Routes: one model, several deployments. The deployments are origins that count what they get.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use interflow_llm::LlmUpstreamConfig;
use interflow_llm_gateway::gateway::{DeploymentState, DeploymentView};
use interflow_testkit::{Answer, Ending, Origin, OriginBuilder, Reply};
use interflow_types::{AttemptState, ErrorKind};
use serde_json::{Value, json};

use super::support::Kept;
use super::{Gate, SSN, arrived};

/// An origin that says its name.
fn says(name: &'static str) -> OriginBuilder {
    Origin::http().answering(move |_| Reply::json(&json!({"choices": [{"message": {"content": name}}]})))
}

fn status(status: u16) -> OriginBuilder {
    Origin::http().answering(move |_| Reply::status(status).body("no"))
}

/// A gateway with the providers `a`, `b`, `c` at these origins, and the route `smart`.
async fn gate(origins: &[&Origin], route: Value) -> Gate {
    Gate::with(origins[0], |parts| {
        for (name, origin) in ["a", "b", "c"].into_iter().zip(origins) {
            let at = LlmUpstreamConfig { url: Some(origin.url("")), ..LlmUpstreamConfig::default() };
            parts.llm.provider.insert(name.into(), at);
        }
        parts.llm.route.insert("smart".into(), serde_json::from_value(route).unwrap());
    })
    .await
}

async fn ask(gate: &Gate) -> Answer {
    ask_for(gate, "smart", "").await
}

async fn ask_for(gate: &Gate, model: &str, fields: &str) -> Answer {
    let body = json!({"model": model, "messages": [{"role": "user", "content": format!("SSN {SSN}")}]}).to_string();
    let fields = format!("Content-Type: application/json\r\n{fields}");
    gate.send("POST", "/v1/chat/completions", &fields, body.as_bytes()).await.unwrap()
}

fn text(answer: &Answer) -> String {
    answer.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
}

fn state(gate: &Gate, name: &str) -> DeploymentView {
    let routes = gate.gateway.routes();
    let found = routes.iter().filter(|r| r.configured).flat_map(|r| &r.deployments).find(|d| d.name == name);
    found.unwrap_or_else(|| panic!("no deployment {name}")).clone()
}

/// The tags of all flows, once this many are over: the client's first.
async fn tags(gate: &Gate, flows: usize) -> Vec<Vec<String>> {
    gate.proxy.flows(flows).await.into_iter().map(|flow| flow.tags).collect()
}

#[tokio::test]
async fn a_response_is_scanned_as_the_upstream_that_made_it_demands() {
    let (a, b) = (says("a").start().await, says("their SSN is 123-45-6789").start().await);
    let gate = Gate::with(&a, |parts| {
        let (upstream, responses) = (Some("b".into()), Some(interflow_redact::OutboundMode::Block));
        parts.redact.route = vec![interflow_redact::RedactRoute { upstream, responses, ..Default::default() }];
        let at = LlmUpstreamConfig { url: Some(b.url("")), ..LlmUpstreamConfig::default() };
        parts.llm.provider.insert("b".into(), at);
        let route = json!({"deployments": [{"provider": "b"}]});
        parts.llm.route.insert("smart".into(), serde_json::from_value(route).unwrap());
    })
    .await;
    let answer = ask(&gate).await;
    assert!(answer.status != 200 && !answer.text().contains("123-45-6789"), "{}", answer.text());
}

#[tokio::test]
async fn a_model_is_served_by_its_deployments_and_other_models_by_their_provider() {
    let (a, b) = (says("a").start().await, says("b").start().await);
    let route = json!({"deployments": [{"provider": "b", "model": "gpt-5"}]});
    let gate = gate(&[&a, &b], route).await;
    let answer = ask(&gate).await;
    assert_eq!(text(&answer), "b");
    let shown = ["x-interflow-route", "x-interflow-deployment", "x-interflow-attempts"].map(|n| answer.header(n));
    assert_eq!(shown, [Some("smart"), Some("b/gpt-5"), Some("1")]);
    let got = b.only_request();
    assert!(arrived(&b).contains(r#""model":"gpt-5""#) && !arrived(&b).contains(SSN), "{}", arrived(&b));
    assert_eq!(got.header("x-api-key"), None, "the client's key is for the host that it addressed");
    let flow = gate.proxy.flow().await;
    for tag in ["route:smart", "deployment:b/gpt-5"] {
        assert!(flow.tags.iter().any(|t| t == tag), "{tag}: {flow:?}");
    }
    let attempt = &flow.attempts[0];
    assert_eq!((attempt.provider.as_str(), attempt.model.as_deref()), ("b", Some("gpt-5")));
    assert_eq!(
        (attempt.host.as_str(), attempt.path.as_str()),
        (format!("localhost:{}", b.addr().port()).as_str(), "/v1/chat/completions")
    );
    assert_eq!(flow.upstream, Some(b.addr()), "the connection is that of the attempt which answered");
    let answer = ask_for(&gate, "other", "").await;
    assert_eq!((text(&answer).as_str(), answer.header("x-interflow-route")), ("a", None));
    assert_eq!(a.only_request().header("x-api-key"), Some("k"));
}

#[tokio::test]
async fn a_failed_request_is_retried_elsewhere_and_the_deployment_cools_down() {
    let (a, b) = (status(503).start().await, says("b").start().await);
    let route = json!({"deployments": [{"provider": "a"}, {"provider": "b", "priority": 1}], "cooldown_failures": 2});
    let gate = gate(&[&a, &b], route).await;
    let answers = [ask(&gate).await, ask(&gate).await, ask(&gate).await];
    assert!(answers.iter().all(|answer| text(answer) == "b"));
    assert_eq!(answers.each_ref().map(|a| a.header("x-interflow-attempts").unwrap()), ["2", "2", "1"]);
    assert_eq!((a.served(), b.served()), (2, 3));
    let view = state(&gate, "a");
    assert_eq!((view.state, view.requests, view.errors, view.cooldowns), (DeploymentState::CoolingDown, 2, 2, 1));
    let view = state(&gate, "b");
    assert_eq!((view.state, view.requests, view.errors, view.busy), (DeploymentState::Healthy, 3, 0, 0));
    assert!(view.latency_ms.is_some());
    let flows = gate.proxy.flows(3).await;
    assert_eq!(flows.len(), 3, "one of each call: {flows:#?}");
    let of = |flow: &Kept| flow.attempts.iter().map(|a| (a.state, a.status)).collect::<Vec<_>>();
    let served = (AttemptState::Served, Some(200));
    let both = vec![(AttemptState::Failed, Some(503)), served];
    assert_eq!(flows.iter().map(of).collect::<Vec<_>>(), [both.clone(), both, vec![served]]);
    let count = |tag: &str| flows.iter().filter(|flow| flow.tags.iter().any(|t| t == tag)).count();
    assert_eq!((count("retry:1"), count("attempt-failed:a"), count("attempt-failed:b")), (2, 2, 0));
}

#[tokio::test]
async fn a_deployment_that_recovered_is_used_again_after_one_probe() {
    let good = Arc::new(AtomicBool::new(false));
    let is_good = Arc::clone(&good);
    let a = Origin::http()
        .answering(move |_| if is_good.load(SeqCst) { Reply::json(&json!({})) } else { Reply::status(500) })
        .start()
        .await;
    let b = says("b").start().await;
    let route = json!({
        "deployments": [{"provider": "a"}, {"provider": "b", "priority": 1}],
        "cooldown_failures": 1, "cooldown": "20ms",
    });
    let gate = gate(&[&a, &b], route).await;
    assert_eq!(ask(&gate).await.header("x-interflow-deployment"), Some("b"));
    good.store(true, SeqCst);
    while ask(&gate).await.header("x-interflow-deployment") != Some("a") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(state(&gate, "a").state, DeploymentState::Healthy);
}

#[tokio::test]
async fn too_many_requests_with_retry_after_cool_a_deployment_for_that_time() {
    let a = Origin::http().answering(|_| Reply::status(429).header("Retry-After", "50").body("slow")).start().await;
    let b = says("b").start().await;
    let route = json!({"deployments": [{"provider": "a"}, {"provider": "b", "priority": 1}], "cooldown_failures": 9});
    let gate = gate(&[&a, &b], route).await;
    for _ in 0..3 {
        assert_eq!(text(&ask(&gate).await), "b");
    }
    assert_eq!(a.served(), 1);
    let view = state(&gate, "a");
    assert!(
        view.state == DeploymentState::CoolingDown && (45..=50).contains(&view.cooling_down_for.unwrap()),
        "{view:?}"
    );
}

#[tokio::test]
async fn a_request_waits_for_a_short_retry_after_but_not_for_a_long_one() {
    let served = Arc::new(AtomicBool::new(false));
    let second = Arc::clone(&served);
    let a = Origin::http()
        .answering(move |_| match second.swap(true, SeqCst) {
            true => Reply::json(&json!({"choices": [{"message": {"content": "later"}}]})),
            false => Reply::status(429).header("Retry-After-Ms", "30").body("slow"),
        })
        .start()
        .await;
    let short = gate(&[&a], json!({"deployments": [{"provider": "a"}]})).await;
    assert_eq!(text(&ask(&short).await), "later");

    let b = Origin::http().answering(|_| Reply::status(429).header("Retry-After", "70").body("slow")).start().await;
    let long = gate(&[&b], json!({"deployments": [{"provider": "a"}], "max_retry_after": "1m", "timeout": "2m"})).await;
    let answer = ask(&long).await;
    assert_eq!((answer.status, answer.header("retry-after"), b.served()), (429, Some("70"), 1));
    // Then the gateway says so itself, within the bound.
    let answer = ask(&long).await;
    assert_eq!((answer.status, b.served()), (503, 1));
    assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() <= 60);
}

#[tokio::test]
async fn without_a_budget_of_retries_the_client_gets_the_failure() {
    let (a, b) = (status(503).start().await, says("b").start().await);
    let route = json!({"deployments": [{"provider": "a"}, {"provider": "b", "priority": 1}], "retry_budget": 0});
    let gate = gate(&[&a, &b], route).await;
    assert_eq!(ask(&gate).await.status, 503);
    assert_eq!((a.served(), b.served()), (1, 0));
    assert!(gate.proxy.flow().await.tags.iter().any(|tag| tag == "retry-budget"));
}

#[tokio::test]
async fn an_outage_adds_no_more_than_the_budget_to_the_load() {
    let (a, b) = (status(503).start().await, status(503).start().await);
    let route = json!({"deployments": [{"provider": "a"}, {"provider": "b"}], "cooldown_failures": 0, "retries": 1});
    let gate = gate(&[&a, &b], route).await;
    for _ in 0..40 {
        assert_eq!(ask(&gate).await.status, 503);
    }
    // Ten in reserve, and a fifth of the requests.
    let sent = a.served() + b.served();
    assert!((57..=58).contains(&sent), "{sent}");
}

#[tokio::test]
async fn a_session_stays_at_its_deployment() {
    let (a, b) = (says("a").start().await, says("b").start().await);
    let route = json!({"deployments": [{"provider": "a"}, {"provider": "b"}], "sticky": "session"});
    let gate = gate(&[&a, &b], route).await;
    let mut seen = std::collections::BTreeSet::new();
    for session in 0..16 {
        let field = format!("X-Session-Id: s{session}\r\n");
        let first = text(&ask_for(&gate, "smart", &field).await);
        assert_eq!(text(&ask_for(&gate, "smart", &field).await), first);
        seen.insert(first);
    }
    assert_eq!(seen.len(), 2, "all sessions at {seen:?}");
}

#[tokio::test]
async fn a_slow_request_is_hedged_and_the_loser_is_cancelled() {
    let slow = Origin::http().answering(|_| Reply::json(&json!({})).delay(Duration::from_secs(600))).start().await;
    let fast = says("fast").start().await;
    let route = json!({
        "deployments": [{"provider": "a"}, {"provider": "b", "priority": 1}], "hedge_after": "20ms", "timeout": "1h",
    });
    let gate = gate(&[&slow, &fast], route).await;
    let answer = ask(&gate).await;
    assert_eq!((text(&answer).as_str(), answer.header("x-interflow-attempts")), ("fast", Some("2")));
    // Both attempts are over, although one of the origins has not answered.
    let flow = gate.proxy.flow().await;
    assert!(flow.tags.iter().any(|tag| tag == "hedged"), "{flow:#?}");
    let attempts: Vec<_> = flow.attempts.iter().map(|a| (a.deployment.as_str(), a.state, a.hedge, a.status)).collect();
    let (lost, won) = (AttemptState::Cancelled, AttemptState::Served);
    assert_eq!(attempts, [("a", lost, false, None), ("b", won, true, Some(200))]);
    assert!(flow.attempts.iter().all(|a| a.ended.is_some_and(|ended| ended > a.started)), "{:?}", flow.attempts);
    assert!(flow.attempts[1].started >= 20_000, "after the first was slow: {:?}", flow.attempts);
    let view = state(&gate, "a");
    assert_eq!((view.busy, view.errors, view.state), (0, 0, DeploymentState::Healthy), "cancelled is not failed");
}

#[tokio::test]
async fn a_shadow_gets_the_redacted_request_and_never_affects_the_client() {
    let a = says("a").start().await;
    let slow = Origin::http().answering(|_| Reply::ok("x").delay(Duration::from_secs(600)));
    for (shadow, ends) in [(status(500), true), (slow, false)] {
        let shadow = shadow.start().await;
        let route =
            json!({"deployments": [{"provider": "a"}], "shadow": {"provider": "b", "model": "new", "share": 1}});
        let gate = gate(&[&a, &shadow], route).await;
        let answer = ask(&gate).await;
        assert_eq!(
            (answer.status, text(&answer).as_str(), answer.header("x-interflow-attempts")),
            (200, "a", Some("1"))
        );
        let copies = shadow.wait_for_requests(1).await;
        let copy = String::from_utf8_lossy(&copies[0].body).into_owned();
        assert!(copy.contains(r#""model":"new""#) && !copy.contains(SSN), "{copy}");
        assert_eq!(copies[0].header("x-api-key"), None);
        // What was recorded of the slow one is known when it ends.
        let all = tags(&gate, if ends { 2 } else { continue }).await;
        let shadows: Vec<_> = all.iter().filter(|tags| tags.iter().any(|t| t == "shadow")).collect();
        assert_eq!(shadows.len(), 1, "{all:?}");
        assert!(shadows[0].iter().any(|t| t == "deployment:b/new"), "{shadows:?}");
    }
}

#[tokio::test]
async fn nothing_is_retried_once_the_response_began() {
    let cut = || {
        let piece = "data: {\"choices\":[{\"delta\":{\"content\":\"begun\"}}]}\n\n";
        Reply::status(200)
            .header("Content-Type", "text/event-stream")
            .pieces(vec![piece.into()], Duration::ZERO)
            .ending(Ending::Cut)
    };
    let a = Origin::http().answering(move |_| cut()).start().await;
    let b = says("b").start().await;
    let gate = gate(&[&a, &b], json!({"deployments": [{"provider": "a"}, {"provider": "b", "priority": 1}]})).await;
    let body = json!({"model": "smart", "stream": true, "messages": []}).to_string();
    // The client's response is cut as well, or ends early.
    let _ = gate.send("POST", "/v1/chat/completions", "Content-Type: application/json\r\n", body.as_bytes()).await;
    let flow = gate.proxy.flow().await;
    assert_eq!((a.served(), b.served(), state(&gate, "a").busy), (1, 0, 0));
    // It served the client, and failed later.
    let attempt = &flow.attempts[0];
    assert_eq!((attempt.state, attempt.error, attempt.status), (AttemptState::Served, flow.error(), Some(200)));
    assert_eq!(flow.error(), Some(ErrorKind::UpstreamClosed), "{flow:#?}");
}

#[tokio::test]
async fn an_experiment_assigns_sessions_and_tags_both_variants() {
    let (a, b) = (says("a").start().await, says("b").start().await);
    for (share, deployment, tag) in [(0, "a", "experiment:A"), (1, "b/new", "experiment:B")] {
        let route = json!({"deployments": [{"provider": "a"}], "experiment": {"provider": "b", "model": "new", "share": share}});
        let gate = gate(&[&a, &b], route).await;
        assert_eq!(ask(&gate).await.header("x-interflow-deployment"), Some(deployment));
        let flow = gate.proxy.flow().await;
        assert!(flow.tags.iter().any(|t| t == tag), "{tag}: {flow:?}");
    }
}

#[tokio::test]
async fn a_deployment_and_a_shadow_with_another_redaction_policy_get_nothing() {
    let (a, b) = (says("a").start().await, says("b").start().await);
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("b.toml");
    std::fs::write(&policy, "name = \"b\"\nkinds = [\"email-address\"]\n").unwrap();
    let gate = |deployments: Value| {
        let own = interflow_redact::RedactRoute {
            upstream: Some("b".into()),
            policy: Some(policy.clone()),
            ..Default::default()
        };
        let (a, b) = (&a, &b);
        Gate::with(a, move |parts| {
            parts.redact.route = vec![own];
            for (name, origin) in [("a", a), ("b", b)] {
                let at = LlmUpstreamConfig { url: Some(origin.url("")), ..LlmUpstreamConfig::default() };
                parts.llm.provider.insert(name.into(), at);
            }
            let route = json!({"deployments": deployments, "shadow": {"provider": "b", "model": "x", "share": 1}});
            parts.llm.route.insert("smart".into(), serde_json::from_value(route).unwrap());
        })
    };
    let both = gate(json!([{"provider": "b"}, {"provider": "a", "priority": 1}])).await;
    assert_eq!(text(&ask(&both).await), "a");
    let one = gate(json!([{"provider": "b"}])).await;
    let answer = ask(&one).await;
    assert_eq!((answer.status, b.served()), (503, 0), "{}", answer.text());
    assert!(answer.text().contains("other redaction policies"), "{}", answer.text());
}

#[tokio::test]
async fn azure_gets_the_path_that_it_has_for_an_api_of_openai() {
    for (version, target) in [
        (None, "/openai/v1/chat/completions"),
        (Some("2024-10-21"), "/openai/deployments/gpt%205/chat/completions?api-version=2024-10-21"),
    ] {
        let origin = says("azure").start().await;
        let gate = Gate::with(&origin, |parts| {
            let azure = parts.llm.provider.get_mut("azure").unwrap();
            azure.api_version = version.map(str::to_owned);
            azure.api_key = Some("own".into());
            let route = json!({"deployments": [{"provider": "azure", "model": "gpt 5"}]});
            parts.llm.route.insert("smart".into(), serde_json::from_value(route).unwrap());
        })
        .await;
        assert_eq!(text(&ask(&gate).await), "azure");
        let got = origin.only_request();
        assert_eq!((got.target.as_str(), got.header("api-key")), (target, Some("own")));
    }
}

#[tokio::test]
async fn a_deployment_with_another_api_gets_a_translated_request() {
    let reply = json!({"id": "m", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "translated"}], "usage": {"input_tokens": 1, "output_tokens": 1}});
    let a = Origin::http().answering(move |_| Reply::json(&reply)).start().await;
    let gate = gate(&[&a], json!({"deployments": [{"provider": "anthropic", "model": "claude"}]})).await;
    let answer = ask(&gate).await;
    assert_eq!((text(&answer).as_str(), answer.header("x-interflow-translated")), ("translated", Some("anthropic")));
    assert_eq!(
        (a.only_request().target.as_str(), answer.header("x-interflow-deployment")),
        ("/v1/messages", Some("anthropic/claude"))
    );
    let cut =
        gate.post("/v1/chat/completions", r#"{"model":"smart","messages":[{"role":"user","content":"\ud83e!"}]}"#);
    assert_eq!(text(&cut.await), "translated", "half of an emoji is no invalid JSON");
    assert!(String::from_utf8_lossy(&a.requests()[1].body).contains("\u{fffd}!"));
}
