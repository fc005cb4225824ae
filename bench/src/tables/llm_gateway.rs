//! Table `llm-gateway`: gateways to LLM providers: what they add to the latency of a request at a fixed rate, what they carry at
//! most, and what they need for it, with each of their features; and a thousand streams at a time.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::Result;
use crate::load::spec::{Check, Exchange, Pace, Spec};
use crate::peers::{self, Arm, BLOCKED_WORDS, portkey};
use crate::tables::redact::{PLANTED, sightings};
use crate::tables::{Effort, Kind, Row, Session, Table, llm_mitm, one_run};
use crate::testbed::{Testbed, ask};
use crate::upstreams::{Api, EVENTS, UPSTREAMS, Upstream};

/// Requests per second that every arm carries with ease.
const RATE: f64 = 25.0;
/// Connections of the closed loop.
const USERS: usize = 16;
const STREAMS: usize = 1000;
/// Different requests of a case, and of one whose responses come from a cache.
const QUESTIONS: usize = 50;
const CACHED_QUESTIONS: usize = 4;
/// What every question holds, and the answers repeat.
const TEXT: &str = "minutes of the last meeting";

const PLAIN: &[&str] = &["gateway", "portkey", "litellm"];
const STREAMING: &[&str] = &["gateway", "litellm"];
/// With and without what a team uses: a key, a budget, guardrails, redaction and the recording.
const LARGE: &[&str] = &["gateway", "gateway+redact-new", "gateway+all", "portkey", "litellm"];
const EVERYTHING: &[&str] = &["gateway", "gateway+all"];
const REDACTING: &[&str] = &["gateway+redact", "gateway+redact-new", "litellm+mask"];
const GUARDED: &[&str] = &["gateway+guardrails", "gateway+heuristics", "litellm+guardrails"];
const CACHING: &[&str] = &["gateway+cache", "litellm+cache"];

/// What must hold for an arm of the case, besides its answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    Nothing,
    /// The planted number does not reach the provider.
    Redacted,
    /// A request with a forbidden word is refused.
    Guarded,
    /// The provider is hardly asked: in 1 % of the requests, or a few times by caches that are not filled yet.
    Cached,
}

struct Case {
    name: &'static str,
    arms: &'static [&'static str],
    client: Api,
    upstream: &'static str,
    proof: Proof,
    /// Tokens of the prompt, at four bytes each.
    tokens: usize,
}

/// A chat, in tokens.
const CHAT: usize = 500;

const CASES: [Case; 10] = [
    Case {
        name: "pass-through, openai",
        arms: PLAIN,
        client: Api::Chat,
        upstream: "chat",
        proof: Proof::Nothing,
        tokens: CHAT,
    },
    Case {
        name: "pass-through, anthropic",
        arms: PLAIN,
        client: Api::Messages,
        upstream: "messages",
        proof: Proof::Nothing,
        tokens: CHAT,
    },
    Case {
        name: "translation, anthropic to openai",
        arms: PLAIN,
        client: Api::Messages,
        upstream: "chat",
        proof: Proof::Nothing,
        tokens: CHAT,
    },
    Case {
        name: "translation, openai to anthropic",
        arms: PLAIN,
        client: Api::Chat,
        upstream: "messages",
        proof: Proof::Nothing,
        tokens: CHAT,
    },
    Case {
        name: "redaction",
        arms: REDACTING,
        client: Api::Chat,
        upstream: "chat",
        proof: Proof::Redacted,
        tokens: CHAT,
    },
    Case {
        name: "guardrails",
        arms: GUARDED,
        client: Api::Chat,
        upstream: "chat",
        proof: Proof::Guarded,
        tokens: CHAT,
    },
    Case {
        name: "key, budget, guardrails, redaction and recording",
        arms: EVERYTHING,
        client: Api::Chat,
        upstream: "chat",
        proof: Proof::Nothing,
        tokens: CHAT,
    },
    Case {
        name: "10K tokens",
        arms: LARGE,
        client: Api::Chat,
        upstream: "chat",
        proof: Proof::Nothing,
        tokens: 10_000,
    },
    Case {
        name: "100K tokens",
        arms: LARGE,
        client: Api::Chat,
        upstream: "chat",
        proof: Proof::Nothing,
        tokens: 100_000,
    },
    Case { name: "cache hit", arms: CACHING, client: Api::Chat, upstream: "chat", proof: Proof::Cached, tokens: CHAT },
];

