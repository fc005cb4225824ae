//! `interflow audit`: shows the audit trail of the admin side, and checks the chain of an audit log.

use std::path::PathBuf;

use clap::Subcommand;
use interflow_admin::admin_audit::{AuditFiles, AuditFilter, AuditRecord, AuditStore as _};
use interflow_host::data_dir::DataDir;
use interflow_host::pluralize::pluralize;
use interflow_llm_gateway::llm_telemetry::verify;
use serde_json::json;

use super::keys::format_table;
use super::output::{FormatArgs, TableFormat, TextFormat, print, print_json};
use crate::CliError;
use crate::instance::config::InterflowConfig;

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
        #[command(flatten)]
        format: FormatArgs<TextFormat>,
    },
}

/// Runs one of them.
pub fn run(
    command: &AuditCommand,
    config_and_home: impl FnOnce() -> Result<(InterflowConfig, DataDir), CliError>,
) -> Result<(), CliError> {
    let (file, key, format) = match command {
        AuditCommand::Verify { file, key, format } => (file, key, format),
        AuditCommand::List { text, limit, format } => {
            let (config, home) = config_and_home()?;
            return list(text, *limit, format.is_json(), &config, &home);
        }
    };
    let key = key.as_deref().map(interflow_files::resolve_secret_ref).transpose().map_err(CliError::Usage)?;
    let done = verify(file, key.as_deref().map(str::as_bytes)).map_err(|e| CliError::Failed(e.to_string()))?;
    if format.is_json() {
        return print_json(&json!({
            "files": done.files, "lines": done.lines, "oldest_file": done.oldest, "end_verified": done.anchored,
        }));
    }
    let more = if done.files > 1 { format!(" in {} files", done.files) } else { String::new() };
    let lines = pluralize(done.lines, "line");
    anstream::println!("{}: {lines}{more}, the hash chain is intact", file.display());
    if done.oldest > 1 {
        anstream::println!("It starts with file {}; older files are missing.", done.oldest);
    }
    if !done.anchored {
        anstream::println!("The end cannot be verified: {}.head is missing.", file.display());
    }
    Ok(())
}

/// Reads the files themselves, so that the trail can be read without an instance. A running one has written each line
/// within a moment.
fn list(text: &str, limit: usize, json: bool, config: &InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    let filter = AuditFilter { text: text.to_owned(), before: None, limit: limit.max(1) };
    let files = AuditFiles::read_only(&config.admin.audit, home.path());
    let records = files.newest(&filter).map_err(|e| format!("the audit trail cannot be read: {e}"))?;
    if json {
        return print_json(&records);
    }
    if records.is_empty() {
        print("no lines\n");
        return Ok(());
    }
    let header = ["TIME", "WHO", "ROLE", "FROM", "STATUS", "OPERATION", "TARGET"].map(str::to_owned).to_vec();
    let plain = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
    let row = |r: &AuditRecord| {
        let cells = [&r.time, &r.actor, &r.role, &r.client_ip, &r.status.to_string(), &r.operation, &r.target];
        cells.map(|cell| if cell.is_empty() { "-".to_owned() } else { plain(cell) }).to_vec()
    };
    print(&format_table(&std::iter::once(header).chain(records.iter().map(row)).collect::<Vec<_>>()));
    Ok(())
}
