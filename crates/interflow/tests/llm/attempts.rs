//! A routed call is one flow with its attempts, in the API, on the command line, in spans and wherever calls are counted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use interflow_testkit::{Ending, Origin, OriginBuilder, Reply, Wire};
use serde_json::{Value, json};

use crate::instance::{Home, Running};

fn good() -> OriginBuilder {
    Origin::http().answering(|_| {
        Reply::json(&json!({"model": "gpt-4o", "choices": [{"message": {"role": "assistant", "content": "yes"}}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3}}))
    })
}

fn failing() -> OriginBuilder {
    Origin::http().answering(|_| Reply::status(503).body("no"))
}

fn slow() -> OriginBuilder {
    Origin::http().answering(|_| Reply::json(&json!({})).delay(Duration::from_secs(600)))
}

/// Fails once.
fn flaky() -> OriginBuilder {
    let has_failed = AtomicBool::new(false);
    Origin::http().answering(move |_| match has_failed.swap(true, Ordering::SeqCst) {
        false => Reply::status(500).body("no"),
        true => Reply::json(&json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})),
    })
}

/// A stream that breaks off after its first words.
fn cut() -> OriginBuilder {
    let event =
        json!({"model": "gpt-4o", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "begun"}}]});
    let piece = format!("data: {event}\n\n");
    Origin::http().answering(move |_| {
        let reply = Reply::status(200).header("Content-Type", "text/event-stream");
        reply.pieces(vec![piece.clone().into()], Duration::ZERO).ending(Ending::Cut)
    })
}

const ROUTES: &str = r#"
[llm.route.fallback]
deployments = [{ provider = "failing" , model = "gpt-4o" }, { provider = "good", model = "gpt-4o", priority = 1 }]
[llm.route.retry]
deployments = [{ provider = "flaky" , model = "gpt-4o" }]
[llm.route.hedge]
deployments = [{ provider = "slow", model = "gpt-4o" }, { provider = "good", model = "gpt-4o", priority = 1 }]
hedge_after = "50ms"
timeout = "1h"
[llm.route.cut]
deployments = [{ provider = "cut", model = "gpt-4o" }, { provider = "good", model = "gpt-4o", priority = 1 }]
"#;

/// The only flow of this route.
async fn flow_of(running: &Running, route: &str) -> Value {
    let list = format!("/api/v1/flows?query=tag:route:{route}%20-is:open");
    running.until(async || !running.admin("GET", &list, "").await.json()["flows"].as_array().unwrap().is_empty()).await;
    let flows = running.admin("GET", &list, "").await.json()["flows"].clone();
    assert_eq!(flows.as_array().unwrap().len(), 1, "{route}: {flows}");
    let id = flows[0]["id"].as_str().unwrap();
    running.admin("GET", &format!("/api/v1/flows/{id}"), "").await.json()
}

/// Deployment, state, status, error, input and output of each attempt.
fn attempts(flow: &Value) -> Vec<Value> {
    let of = |a: &Value| {
        json!([a["deployment"], a["state"], a["status"], a["error"], a["input_tokens"], a["output_tokens"]])
    };
    flow["attempts"].as_array().unwrap_or_else(|| panic!("{flow}")).iter().map(of).collect()
}

