//! The choice of deployments, with injected time and numbers in place of chance.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{ActiveRequest, Affinity, Deployment, Next, Route, Selection};
use crate::gateway::{LlmGateway, UpstreamTable};

fn table(routes: Value) -> Result<UpstreamTable, String> {
    let provider = json!({"a": {"url": "http://a"}, "b": {"url": "http://b"}, "c": {"url": "http://c"}});
    let config = serde_json::from_value(json!({"provider": provider, "route": routes})).unwrap();
    LlmGateway::compile(&config, &|text: &str| Ok(text.to_owned()))
}

fn route(own: Value) -> Arc<Route> {
    Arc::clone(table(json!({"r": own})).unwrap().route_of_model("r").unwrap())
}

/// Numbers that are evenly spread from 0 to 1.
fn spread() -> impl FnMut() -> f64 {
    let mut at = 0.0;
    move || {
        at = (at + 0.618_033_988_749_895) % 1.0;
        at
    }
}

fn next(selection: &Selection, route: &Route, now: Instant) -> Next {
    selection.next(route, now, &mut || 0.0, &|_| None)
}

/// How often each deployment is chosen in 1000 requests.
fn counts(route: &Route, cost: &dyn Fn(&Deployment) -> Option<u64>) -> BTreeMap<String, u32> {
    let (mut random, now) = (spread(), Instant::now());
    let mut counts = BTreeMap::new();
    for _ in 0..1000 {
        let Next::Deployment(i) = Selection::new(route, |_| true).next(route, now, &mut random, cost) else { continue };
        *counts.entry(route.deployments[i].name.to_string()).or_default() += 1;
    }
    counts
}

#[test]
fn requests_are_distributed_by_weight_among_the_lowest_priority() {
    let route = route(json!({"deployments": [
        {"provider": "a", "weight": 3}, {"provider": "b"}, {"provider": "c", "weight": 9, "priority": 1},
    ]}));
    let counts = counts(&route, &|_| None);
    assert!((740..760).contains(&counts["a"]) && counts["a"] + counts["b"] == 1000, "{counts:?}");
}

#[test]
fn each_deployment_is_tried_before_one_is_repeated_in_the_order_of_priority() {
    let route = route(
        json!({"deployments": [{"provider": "a", "priority": 2}, {"provider": "b"}, {"provider": "c", "priority": 1}]}),
    );
    let (mut selection, now) = (Selection::new(&route, |_| true), Instant::now());
    let mut order = Vec::new();
    for _ in 0..5 {
        let Next::Deployment(i) = next(&selection, &route, now) else { panic!("none") };
        selection.count_attempt(i);
        order.push(route.deployments[i].name.to_string());
    }
    assert_eq!(order, ["b", "c", "a", "b", "c"]);
}

#[test]
fn a_fallback_chain_repeats_a_provider_before_the_next() {
    let config = json!({"provider": {
        "a": {"url": "http://a", "attempts": 2, "fallback": ["b"]}, "b": {"url": "http://b"},
    }});
    let table =
        LlmGateway::compile(&serde_json::from_value(config).unwrap(), &|text: &str| Ok(text.to_owned())).unwrap();
    let route = table.routes.of_upstream("a").unwrap();
    let (mut selection, now) = (Selection::new(route, |_| true), Instant::now());
    let mut order = Vec::new();
    while let Next::Deployment(i) = next(&selection, route, now) {
        selection.count_attempt(i);
        order.push(route.deployments[i].name.to_string());
    }
    assert_eq!(order, ["a", "a", "b", "b"]);
}

#[test]
fn a_deployment_that_cools_down_is_left_alone_then_probed_once_and_used_again() {
    let route = route(json!({"cooldown_failures": 2, "cooldown": "30s", "deployments": [
        {"provider": "a"}, {"provider": "b", "priority": 1},
    ]}));
    let now = Instant::now();
    let chosen = |now| match next(&Selection::new(&route, |_| true), &route, now) {
        Next::Deployment(i) => route.deployments[i].name.to_string(),
        other => panic!("{other:?}"),
    };
    let health = &route.deployments[0].health;
    health.record_result(false, now);
    assert_eq!(chosen(now), "a", "a single failure is none");
    assert!(health.record_result(false, now), "the second opens");
    assert_eq!((chosen(now), chosen(now + Duration::from_secs(29))), ("b".into(), "b".into()));
    let later = now + Duration::from_secs(31);
    assert_eq!(chosen(later), "a");
    assert!(health.allows(later));
    assert_eq!(chosen(later), "b", "while it is probed");
    health.record_result(true, later);
    assert_eq!(chosen(later), "a");
}

#[test]
fn a_request_waits_for_a_deployment_that_asked_for_it_only_if_no_other_is_left() {
    let route = route(json!({"deployments": [{"provider": "a"}, {"provider": "b"}]}));
    let (mut selection, now) = (Selection::new(&route, |_| true), Instant::now());
    let at = now + Duration::from_secs(3);
    selection.count_attempt(0);
    selection.wait_until(0, at);
    assert_eq!(next(&selection, &route, now), Next::Deployment(1));
    selection.exclude(1);
    assert_eq!(next(&selection, &route, now), Next::Wait(at));
    assert_eq!(next(&selection, &route, at), Next::Deployment(0));
    selection.exclude(0);
    assert_eq!((next(&selection, &route, now), selection.is_empty()), (Next::None, true));
}

