//! `interflow audit`: checks the chain of an audit log.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use clap::Subcommand;
use interflow_engine::accounts::verify;

use crate::Failure;

/// The commands on audit logs.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Check that no line was changed, taken out, put in or moved.
    Verify {
        /// The log.
        file: PathBuf,
        /// The secret that its hashes were made with (audit.key): `env:NAME` or `file:PATH`.
        #[arg(long, value_name = "WHERE")]
        key: Option<String>,
    },
}

/// Runs one of them.
pub fn run(command: &AuditCommand) -> Result<(), Failure> {
    let AuditCommand::Verify { file, key } = command;
    let key = key.as_deref().map(interflow_limits::secret).transpose().map_err(Failure::Usage)?;
    let log = File::open(file).map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
    let lines = verify(BufReader::new(log), key.as_deref().map(str::as_bytes))
        .map_err(|e| Failure::Failed(format!("{}: {e}", file.display())))?;
    anstream::println!("{}: {lines} lines, the chain holds", file.display());
    Ok(())
}
