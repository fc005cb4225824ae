//! Time limits of single attempts, and requests that continue a response.

use std::time::Duration;

use interflow_llm::{LlmConfig, LlmUpstreamConfig};
use interflow_llm_gateway::gateway::{DeploymentView, LlmGateway};
use interflow_testkit::{Answer, Ending, Origin, OriginBuilder, Reply};
use interflow_types::{AttemptState, ErrorKind};
use serde_json::{Value, json};

use super::{Gate, sse};

const LONG: Duration = Duration::from_secs(600);

fn configure(llm: &mut LlmConfig, origins: &[&Origin], route: Value) {
    for (name, origin) in ["a", "b", "c"].into_iter().zip(origins) {
        let at = LlmUpstreamConfig { url: Some(origin.url("")), ..LlmUpstreamConfig::default() };
        llm.provider.insert(name.into(), at);
    }
    llm.route.insert("smart".into(), serde_json::from_value(route).unwrap());
}

async fn gate(origins: &[&Origin], route: Value) -> Gate {
    Gate::with(origins[0], |parts| configure(&mut parts.llm, origins, route)).await
}

async fn post(gate: &Gate, path: &str, body: Value) -> Answer {
    gate.send("POST", path, "Content-Type: application/json\r\n", body.to_string().as_bytes()).await.unwrap()
}

async fn chat(gate: &Gate, stream: bool) -> Answer {
    let body = json!({"model": "smart", "stream": stream, "messages": [{"role": "user", "content": "hi"}]});
    post(gate, "/v1/chat/completions", body).await
}

fn chunk(content: &str) -> Value {
    json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": content}}]})
}

/// Streams this text, after an event that only announces it.
fn streams(text: &'static str) -> OriginBuilder {
    let body = sse(&[chunk(""), chunk(text)]);
    Origin::http().answering(move |_| Reply::ok(body.clone()).header("Content-Type", "text/event-stream"))
}

/// Announces a stream and then says nothing more.
fn announces() -> OriginBuilder {
    let first = format!("data: {}\n\n", chunk(""));
    Origin::http().answering(move |_| {
        let reply = Reply::status(200).header("Content-Type", "text/event-stream");
        reply.pieces(vec![first.clone().into()], Duration::ZERO).ending(Ending::Stall)
    })
}

fn view(gate: &Gate, name: &str) -> DeploymentView {
    let routes = gate.gateway.routes();
    let mut all = routes.iter().flat_map(|r| &r.deployments);
    all.find(|d| d.name == name).unwrap_or_else(|| panic!("no deployment {name}")).clone()
}

#[tokio::test]
async fn an_attempt_that_does_not_begin_in_time_is_followed_by_another() {
    let slow = Origin::http().answering(|_| Reply::json(&json!({})).delay(LONG)).start().await;
    let fast = streams("fast").start().await;
    let route = json!({
        "deployments": [{"provider": "a"}, {"provider": "b", "priority": 1}],
        "attempt_timeout": "50ms", "timeout": "1h", "cooldown_failures": 1,
    });
    let gate = gate(&[&slow, &fast], route).await;
    let answer = chat(&gate, false).await;
    let shown = ["x-interflow-deployment", "x-interflow-attempts"].map(|n| answer.header(n));
    assert_eq!((answer.status, shown), (200, [Some("b"), Some("2")]), "{}", answer.text());
    let slow = view(&gate, "a");
    assert_eq!((slow.errors, slow.timeouts, slow.cooldowns), (1, 1, 1));
    assert_eq!((view(&gate, "b").errors, view(&gate, "b").timeouts), (0, 0));
    // The attempt is recorded as timed out, and a tag names the deployment.
    let flow = gate.proxy.flow().await;
    let attempts: Vec<_> = flow.attempts.iter().map(|a| (a.deployment.as_str(), a.state, a.error)).collect();
    let late = Some(ErrorKind::UpstreamTimeout);
    assert_eq!(attempts, [("a", AttemptState::Failed, late), ("b", AttemptState::Served, None)]);
    assert!(
        flow.attempts[0].message.as_deref().is_some_and(|why| why.contains("did not begin to respond")),
        "{flow:#?}"
    );
    assert!(flow.tags.iter().any(|tag| tag == "attempt-timeout:a"), "{flow:#?}");
}

