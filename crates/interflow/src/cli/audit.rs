//! `interflow audit`: checks the chain of an audit log.

use std::path::PathBuf;

use clap::Subcommand;
use interflow_host::pluralize::pluralize;
use interflow_llm_gateway::llm_telemetry::verify;
use serde_json::json;

use super::output::{FormatArgs, TextFormat, print_json};
use crate::CliError;

/// The commands on audit logs.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
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
pub fn run(command: &AuditCommand) -> Result<(), CliError> {
    let AuditCommand::Verify { file, key, format } = command;
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
