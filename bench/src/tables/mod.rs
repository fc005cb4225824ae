//! The tables: which rows are compared, under which load, and how their runs are interleaved.

mod endurance;
mod fleet;
mod forward;
mod llm_gateway;
mod llm_mitm;
mod media;
mod mitm;
pub mod redact;
mod start;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::load::spec::{Check, Exchange, Pace, Spec, Version, Via};
use crate::measure::{Run, measure};
use crate::peers::Arm;
use crate::process::{Running, machine};
use crate::testbed::Testbed;
use crate::{Result, RunArgs};

/// The arm whose store is counted at the end.
const RECORDING: [&str; 2] = ["interflow+record", "interflow+all"];

/// Duration, repetitions and selection of a measurement.
pub struct Effort {
    /// Every case and longer.
    pub full: bool,
    /// Counted seconds of a run.
    pub seconds: f64,
    /// Interleaved repetitions.
    pub repeats: usize,
    /// Only arms whose name holds one of these.
    pub arms: Vec<String>,
    /// Only cases whose name holds this.
    pub case: Option<String>,
    /// Cores are handed out.
    pub pin: bool,
    /// Minutes of the soak.
    pub minutes: f64,
    /// Flows after which memory is looked at.
    pub flows: u64,
    /// Circumstances that a reader must know.
    pub note: Option<String>,
}

impl Effort {
    /// From the command line: 2 x 0.7 s for the short form, 5 x 8 s for the full one.
    pub fn new(args: &RunArgs) -> Self {
        Self {
            full: args.full,
            seconds: args.seconds.unwrap_or(if args.full { 8.0 } else { 0.7 }),
            repeats: args.repeats.unwrap_or(if args.full { 5 } else { 2 }),
            arms: args.arms.clone(),
            case: args.case.clone(),
            pin: args.pin,
            minutes: args.minutes.unwrap_or(if args.full { 30.0 } else { 1.0 }),
            flows: args.flows.unwrap_or(if args.full { 1_000_000 } else { 50_000 }),
            note: args.note.clone(),
        }
    }

    fn wants(&self, case: &str) -> bool {
        self.case.as_ref().is_none_or(|c| case.contains(c.as_str()))
    }

    /// For what takes long or much: in the full form, or asked for by its name.
    fn wants_long(&self, case: &str) -> bool {
        self.wants(case) && (self.full || self.case.as_deref() == Some(case))
    }

    /// The command that makes a table again.
    fn command(&self, table: &str) -> String {
        let mut command = format!("interflow-bench run {table}");
        let mut word = |word: &str| command.push_str(word);
        if self.full {
            word(" --full");
        }
        if !self.arms.is_empty() {
            word(&format!(" --arms {}", self.arms.join(",")));
        }
        if let Some(case) = &self.case {
            word(&format!(" --case \"{case}\""));
        }
        word(&match table {
            "endurance" => format!(" --flows {} --minutes {}", self.flows, self.minutes),
            "start" => format!(" --repeats {}", self.repeats),
            _ => format!(" --seconds {} --repeats {}", self.seconds, self.repeats),
        });
        if self.pin {
            word(" --pin");
        }
        command
    }

    fn warm_up(&self) -> f64 {
        (self.seconds * 0.25).clamp(0.3, 2.0)
    }
}

/// A table's result, as written to `results/NAME.json`.
#[derive(Serialize, Deserialize)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// What it is about, in one sentence.
    pub title: String,
    /// The machine.
    pub machine: String,
    /// When it began (RFC 3339).
    pub began: String,
    /// The commit of the tree.
    pub commit: String,
    /// The command that makes it again.
    pub command: String,
    /// Counted seconds of a run.
    pub seconds: f64,
    /// Interleaved repetitions.
    pub repeats: usize,
    /// Whether proxies had a core of their own.
    pub pinned: bool,
    /// Circumstances that a reader must know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Version of each arm.
    pub versions: BTreeMap<String, String>,
    /// Its cases.
    pub cases: Vec<Case>,
    /// Whether a recording arm lost anything.
    #[serde(default)]
    pub recorded: Option<Recorded>,
}

