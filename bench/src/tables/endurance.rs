//! Table `endurance`: what stays behind. Memory after a great many recorded flows, and a soak with cancellations and resets in
//! which memory and descriptors must stay flat.

use std::time::{Duration, Instant};

use crate::Result;
use crate::load::spec::{Certificate, Spec};
use crate::measure::measure;
use crate::peers::{self, Arm};
use crate::tables::{Effort, Kind, Row, Sample, Session, Table, fixed_body, llm_gateway};
use crate::testbed::Testbed;

const ARMS: [&str; 3] = ["interflow", "interflow+record", "interflow+all"];

/// Looks on the way to the number of flows.
const LOOKS: u64 = 10;
/// Memory at the end may be so much larger than after the first quarter,
const RSS_GROWTH: f64 = 1.25;
/// and so many KiB besides: caches with a bound fill up for a while.
const RSS_ROOM: f64 = 16.0 * 1024.0;
/// Descriptors without clients may be so many more than after the first quarter.
const SPARE_DESCRIPTORS: usize = 64;
/// Before descriptors are counted, connections that clients left get this long to end.
const REST: Duration = Duration::from_secs(2);

pub fn table(effort: &Effort) -> Result<Table> {
    let testbed = Testbed::new(effort.pin)?.with_nginx(&[71, 8192, 128 << 10])?.with_provider()?;
    let arms = peers::start(&ARMS, &effort.arms, &testbed);
    let title = "memory and descriptors over many flows and a long time";
    let mut session = Session::new("endurance", title, &testbed, arms, effort);
    let what = format!("{} GETs of 71 bytes over http://, 16 connections, then rest", effort.flows);
    long(&mut session, "flows", &what, |arm, spent| {
        let more = spent.flows < effort.flows;
        let seconds = (effort.flows / LOOKS) as f64 / 30_000.0;
        more.then(|| Some(Spec { seconds: seconds.clamp(0.5, 60.0), ..load(&testbed, effort, arm, 71, false)? }))
            .flatten()
    });
    let questions = [llm_gateway::chats(&testbed, false)?, llm_gateway::chats(&testbed, true)?];
    let what = format!(
        "{} minutes of plain and intercepted requests, kept alive and each on a new connection; every tenth is broken off \
         before or within its answer, by a close or a reset; then rest. Arm `interflow+all` has rules, redaction, \
         guardrails, a virtual key with a budget and the recording, and gets LLM calls, whole and streamed, too",
        effort.minutes
    );
    long(&mut session, "soak", &what, |arm, spent| {
        let turn = spent.looks % if arm.gateway.is_some() { 6 } else { 4 };
        // What records all of it would fill the disk with large pages.
        let size = if turn < 2 || arm.gateway.is_some() { 8192 } else { 128 << 10 };
        let spec = match turn {
            4.. => llm_gateway::call_with_key(&testbed, effort, arm, &questions[turn - 4], turn == 5)?,
            _ => load(&testbed, effort, arm, size, turn % 2 == 1)?,
        };
        let seconds = (effort.minutes * 60.0 / 16.0).clamp(1.0, 15.0);
        let spec = Spec { cancel_every: 10, new_connection: turn == 3, seconds, ..spec };
        (spent.time.as_secs_f64() < effort.minutes * 60.0).then_some(spec)
    });
    Ok(session.finish())
}

/// How far a long run has come.
struct Spent {
    time: Duration,
    flows: u64,
    looks: usize,
}

/// Runs one spec after the other on each arm, as long as there is a next one, and looks at the process at rest behind each.
fn long(session: &mut Session<'_>, name: &str, what: &str, next: impl Fn(&Arm, &Spent) -> Option<Spec>) {
    if !session.effort.wants(name) {
        return;
    }
    eprintln!("  {name}");
    let mut rows = Vec::new();
    for arm in session.arms.iter().filter(|a| a.running.is_some()) {
        let mut row = Row { arm: arm.name.clone(), ..Row::default() };
        let began = Instant::now();
        let mut spent = Spent { time: Duration::ZERO, flows: 0, looks: 0 };
        while let Some(spec) = next(arm, &spent) {
            if let Err(why) = step(session, arm, &spec, &mut row, &mut spent) {
                row.failure = Some(why.to_string());
                break;
            }
            spent.time = began.elapsed();
            row.samples.push(look(arm, &spent));
            spent.looks += 1;
        }
        row.failure = row.failure.or_else(|| grown(&row.samples));
        rows.push(row);
    }
    session.push(name, what, Kind::Growth, rows);
}

fn step(session: &Session<'_>, arm: &Arm, spec: &Spec, row: &mut Row, spent: &mut Spent) -> Result<()> {
    let run = measure(session.testbed, arm, session.origin, spec)?;
    let outcome = &run.outcome;
    if outcome.errors > 0 || outcome.ok == 0 {
        let message = outcome.messages.first().map_or("no answer", String::as_str);
        return Err(format!("{} errors beside {} answers: {message}", outcome.errors, outcome.ok).into());
    }
    spent.flows += outcome.answered;
    row.runs.push(run);
    Ok(())
}

fn look(arm: &Arm, spent: &Spent) -> Sample {
    std::thread::sleep(REST);
    let Some(running) = &arm.running else { return Sample::default() };
    let memory = running.memory();
    Sample {
        seconds: spent.time.as_secs_f64(),
        flows: spent.flows,
        rss_kib: memory.rss,
        pss_kib: memory.pss,
        descriptors: running.descriptors(),
    }
}

/// What has grown since the first quarter, when every kind of load had been there.
fn grown(samples: &[Sample]) -> Option<String> {
    let (early, last) = (samples.get(samples.len() / 4)?, samples.last()?);
    if last.rss_kib as f64 > early.rss_kib as f64 * RSS_GROWTH + RSS_ROOM {
        return Some(format!("resident memory grew from {} to {} KiB", early.rss_kib, last.rss_kib));
    }
    (last.descriptors > early.descriptors + SPARE_DESCRIPTORS)
        .then(|| format!("descriptors grew from {} to {}", early.descriptors, last.descriptors))
}

fn load(testbed: &Testbed, effort: &Effort, arm: &Arm, size: usize, tls: bool) -> Option<Spec> {
    let via = if tls { arm.tls? } else { arm.plain? };
    let certificate = tls.then(|| Certificate::NotOrigin(testbed.path("leaf.pem")));
    Some(Spec { certificate, warm_up: 0.2, ..fixed_body(testbed, effort, via, tls, size, 16) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(figures: &[(u64, usize)]) -> Option<String> {
        let samples = figures.iter().map(|(rss_kib, descriptors)| Sample {
            rss_kib: *rss_kib,
            descriptors: *descriptors,
            ..Sample::default()
        });
        grown(&samples.collect::<Vec<_>>())
    }

    #[test]
    fn growth_counts_from_the_first_quarter_on() {
        assert_eq!(seen(&[(10, 10), (100_000, 50), (110_000, 60), (141_000, 100)]), None);
        assert!(
            seen(&[(100, 50), (100_000, 50), (110_000, 50), (142_000, 50)]).is_some_and(|why| why.contains("memory"))
        );
        assert!(seen(&[(100, 50), (100, 50), (100, 50), (100, 115)]).is_some_and(|why| why.contains("descriptors")));
    }
}
