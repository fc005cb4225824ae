//! Table `redact`: philter-ai-proxy's load test with its five scenarios, 10 users, TLS on both legs, real detection and real event
//! streams; the provider counts every request in which the planted number arrives.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::Result;
use crate::load::spec::{Check, Exchange, Pace, Spec, Version};
use crate::peers::{self, Arm};
use crate::tables::{Effort, Kind, Row, Session, Table};
use crate::testbed::Testbed;

const ARMS: [&str; 6] = ["gateway", "gateway+redact", "gateway+outbound", "litellm", "litellm+presidio", "presidio"];

/// What must not reach the provider.
pub const PLANTED: &str = "123-45-6789";
const USERS: usize = 10;

#[derive(Clone, Copy, PartialEq)]
enum Scenario {
    OpenAi,
    Anthropic,
    Stream,
    Outbound,
    Long,
}

pub fn table(effort: &Effort) -> Result<Table> {
    let testbed = Testbed::new(effort.pin)?.with_provider_watching(&[PLANTED])?;
    let arms = peers::start(&ARMS, &effort.arms, &testbed);
    let title = "philter-ai-proxy's load test: 10 users, TLS on both legs, a fake provider; gateway is Interflow without redaction";
    let mut session = Session::new("redact", title, &testbed, arms, effort);
    let cases = [
        (Scenario::OpenAi, "openai", "Chat Completions, one message of 60 characters that holds a number"),
        (Scenario::Anthropic, "anthropic", "Messages, the same message"),
        (Scenario::Stream, "openai-streaming", "Chat Completions, the answer in 4 events 10 ms apart"),
        (Scenario::Outbound, "outbound-scan", "Chat Completions whose answer of 2 KB holds a number that must go"),
        (Scenario::Long, "openai 50 turns", "Chat Completions, a history of 50 turns in 64 KiB"),
    ];
    for (scenario, name, what) in cases {
        let body = testbed.path(&format!("{name}.json"));
        fs::write(&body, question(scenario))?;
        let what = format!("{what}; {USERS} users in a closed loop, kept alive");
        session.case(name, &what, Kind::Throughput, |arm| spec(&testbed, effort, arm, scenario, &body));
    }
    texts(&mut session, &testbed)?;
    leaks(&mut session, &testbed)?;
    Ok(session.finish())
}

fn question(scenario: Scenario) -> String {
    let asked = format!("Please check whether {PLANTED} is in order for my tax form, thanks.");
    let model = if scenario == Scenario::Anthropic { "fake-anthropic" } else { "fake-openai" };
    let mut messages = vec![];
    if scenario == Scenario::Long {
        for turn in 0..50 {
            let role = if turn % 2 == 0 { "user" } else { "assistant" };
            let text = "The committee met again and went through the list of open questions. ".repeat(18);
            messages.push(json!({ "role": role, "content": format!("Turn {turn}. {text}") }));
        }
    }
    messages.push(json!({ "role": "user", "content": asked }));
    json!({
        "model": model, "max_tokens": 256, "stream": scenario == Scenario::Stream, "messages": messages,
    })
    .to_string()
}