impl Table {
    /// Takes cases that were measured by themselves into an earlier result of the same table: each in place of the one of its
    /// name, and with a word on its own circumstances.
    pub fn take(&mut self, other: Self) {
        let Self { commit, began, machine, command, .. } = &other;
        let mut apart = format!("By itself: commit {commit}, {began}, {machine}, `{command}`");
        if let Some(recorded) = other.recorded {
            apart += &format!("; {} requests answered, {} flows recorded", recorded.answered, recorded.flows);
        }
        for case in other.cases {
            let case = Case { apart: Some(apart.clone()), ..case };
            match self.cases.iter_mut().find(|c| c.name == case.name) {
                Some(place) => *place = case,
                None => self.cases.push(case),
            }
        }
        self.versions.extend(other.versions);
        self.note = other.note.or(self.note.take());
    }
}

/// What the recording arms kept of what they answered.
#[derive(Default, Serialize, Deserialize)]
pub struct Recorded {
    /// Requests answered as they must be, in all runs of the arms.
    pub answered: u64,
    /// Flows found in their stores after a clean stop; those cut off at the end of a run come on top of the answered ones.
    pub flows: u64,
}

/// Rows that can be compared with one another.
#[derive(Default, Serialize, Deserialize)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// What exactly is sent.
    pub what: String,
    /// What it shows.
    pub kind: Kind,
    /// Its rows.
    pub rows: Vec<Row>,
    /// When, at which commit and how it was measured, where it was measured by itself (`--case`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<String>,
}

/// Which columns matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Requests per second and CPU per request.
    #[default]
    Throughput,
    /// Latency at a fixed rate.
    Latency,
    /// The highest rate that is held, and the latencies on the way.
    Ceiling,
    /// Memory per kept connection.
    Memory,
    /// Delay of stream events.
    Events,
    /// Memory and descriptors over a long time.
    Growth,
    /// Added latency at a fixed rate, and the highest rate of a closed loop with what it takes.
    Gateway,
    /// Figures with names of their own.
    Figures,
}

/// One arm's runs in a case.
#[derive(Default, Serialize, Deserialize)]
pub struct Row {
    /// The arm.
    pub arm: String,
    /// Its runs in order.
    pub runs: Vec<Run>,
    /// Why the row does not count.
    pub failure: Option<String>,
    /// Runs in a closed loop, where `runs` are those at a fixed rate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub saturated: Vec<Run>,
    /// For a ceiling: requests per second held with less than 2 % errors.
    pub ceiling: Option<f64>,
    /// For memory: resident KiB per kept connection.
    pub kib_per_connection: Option<f64>,
    /// For growth: what was seen on the way.
    #[serde(default)]
    pub samples: Vec<Sample>,
    /// Columns of a case of this kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
}

/// A figure with its name and unit.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Figure {
    pub name: String,
    pub value: f64,
    /// Digits behind the point in the report.
    pub digits: usize,
}

/// A look at a process during a long run.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the beginning.
    pub seconds: f64,
    /// Requests answered until then.
    pub flows: u64,
    /// Resident memory in KiB.
    pub rss_kib: u64,
    /// Proportional memory in KiB.
    pub pss_kib: u64,
    /// Open descriptors while no client is connected.
    pub descriptors: usize,
}

/// Makes one table.
pub type Make = fn(&Effort) -> Result<Table>;

/// Every table: its name, what it is about, how it is made.
pub const TABLES: [(&str, &str, Make); 9] = [
    (
        "mitm",
        "plain and intercepted requests: recording, rules, redaction, users, pinned protocols, handshakes",
        mitm::table,
    ),
    (
        "forward",
        "the raw forward proxy: body sizes, tunnels, thousands of connections, memory of idle ones",
        forward::table,
    ),
    (
        "llm-mitm",
        "streamed answers of a fake provider: added latency, highest rate, delay of single events",
        llm_mitm::table,
    ),
    (
        "llm-gateway",
        "gateways to LLM providers: pass-through, translation, redaction, guardrails, cache, a thousand streams",
        llm_gateway::table,
    ),
    ("redact", "the LLM gateway with redaction and restoration; redaction of plain texts", redact::table),
    ("media", "a media file relayed to many viewers", media::table),
    ("start", "from the start to the first connection, memory without work, size of the program", start::table),
    ("endurance", "memory after a million recorded flows; a soak with cancellations and resets", endurance::table),
    ("fleet", "replicas that record into one PostgreSQL: cost, rate, lag, queries, faults", fleet::table),
];

