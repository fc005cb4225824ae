//! `interflow record copy`: moves a whole recording into a shared store, or back to this machine.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use interflow_files::resolve_secret_ref;
use interflow_fleet::{CopyCounts, PostgresUrl, SharedStore, copy_from_shared, copy_to_shared};
use interflow_host::data_dir::DataDir;
use interflow_query::Query;
use interflow_store::{FlowStore as _, RecordConfig, SqliteStore};
use interflow_types::units::{ByteSize, HumanDuration, pluralize};
use serde_json::json;

use crate::cli::flows::ProgressDisplay;
use crate::cli::output::{FormatArgs, TextFormat};
use crate::fleet::access::access;
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result};

#[derive(Debug, Args)]
pub struct CopyArgs {
    /// The recording to read: a folder such as `record` in the data directory, or a URL of PostgreSQL, also as `env:NAME` or
    /// `file:PATH`.
    from: String,
    /// The recording to write, likewise. One of the two is a folder, and the other a URL.
    to: String,
    /// Where the bodies of the shared store are, if not in the database: `s3://bucket/prefix`, `gs://…`, `az://…`,
    /// `file:///folder` [default: record.objects]
    #[arg(long, value_name = "URL")]
    objects: Option<String>,
    #[command(flatten)]
    format: FormatArgs<TextFormat>,
}

/// A recording that was named on the command line.
enum Place {
    Folder(PathBuf),
    Shared(Box<PostgresUrl>),
}

impl Place {
    fn parse(text: &str, home: &DataDir) -> Result<Self> {
        let resolved = resolve_secret_ref(text).map_err(CliError::Usage)?;
        Ok(match PostgresUrl::is_one(&resolved) {
            true => Self::Shared(Box::new(resolved.parse()?)),
            false => Self::Folder(home.join(PathBuf::from(resolved))),
        })
    }
}

pub fn run(args: &CopyArgs, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let mut bar = ProgressDisplay::new("copying");
    let mut progress = |done, total| {
        bar.update(done, total);
        ControlFlow::Continue(())
    };
    let objects = args.objects.as_deref().or(config.record.objects.as_deref());
    let access = access(config, objects)?;
    let counts = match (Place::parse(&args.from, home)?, Place::parse(&args.to, home)?) {
        (Place::Folder(from), Place::Shared(to)) => {
            let source = SqliteStore::open_read(&from)?;
            warn_of_retention(&source, config)?;
            copy_to_shared(&source, &to, access, &mut progress)?
        }
        (Place::Shared(from), Place::Folder(to)) => {
            // What waits in this machine's spool belongs to the recording too.
            let source = SharedStore::open_read(&from, access, &home.join(&config.record.dir))?;
            // A copy is whole: nothing in it is deleted, however old it is.
            let whole = RecordConfig {
                retention_age: HumanDuration(Duration::ZERO),
                retention_bytes: ByteSize(0),
                ..config.record.clone()
            };
            let target = SqliteStore::open(&to, &whole)?;
            copy_from_shared(&source, &target, &mut progress)?
        }
        _ => {
            let what = "one of the two is a folder, and the other a URL: `interflow record copy record postgres://…`";
            return Err(CliError::Usage(what.into()));
        }
    };
    drop(bar);
    print(counts, &args.format)
}

/// Replicas that record to the shared store delete what is older than their `record.retention_age`, copied or not.
fn warn_of_retention(source: &SqliteStore, config: &InterflowConfig) -> Result<()> {
    let age = config.record.retention_age;
    if age.0.is_zero() {
        return Ok(());
    }
    let query = Query::parse(&format!("time:<-{}s", age.0.as_secs())).map_err(|e| CliError::Failed(e.to_string()))?;
    let old = source.count(&query)?;
    if old > 0 {
        interflow_host::errln!(
            "{} older than record.retention_age ({age}): replicas with this setting delete them from the shared store within \
             minutes; raise it there first to keep them",
            if old == 1 { "1 flow is".to_owned() } else { format!("{old} flows are") }
        );
    }
    Ok(())
}

fn print(counts: CopyCounts, format: &FormatArgs<TextFormat>) -> Result<()> {
    let CopyCounts { copied, present, failed, open, notes } = counts;
    let json = json!({"copied": copied, "present": present, "failed": failed, "open": open, "notes": notes});
    format.print(&json, || {
        let notes =
            if notes > 0 { format!("; {} on conversations copied", pluralize(notes, "note")) } else { String::new() };
        let copied = pluralize(copied, "flow");
        format!("{copied} copied, {present} there already, {open} still running and left out{notes}\n")
    })?;
    match failed {
        0 => Ok(()),
        n => Err(CliError::Failed(format!("{} could not be copied; the log says why", pluralize(n, "flow")))),
    }
}
