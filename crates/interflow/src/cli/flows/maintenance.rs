//! Store maintenance: `prune`, `check`, `stats`, `tag`, `count`.

use std::io::Write as _;
use std::ops::ControlFlow;

use interflow_archive::text::size;
use interflow_host::data_dir::DataDir;
use interflow_host::{InstanceApi, confirmed};
use interflow_query::{CompareOp, Expr, Key, Query, TermTest, TimePoint, TimeTest};
use interflow_store::FlowStore;
use interflow_types::units::pluralize;
use interflow_types::{Direction, Timestamp};
use serde_json::{Value, json};

use super::progress::ProgressDisplay;
use super::{CountArgs, PruneArgs, TagArgs, open};
use crate::cli::operations::{OperationId, Operations as _, on_recording};
use crate::cli::output::{FormatArgs, TextFormat, ignore_broken_pipe, print_json};
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result};

/// Deletes flows after confirmation.
pub fn prune(args: &PruneArgs, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let mut query = open::query_to_delete(&args.query)?;
    if let Some(age) = args.older {
        let before = Timestamp::now().micros().saturating_sub(age.0.as_micros() as u64);
        let point = TimePoint::At { start: before, lasts: 1 };
        query = query.and(Expr::term(Key::Time, TermTest::Time(TimeTest::Compare(CompareOp::Lt, point))).into());
    }
    match (query.is_all(), args.all) {
        (true, false) => return Err(CliError::Usage("no flows selected: give a query, --older AGE or --all".into())),
        (false, true) => return Err(CliError::Usage("--all cannot be combined with a query".into())),
        _ => {}
    }
    let count = count_selected(&*open::open_for_reading(config, home)?, &query)?;
    if count == 0 {
        interflow_host::errln!("no flow matches");
        return Ok(());
    }
    if !args.yes {
        confirmed(&format!("{} will be deleted with all bodies.", pluralize(count, "flow")))?;
    }
    let prune = OperationId::PruneFlows.call().body(json!({"query": query.to_string(), "all": query.is_all()}));
    let pruned = on_recording(config, home)?.call(&prune)?["pruned"].as_u64().unwrap_or_default();
    ignore_broken_pipe(writeln!(interflow_host::terminal::stdout(), "{} deleted", pluralize(pruned, "flow")))
}

/// Counts flows; if bodies are searched, with several threads and a progress bar.
fn count_selected(store: &dyn FlowStore, query: &Query) -> Result<u64> {
    if ![Direction::Request, Direction::Response].into_iter().any(|side| query.wants_body(side)) {
        return Ok(store.count(query)?);
    }
    let progress = std::sync::Mutex::new(ProgressDisplay::new("searching"));
    let mut n = 0;
    store.search(
        query,
        &|p| {
            if let Ok(mut progress) = progress.lock() {
                progress.update(p.looked, p.total);
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

/// Prints the number of flows that a query selects.
pub fn count(store: &dyn FlowStore, args: &CountArgs) -> Result<()> {
    let n = count_selected(store, &open::query(&args.select.query)?)?;
    args.format.print(&json!({"flows": n}), || format!("{n}\n"))
}

/// Verifies the store.
pub fn check(store: &dyn FlowStore, format: &FormatArgs<TextFormat>) -> Result<()> {
    let mut progress = ProgressDisplay::new("checking");
    let report = store.check(&mut |done, of| progress.update(done, of))?;
    drop(progress);
    format.print(&report, || {
        let problems: String = report.problems.iter().map(|p| format!("{p}\n")).collect();
        let (flows, chunks) = (pluralize(report.flows, "flow"), pluralize(report.chunks, "chunk"));
        format!("{problems}{flows}, {chunks}, {} verified\n", size(report.bytes))
    })?;
    match report.problem_count {
        0 => Ok(()),
        n => Err(CliError::Failed(format!("{n} problems; intact flows can still be read and exported"))),
    }
}

/// Prints store statistics, and recorder statistics if an instance is running.
pub fn stats(json: bool, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    if let Some(api) = InstanceApi::for_instance(home)? {
        let stats = api.call(&OperationId::Stats.call())?;
        if json {
            return print_json(&stats);
        }
        if let Some(store) = stats["store"].as_object() {
            return print_figures(store.iter());
        }
    }
    let stats = open::open_for_reading(config, home)?.stats()?;
    if json {
        return print_json(&stats);
    }
    let stats = serde_json::to_value(stats).unwrap_or_default();
    // The others are those of a recorder.
    let is_of_files = |name: &str| ["flows", "segments", "segment_bytes", "database_bytes"].contains(&name);
    print_figures(stats.as_object().into_iter().flatten().filter(|(name, _)| is_of_files(name)))
}

fn print_figures<'v>(mut figures: impl Iterator<Item = (&'v String, &'v Value)>) -> Result<()> {
    let mut out = interflow_host::terminal::stdout();
    ignore_broken_pipe(figures.try_for_each(|(name, value)| match value.as_u64() {
        Some(n) if name.ends_with("_bytes") => writeln!(out, "{:<16} {}", name.replace('_', " "), size(n)),
        Some(n) => writeln!(out, "{:<16} {n}", name.replace('_', " ")),
        None if value.is_null() => Ok(()),
        None => writeln!(out, "{name:<16} {value}"),
    }))
}

/// Changes tags and comment.
pub fn tag(args: &TagArgs, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let change = args.change.annotation("flows tag ID slow")?;
    let id = open::find(&*open::open_for_reading(config, home)?, &args.id)?.id;
    on_recording(config, home)?.call(&OperationId::AnnotateFlow.call().path(id).body(change)).map(drop)
}