const STREAM_CASES: [Case; 2] = [
    Case {
        name: "1000 streams",
        // Redaction and guardrails hold text back and join events, so that their ages could not be told.
        arms: STREAMING,
        client: Api::Chat,
        upstream: "slow-chat",
        proof: Proof::Nothing,
        tokens: CHAT,
    },
    Case {
        name: "1000 streams, translated",
        arms: STREAMING,
        client: Api::Messages,
        upstream: "slow-chat",
        proof: Proof::Nothing,
        tokens: CHAT,
    },
];

impl Case {
    /// Its name with JSON answers and with streams.
    fn names(&self) -> [(bool, String); 2] {
        [(false, self.name.into()), (true, format!("{}, stream", self.name))]
    }

    fn what(&self, stream: bool) -> String {
        let (client, upstream) = match (self.client, self.upstream) {
            (Api::Chat, "chat") => ("Chat Completions", ""),
            (Api::Messages, "messages") => ("Messages", ""),
            (Api::Chat, _) => ("Chat Completions", " at a provider of Messages"),
            (Api::Messages, _) => ("Messages", " at a provider of Chat Completions"),
        };
        let answer = if stream { format!("an answer in {EVENTS} events at once") } else { "a JSON answer".into() };
        let more = match self.proof {
            Proof::Nothing => String::new(),
            Proof::Redacted => "; the request holds a number that must not reach the provider".into(),
            Proof::Guarded => format!(
                "; {} words and two expressions are blocked in requests and answers; heuristics: prompt injection and jailbreaks too",
                BLOCKED_WORDS.len()
            ),
            Proof::Cached => format!("; {CACHED_QUESTIONS} requests whose answers are cached"),
        };
        format!(
            "{client}{upstream}, requests of {} KB, {answer}{more}; latency at {RATE}/s in an open loop, the rest in a closed loop of {USERS} connections",
            self.tokens * 4 / 1000
        )
    }
}

pub fn table(effort: &Effort) -> Result<Table> {
    let testbed = Testbed::new(effort.pin)?.with_provider_watching(&[PLANTED])?;
    let arms = peers::start(&wanted_arms(effort), &effort.arms, &testbed);
    let title = "gateways to LLM providers with each of their features, TLS on both legs, a fake provider; gateway is Interflow without redaction";
    let mut session = Session::new("llm-gateway", title, &testbed, arms, effort);
    for case in &CASES {
        for (stream, name) in case.names() {
            if effort.wants(&name) {
                measure_case(&mut session, &testbed, case, stream, &name)?;
            }
        }
    }
    for case in STREAM_CASES.iter().filter(|c| effort.wants(c.name)) {
        streams(&mut session, &testbed, case)?;
    }
    Ok(session.finish())
}

/// The arms of the cases that are measured; each takes memory, and some a minute to start.
fn wanted_arms(effort: &Effort) -> Vec<&'static str> {
    let wanted = |case: &&Case| case.names().iter().any(|(_, name)| effort.wants(name)) || effort.wants(case.name);
    CASES.iter().chain(&STREAM_CASES).filter(wanted).flat_map(|case| case.arms).copied().collect()
}

/// Each arm in a closed loop and at a fixed rate, one arm after the other, as often as asked.
fn measure_case(session: &mut Session<'_>, testbed: &Testbed, case: &Case, stream: bool, name: &str) -> Result<()> {
    eprintln!("  {name}");
    let bodies = if case.proof == Proof::Cached { CACHED_QUESTIONS } else { QUESTIONS };
    let bodies = questions(testbed, case, stream, bodies)?;
    let effort = session.effort;
    let mut planned: Vec<(&Arm, Spec, Row)> = Vec::new();
    for arm in session.arms.iter().filter(|a| a.name == "direct" || case.arms.contains(&a.name.as_str())) {
        let Some(spec) = spec(testbed, effort, arm, case, stream, &bodies) else { continue };
        let mut row = Row { arm: arm.name.clone(), ..Row::default() };
        if arm.name != "direct" {
            row.failure = prepare(session, case, arm, &spec).err().map(|e| e.to_string());
        }
        planned.push((arm, spec, row));
    }
    for _ in 0..effort.repeats {
        for (arm, spec, row) in planned.iter_mut().filter(|(_, _, row)| row.failure.is_none()) {
            let before = testbed.provider_stats()?;
            let mut closed = Row::default();
            let seconds = (effort.seconds * 0.6).max(1.5);
            one_run(testbed, arm, session.origin, &Spec { seconds, ..spec.clone() }, &mut closed);
            row.saturated.append(&mut closed.runs);
            row.failure = closed.failure;
            if row.failure.is_none() {
                let seconds = effort.seconds.max(3.0);
                let open = Spec { seconds, pace: Pace::Open(RATE), ..spec.clone() };
                one_run(testbed, arm, session.origin, &open, row);
            }
            if row.failure.is_none() && arm.name != "direct" {
                row.failure = disproof(testbed, case, &before, row)?;
            }
        }
    }
    let rows = planned.into_iter().map(|(_, _, row)| row).collect();
    session.push(name, &case.what(stream), Kind::Gateway, rows);
    Ok(())
}

