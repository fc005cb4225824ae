//! `interflow import`: data and configuration of other programs.

#[cfg(feature = "compat")]
mod config;
#[cfg(feature = "compat")]
mod mitmproxy;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use interflow_archive::ArchiveFormat;
use interflow_host::data_dir::DataDir;

use crate::cli::flows::import_archives;
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result};

#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    #[cfg(feature = "compat")]
    /// Convert the configuration of philter-ai-proxy; print the result as TOML.
    Philter(config::ConfigArgs),
    #[cfg(feature = "compat")]
    /// Convert the `config.yaml` of LiteLLM's proxy; print the result as TOML.
    Litellm(config::ConfigArgs),
    #[cfg(feature = "compat")]
    /// Import mitmproxy's recorded flows, or convert its options to a rule file.
    Mitmproxy(mitmproxy::MitmproxyArgs),
    /// Import Fluxzy's recordings: archives (`.fxzy`) or directories.
    Fluxzy(ArchiveArgs),
    /// Import flows from HAR files, as browsers and many proxies export them.
    Har(ArchiveArgs),
    /// Import flows from Fiddler's archives (SAZ).
    Fiddler(ArchiveArgs),
}

#[derive(Debug, Args)]
pub struct ArchiveArgs {
    /// Files; `-` for stdin.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Runs one of the commands. Conversions of configuration need no data directory.
pub fn run(command: &ImportCommand, setup: impl Fn() -> Result<(InterflowConfig, DataDir)>) -> Result<()> {
    let archives = |files: &[PathBuf], format| {
        let (config, home) = setup()?;
        import_archives(files, Some(format), &config, &home)
    };
    match command {
        #[cfg(feature = "compat")]
        ImportCommand::Philter(args) => config::run(args, interflow_compat::philter::import),
        #[cfg(feature = "compat")]
        ImportCommand::Litellm(args) => config::run(args, interflow_compat::litellm::import),
        #[cfg(feature = "compat")]
        ImportCommand::Mitmproxy(args) => setup().and_then(|(config, home)| mitmproxy::run(args, &config, &home)),
        ImportCommand::Fluxzy(args) => {
            if let Some(rules) = args.files.iter().find(|f| is_yaml(f)) {
                let shown = rules.display();
                return Err(CliError::Usage(format!(
                    "{shown} is a rule file, which needs no import: `interflow rules check {shown}` reports what differs \
                     from Fluxzy, and rules.files in the configuration or `interflow run --rules {shown}` uses it"
                )));
            }
            archives(&args.files, ArchiveFormat::Fxzy)
        }
        ImportCommand::Har(args) => archives(&args.files, ArchiveFormat::Har),
        ImportCommand::Fiddler(args) => archives(&args.files, ArchiveFormat::Saz),
    }
}

fn is_yaml(file: &std::path::Path) -> bool {
    file.extension().is_some_and(|e| e.eq_ignore_ascii_case("yaml") || e.eq_ignore_ascii_case("yml"))
}
