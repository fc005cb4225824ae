//! Table `llm-mitm`: streamed answers of a fake Anthropic API through interception: added latency at a fixed rate, the highest rate
//! that is held, and the delay of single events.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::Result;
use crate::load::spec::{Certificate, Check, Exchange, Pace, Spec, Version, Via};
use crate::peers::{self, Arm};
use crate::tables::{Effort, Kind, Row, Session, Table, one_run};
use crate::testbed::{Testbed, ask};

const ARMS: [&str; 8] =
    [RELAY, "interflow", "interflow+record", "squid-bump", "goproxy", "greyproxy", "mitmdump", "mitmdump-w"];
/// Those of the short form.
const SHORT: [&str; 5] = [RELAY, "interflow", "interflow+record", "greyproxy", "mitmdump"];
/// Opens no TLS: what one process more on the way adds by itself.
const RELAY: &str = "bare-relay";
const SESSIONS: usize = 50;

/// A payload class: request size, answer size, pieces a millisecond apart, requests per second.
struct Class {
    name: &'static str,
    request: usize,
    answer: usize,
    pieces: usize,
    rate: f64,
}

const CLASSES: [Class; 3] = [
    Class { name: "small", request: 1 << 10, answer: 512, pieces: 1, rate: 100.0 },
    Class { name: "medium", request: 10 << 10, answer: 5 << 10, pieces: 5, rate: 100.0 },
    Class { name: "large", request: 100 << 10, answer: 50 << 10, pieces: 20, rate: 25.0 },
];

pub fn table(effort: &Effort) -> Result<Table> {
    let testbed = Testbed::new(effort.pin)?.with_provider()?;
    let arms = peers::start(if effort.full { &ARMS } else { &SHORT }, &effort.arms, &testbed);
    let title = "streamed answers of a fake Anthropic API through interception, TLS on both legs, direct with the same connection policy";
    let mut session = Session::new("llm-mitm", title, &testbed, arms, effort);
    for class in CLASSES.iter().filter(|c| effort.full || c.name != "medium") {
        let exchanges = exchanges(&testbed, class)?;
        for (policy, new_connection) in [("new connection", true), ("kept alive", false)] {
            let what = format!(
                "POST of {} B, answer of {} B in {} pieces 1 ms apart, {}/s, open loop, {policy}",
                class.request, class.answer, class.pieces, class.rate
            );
            session.case(&format!("{} {policy}", class.name), &what, Kind::Latency, |arm| {
                let seconds = if effort.full { 30.0 } else { effort.seconds.max(2.0) };
                Some(Spec {
                    seconds,
                    new_connection,
                    ..spec(effort, arm.tls?, exchanges.clone(), Pace::Open(class.rate))
                })
            });
        }
    }
    for class in [&CLASSES[0], &CLASSES[2]] {
        let exchanges = exchanges(&testbed, class)?;
        ceiling(&mut session, class.name, |arm, via, rate| {
            let seconds = if effort.full { 10.0 } else { 1.2 };
            let certificate = intercepted(&testbed, arm);
            Spec {
                seconds,
                new_connection: true,
                certificate,
                ..spec(effort, via, exchanges.clone(), Pace::Open(rate))
            }
        });
    }
    events(&mut session, &testbed)?;
    Ok(session.finish())
}

/// Every arm but the direct one and the relay opens TLS here.
fn intercepted(testbed: &Testbed, arm: &Arm) -> Option<Certificate> {
    (arm.name != "direct" && arm.name != RELAY).then(|| Certificate::NotOrigin(testbed.path("leaf.pem")))
}

/// A closed or open loop of LLM requests over TLS.
pub(super) fn spec(effort: &Effort, via: Via, exchanges: Vec<Exchange>, pace: Pace) -> Spec {
    let headers = [
        ("Content-Type", "application/json"),
        ("x-api-key", "sk-ant-fake"),
        ("anthropic-version", "2023-06-01"),
        ("User-Agent", "interflow-bench"),
    ];
    Spec {
        via,
        tls: true,
        version: Version::H1,
        exchanges,
        headers: headers.map(|(n, v)| (n.into(), v.into())).into(),
        login: None,
        pace,
        new_connection: false,
        resume_tls: false,
        cancel_every: 0,
        certificate: None,
        warm_up: effort.warm_up(),
        seconds: effort.seconds,
        threads: 1,
    }
}

/// One exchange per session; what must come back is what the provider says directly.
fn exchanges(testbed: &Testbed, class: &Class) -> Result<Vec<Exchange>> {
    let path = format!("/v1/messages?size={}&chunks={}&gap=1", class.answer, class.pieces);
    let mut made = Vec::new();
    for session in 0..SESSIONS {
        let body = testbed.path(&format!("{}-{session}.json", class.name));
        fs::write(&body, question(session, class.request))?;
        let expected = testbed.path(&format!("{}-{session}.sse", class.name));
        fs::write(&expected, reference(testbed, &path, &body)?)?;
        let authority = format!("localhost:{}", testbed.llm().port());
        made.push(Exchange {
            authority,
            path: path.clone(),
            body: Some(body),
            headers: Vec::new(),
            check: Check::File(expected),
        });
    }
    Ok(made)
}