#[tokio::test]
async fn the_code_of_a_failed_attempt_is_recorded_and_nothing_that_may_repeat_the_request() {
    for (error, code) in [
        (
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "secret words"}}),
            Some("overloaded_error"),
        ),
        (json!([{"error": {"code": 503, "status": "UNAVAILABLE", "message": "secret words"}}]), Some("UNAVAILABLE")),
        (json!({"error": {"code": "secret words"}}), None),
        (json!({"error": "secret"}), None),
    ] {
        let bad = Origin::http()
            .answering(move |_| Reply::status(503).header("Content-Type", "application/json").body(error.to_string()))
            .start()
            .await;
        let good =
            Origin::http().answering(|_| Reply::json(&json!({})).delay(Duration::from_millis(100))).start().await;
        let route = json!({"deployments": [{"provider": "a"}, {"provider": "b", "priority": 1}]});
        let gate = gate(&[&bad, &good], route).await;
        assert_eq!(chat(&gate, false).await.status, 200);
        let failed = gate.proxy.flow().await.attempts.swap_remove(0);
        assert_eq!((failed.status, failed.message.as_deref()), (Some(503), code));
    }
}

#[tokio::test]
async fn a_stream_without_a_token_in_time_is_followed_by_another_deployment() {
    let (silent, good) = (announces().start().await, streams("here").start().await);
    let route = json!({
        "deployments": [{"provider": "a", "first_token_timeout": "50ms"}, {"provider": "b", "priority": 1}],
        "timeout": "1h",
    });
    let gate = gate(&[&silent, &good], route).await;
    let answer = chat(&gate, true).await;
    assert_eq!(answer.header("x-interflow-deployment"), Some("b"));
    // Nothing of the first attempt reached the client, and all of the second.
    assert_eq!(answer.body, sse(&[chunk(""), chunk("here")]));
    assert_eq!((view(&gate, "a").timeouts, view(&gate, "a").busy), (1, 0));
}

/// A stream whose first event with content is an error.
fn overloaded_stream() -> OriginBuilder {
    let error = json!({"error": {"type": "overloaded_error", "message": "try later"}});
    let body = sse(&[chunk(""), error]);
    Origin::http().answering(move |_| Reply::ok(body.clone()).header("Content-Type", "text/event-stream"))
}

#[tokio::test]
async fn an_error_before_the_first_token_of_a_stream_is_followed_by_another_deployment() {
    let cut = || {
        let first = format!("data: {}\n\n", chunk(""));
        Origin::http().answering(move |_| {
            let reply = Reply::status(200).header("Content-Type", "text/event-stream");
            reply.pieces(vec![first.clone().into()], Duration::ZERO).ending(Ending::Cut)
        })
    };
    for bad in [overloaded_stream(), cut()] {
        let (bad, good) = (bad.start().await, streams("here").start().await);
        let route =
            json!({"deployments": [{"provider": "a"}, {"provider": "b", "priority": 1}], "cooldown_failures": 1});
        let gate = gate(&[&bad, &good], route).await;
        let answer = chat(&gate, true).await;
        assert_eq!((answer.status, answer.header("x-interflow-deployment")), (200, Some("b")), "{}", answer.text());
        assert_eq!(answer.body, sse(&[chunk(""), chunk("here")]), "nothing of the first reached the client");
        assert_eq!((view(&gate, "a").errors, view(&gate, "a").cooldowns, view(&gate, "a").busy), (1, 1, 0));
    }
}

#[tokio::test]
async fn an_error_in_place_of_a_whole_reply_is_followed_by_another_deployment() {
    let error = json!({"error": {"message": "the model is loading", "code": 503}});
    let bad = Origin::http().answering(move |_| Reply::json(&error)).start().await;
    let reply =
        json!({"choices": [{"message": {"role": "assistant", "content": "an error occurred: {\"error\": 1}"}}]});
    let good = Origin::http().answering(move |_| Reply::json(&reply)).start().await;
    let route = json!({"deployments": [{"provider": "a"}, {"provider": "b", "priority": 1}]});
    let both = gate(&[&bad, &good], route).await;
    let answer = chat(&both, false).await;
    assert_eq!((answer.status, answer.header("x-interflow-deployment")), (200, Some("b")), "{}", answer.text());
    assert!(answer.text().contains("an error occurred"));
    // Where nobody else answers, the client learns what the provider said.
    let alone = gate(&[&bad], json!({"deployments": [{"provider": "a"}], "retries": 0})).await;
    let answer = chat(&alone, false).await;
    assert_eq!((answer.status, answer.text().contains("the model is loading")), (503, true), "{}", answer.text());
}

