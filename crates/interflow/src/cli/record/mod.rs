//! `interflow record`: whole recordings.

mod archive;
mod copy;

use clap::Subcommand;
use interflow_host::data_dir::DataDir;

use crate::Result;
use crate::instance::config::InterflowConfig;

#[derive(Debug, Subcommand)]
pub enum RecordCommand {
    /// Copy all flows of one recording to another, without those that are there already: an interrupted copy is begun again.
    Copy(copy::CopyArgs),
    /// Write the hours that are over as Parquet files to object storage (`record.archive`).
    ///
    /// Continues where the last run ended, by hand or of the running instance; what is archived is not written again.
    Archive(archive::RecordArchiveArgs),
}

pub fn run(command: &RecordCommand, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    match command {
        RecordCommand::Copy(args) => copy::run(args, config, home),
        RecordCommand::Archive(args) => archive::run(args, config, home),
    }
}