/// A valid Messages request of about `size` bytes: a history of turns within a session.
fn question(session: usize, size: usize) -> String {
    let mut messages = Vec::new();
    let mut body = String::new();
    for turn in 0.. {
        let role = if turn % 2 == 0 { "user" } else { "assistant" };
        let missing = size.saturating_sub(body.len()).clamp(40, 2000);
        let text: String = format!("Turn {turn} of session {session}: ")
            .chars()
            .chain("lorem ipsum dolor sit amet ".chars().cycle())
            .take(missing)
            .collect();
        messages.push(json!({ "role": role, "content": text }));
        body = json!({
            "model": "fake-large",
            "max_tokens": 1024,
            "stream": true,
            "metadata": { "user_id": format!("user_bench_account__session_{session:08}") },
            "messages": messages,
        })
        .to_string();
        if role == "user" && body.len() + 100 >= size {
            break;
        }
    }
    body
}

/// What the provider answers without any proxy.
fn reference(testbed: &Testbed, path: &str, body: &PathBuf) -> Result<Vec<u8>> {
    let answer = ask(testbed.llm(), &format!("POST {path}"), &["x-api-key: k"], &fs::read(body)?)?;
    if answer.status == 200 { Ok(answer.body.into()) } else { Err(answer.text().into()) }
}

/// Doubles the rate until it is no longer held, then halves the gap between the last held and the first not held.
fn ceiling(session: &mut Session<'_>, class: &str, spec: impl Fn(&Arm, Via, f64) -> Spec) {
    let name = format!("{class} ceiling");
    if !session.effort.wants(&name) {
        return;
    }
    eprintln!("  {name}");
    let mut rows = Vec::new();
    for arm in session.arms.iter().filter(|a| a.name != RELAY) {
        let Some(via) = arm.tls else { continue };
        let mut row = Row { arm: arm.name.clone(), ..Row::default() };
        let (mut held, mut lost) = (0.0, f64::INFINITY);
        let mut rate = 100.0;
        let closeness = if session.effort.full { 1.05 } else { 1.2 };
        while lost / f64::max(held, 1.0) > closeness && rate < 40_000.0 {
            if holds(session.testbed, arm, session, &spec(arm, via, rate), rate, &mut row) {
                held = rate;
            } else {
                lost = rate;
            }
            rate = if lost.is_finite() { (held + lost) / 2.0 } else { rate * 2.0 };
            if lost < 2.0 {
                break;
            }
        }
        row.ceiling = Some(held);
        rows.push(row);
    }
    let what = "open loop, new connection per request; the highest rate with less than 2 % errors and at least 95 % of the answers in time";
    session.push(&name, what, Kind::Ceiling, rows);
}

fn holds(testbed: &Testbed, arm: &Arm, session: &Session<'_>, spec: &Spec, rate: f64, row: &mut Row) -> bool {
    let mut probe = Row::default();
    one_run(testbed, arm, session.origin, spec, &mut probe);
    let Some(run) = probe.runs.pop() else { return false };
    let (ok, errors) = (run.outcome.ok as f64, run.outcome.errors as f64);
    row.runs.push(run);
    errors < 0.02 * (ok + errors) && ok >= 0.95 * rate * spec.seconds
}

/// Many slow streams whose events carry their send time.
fn events(session: &mut Session<'_>, testbed: &Testbed) -> Result<()> {
    let body = testbed.path("events.json");
    fs::write(&body, question(0, 1 << 10))?;
    let (events, gap, size) = (20, 50, 2000);
    let path = format!("/v1/messages?size={size}&chunks={events}&gap={gap}&stamp=1");
    let bytes = reference(testbed, &path, &body)?.len();
    for n in [200, 1000] {
        let name = format!("{n} slow streams");
        if n > 200 && !session.effort.wants_long(&name) {
            continue;
        }
        let exchange = Exchange {
            authority: format!("localhost:{}", testbed.llm().port()),
            path: path.clone(),
            body: Some(body.clone()),
            headers: Vec::new(),
            check: Check::Stamped { bytes: Some(bytes), events },
        };
        let effort = session.effort;
        let what =
            format!("{n} streams at a time, {events} events {gap} ms apart, kept alive: age of each event on arrival");
        session.case(&name, &what, Kind::Events, |arm| {
            let seconds = if effort.full && n == 1000 { effort.seconds.max(120.0) } else { effort.seconds.max(3.0) };
            let certificate = intercepted(testbed, arm);
            Some(Spec {
                seconds,
                warm_up: 2.0,
                certificate,
                ..spec(effort, arm.tls?, vec![exchange.clone()], Pace::Closed(n))
            })
        });
    }
    Ok(())
}
