//! `interflow import`: data and configuration of other programs.

mod greyproxy;
mod philter;

use clap::Subcommand;
use interflow_host::data_dir::DataDir;

use crate::CliError;
use crate::instance::config::InterflowConfig;

#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// Import Greyproxy's database: rules, credentials, recorded traffic and conversations. The database is not modified;
    /// existing data is kept.
    Greyproxy(greyproxy::GreyproxyArgs),
    /// Convert the configuration of philter-ai-proxy; print the result as TOML.
    Philter(philter::PhilterArgs),
}

/// Converts the configuration of philter-ai-proxy, which needs no data directory.
pub fn run_philter(args: &philter::PhilterArgs) -> Result<(), CliError> {
    philter::run(args)
}

/// Runs one of the commands.
pub fn run(command: &ImportCommand, config: &InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    match command {
        ImportCommand::Greyproxy(args) => greyproxy::run(args, config, home),
        ImportCommand::Philter(args) => philter::run(args),
    }
}