#[tokio::test]
async fn an_object_with_an_error_of_its_own_is_a_response() {
    let job = json!({"id": "ftjob-1", "status": "failed", "error": {"code": "bad_file", "message": "no such file"}});
    let origin = Origin::http().answering(move |_| Reply::json(&job)).start().await;
    let gate = Gate::with(&origin, |parts| {
        let own = LlmUpstreamConfig { url: Some(origin.url("")), attempts: 2, ..LlmUpstreamConfig::default() };
        parts.llm.provider.insert("a".into(), own);
    })
    .await;
    let answer = gate.send("GET", "/a/v1/fine_tuning/jobs/ftjob-1", "", b"").await.unwrap();
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (200, Some("bad_file")), "{}", answer.text());
    assert_eq!(origin.served(), 1);
}

#[tokio::test]
async fn a_fallback_also_follows_an_error_in_a_stream() {
    let (bad, good) = (overloaded_stream().start().await, streams("here").start().await);
    let gate = Gate::with(&bad, |parts| {
        let own = |origin: &Origin| LlmUpstreamConfig { url: Some(origin.url("")), ..LlmUpstreamConfig::default() };
        parts.llm.provider.insert("a".into(), LlmUpstreamConfig { fallback: vec!["b".into()], ..own(&bad) });
        parts.llm.provider.insert("b".into(), own(&good));
    })
    .await;
    let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    let answer = post(&gate, "/a/v1/chat/completions", body).await;
    assert_eq!(answer.body, sse(&[chunk(""), chunk("here")]), "{}", answer.text());
}

/// An error whose body does not end.
fn slow_error() -> OriginBuilder {
    Origin::http().answering(|_| {
        let reply = Reply::status(500).header("Content-Type", "application/json");
        reply.pieces(vec!["{\"error\": ".into()], Duration::ZERO).ending(Ending::Stall)
    })
}

