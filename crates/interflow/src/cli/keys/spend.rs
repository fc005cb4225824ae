//! `interflow keys spend`: reports from the ledger, by the running instance if there is one, so that nothing is missing.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use interflow_admin::{OfflineDeps, SpendReportFn};
use interflow_host::data_dir::DataDir;
use interflow_limits::{SpendError, SpendQuery, SpendReport, UsageSums};

use super::parquet::to_parquet;
use crate::cli::operations::{OperationId, operations};
use crate::cli::output::{FormatArgs, OutputFormat, format_table};
use crate::components::spend_ledger;
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result, fleet};

#[derive(Debug, Args)]
pub struct SpendArgs {
    /// Columns, separated by commas: key, user, team, organisation, provider, model, day, month, tag or tag:NAME.
    #[arg(long, default_value = "key")]
    by: String,
    /// First day (UTC): `2026-11-01` or `2026-11` [default: the first of the month].
    #[arg(long, value_name = "DAY")]
    since: Option<String>,
    /// Last day (UTC), included: `2026-11-30` or `2026-11` [default: today].
    #[arg(long, value_name = "DAY")]
    until: Option<String>,
    #[command(flatten)]
    format: FormatArgs<SpendFormat>,
    /// Write to this file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SpendFormat {
    /// Table with a sum.
    Table,
    /// One JSON document.
    Json,
    /// CSV with a header.
    Csv,
    /// Parquet, into the file of `--output`.
    Parquet,
}

impl OutputFormat for SpendFormat {
    const JSON: Self = Self::Json;
}

/// The text to print, unless it was written to a file.
pub fn run(args: &SpendArgs, config: &InterflowConfig, home: &DataDir) -> Result<Option<String>> {
    let query = SpendQuery::parse(Some(&args.by), args.since.as_deref(), args.until.as_deref())
        .map_err(|e| CliError::Usage(format!("--{e}")))?;
    let open = || Ok(OfflineDeps { spend: Some(spend_report(config, home)?), ..OfflineDeps::default() });
    let call = OperationId::Spend.call().query("by", &args.by).query("since", query.since).query("until", query.until);
    let report = operations(config, home, open)?.call(&call)?;
    let report =
        serde_json::from_value(report).map_err(|e| format!("the running instance answered in another form: {e}"))?;
    let text = match args.format.get() {
        SpendFormat::Table => table(&report),
        SpendFormat::Json => serde_json::to_string_pretty(&report).map_err(|e| e.to_string())? + "\n",
        SpendFormat::Csv => report.to_csv(),
        SpendFormat::Parquet => {
            let Some(path) = &args.output else {
                return Err(CliError::Usage("--format parquet is not text: name a file with --output".into()));
            };
            write(path, &to_parquet(&report).map_err(|e| format!("the report cannot be written as Parquet: {e}"))?)?;
            return Ok(None);
        }
    };
    let Some(path) = &args.output else { return Ok(Some(text)) };
    write(path, text.as_bytes())?;
    Ok(None)
}

/// Reports from the ledger in the data directory, or in the database of the replicas.
fn spend_report(config: &InterflowConfig, home: &DataDir) -> Result<SpendReportFn> {
    let Some(store) = fleet::open_spend(config)? else {
        let folder = home.join("spend");
        return Ok(Box::new(move |query| SpendReport::read(&folder, query).map_err(SpendError::File)));
    };
    let ledger = spend_ledger(config, home, Some(store));
    Ok(Box::new(move |query| ledger.report(query)))
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    Ok(std::fs::write(path, content).map_err(|e| format!("{} cannot be written: {e}", path.display()))?)
}

fn table(report: &SpendReport) -> String {
    if report.rows.is_empty() {
        return format!("nothing was spent from {} to {}\n", report.since, report.until);
    }
    let figures = |sums: &UsageSums, dollars: f64| {
        let unpriced =
            if sums.unpriced > 0 { format!("{} requests without a price", sums.unpriced) } else { String::new() };
        let numbers = [sums.requests, sums.input_tokens, sums.output_tokens].map(|n| n.to_string());
        [&numbers[..], &[format!("{dollars:.4}"), unpriced]].concat()
    };
    let header = ["REQUESTS", "INPUT", "OUTPUT", "USD", ""].map(str::to_owned);
    let mut rows = vec![report.by.iter().map(|by| by.to_uppercase()).chain(header).collect::<Vec<_>>()];
    rows.extend(report.rows.iter().map(|row| {
        let group = report.by.iter().map(|by| row.group.get(by).cloned().unwrap_or_else(|| "-".into()));
        group.chain(figures(&row.sums, row.dollars)).collect()
    }));
    let mut sum = vec![String::new(); report.by.len()];
    sum[0] = "TOTAL".into();
    sum.extend(figures(&report.total.sums, report.total.dollars));
    rows.push(sum);
    format_table(&rows, &["INPUT", "OUTPUT"])
        + if report.all_replicas { "These are the sums of all replicas.\n" } else { "" }
}