/// Tables that take long: measured when they are named, or in the full form.
const LONG: [&str; 4] = ["endurance", "llm-gateway", "fleet", "start"];

/// The named tables, or all; those that take long only when everything is wanted.
///
/// # Errors
/// On an unknown name.
pub fn chosen(names: &[String], full: bool) -> Result<Vec<Make>> {
    if names.is_empty() {
        return Ok(TABLES.iter().filter(|(name, ..)| full || !LONG.contains(name)).map(|(.., make)| *make).collect());
    }
    let find = |name: &String| {
        let known = TABLES.iter().find(|(n, ..)| n == name).map(|(.., make)| *make);
        known.ok_or_else(|| format!("no table {name:?}; there are {:?}", TABLES.map(|(n, ..)| n)).into())
    };
    names.iter().map(find).collect()
}

/// A table under way: its testbed, its arms, and what has been measured.
struct Session<'a> {
    testbed: &'a Testbed,
    arms: Vec<Arm>,
    origin: Option<&'a Running>,
    effort: &'a Effort,
    table: Table,
}

impl<'a> Session<'a> {
    fn new(name: &str, title: &str, testbed: &'a Testbed, arms: Vec<Arm>, effort: &'a Effort) -> Self {
        let versions =
            arms.iter().filter(|a| !a.version.is_empty()).map(|a| (a.name.clone(), a.version.clone())).collect();
        eprintln!("{name}: {title}");
        let table = Table {
            name: name.into(),
            title: title.into(),
            machine: machine(),
            began: jiff::Timestamp::now().to_string(),
            commit: commit(),
            command: effort.command(name),
            seconds: effort.seconds,
            repeats: effort.repeats,
            pinned: effort.pin,
            note: effort.note.clone(),
            versions,
            cases: Vec::new(),
            recorded: None,
        };
        Self { testbed, arms, origin: testbed.nginx.as_ref().or(testbed.provider.as_ref()), effort, table }
    }

    /// Measures every arm for which there is a spec, one after the other, and that as often as asked: A B C, A B C.
    fn case(&mut self, name: &str, what: &str, kind: Kind, spec: impl Fn(&Arm) -> Option<Spec>) {
        if !self.effort.wants(name) {
            return;
        }
        eprintln!("  {name}");
        let planned: Vec<(&Arm, Spec)> = self.arms.iter().filter_map(|a| Some((a, spec(a)?))).collect();
        let mut rows: Vec<Row> = planned.iter().map(|(a, _)| Row { arm: a.name.clone(), ..Row::default() }).collect();
        for _ in 0..self.effort.repeats {
            for ((arm, spec), row) in planned.iter().zip(&mut rows).filter(|(_, row)| row.failure.is_none()) {
                one_run(self.testbed, arm, self.origin, spec, row);
            }
        }
        self.push(name, what, kind, rows);
    }

    /// Stops the arms, counts what was recorded, and gives the table.
    fn finish(mut self) -> Table {
        let arms: Vec<&str> = RECORDING.into_iter().filter(|name| self.arms.iter().any(|a| a.name == *name)).collect();
        self.arms.clear();
        for arm in arms {
            let rows = self.table.cases.iter().flat_map(|c| &c.rows).filter(|r| r.arm == arm);
            let answered: u64 = rows.flat_map(|r| &r.runs).map(|r| r.outcome.answered).sum();
            match crate::peers::recorded_flows(self.testbed, arm) {
                Ok(flows) => {
                    eprintln!("  {arm}: {answered} answered, {flows} flows recorded");
                    let recorded = self.table.recorded.get_or_insert_default();
                    recorded.answered += answered;
                    recorded.flows += flows;
                }
                Err(e) => eprintln!("  {arm}: the flows cannot be counted: {e}"),
            }
        }
        self.table
    }

    fn push(&mut self, name: &str, what: &str, kind: Kind, rows: Vec<Row>) {
        for row in &rows {
            eprintln!("    {}", crate::report::line(kind, row));
        }
        self.table.cases.push(Case { name: name.into(), what: what.into(), kind, rows, apart: None });
    }
}