/// Through Interflow the answer repeats the question: the placeholder comes back, and must be the number again.
fn spec(testbed: &Testbed, effort: &Effort, arm: &Arm, scenario: Scenario, body: &Path) -> Option<Spec> {
    if arm.name == "presidio" {
        return None;
    }
    let ours = arm.name.starts_with("gateway");
    let outbound = arm.name == "gateway+outbound";
    if outbound != (scenario == Scenario::Outbound) && arm.name != "direct" && (outbound || arm.name != "gateway") {
        return None;
    }
    let base_path = match (ours, scenario) {
        (true, Scenario::Anthropic) => "/anthropic",
        (true, _) => "/openai",
        (false, _) => "",
    };
    let path = if scenario == Scenario::Anthropic { "/v1/messages" } else { "/v1/chat/completions" };
    let check = match (scenario, arm.name.as_str()) {
        (Scenario::Stream, _) => "data: [DONE]",
        (_, "direct" | "litellm" | "litellm+presidio") => "content",
        (Scenario::Outbound, "gateway+outbound") => "Your number is",
        _ => PLANTED,
    };
    let mut headers = vec![
        ("Content-Type", "application/json".to_owned()),
        ("Authorization", "Bearer sk-fake".to_owned()),
        ("x-api-key", "sk-fake".to_owned()),
        ("anthropic-version", "2023-06-01".to_owned()),
    ];
    match scenario {
        Scenario::Outbound => {
            let filler = "The quick brown fox jumps over the lazy dog. ".repeat(44);
            headers.push(("x-text", format!("Your number is {PLANTED}. {filler}")));
        }
        Scenario::Stream => headers.extend([("x-chunks", "4".to_owned()), ("x-gap", "10".to_owned())]),
        _ => headers.push(("x-echo", "1".to_owned())),
    }
    Some(Spec {
        via: arm.tls?,
        tls: true,
        version: Version::H1,
        exchanges: vec![Exchange {
            authority: format!("localhost:{}", testbed.llm().port()),
            path: format!("{base_path}{path}"),
            body: Some(body.to_owned()),
            headers: Vec::new(),
            check: Check::Holds(check.into()),
        }],
        headers: headers.into_iter().map(|(n, v)| (n.into(), v)).collect(),
        login: None,
        pace: Pace::Closed(USERS),
        new_connection: false,
        resume_tls: false,
        cancel_every: 0,
        certificate: None,
        warm_up: effort.warm_up(),
        seconds: effort.seconds,
        threads: 1,
    })
}

/// A plain text in, the redacted one out: `/api/filter` of the gateway port, and Presidio.
fn texts(session: &mut Session<'_>, testbed: &Testbed) -> Result<()> {
    let body = testbed.path("text");
    let filler = "The committee met again and went through the list of open questions, one by one. ".repeat(12);
    let text = format!("{filler}Her number is {PLANTED}, her mail anna@example.com. {filler}");
    fs::write(&body, &text)?;
    let what = format!(
        "a plain text of {} bytes with two things to find; {USERS} users in a closed loop, kept alive",
        text.len()
    );
    let effort = session.effort;
    session.case("text 2 KB", &what, Kind::Throughput, |arm| {
        let (via, path) = match arm.name.as_str() {
            "gateway+redact" => (arm.tls?, "/api/filter"),
            "presidio" => (arm.plain?, "/redact"),
            _ => return None,
        };
        let mut spec = spec(testbed, effort, &Arm { tls: Some(via), ..Arm::direct() }, Scenario::OpenAi, &body)?;
        spec.tls = arm.name != "presidio";
        spec.headers = vec![("Content-Type".into(), "text/plain".into())];
        for exchange in &mut spec.exchanges {
            exchange.path = path.into();
            exchange.check = Check::Holds("one by one. Her number is ".into());
        }
        Some(spec)
    });
    Ok(())
}

/// Sends one request through each redacting arm alone, and asks the provider what it saw before and after.
fn leaks(session: &mut Session<'_>, testbed: &Testbed) -> Result<()> {
    let mut rows = Vec::new();
    for arm in
        session.arms.iter().filter(|a| ["gateway+redact", "litellm", "litellm+presidio"].contains(&a.name.as_str()))
    {
        let before = sightings(&testbed.provider_stats()?)?;
        let body = testbed.path("openai.json");
        let mut row = Row { arm: arm.name.clone(), ..Row::default() };
        if let Some(spec) = spec(testbed, session.effort, arm, Scenario::OpenAi, &body) {
            super::one_run(session.testbed, arm, session.origin, &spec, &mut row);
        }
        let seen = sightings(&testbed.provider_stats()?)? - before;
        if seen > 0 {
            row.failure = Some(format!("the planted number reached the provider in {seen} requests"));
        }
        rows.push(row);
    }
    let what = "the first scenario once more by itself; a row fails when the provider received the planted number";
    session.push("leaks", what, Kind::Throughput, rows);
    Ok(())
}

/// In how many requests the provider saw the planted number, by its counts.
pub fn sightings(stats: &serde_json::Value) -> Result<u64> {
    stats["sightings"][PLANTED].as_u64().ok_or_else(|| format!("no sightings in {stats}").into())
}
