//! Store maintenance: `prune`, `check`, `stats`, `tag`, `count`.

use std::io::Write as _;
use std::ops::ControlFlow;

use interflow_admin::OperationId;
use interflow_archive::text::size;
use interflow_host::data_dir::DataDir;
use interflow_host::pluralize::pluralize;
use interflow_host::{InstanceApi, confirmed};
use interflow_query::{CompareOp, Expr, Key, Query, TermTest, TimePoint, TimeTest};
use interflow_store::{FlowStore, StoreStats};
use interflow_types::{Direction, Timestamp};

use super::progress::ProgressDisplay;
use super::store_access::StoreAccess;
use super::{CountArgs, PruneArgs, TagArgs, open};
use crate::CliError;
use crate::cli::operations::Operations as _;
use crate::cli::output::{ignore_broken_pipe, print_json};
use crate::instance::config::InterflowConfig;

/// Deletes flows after confirmation.
pub fn prune(args: &PruneArgs, config: &InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    let mut query = open::query_to_delete(&args.query)?;
    if let Some(age) = args.older {
        let before = Timestamp::now().micros().saturating_sub(age.0.as_micros() as u64);
        let point = TimePoint::At { start: before, lasts: 1 };
        query = query.and(Expr::term(Key::Time, TermTest::Time(TimeTest::Compare(CompareOp::Lt, point))).into());
    }
    match (query.is_all(), args.all) {
        (true, false) => {
            return Err(CliError::Usage("no flows selected: give a query, --older AGE or --all".into()));
        }
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
    let pruned = StoreAccess::open(config, home)?.prune(&query)?;
    ignore_broken_pipe(writeln!(interflow_host::terminal::stdout(), "{} deleted", pluralize(pruned, "flow")))
}

/// Counts flows; if bodies are searched, with several threads and a progress bar.
fn count_selected(store: &dyn FlowStore, query: &Query) -> Result<u64, CliError> {
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
pub fn count(store: &dyn FlowStore, args: &CountArgs) -> Result<(), CliError> {
    let n = count_selected(store, &open::query(&args.select.query)?)?;
    if args.format.is_json() {
        return print_json(&serde_json::json!({"flows": n}));
    }
    ignore_broken_pipe(writeln!(interflow_host::terminal::stdout(), "{n}"))
}

/// Verifies the store.
pub fn check(store: &dyn FlowStore, json: bool) -> Result<(), CliError> {
    let mut progress = ProgressDisplay::new("checking");
    let report = store.check(&mut |done, of| progress.update(done, of))?;
    drop(progress);
    if json {
        print_json(&report)?;
    } else {
        let mut out = interflow_host::terminal::stdout();
        let bytes = size(report.bytes);
        let written = report.problems.iter().try_for_each(|p| writeln!(out, "{p}"));
        ignore_broken_pipe(written.and_then(|()| {
            writeln!(
                out,
                "{}, {}, {bytes} verified",
                pluralize(report.flows, "flow"),
                pluralize(report.chunks, "chunk")
            )
        }))?;
    }
    match report.problem_count {
        0 => Ok(()),
        n => Err(CliError::Failed(format!("{n} problems; intact flows can still be read and exported"))),
    }
}

/// Prints store statistics, and recorder statistics if an instance is running.
pub fn stats(json: bool, config: &InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    if let Some(api) = InstanceApi::for_instance(home)? {
        let stats = api.call(&OperationId::Stats.call())?;
        if json {
            return print_json(&stats);
        }
        if let Some(store) = stats["store"].as_object() {
            let mut out = interflow_host::terminal::stdout();
            return ignore_broken_pipe(store.iter().try_for_each(|(name, value)| match value.as_u64() {
                Some(n) => writeln!(out, "{:<16} {}", name.replace('_', " "), format_figure(name, n)),
                None if value.is_null() => Ok(()),
                None => writeln!(out, "{name:<16} {value}"),
            }));
        }
    }
    let stats = open::open_for_reading(config, home)?.stats()?;
    if json { print_json(&stats) } else { print_figures(&stats) }
}

fn print_figures(stats: &StoreStats) -> Result<(), CliError> {
    let mut out = interflow_host::terminal::stdout();
    let lines = [
        ("flows", stats.flows),
        ("segments", stats.segments),
        ("segment_bytes", stats.segment_bytes),
        ("database_bytes", stats.database_bytes),
    ];
    ignore_broken_pipe(
        lines
            .iter()
            .try_for_each(|(name, n)| writeln!(out, "{:<16} {}", name.replace('_', " "), format_figure(name, *n))),
    )
}

fn format_figure(name: &str, n: u64) -> String {
    if name.ends_with("_bytes") { size(n) } else { n.to_string() }
}

/// Changes tags and comment.
pub fn tag(args: &TagArgs, config: &InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    let change = args.change.annotation("flows tag ID slow")?;
    let id = open::find(&*open::open_for_reading(config, home)?, &args.id)?.id;
    StoreAccess::open(config, home)?.annotate(id, change)
}