/// Fills caches, and sees that guardrails are there.
fn prepare(session: &Session<'_>, case: &Case, arm: &Arm, spec: &Spec) -> Result<()> {
    let mut row = Row::default();
    one_run(session.testbed, arm, session.origin, &Spec { seconds: 2.0, ..spec.clone() }, &mut row);
    if let Some(failure) = row.failure {
        return Err(failure.into());
    }
    if case.proof != Proof::Guarded {
        return Ok(());
    }
    let exchange = spec.exchanges.first().ok_or("no request")?;
    let fields: Vec<String> = spec.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    let body = fs::read_to_string(exchange.body.as_ref().ok_or("no body")?)?.replace(TEXT, BLOCKED_WORDS[0]);
    let Some(crate::load::spec::Via::Reverse(addr)) = arm.tls else { return Err("not a gateway".into()) };
    match ask(addr, &format!("POST {}", exchange.path), &fields, body.as_bytes())?.status {
        200 => Err("a forbidden word passed".into()),
        _ => Ok(()),
    }
}

/// Why the last runs of a row do not count, from what the provider received meanwhile.
fn disproof(testbed: &Testbed, case: &Case, before: &serde_json::Value, row: &Row) -> Result<Option<String>> {
    let after = testbed.provider_stats()?;
    Ok(match case.proof {
        Proof::Nothing | Proof::Guarded => None,
        Proof::Redacted => {
            let seen = sightings(&after)? - sightings(before)?;
            (seen > 0).then(|| format!("the planted number reached the provider in {seen} requests"))
        }
        Proof::Cached => {
            let asked = after["requests"].as_u64().unwrap_or(0) - before["requests"].as_u64().unwrap_or(0);
            let answered: u64 = row.saturated.last().iter().chain(&row.runs.last()).map(|r| r.outcome.answered).sum();
            // Each worker of a gateway has its own cache, and a connection may be the first of its worker.
            (asked > (2 * USERS as u64).max(answered / 100))
                .then(|| format!("{asked} of {answered} requests reached the provider"))
        }
    })
}

/// Chats with a provider of Chat Completions.
pub(super) fn chats(testbed: &Testbed, stream: bool) -> Result<Vec<PathBuf>> {
    questions(testbed, &CASES[0], stream, QUESTIONS)
}

/// The same through the gateway of an arm that is a proxy besides and requires a virtual key.
pub(super) fn call_with_key(
    testbed: &Testbed,
    effort: &Effort,
    arm: &Arm,
    chats: &[PathBuf],
    stream: bool,
) -> Option<Spec> {
    let arm = Arm { name: "gateway+all".into(), tls: arm.gateway, ..Arm::direct() };
    spec(testbed, effort, &arm, &CASES[0], stream, chats)
}