#[test]
fn sessions_stay_and_only_those_of_a_lost_deployment_move() {
    let route = route(json!({"sticky": "session", "deployments": [
        {"provider": "a"}, {"provider": "b", "weight": 2}, {"provider": "c"},
    ]}));
    let now = Instant::now();
    let place = |key| {
        let mut selection = Selection::new(&route, |_| true);
        selection.sticky = Some(Affinity(key));
        match next(&selection, &route, now) {
            Next::Deployment(i) => i,
            other => panic!("{other:?}"),
        }
    };
    let keys = || (0..4000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let before: Vec<usize> = keys().map(place).collect();
    let share = before.iter().filter(|i| **i == 1).count();
    assert!((1850..2150).contains(&share), "{share} of 4000 for half of the weight");
    assert_eq!(before, keys().map(place).collect::<Vec<_>>());
    route.deployments[2].health.leave_alone(Duration::from_secs(60), now);
    for (key, before) in keys().zip(before) {
        let after = place(key);
        assert!(if before == 2 { after != 2 } else { after == before }, "{before} -> {after}");
    }
}

#[test]
fn strategies_prefer_the_least_busy_the_fastest_and_the_cheapest() {
    let with = |strategy: &str| {
        route(json!({"strategy": strategy, "deployments": [{"provider": "a"}, {"provider": "b"}, {"provider": "c"}]}))
    };
    let busy = with("least-busy");
    let _requests = [0, 0, 1, 2, 2].map(|i| ActiveRequest::begin(&busy.deployments[i].stats));
    assert_eq!(counts(&busy, &|_| None)["b"], 1000);

    let fast = with("latency");
    for (deployment, millis) in fast.deployments.iter().zip([100, 500, 900]) {
        deployment.stats.record_latency(Duration::from_millis(millis), Instant::now());
    }
    let counts_fast = counts(&fast, &|_| None);
    // The slowest of three is never the faster of two.
    assert!(counts_fast["a"] > 600 && counts_fast["b"] > 100 && !counts_fast.contains_key("c"), "{counts_fast:?}");

    let cheap = with("cost");
    let price = |d: &Deployment| match d.name.as_str() {
        "a" => None,
        "b" => Some(20),
        _ => Some(10),
    };
    assert_eq!(counts(&cheap, &price)["c"], 1000);
    assert_eq!(counts(&cheap, &|_| None).len(), 3, "without prices all are alike");
}

#[test]
fn variant_b_is_for_those_who_are_assigned_to_it() {
    let route = route(json!({
        "deployments": [{"provider": "a"}], "experiment": {"provider": "b", "share": 0.5},
    }));
    let now = Instant::now();
    let mut selection = Selection::new(&route, |_| true);
    assert_eq!(next(&selection, &route, now), Next::Deployment(0));
    selection.assign(route.variant().unwrap());
    assert_eq!(next(&selection, &route, now), Next::Deployment(1));
    selection.count_attempt(1);
    assert_eq!(next(&selection, &route, now), Next::Deployment(0), "its fallbacks are those of variant A");
}

#[test]
fn a_model_finds_its_route_by_name_prefix_and_alias() {
    let deployments = json!([{"provider": "a"}]);
    let config = json!({
        "aliases": {"fast": "gpt-5-mini"},
        "provider": {"a": {"url": "http://a"}},
        "route": {
            "gpt-*": {"deployments": deployments}, "gpt-5*": {"deployments": deployments},
            "gpt-5-nano": {"deployments": deployments},
        },
    });
    let table =
        LlmGateway::compile(&serde_json::from_value(config).unwrap(), &|text: &str| Ok(text.to_owned())).unwrap();
    let found = |model: &str| table.route_of_model(model).map(|route| route.name.as_str());
    assert_eq!(found("gpt-5-nano"), Some("gpt-5-nano"));
    assert_eq!((found("gpt-5-pro"), found("gpt-4.1"), found("fast")), (Some("gpt-5*"), Some("gpt-*"), Some("gpt-5*")));
    assert_eq!(found("claude"), None);
}

#[test]
fn what_is_wrong_in_a_route_is_reported_with_its_key() {
    let a = json!([{"provider": "a"}]);
    for (own, says) in [
        (json!({}), "llm.route.r.deployments: it is empty"),
        (json!({"deployments": [{"provider": "x"}]}), "llm.route.r.deployments[0].provider: there is no provider x"),
        (json!({"deployments": [{"provider": "a", "weight": 0}]}), "llm.route.r.deployments[0].weight: 0"),
        (
            json!({"deployments": [{"provider": "a"}, {"provider": "a"}]}),
            "llm.route.r.deployments[1]: a is listed twice",
        ),
        (json!({"deployments": a, "retry_budget": 2}), "llm.route.r.retry_budget: 2 is not between 0 and 1"),
        (json!({"deployments": a, "shadow": {"provider": "b", "share": -1}}), "llm.route.r.shadow.share: -1"),
        (json!({"deployments": a, "experiment": {"provider": "x", "share": 0.1}}), "llm.route.r.experiment.provider"),
    ] {
        let error = table(json!({"r": own})).err().unwrap_or_else(|| panic!("{own}"));
        assert!(error.contains(says), "{own}: {error}");
    }
    assert!(table(json!({"a*b": {"deployments": a}})).err().unwrap().contains("a * at the end only"));
}

#[test]
fn a_reload_keeps_what_was_counted() {
    let make = || table(json!({"r": {"deployments": [{"provider": "a"}]}})).unwrap();
    let (before, mut after) = (make(), make());
    let count = |table: &UpstreamTable| table.routes.get("r").unwrap().deployments[0].stats.requests.load(Relaxed);
    drop(ActiveRequest::begin(&before.routes.get("r").unwrap().deployments[0].stats));
    assert_eq!((count(&before), count(&after)), (1, 0));
    after.routes.continue_counters(&before.routes);
    assert_eq!(count(&after), 1);
}
