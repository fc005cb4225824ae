//! `interflow audit`: shows the audit trail of the admin side, and checks the chain of an audit log.

use std::path::PathBuf;

use clap::Subcommand;
use interflow_admin::audit::shared::newest_of_all;
use interflow_admin::audit::trail::{AuditFiles, AuditFilter, AuditRecord, AuditStore as _};
use interflow_host::data_dir::DataDir;
use interflow_llm_gateway::llm_telemetry::verify;
use interflow_types::units::pluralize;
use serde_json::json;

use super::output::{FormatArgs, TableFormat, TextFormat, format_rows, print_json};
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result, fleet};

/// The commands on audit logs.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// List who looked at contents and who changed what, the latest first.
    List {
        /// Only lines in which this text occurs: a name, an operation, a path, an address.
        #[arg(default_value = "", hide_default_value = true)]
        text: String,
        /// Number of lines.
        #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Only what this replica wrote down, from its own files, where several share a store.
        #[arg(long)]
        local: bool,
        #[command(flatten)]
        format: FormatArgs<TableFormat>,
    },
    /// Verify that no line of the log and of its rotated files was changed, removed, inserted, moved or truncated.
    Verify {
        /// Audit log.
        file: PathBuf,
        /// Secret of the hash chain, as in `audit.key`: `env:NAME` or `file:PATH`.
        #[arg(long, value_name = "SECRET")]
        key: Option<String>,
        /// Accept a copy of the log without its `.head` file, whose end cannot be verified: lines may have been cut off.
        #[arg(long)]
        without_head: bool,
        #[command(flatten)]
        format: FormatArgs<TextFormat>,
    },
}

/// Runs one of them.
pub fn run(command: &AuditCommand, config_and_home: impl FnOnce() -> Result<(InterflowConfig, DataDir)>) -> Result<()> {
    let (file, key, without_head, format) = match command {
        AuditCommand::Verify { file, key, without_head, format } => (file, key, *without_head, format),
        AuditCommand::List { text, limit, local, format } => {
            let (config, home) = config_and_home()?;
            let filter =
                AuditFilter { text: text.to_owned(), before: None, limit: (*limit).max(1), only_local: *local };
            return list(&filter, format, &config, &home);
        }
    };
    let key = key.as_deref().map(interflow_files::resolve_secret_ref).transpose().map_err(CliError::Usage)?;
    let done = verify(file, key.as_deref().map(str::as_bytes)).map_err(|e| CliError::Failed(e.to_string()))?;
    let has_end = done.anchored || done.is_unused || without_head;
    let missing_end = || {
        CliError::Failed(format!(
            "{0}: the end cannot be verified, lines may have been cut off: {0}.head is missing; --without-head accepts a copy \
             without it",
            file.display()
        ))
    };
    if format.is_json() {
        print_json(&json!({
            "files": done.files, "lines": done.lines, "oldest_file": done.oldest, "end_verified": done.anchored,
        }))?;
        return has_end.then_some(()).ok_or_else(missing_end);
    }
    if !has_end {
        return Err(missing_end());
    }
    let more = if done.files > 1 { format!(" in {} files", done.files) } else { String::new() };
    let lines = pluralize(done.lines, "line");
    interflow_host::outln!("{}: {lines}{more}, the hash chain is intact", file.display());
    if done.oldest > 1 {
        interflow_host::outln!("It starts with file {}; older files are missing.", done.oldest);
    }
    if !done.anchored && !done.is_unused {
        interflow_host::outln!("The end cannot be verified: {}.head is missing.", file.display());
    }
    Ok(())
}

/// Reads the files or the shared store themselves, so that the trail can be read without an instance. A running one has
/// written each line within a moment.
fn list(
    filter: &AuditFilter,
    format: &FormatArgs<TableFormat>,
    config: &InterflowConfig,
    home: &DataDir,
) -> Result<()> {
    let shared = if filter.only_local { None } else { fleet::open_identity(config, home)? };
    let records = match &shared {
        Some(shared) => newest_of_all(&*shared.store, filter),
        None => AuditFiles::read_only(&config.admin.audit, home.path()).newest(filter),
    };
    let records = records.map_err(|e| format!("the audit trail cannot be read: {e}"))?;
    format.print(&records, || table(&records, shared.is_some()))
}

fn table(records: &[AuditRecord], is_shared: bool) -> String {
    if records.is_empty() {
        return "no lines\n".to_owned();
    }
    let mut titles = vec!["TIME", "WHO", "ROLE", "FROM", "STATUS", "OPERATION", "TARGET"];
    if is_shared {
        titles.insert(1, "REPLICA");
    }
    let plain = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
    let row = |r: &AuditRecord| {
        let status = r.status.to_string();
        let mut cells = vec![&r.time, &r.actor, &r.role, &r.client_ip, &status, &r.operation, &r.target];
        let replica = r.replica.clone().unwrap_or_default();
        if is_shared {
            cells.insert(1, &replica);
        }
        let printable = |cell: &String| if cell.is_empty() { "-".to_owned() } else { plain(cell) };
        cells.into_iter().map(printable).collect::<Vec<_>>()
    };
    format_rows(&titles, records.iter().map(row), &["FROM", "ROLE", "REPLICA"])
}