fn spec(testbed: &Testbed, effort: &Effort, arm: &Arm, case: &Case, stream: bool, bodies: &[PathBuf]) -> Option<Spec> {
    let ours = arm.name.starts_with("gateway");
    let path = match (ours, arm.name.as_str()) {
        (true, _) => format!("/{}{}", case.upstream, case.client.path()),
        // What a client of this API gets from a provider that speaks it.
        (false, "direct") => format!("{}{}", native(case)?.prefix(), case.client.path()),
        (false, _) => case.client.path().to_owned(),
    };
    let check = match (stream, case.client) {
        (true, Api::Chat) => Check::Holds("data: [DONE]".into()),
        (true, Api::Messages) => Check::Holds("message_stop".into()),
        // The placeholder that comes back is the number again.
        (false, _) if ours && case.proof == Proof::Redacted => Check::Holds(PLANTED.into()),
        (false, _) => Check::Holds(TEXT.into()),
    };
    let authority = format!("localhost:{}", testbed.llm().port());
    let exchanges = bodies.iter().map(|body| Exchange {
        authority: authority.clone(),
        path: path.clone(),
        body: Some(body.clone()),
        check: check.clone(),
    });
    let mut spec = llm_mitm::spec(effort, arm.tls.or(arm.plain)?, exchanges.collect(), Pace::Closed(USERS));
    spec.tls = arm.tls.is_some();
    let key = (arm.name == "gateway+all").then(|| peers::virtual_key(testbed)).flatten();
    let key = key.unwrap_or_else(|| "sk-fake".into());
    spec.headers.push(("Authorization".into(), format!("Bearer {key}")));
    spec.headers.iter_mut().filter(|(name, _)| name == "x-api-key").for_each(|(_, value)| value.clone_from(&key));
    if arm.name == "portkey" {
        spec.headers.extend(portkey::headers(testbed, UPSTREAMS.iter().find(|u| u.name == case.upstream)?));
    }
    Some(spec)
}

/// The upstream with the same behaviour and the client's API.
fn native(case: &Case) -> Option<&'static Upstream> {
    let slow = case.upstream.starts_with("slow");
    UPSTREAMS.iter().find(|u| u.api == case.client && u.name.starts_with("slow") == slow)
}

/// Different requests: a system prompt, an earlier exchange and a question.
fn questions(testbed: &Testbed, case: &Case, stream: bool, n: usize) -> Result<Vec<PathBuf>> {
    let sentence =
        "The committee went through the list of open questions, one by one, and put off those it could not answer. ";
    let mut paths = Vec::new();
    for i in 0..n {
        let earlier = |turn: &str| {
            let sentences = (case.tokens * 2).saturating_sub(400) / sentence.len();
            let numbered = (0..sentences.max(6)).map(|n| format!("{n}: {sentence}"));
            format!("{turn} of conversation {i}. {}", numbered.collect::<String>())
        };
        let system = format!("You keep the records of committee {i}. Answer in plain English, and briefly.");
        let question = format!("Number {i}: please write down the {TEXT}, for {PLANTED}, in three sentences.");
        let mut messages = vec![
            json!({ "role": "user", "content": earlier("Question") }),
            json!({ "role": "assistant", "content": earlier("Answer") }),
            json!({ "role": "user", "content": question }),
        ];
        let mut body = json!({ "model": case.upstream, "max_tokens": 256, "stream": stream });
        match case.client {
            Api::Chat => messages.insert(0, json!({ "role": "system", "content": system })),
            Api::Messages => body["system"] = system.into(),
        }
        body["messages"] = messages.into();
        let kind = if stream { "streamed" } else { "whole" };
        let path = testbed.path(&format!("question-{kind}-{i}.json"));
        fs::write(&path, body.to_string())?;
        paths.push(path);
    }
    Ok(paths)
}

/// Streams that last ten seconds, all at a time.
fn streams(session: &mut Session<'_>, testbed: &Testbed, case: &Case) -> Result<()> {
    let bodies = questions(testbed, case, true, QUESTIONS)?;
    let effort = session.effort;
    let what = format!(
        "{STREAMS} streams at a time, {EVENTS} events 500 ms apart{}, kept alive: age of each event on arrival",
        if case.client == Api::Chat { "" } else { ", Messages at a provider of Chat Completions" }
    );
    session.case(case.name, &what, Kind::Events, |arm| {
        let taken = arm.name == "direct" || case.arms.contains(&arm.name.as_str());
        let mut spec = taken.then(|| spec(testbed, effort, arm, case, true, &bodies))??;
        for exchange in &mut spec.exchanges {
            exchange.check = Check::Stamped { bytes: None, events: EVENTS };
        }
        Some(Spec { seconds: effort.seconds.max(20.0), pace: Pace::Closed(STREAMS), ..spec })
    });
    Ok(())
}
