//! `interflow audit`: checks the chain of an audit log.

use std::path::PathBuf;

use clap::Subcommand;
use interflow_llm_gateway::llm_telemetry::verify;

use crate::CliError;

/// The commands on audit logs.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Check that no line was changed, taken out, put in, moved or cut off, in the log and the older files beside it.
    Verify {
        /// The log.
        file: PathBuf,
        /// The secret that its hashes were made with (audit.key): `env:NAME` or `file:PATH`.
        #[arg(long, value_name = "WHERE")]
        key: Option<String>,
    },
}

/// Runs one of them.
pub fn run(command: &AuditCommand) -> Result<(), CliError> {
    let AuditCommand::Verify { file, key } = command;
    let key = key.as_deref().map(interflow_files::resolve_secret_ref).transpose().map_err(CliError::Usage)?;
    let done = verify(file, key.as_deref().map(str::as_bytes)).map_err(|e| CliError::Failed(e.to_string()))?;
    let more = if done.files > 1 { format!(" in {} files", done.files) } else { String::new() };
    anstream::println!("{}: {} lines{more}, the hash chain is intact", file.display(), done.lines);
    if done.oldest > 1 {
        anstream::println!("It starts with file {}; older files are missing.", done.oldest);
    }
    if !done.anchored {
        anstream::println!("The end cannot be verified: {}.head is missing.", file.display());
    }
    Ok(())
}