/// Adds one run to its row; an error or a run without an answer makes the row fail.
fn one_run(testbed: &Testbed, arm: &Arm, origin: Option<&Running>, spec: &Spec, row: &mut Row) {
    match measure(testbed, arm, origin, spec) {
        Ok(run) => {
            let outcome = &run.outcome;
            if outcome.errors > 0 || outcome.ok == 0 {
                row.failure = Some(format!(
                    "{} errors beside {} answers: {}",
                    outcome.errors,
                    outcome.ok,
                    outcome.messages.first().map_or("no answer", String::as_str)
                ));
            }
            row.runs.push(run);
        }
        Err(e) => row.failure = Some(e.to_string()),
    }
    if matches!(spec.pace, Pace::Closed(connections) if connections >= MANY_CONNECTIONS) {
        origin.inspect(|nginx| nginx.reload());
        std::thread::sleep(Duration::from_secs(3));
    }
}

/// After a run with so many connections those that the proxy keeps open to the origin are closed there: with those of the other arms
/// they would use up this machine's ports (28,232 by default to one address) and the origin's descriptors.
const MANY_CONNECTIONS: usize = 5000;

/// A closed loop of GETs for one fixed body.
fn fixed_body(testbed: &Testbed, effort: &Effort, via: Via, tls: bool, size: usize, concurrency: usize) -> Spec {
    let origin = if tls { testbed.https() } else { testbed.http() };
    Spec {
        via,
        tls,
        version: Version::H1,
        exchanges: vec![Exchange {
            authority: format!("localhost:{}", origin.port()),
            path: format!("/b/{size}"),
            body: None,
            headers: Vec::new(),
            check: Check::File(testbed.body(size)),
        }],
        headers: vec![("User-Agent".into(), "interflow-bench".into()), ("Accept".into(), "*/*".into())],
        login: None,
        pace: Pace::Closed(concurrency),
        new_connection: false,
        resume_tls: false,
        cancel_every: 0,
        certificate: None,
        warm_up: effort.warm_up(),
        seconds: effort.seconds,
        threads: 1,
    }
}

/// A row of figures with their names and digits, or of why there are none.
fn figures_row(arm: &str, failure: Option<&String>, figures: &[(&str, f64, usize)]) -> Row {
    let figures =
        figures.iter().map(|(name, value, digits)| Figure { name: (*name).into(), value: *value, digits: *digits });
    Row { arm: arm.into(), failure: failure.cloned(), figures: figures.collect(), ..Row::default() }
}

fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(commit: &str, cases: &[&str]) -> Table {
        let case = |name: &&str| Case { name: (*name).into(), what: commit.into(), ..Case::default() };
        let json = serde_json::json!({
            "name": "t", "title": "", "machine": "", "began": "now", "commit": commit, "command": "run", "seconds": 1.0,
            "repeats": 1, "pinned": false, "versions": { commit: "1" }, "cases": [],
        });
        Table { cases: cases.iter().map(case).collect(), ..serde_json::from_value(json).unwrap() }
    }

    #[test]
    fn separately_run_case_is_merged_in_its_place() {
        let mut all = table("old", &["a", "b"]);
        all.take(table("new", &["b", "c"]));
        let seen: Vec<_> = all.cases.iter().map(|c| (c.name.as_str(), c.what.as_str(), c.apart.is_some())).collect();
        assert_eq!(seen, [("a", "old", false), ("b", "new", true), ("c", "new", true)]);
        assert_eq!((all.commit.as_str(), all.versions.len()), ("old", 2));
        assert!(all.cases[1].apart.as_ref().unwrap().contains("commit new"));
    }

    #[test]
    fn long_cases_run_in_the_full_form_or_by_their_name() {
        let effort = |full: bool, case: Option<&str>| Effort {
            full,
            seconds: 1.0,
            repeats: 1,
            arms: Vec::new(),
            case: case.map(Into::into),
            pin: false,
            minutes: 1.0,
            flows: 1,
            note: None,
        };
        for (full, case, wanted) in [
            (false, None, false),
            (true, None, true),
            (false, Some("tunnel"), false),
            (true, Some("tunnel"), true),
            (false, Some("tunnel 100 MiB"), true),
            (true, Some("plain"), false),
        ] {
            assert_eq!(effort(full, case).wants_long("tunnel 100 MiB"), wanted, "{full} {case:?}");
        }
    }
}
