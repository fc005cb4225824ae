//! Table `llm-gateway`: gateways to LLM providers: what they add to the latency of a request at a fixed rate, what they carry at
//! most, and what they need for it, with each of their features; and a thousand streams at a time.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::Result;
use crate::load::spec::{Check, Exchange, Pace, Spec};
use crate::peers::{self, Arm, BLOCKED_WORDS, portkey};
use crate::tables::redact::{PLANTED, sightings};
use crate::tables::{Effort, Kind, Row, Session, Table, llm_mitm, one_run};
use crate::testbed::{Role, Testbed, ask};
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

const PLAIN: &[&str] = &["gateway", "agentgateway", "portkey", "litellm"];
const STREAMING: &[&str] = &["gateway", "agentgateway", "litellm"];
/// With and without what a team uses: a key, a budget, guardrails, redaction and the recording.
const LARGE: &[&str] = &["gateway", "gateway+redact-new", "gateway+all", "agentgateway", "portkey", "litellm"];
const WITH_KEYS: &[&str] = &["gateway", "gateway+keys", "gateway+all", "agentgateway", "agentgateway+keys"];
/// LiteLLM knows keys only with a database.
const REFUSING: &[&str] = &["gateway+keys", "gateway+all", "agentgateway+keys"];
const FAILING_OVER: &[&str] = &["gateway", "litellm"];
const BESIDE_LARGE: &[&str] = &["gateway", "gateway+redact-new", "agentgateway", "litellm"];
const REDACTING: &[&str] = &["gateway+redact", "gateway+redact-new", "agentgateway+mask", "litellm+mask"];
const GUARDED: &[&str] = &["gateway+guardrails", "gateway+heuristics", "agentgateway+guardrails", "litellm+guardrails"];
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
    /// Each request has a key of its own that was never made, and is refused; none reaches the provider.
    UnknownKeys,
}

struct Case {
    name: &'static str,
    arms: &'static [&'static str],
    client: Api,
    upstream: &'static str,
    proof: Proof,
    /// Tokens of the prompt, at four bytes each.
    tokens: usize,
    /// What is asked for, when that is no upstream's name.
    model: Option<&'static str>,
    /// Requests offer tools: in turn one that a call answers, and one with the call's result.
    tools: bool,
    /// Connections that meanwhile ask with prompts of 100K tokens.
    large_beside: usize,
}

/// A chat, and a long one, in tokens.
const CHAT: usize = 500;
const LARGE_PROMPT: usize = 100_000;

const BASE: Case = Case {
    name: "",
    arms: PLAIN,
    client: Api::Chat,
    upstream: "chat",
    proof: Proof::Nothing,
    tokens: CHAT,
    model: None,
    tools: false,
    large_beside: 0,
};

const CASES: [Case; 15] = [
    Case { name: "pass-through, openai", ..BASE },
    Case { name: "pass-through, anthropic", client: Api::Messages, upstream: "messages", ..BASE },
    Case { name: "translation, anthropic to openai", client: Api::Messages, ..BASE },
    Case { name: "translation, openai to anthropic", upstream: "messages", ..BASE },
    Case { name: "tool loop", upstream: "chat-tools", tools: true, ..BASE },
    Case { name: "tool loop, anthropic to openai", client: Api::Messages, upstream: "chat-tools", tools: true, ..BASE },
    Case { name: "redaction", arms: REDACTING, proof: Proof::Redacted, ..BASE },
    Case { name: "guardrails", arms: GUARDED, proof: Proof::Guarded, ..BASE },
    Case { name: "key, budget, guardrails, redaction and recording", arms: WITH_KEYS, ..BASE },
    Case { name: "unknown keys", arms: REFUSING, proof: Proof::UnknownKeys, ..BASE },
    Case { name: "failover", arms: FAILING_OVER, model: Some("failover"), ..BASE },
    Case { name: "beside large prompts", arms: BESIDE_LARGE, large_beside: 4, ..BASE },
    Case { name: "10K tokens", arms: LARGE, tokens: 10_000, ..BASE },
    Case { name: "100K tokens", arms: LARGE, tokens: LARGE_PROMPT, ..BASE },
    Case { name: "cache hit", arms: CACHING, proof: Proof::Cached, ..BASE },
];

/// Redaction and guardrails hold text back and join events, so that their ages could not be told.
const STREAM_CASES: [Case; 2] = [
    Case { name: "1000 streams", arms: STREAMING, upstream: "slow-chat", ..BASE },
    Case { name: "1000 streams, translated", arms: STREAMING, client: Api::Messages, upstream: "slow-chat", ..BASE },
];