#[tokio::test]
async fn an_error_body_that_does_not_end_does_not_hold_up_the_next_deployment() {
    let (bad, good) = (slow_error().start().await, streams("here").start().await);
    // The first is translated, and so is its error.
    let route = json!({
        "deployments": [{"provider": "anthropic", "model": "claude"}, {"provider": "b", "priority": 1}], "timeout": "20s",
    });
    let gate = Gate::with(&bad, |parts| configure(&mut parts.llm, &[&bad, &good], route)).await;
    let began = std::time::Instant::now();
    let answer = chat(&gate, true).await;
    assert_eq!((answer.status, answer.header("x-interflow-deployment")), (200, Some("b")), "{}", answer.text());
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_token_that_is_not_fetched_in_time_does_not_hold_up_the_next_deployment() {
    let nobody = Origin::http().answering(|_| Reply::json(&json!({})).delay(LONG)).start().await;
    let good = streams("here").start().await;
    let route = json!({
        "deployments": [{"provider": "azure"}, {"provider": "b", "priority": 1}],
        "attempt_timeout": "100ms", "timeout": "1h", "cooldown_failures": 1,
    });
    let gate = Gate::with(&nobody, |parts| {
        configure(&mut parts.llm, &[&nobody, &good], route);
        let azure = parts.llm.provider.get_mut("azure").unwrap();
        azure.tenant = Some("t".into());
        azure.client_id = Some("c".into());
        azure.client_secret = Some("s".into());
        azure.token_url = Some(nobody.url("/token"));
    })
    .await;
    let began = std::time::Instant::now();
    let answer = chat(&gate, true).await;
    assert_eq!((answer.status, answer.header("x-interflow-deployment")), (200, Some("b")), "{}", answer.text());
    // Less than the time limit of a fetch.
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_hedge_that_cannot_be_made_neither_fails_nor_delays_the_first_request() {
    let nobody = Origin::http().answering(|_| Reply::json(&json!({})).delay(LONG)).start().await;
    let reply = json!({"choices": [{"message": {"role": "assistant", "content": "first"}}]});
    let slow = Origin::http().answering(move |_| Reply::json(&reply).delay(Duration::from_millis(300))).start().await;
    // Its token endpoint does not answer, or there is none.
    for token_url in [nobody.url("/token"), "http://127.0.0.1:1/token".to_owned()] {
        let route = json!({
            "deployments": [{"provider": "a"}, {"provider": "azure", "priority": 1}],
            "hedge_after": "20ms", "timeout": "1h",
        });
        let gate = Gate::with(&slow, |parts| {
            configure(&mut parts.llm, &[&slow], route);
            let azure = parts.llm.provider.get_mut("azure").unwrap();
            azure.tenant = Some("t".into());
            azure.client_id = Some("c".into());
            azure.client_secret = Some("s".into());
            azure.token_url = Some(token_url);
        })
        .await;
        let began = std::time::Instant::now();
        let answer = chat(&gate, false).await;
        assert_eq!((answer.status, answer.header("x-interflow-attempts")), (200, Some("1")), "{}", answer.text());
        assert!(answer.text().contains("first") && began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn what_a_stream_sends_before_its_first_token_is_not_lost() {
    let good = streams("here").start().await;
    let route = json!({"deployments": [{"provider": "a"}], "first_token_timeout": "1h", "attempt_timeout": "1h"});
    let gate = gate(&[&good], route).await;
    assert_eq!(chat(&gate, true).await.body, sse(&[chunk(""), chunk("here")]));
    // Not a stream, whatever the limit.
    assert_eq!(chat(&gate, false).await.status, 200);
}

#[tokio::test]
async fn a_provider_with_fallbacks_limits_its_attempts_too() {
    let slow = Origin::http().answering(|_| Reply::json(&json!({})).delay(LONG)).start().await;
    let fast = streams("fast").start().await;
    let (a, b) = (&slow, &fast);
    let gate = Gate::with(a, |parts| {
        let own = |origin: &Origin| LlmUpstreamConfig { url: Some(origin.url("")), ..LlmUpstreamConfig::default() };
        let limit = serde_json::from_value(json!("50ms")).unwrap();
        let first = LlmUpstreamConfig { fallback: vec!["b".into()], attempt_timeout: Some(limit), ..own(a) };
        parts.llm.provider.insert("a".into(), first);
        parts.llm.provider.insert("b".into(), own(b));
    })
    .await;
    let answer = post(&gate, "/a/v1/chat/completions", json!({"model": "m", "messages": []})).await;
    assert_eq!((answer.status, fast.served()), (200, 1), "{}", answer.text());
}

#[test]
fn a_limit_that_no_attempt_can_keep_is_refused() {
    for (config, key) in [
        (
            json!({"route": {"r": {"deployments": [{"provider": "openai"}], "attempt_timeout": "0s"}}}),
            "llm.route.r.attempt_timeout:",
        ),
        (
            json!({"route": {"r": {"deployments": [{"provider": "openai", "first_token_timeout": "0s"}]}}}),
            "llm.route.r.deployments[0].first_token_timeout:",
        ),
        (json!({"provider": {"openai": {"attempt_timeout": "0s"}}}), "llm.provider.openai.attempt_timeout:"),
    ] {
        let config: LlmConfig = serde_json::from_value(config).unwrap();
        let error = LlmGateway::compile(&config, &|text: &str| Ok(text.to_owned())).err().unwrap();
        assert!(error.starts_with(key), "{error}");
    }
}

/// An origin of the Responses API whose ids begin with its name, and that knows only its own.
fn responses(name: &'static str) -> OriginBuilder {
    let count = std::sync::atomic::AtomicUsize::new(0);
    Origin::http().answering(move |request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if let Some(previous) = body["previous_response_id"].as_str().filter(|id| !id.starts_with(name)) {
            return Reply::json(&json!({"error": {"message": format!("{name} has no {previous}")}}));
        }
        let id = format!("{name}_{}", count.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
        let response = json!({"id": id, "object": "response", "model": "m", "status": "completed", "output": []});
        if body["stream"] == true {
            let created = json!({"type": "response.created", "response": response});
            let completed = json!({"type": "response.completed", "response": response});
            return Reply::ok(sse(&[created, completed])).header("Content-Type", "text/event-stream");
        }
        Reply::json(&response)
    })
}

async fn respond(gate: &Gate, previous: Option<&str>, stream: bool) -> Answer {
    let mut body = json!({"model": "smart", "input": "hi", "stream": stream});
    if let Some(previous) = previous {
        body["previous_response_id"] = previous.into();
    }
    post(gate, "/v1/responses", body).await
}

/// The response's id, of either form.
fn id_of(answer: &Answer) -> String {
    let text = answer.text();
    let at = text.find("\"id\":\"").unwrap_or_else(|| panic!("{text}"));
    text[at + 6..].split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_request_that_continues_a_response_goes_to_the_deployment_that_made_it() {
    let (a, b, c) = (responses("a").start().await, responses("b").start().await, responses("c").start().await);
    let route = json!({"deployments": [{"provider": "a"}, {"provider": "b"}, {"provider": "c"}]});
    let gate = gate(&[&a, &b, &c], route).await;
    let mut made_by = std::collections::BTreeSet::new();
    for round in 0..16 {
        let mut answer = respond(&gate, None, round % 2 == 0).await;
        let deployment = answer.header("x-interflow-deployment").unwrap().to_owned();
        for turn in 0..3 {
            answer = respond(&gate, Some(&id_of(&answer)), turn % 2 == 0).await;
            assert_eq!(answer.header("x-interflow-deployment"), Some(deployment.as_str()), "{}", answer.text());
        }
        made_by.insert(deployment);
    }
    assert!(made_by.len() > 1, "a route with a choice: {made_by:?}");
}

#[tokio::test]
async fn a_response_is_fetched_by_its_id_from_the_provider_that_keeps_it() {
    let (a, b) = (responses("a").start().await, responses("b").start().await);
    for (key, served, credentials) in [(Some("own".to_owned()), 1, Some("Bearer own")), (None, 0, None)] {
        let gate = Gate::with(&a, |parts| {
            configure(
                &mut parts.llm,
                &[&a, &b],
                json!({"deployments": [{"provider": "b"}, {"provider": "a", "priority": 1}]}),
            );
            parts.llm.provider.get_mut("b").unwrap().api_key = key;
        })
        .await;
        let id = id_of(&respond(&gate, None, false).await);
        let before = b.served();
        gate.send("GET", &format!("/v1/responses/{id}?include=x"), "", b"").await.unwrap();
        assert_eq!(
            b.served() - before,
            served,
            "only with a key of the gateway's own: the client's is for another host"
        );
        if credentials.is_some() {
            let got = b.requests().pop().unwrap();
            assert_eq!(
                (got.target.clone(), got.header("authorization")),
                (format!("/v1/responses/{id}?include=x"), credentials)
            );
        }
    }
}

#[tokio::test]
async fn a_response_whose_deployment_is_gone_or_down_is_not_continued_elsewhere() {
    let (a, b) = (responses("a").start().await, responses("b").start().await);
    let route = |deployments: Value| json!({"deployments": deployments, "cooldown_failures": 1, "retries": 0});
    let both = json!([{"provider": "a"}, {"provider": "b", "priority": 1}]);
    let gate = gate(&[&a, &b], route(both)).await;
    let first = id_of(&respond(&gate, None, false).await);
    assert!(first.starts_with("a_"));
    // One that nobody remembers is routed like any other request.
    assert_eq!(respond(&gate, Some("a_before_the_start"), false).await.header("x-interflow-deployment"), Some("a"));

    let reload = |deployments: Value, a_url: String| {
        let mut config = LlmConfig::default();
        configure(&mut config, &[&a, &b, &b], route(deployments));
        config.provider.get_mut("a").unwrap().url = Some(a_url);
        gate.gateway.activate(LlmGateway::compile(&config, &|text: &str| Ok(text.to_owned())).unwrap());
    };
    // Down: the second deployment would not know the response.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    reload(json!([{"provider": "a"}, {"provider": "b", "priority": 1}]), format!("http://{nobody}"));
    assert_eq!(respond(&gate, Some(&first), false).await.status, 502);
    let answer = respond(&gate, Some(&first), false).await;
    assert_eq!((answer.status, answer.header("retry-after").is_some()), (503, true), "{}", answer.text());
    // Gone from the route.
    reload(json!([{"provider": "b"}, {"provider": "c"}]), a.url(""));
    let answer = respond(&gate, Some(&first), false).await;
    assert_eq!((answer.status, b.served()), (400, 0), "{}", answer.text());
    let error = answer.json();
    assert_eq!(error["error"]["code"], "previous_response_not_found");
    assert!(error["error"]["message"].as_str().unwrap().contains("was made by a,"), "{error}");
}

#[tokio::test]
async fn an_error_at_the_beginning_of_a_stream_has_the_status_that_its_kind_has() {
    for (kind, to_openai, to_anthropic) in
        [("overloaded_error", 503, 529), ("rate_limit_error", 429, 429), ("invalid_request_error", 502, 502)]
    {
        let event = json!({"type": "error", "error": {"type": kind, "message": "not now"}});
        let bad = Origin::http().answering(move |_| {
            Reply::ok(format!("event: error\ndata: {event}\n\n")).header("Content-Type", "text/event-stream")
        });
        let bad = bad.start().await;
        let route = json!({"deployments": [{"provider": "anthropic", "model": "claude"}], "retries": 0, "cooldown_failures": 9});
        let gate = gate(&[&bad], route).await;
        let answer = chat(&gate, true).await;
        assert_eq!((answer.status, answer.text().contains("not now")), (to_openai, true), "{kind}: {}", answer.text());
        let body =
            json!({"model": "smart", "stream": true, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
        let answer = post(&gate, "/anthropic/v1/messages", body).await;
        assert_eq!(answer.status, to_anthropic, "{kind}: {}", answer.text());
        if to_openai != 502 {
            assert_eq!(answer.json()["error"]["type"], kind, "{}", answer.text());
        }
    }
}

#[tokio::test]
async fn a_response_is_continued_and_fetched_with_the_key_that_made_it_alone() {
    let (a, b) = (responses("a").start().await, responses("b").start().await);
    let gate = Gate::with(&a, |parts| {
        configure(&mut parts.llm, &[&a, &b], json!({"deployments": [{"provider": "a"}, {"provider": "b"}]}));
        parts.keys = super::key_scopes::key("k", "") + &super::key_scopes::key("l", "");
    })
    .await;
    let ask = async |key: &str, method: &str, path: &str, body: Value| {
        let fields = format!("Content-Type: application/json\r\nAuthorization: Bearer ifk_{key}\r\n");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        gate.send(method, path, &fields, body.as_bytes()).await.unwrap()
    };
    let turn = |previous: Option<&str>| json!({"model": "smart", "input": "hi", "previous_response_id": previous});
    let id = id_of(&ask("k", "POST", "/v1/responses", turn(None)).await);
    let served = a.served() + b.served();
    for (method, path, body) in [
        ("POST", "/v1/responses".to_owned(), turn(Some(&id))),
        // At an endpoint whose requests are not routed.
        ("POST", "/a/v1/responses".to_owned(), json!({"model": "m", "input": "hi", "previous_response_id": id})),
        ("GET", format!("/v1/responses/{id}"), Value::Null),
        ("GET", format!("/v1/responses/{}", id.replace('_', "%5F")), Value::Null),
        ("GET", format!("/a/v1/%72esponses/{id}"), Value::Null),
        ("GET", format!("/openai/v1/responses/{id}/input_items"), Value::Null),
        ("DELETE", format!("/v1/responses/{id}"), Value::Null),
        ("POST", format!("/v1/responses/{id}/cancel"), Value::Null),
    ] {
        let refused = ask("l", method, &path, body).await;
        let code = refused.json()["error"]["code"].clone();
        assert_eq!((refused.status, code), (404, "previous_response_not_found".into()), "{method} {path}");
    }
    assert_eq!(a.served() + b.served(), served, "no provider was asked");
    assert_eq!(ask("k", "POST", "/v1/responses", turn(Some(&id))).await.status, 200);
    assert_eq!(ask("k", "GET", &format!("/v1/responses/{id}"), Value::Null).await.status, 200);
    assert_eq!(ask("k", "GET", &format!("/v1/responses/{}", id.replace('_', "%5F")), Value::Null).await.status, 200);
}
