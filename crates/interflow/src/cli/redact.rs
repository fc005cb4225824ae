//! `interflow redact`: redacts text or JSON.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use interflow_redact::{Policy, RedactionSession, Redactor};

use crate::cli::output::ignore_broken_pipe;
use crate::{CliError, Result};

/// Maximum document size; the document is held in memory.
const MAX_INPUT: u64 = 256 << 20;

#[derive(Debug, Args)]
pub struct RedactArgs {
    /// Redaction policy: Interflow TOML or Phileas JSON [default: built-in policy].
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Print the findings and their reasons as JSON instead of the redacted text. Never prints original values.
    #[arg(long)]
    pub explain: bool,
    /// Input text or JSON; `-` or no argument reads standard input.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Reads a file or stdin and prints the redacted text, or the findings.
pub fn run(args: &RedactArgs) -> Result<()> {
    let redactor = if let Some(path) = &args.policy { Redactor::new(policy(path)?) } else { Redactor::default() };
    let document = read(args.file.as_deref())?;
    let mut session = RedactionSession::one_way();
    let (format, redaction) = redactor
        .redact_document(&document, &mut session)
        .map_err(|e| CliError::Failed(format!("{}: {e}", name(args.file.as_deref()))))?;
    let mut out = interflow_host::terminal::data_stdout();
    ignore_broken_pipe(if args.explain {
        let explanation = redactor.explain(format, &redaction.spans);
        let text = serde_json::to_string_pretty(&explanation).map_err(|e| e.to_string())?;
        writeln!(out, "{text}")
    } else {
        out.write_all(redaction.output.as_deref().unwrap_or(&document))
    })
}

fn policy(path: &Path) -> Result<Policy> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
    Policy::parse(&text).map_err(|e| CliError::Usage(format!("{}: {e}", path.display())))
}

fn read(file: Option<&Path>) -> Result<Vec<u8>> {
    let from_file = file.filter(|f| *f != Path::new("-"));
    let mut document = Vec::new();
    let read = match from_file {
        Some(path) => std::fs::File::open(path).and_then(|f| f.take(MAX_INPUT + 1).read_to_end(&mut document)),
        None => std::io::stdin().lock().take(MAX_INPUT + 1).read_to_end(&mut document),
    };
    read.map_err(|e| format!("{} cannot be read: {e}", name(file)))?;
    if document.len() as u64 > MAX_INPUT {
        return Err(CliError::Failed(format!("{} is larger than 256 MiB: split it", name(file))));
    }
    Ok(document)
}

fn name(file: Option<&Path>) -> String {
    file.map_or_else(|| "standard input".into(), |f| f.display().to_string())
}