impl Case {
    /// Its name with JSON answers and with streams.
    fn names(&self) -> Vec<(bool, String)> {
        let whole = (false, self.name.into());
        // A refusal is no stream.
        let streamed = (self.proof != Proof::UnknownKeys).then(|| (true, format!("{}, stream", self.name)));
        [whole].into_iter().chain(streamed).collect()
    }

    fn what(&self, stream: bool) -> String {
        let (client, upstream) = match (self.client, upstream(self.upstream).map(|u| u.api)) {
            (Api::Chat, Some(Api::Messages)) => ("Chat Completions", " at a provider of Messages"),
            (Api::Messages, Some(Api::Chat)) => ("Messages", " at a provider of Chat Completions"),
            (Api::Chat, _) => ("Chat Completions", ""),
            (Api::Messages, _) => ("Messages", ""),
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
            Proof::UnknownKeys => {
                format!(
                    "; {QUESTIONS} keys in turn, none of which exists: all are refused before the provider is asked"
                )
            }
        };
        let more = match (self.model, self.tools, self.large_beside) {
            (Some(_), ..) => format!("{more}; the first deployment answers 503 to every request"),
            (_, true, _) => format!(
                "{more}; four tools are offered: a call of one answers every other request, which the next repeats with its result"
            ),
            (.., n) if n > 0 => format!(
                "{more}; meanwhile {n} connections ask with prompts of {} KB without pause, whose CPU is counted too",
                LARGE_PROMPT * 4 / 1000
            ),
            _ => more,
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
    let large = Case { tokens: LARGE_PROMPT, ..*case };
    let beside = (case.large_beside > 0).then(|| questions(testbed, &large, stream, 4)).transpose()?;
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
            let _beside = beside.as_ref().map(|bodies| load_beside(testbed, case, spec, bodies)).transpose()?;
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

/// A generator that asks with these prompts until it is dropped.
fn load_beside(testbed: &Testbed, case: &Case, spec: &Spec, bodies: &[PathBuf]) -> Result<Background> {
    let exchange = spec.exchanges.first().ok_or("no request")?;
    let exchanges = bodies.iter().map(|body| Exchange { body: Some(body.clone()), ..exchange.clone() }).collect();
    let spec = Spec { exchanges, seconds: 600.0, pace: Pace::Closed(case.large_beside), ..spec.clone() };
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("load").arg(serde_json::to_string(&spec)?);
    Ok(Background(testbed.placed(command, Role::Around).stdout(Stdio::null()).spawn()?))
}

struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
fn disproof(testbed: &Testbed, case: &Case, before: &Value, row: &Row) -> Result<Option<String>> {
    let after = testbed.provider_stats()?;
    Ok(match case.proof {
        Proof::Nothing | Proof::Guarded => None,
        Proof::Redacted => {
            let seen = sightings(&after)? - sightings(before)?;
            (seen > 0).then(|| format!("the planted number reached the provider in {seen} requests"))
        }
        Proof::UnknownKeys => {
            let asked = after["requests"] != before["requests"];
            asked.then(|| "requests with unknown keys reached the provider".to_owned())
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
    let arm = Arm { name: arm.name.clone(), tls: arm.gateway, ..Arm::direct() };
    spec(testbed, effort, &arm, &CASES[0], stream, chats)
}

fn spec(testbed: &Testbed, effort: &Effort, arm: &Arm, case: &Case, stream: bool, bodies: &[PathBuf]) -> Option<Spec> {
    let ours = ["gateway", "interflow"].iter().any(|name| arm.name.starts_with(name));
    let path = match (ours, arm.name.as_str()) {
        (true, _) => format!("/{}{}", case.upstream, case.client.path()),
        // What a client of this API gets from a provider that speaks it.
        (false, "direct") => format!("{}{}", native(case)?.prefix(), case.client.path()),
        (false, _) => case.client.path().to_owned(),
    };
    let check = match (stream, case.client) {
        _ if case.proof == Proof::UnknownKeys && arm.name != "direct" => Check::Refused,
        // Every other answer is a call.
        (false, _) if case.tools => Check::Holds("\"model\"".into()),
        (true, Api::Chat) => Check::Holds("data: [DONE]".into()),
        (true, Api::Messages) => Check::Holds("message_stop".into()),
        // The placeholder that comes back is the number again.
        (false, _) if ours && case.proof == Proof::Redacted => Check::Holds(PLANTED.into()),
        (false, _) => Check::Holds(TEXT.into()),
    };
    let authority = format!("localhost:{}", testbed.llm().port());
    let key = peers::virtual_key(testbed, &arm.name).unwrap_or_else(|| "sk-fake".into());
    let known = |key: String| ("Authorization".into(), format!("Bearer {key}"));
    let is_unknown = matches!(check, Check::Refused);
    // As long as the real one, and like it but for its end.
    let unknown = |i: usize| known(format!("{}{i:03}", &key[..key.len() - 3]));
    let exchanges = bodies.iter().enumerate().map(|(i, body)| Exchange {
        authority: authority.clone(),
        path: path.clone(),
        body: Some(body.clone()),
        headers: is_unknown.then(|| unknown(i)).into_iter().collect(),
        check: check.clone(),
    });
    let mut spec = llm_mitm::spec(effort, arm.tls.or(arm.plain)?, exchanges.collect(), Pace::Closed(USERS));
    spec.tls = arm.tls.is_some();
    spec.headers.extend((!is_unknown).then(|| known(key.clone())));
    spec.headers.retain(|(name, _)| !is_unknown || name != "x-api-key");
    spec.headers.iter_mut().filter(|(name, _)| name == "x-api-key").for_each(|(_, value)| value.clone_from(&key));
    if arm.name == "portkey" {
        spec.headers.extend(portkey::headers(testbed, upstream(case.upstream)?));
    }
    Some(spec)
}

fn upstream(name: &str) -> Option<&'static Upstream> {
    UPSTREAMS.iter().find(|u| u.name == name)
}

/// The upstream with the same behaviour and the client's API.
fn native(case: &Case) -> Option<&'static Upstream> {
    let prefix = upstream(case.upstream)?.prefix();
    UPSTREAMS.iter().find(|u| u.api == case.client && u.prefix() == prefix)
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
        let mut body = json!({ "model": case.model.unwrap_or(case.upstream), "max_tokens": 256, "stream": stream });
        match case.client {
            Api::Chat => messages.insert(0, json!({ "role": "system", "content": system })),
            Api::Messages => body["system"] = system.into(),
        }
        if case.tools {
            body["tools"] = tools(case.client).into();
            messages.extend((i % 2 == 1).then(|| call_and_result(case.client, i)).into_iter().flatten());
        }
        body["messages"] = messages.into();
        let kind = if stream { "streamed" } else { "whole" };
        let path = testbed.path(&format!("question-{kind}-{}-{i}.json", case.tokens));
        fs::write(&path, body.to_string())?;
        paths.push(path);
    }
    Ok(paths)
}

/// Four tools of a coding agent.
fn tools(client: Api) -> Vec<Value> {
    let texts = [
        ("read_file", "Reads a file of the workspace; returns its text, with line numbers, or an error."),
        ("list_files", "Lists the files below a folder of the workspace, one per line."),
        ("search", "Searches the workspace for a regular expression; returns at most 100 matching lines."),
        ("run_command", "Runs a command in a shell of the workspace; returns its output and its exit status."),
    ];
    let schema = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "description": "A path relative to the root of the workspace" },
            "pattern": { "type": "string", "description": "A regular expression" },
            "limit": { "type": "integer", "minimum": 1, "maximum": 1000 },
        },
        "required": ["path"],
    });
    let tool = |(name, description)| match client {
        Api::Messages => json!({ "name": name, "description": description, "input_schema": schema }),
        Api::Chat => json!({
            "type": "function",
            "function": { "name": name, "description": description, "parameters": schema },
        }),
    };
    texts.into_iter().map(tool).collect()
}

/// The call of a tool, and what it returned: 1 KB of source code.
fn call_and_result(client: Api, i: usize) -> [Value; 2] {
    let id = format!("call_{i}");
    let text = "    let total = entries.iter().map(|entry| entry.size).sum::<u64>();\n".repeat(15);
    match client {
        Api::Chat => {
            let function = json!({ "name": "read_file", "arguments": "{\"path\":\"src/main.rs\"}" });
            let call = json!({ "id": id, "type": "function", "function": function });
            [
                json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
                json!({ "role": "tool", "tool_call_id": id, "content": text }),
            ]
        }
        Api::Messages => {
            let call = json!({ "type": "tool_use", "id": id, "name": "read_file", "input": { "path": "src/main.rs" } });
            let result = json!({ "type": "tool_result", "tool_use_id": id, "content": text });
            [json!({ "role": "assistant", "content": [call] }), json!({ "role": "user", "content": [result] })]
        }
    }
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