#[tokio::test]
async fn a_call_with_several_attempts_is_one_flow_that_lists_them() {
    let home = Home::new().await;
    let collector = Origin::http().answering(|_| Reply::ok("{}")).start().await;
    let mut config = format!("[telemetry]\nendpoint = \"{}\"\ninterval = \"50ms\"\n{ROUTES}", collector.url(""));
    let mut origins = Vec::new();
    for (name, origin) in
        [("failing", failing()), ("good", good()), ("slow", slow()), ("flaky", flaky()), ("cut", cut())]
    {
        let origin = origin.start().await;
        config += &format!("[llm.provider.{name}]\nurl = \"{}\"\napi_key = \"sk-operator-{name}\"\n", origin.url(""));
        origins.push(origin);
    }
    let key = home.keys(&["add", "--id", "k1"]).ok().trim().to_owned();
    let running = home.start(&config);
    let fields = format!("Authorization: Bearer {key}\r\n");
    for (route, stream) in [("fallback", false), ("retry", false), ("hedge", false), ("cut", true)] {
        let body = json!({"model": route, "stream": stream, "messages": [{"role": "user", "content": "hello there"}]});
        let body = body.to_string();
        if !stream {
            assert_eq!(running.post("/v1/chat/completions", &fields, &body).await.status, 200, "{route}");
            continue;
        }
        // The client's response breaks off, too.
        let mut wire = Wire::connect(running.gateway).await.unwrap();
        let n = body.len();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\nContent-Length: {n}\r\n{fields}\r\n"
        );
        wire.send(head + &body).await.unwrap();
        let _ = wire.to_end().await;
    }

    let flow = flow_of(&running, "fallback").await;
    assert_eq!(
        attempts(&flow),
        [json!(["failing/gpt-4o", "failed", 503, null, null, null]), json!(["good/gpt-4o", "served", 200, null, 7, 3])]
    );
    // The request is the client's; connection and times are those of the attempt that answered.
    assert_eq!(flow["request"]["path"], "/v1/chat/completions");
    assert_eq!(flow["upstream"]["peer"], origins[1].addr().to_string(), "{flow}");
    let (second, timings) = (&flow["attempts"][1], &flow["timings"]);
    assert_eq!(second["first_byte"], timings["first_byte"], "{flow}");
    assert!(timings["request_sent"].as_u64() >= second["started"].as_u64(), "{flow}");
    assert_eq!(second["path"], "/v1/chat/completions");
    // 7 tokens at 2.50 and 3 at 10 dollars per million.
    assert!((47..=48).contains(&second["cost"].as_u64().unwrap()), "{flow}");

    let flow = flow_of(&running, "retry").await;
    assert_eq!(
        attempts(&flow),
        [json!(["flaky/gpt-4o", "failed", 500, null, null, null]), json!(["flaky/gpt-4o", "served", 200, null, 7, 3])]
    );

    let flow = flow_of(&running, "hedge").await;
    let of = attempts(&flow);
    assert_eq!(of[1], json!(["good/gpt-4o", "served", 200, null, 7, 3]), "{flow}");
    assert_eq!((&of[0][1], &of[0][5], of.len()), (&"cancelled".into(), &0.into(), 2), "{flow}");
    let lost = flow["attempts"][0]["input_tokens"].as_u64().unwrap();
    assert!(lost > 0 && flow["attempts"][0]["estimated"] == true && flow["attempts"][1]["hedge"] == true, "{flow}");

    let flow = flow_of(&running, "cut").await;
    let of = attempts(&flow);
    assert_eq!((&of[0][1], &of[0][2], &of[0][3]), (&"served".into(), &200.into(), &"upstream_closed".into()), "{flow}");
    assert_eq!((of.len(), &flow["error"]["kind"]), (1, &"upstream_closed".into()), "{flow}");

    // Four calls, whoever counts.
    let all = home.say(&["flows", "list", "--format", "jsonl"]).ok();
    assert_eq!(all.lines().count(), 4, "{all}");
    assert!(!all.contains("sk-operator"), "{all}");
    let sum =
        |rows: &Value, name: &str| rows.as_array().unwrap().iter().filter_map(|row| row[name].as_u64()).sum::<u64>();
    let requests = async || sum(&running.admin("GET", "/api/v1/limits", "").await.json()["usage"], "requests");
    running.until(async || requests().await == 4).await;
    let calls = async || {
        let totals = running.admin("GET", "/api/v1/conversations/totals", "").await.json();
        let used: Value = totals["totals"].as_array().unwrap().iter().map(|total| total["used"].clone()).collect();
        sum(&used, "exchanges")
    };
    running.until(async || calls().await == 4).await;
    let id = flow_of(&running, "fallback").await["id"].as_str().unwrap().to_owned();
    let shown = home.say(&["flows", "show", &id]).ok();
    assert!(shown.contains("attempt 1") && shown.contains("failing/gpt-4o, failed, 503"), "{shown}");
    assert!(shown.contains("good/gpt-4o, served, 200") && shown.contains("7 tokens in, 3 out, $0.00004"), "{shown}");

    // Each attempt is a child of its call's span.
    let spans = async || {
        let mut spans = Vec::new();
        for request in collector.requests() {
            let export: Value = serde_json::from_slice(&request.body).unwrap();
            spans.extend(export["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone());
        }
        spans
    };
    running.until(async || spans().await.len() == 11).await;
    let spans = spans().await;
    let (attempts, calls): (Vec<&Value>, Vec<&Value>) =
        spans.iter().partition(|span| span["name"].as_str().unwrap().starts_with("attempt "));
    assert_eq!((calls.len(), attempts.len()), (4, 7));
    for attempt in attempts {
        let parent = calls.iter().find(|call| call["spanId"] == attempt["parentSpanId"]);
        assert_eq!(parent.unwrap()["traceId"], attempt["traceId"], "{attempt}");
    }
    running.stop();
}
