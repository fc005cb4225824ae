//! `interflow record archive`: the archive of the record, by hand.

use clap::Args;
use interflow_archive::text::size;
use interflow_fleet::ArchiveClaim;
use interflow_fleet::hourly::{ArchiveUntil, ArchivedRecord, HourlyArchive, NOW_SLACK};
use interflow_fleet::objects::ObjectUrl;
use interflow_host::data_dir::DataDir;
use interflow_types::Timestamp;
use interflow_types::units::pluralize;
use serde_json::json;

use crate::cli::flows::{ProgressDisplay, open_for_reading};
use crate::cli::output::{FormatArgs, TextFormat};
use crate::components::record_store::RecordStore;
use crate::fleet::access::open_storage;
use crate::fleet::record_archive;
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result};

#[derive(Debug, Args)]
pub struct RecordArchiveArgs {
    /// Up to now: without the wait of `record.archive_delay`, and with the running hour.
    #[arg(long)]
    now: bool,
    /// Another place than `record.archive`: `s3://bucket/prefix`, `gs://…`, `az://…`, `file:///folder`.
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    #[command(flatten)]
    format: FormatArgs<TextFormat>,
}

pub fn run(args: &RecordArchiveArgs, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let (name, url) = match (&args.to, &config.record.archive) {
        (Some(url), _) => ("--to", url),
        (None, Some(url)) => ("record.archive", url),
        (None, None) => {
            let text = "there is no archive: set record.archive, such as \"s3://bucket/prefix\", or give --to URL";
            return Err(CliError::Usage(text.into()));
        }
    };
    let named = |e: String| CliError::Failed(format!("{name}: {e}"));
    let url: ObjectUrl = url.parse().map_err(|e| CliError::Usage(format!("{name}: {e}")))?;
    let storage = open_storage(config, &url).map_err(named)?;
    storage.wait(storage.check()).map_err(|e| named(e.to_string()))?;
    let store = open_for_reading(config, home)?;
    let dir = home.join(&config.record.dir);
    let until = if args.now { ArchiveUntil::Now } else { record_archive::closed_hours(&config.record) };
    if args.now {
        // Flows that have ended by now are archived, too.
        std::thread::sleep(NOW_SLACK);
    }
    let archive_record = |record: ArchivedRecord<'_>| {
        let archive =
            HourlyArchive { record, dir: &dir, storage: &storage, options: record_archive::options(&config.record) };
        let mut progress = ProgressDisplay::new("archiving");
        archive
            .run(Timestamp::now(), until, &mut |cursor| {
                progress.update(cursor.progress().flows, 0);
                true
            })
            .map_err(|e| CliError::Failed(e.to_string()))
    };
    let done = match &store {
        RecordStore::Embedded(store) => archive_record(ArchivedRecord::Embedded(&**store))?,
        RecordStore::Shared(store) => {
            let turn = store.archive_turn(&url.to_string());
            let lease = if turn.claim(ArchiveClaim::Idle)? { turn.begin()? } else { None };
            let Some(lease) = lease else {
                let by = store.archive_state(&url.to_string())?.holder.unwrap_or_else(|| "another replica".into());
                return Err(CliError::Failed(format!("{by} writes the archive at the moment: try again later")));
            };
            let done = archive_record(ArchivedRecord::Shared { store, lease: &lease });
            drop(lease);
            // If this fails, the replicas wait for some seconds.
            let _ = turn.resign();
            done?
        }
    };
    let (flows, files) = (pluralize(done.flows, "flow"), pluralize(done.files, "file"));
    let json = json!({"place": url.to_string(), "flows": done.flows, "files": done.files, "bytes": done.bytes});
    args.format.print(&json, || match done.flows {
        0 => format!("nothing new for {url}\n"),
        _ => format!("{flows} in {files} ({}) to {url}\n", size(done.bytes)),
    })
}
