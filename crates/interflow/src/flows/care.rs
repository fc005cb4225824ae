//! Keeping the store in order: `prune`, `check`, `stats`, `tag`, `count`.

use std::io::Write as _;
use std::ops::ControlFlow;

use interflow_flow::{Direction, Timestamp};
use interflow_query::{Expr, Key, Op, Query, Test, Time, TimePoint};
use interflow_record::formats::text::size;
use interflow_record::{Annotation, Store, StoreStats};

use super::api::Api;
use super::progress::Progress;
use super::writing::Writing;
use super::{PruneArgs, QueryArgs, TagArgs, open, print_json, written};
use crate::Failure;
use crate::ca::confirmed;
use crate::config::Config;
use crate::counted::counted;
use crate::home::Home;

/// Deletes flows, after a question.
pub fn prune(args: &PruneArgs, config: &Config, home: &Home) -> Result<(), Failure> {
    let mut query = open::query(&args.select.query)?;
    if let Some(age) = args.older {
        let before = Timestamp::now().micros().saturating_sub(age.0.as_micros() as u64);
        let point = TimePoint::At { start: before, lasts: 1 };
        query = query.and(Expr::term(Key::Time, Test::Time(Time::Compare(Op::Lt, point))).into());
    }
    match (query.is_all(), args.all) {
        (true, false) => {
            return Err(Failure::Usage("which flows? give a query, --older AGE, or --all".into()));
        }
        (false, true) => return Err(Failure::Usage("--all and a query contradict each other".into())),
        _ => {}
    }
    let found = selected(&open::for_reading(config, home)?, &query)?;
    if found == 0 {
        anstream::eprintln!("no flow is selected");
        return Ok(());
    }
    if !args.yes {
        confirmed(&format!("{} will be deleted with all bodies.", counted(found, "flow")))?;
    }
    let pruned = Writing::open(config, home)?.prune(&query)?;
    written(writeln!(anstream::stdout(), "{} deleted", counted(pruned, "flow")))
}

/// Counts flows; where bodies are looked into, with several threads and a bar.
fn selected(store: &dyn Store, query: &Query) -> Result<u64, Failure> {
    if ![Direction::Request, Direction::Response].into_iter().any(|side| query.wants_body(side)) {
        return Ok(store.count(query)?);
    }
    let progress = std::sync::Mutex::new(Progress::new("searching"));
    let mut n = 0;
    store.search(
        query,
        &|p| {
            if let Ok(mut progress) = progress.lock() {
                progress.at(p.looked, p.total);
            }
            ControlFlow::Continue(())
        },
        &mut |_| {
            n += 1;
            ControlFlow::Continue(())
        },
    )?;
    Ok(n)
}

/// Prints how many flows a query selects.
pub fn count(store: &dyn Store, args: &QueryArgs) -> Result<(), Failure> {
    let n = selected(store, &open::query(&args.query)?)?;
    written(writeln!(anstream::stdout(), "{n}"))
}

/// Verifies the store.
pub fn check(store: &dyn Store, json: bool) -> Result<(), Failure> {
    let mut progress = Progress::new("checking");
    let report = store.check(&mut |done, of| progress.at(done, of))?;
    drop(progress);
    if json {
        print_json(&report)?;
    } else {
        let mut out = anstream::stdout().lock();
        let bytes = size(report.bytes);
        let told = report.problems.iter().try_for_each(|p| writeln!(out, "{p}"));
        written(told.and_then(|()| {
            writeln!(out, "{}, {}, {bytes} verified", counted(report.flows, "flow"), counted(report.chunks, "chunk"))
        }))?;
    }
    match report.problem_count {
        0 => Ok(()),
        n => Err(Failure::Failed(format!("{n} problems; what is sound can still be read and exported"))),
    }
}

/// Prints figures of the store; those of the recorder too where an instance runs.
pub fn stats(json: bool, config: &Config, home: &Home) -> Result<(), Failure> {
    if let Some(api) = Api::of(home)? {
        let stats = api.get("/stats")?;
        if json {
            return print_json(&stats);
        }
        if let Some(store) = stats["store"].as_object() {
            let mut out = anstream::stdout().lock();
            return written(store.iter().try_for_each(|(name, value)| match value.as_u64() {
                Some(n) => writeln!(out, "{:<16} {}", name.replace('_', " "), figure(name, n)),
                None if value.is_null() => Ok(()),
                None => writeln!(out, "{name:<16} {value}"),
            }));
        }
    }
    let stats = open::for_reading(config, home)?.stats()?;
    if json { print_json(&stats) } else { figures(&stats) }
}

fn figures(stats: &StoreStats) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    let lines = [
        ("flows", stats.flows),
        ("segments", stats.segments),
        ("segment_bytes", stats.segment_bytes),
        ("database_bytes", stats.database_bytes),
    ];
    written(lines.iter().try_for_each(|(name, n)| writeln!(out, "{:<16} {}", name.replace('_', " "), figure(name, *n))))
}

fn figure(name: &str, n: u64) -> String {
    if name.ends_with("_bytes") { size(n) } else { n.to_string() }
}

/// Changes tags and comment.
pub fn tag(args: &TagArgs, config: &Config, home: &Home) -> Result<(), Failure> {
    if args.tags.is_empty() && args.comment.is_none() {
        return Err(Failure::Usage("which tags? `flows tag ID slow` puts one on, --remove takes it off".into()));
    }
    if let Some(bad) = args.tags.iter().find(|t| t.is_empty() || t.contains(char::is_control)) {
        return Err(Failure::Usage(format!("`{}` is no tag", bad.escape_default())));
    }
    let id = open::find(&open::for_reading(config, home)?, &args.id)?.id;
    let (add_tags, remove_tags) =
        if args.remove { (Vec::new(), args.tags.clone()) } else { (args.tags.clone(), Vec::new()) };
    Writing::open(config, home)?.annotate(id, Annotation { add_tags, remove_tags, comment: args.comment.clone() })
}
