//! `interflow media`: one file per subcommand.

mod decrypt;
mod file;
mod inspect;
mod probe;
mod ts;
mod url;

use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Stdin};
use std::path::Path;

use clap::Subcommand;
use interflow_host::data_dir::DataDir;
use interflow_media::cenc::ContentKeyRing;

use crate::instance::config::InterflowConfig;
use crate::{CliError, Result};

#[derive(Debug, Subcommand)]
pub enum MediaCommand {
    /// Show the boxes, tracks, codecs, encryption and key IDs of an MP4 file.
    Inspect(inspect::InspectArgs),
    /// Identify a file, the keys it needs, and whether the given keys decrypt it.
    Probe(probe::ProbeArgs),
    /// Decrypt an MP4 file or a media segment with your keys.
    Decrypt(decrypt::DecryptArgs),
    /// Create a sealed link for a player; it can be neither read nor modified.
    Url(url::UrlArgs),
}

/// Runs one of the commands. Only links need the configuration.
pub fn run(command: &MediaCommand, setup: impl Fn() -> Result<(InterflowConfig, DataDir)>) -> Result<()> {
    match command {
        MediaCommand::Inspect(args) => inspect::run(args),
        MediaCommand::Probe(args) => probe::run(args),
        MediaCommand::Decrypt(args) => decrypt::run(args),
        MediaCommand::Url(args) => setup().and_then(|(config, home)| url::run(args, &config, &home)),
    }
}

/// A file, or stdin for `-`.
enum MediaInput {
    File(File),
    Stdin(Stdin),
}

impl MediaInput {
    fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdin(std::io::stdin()));
        }
        File::open(path).map(Self::File).map_err(|e| unreadable(path, &e))
    }
}

impl Read for MediaInput {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::File(f) => f.read(buf),
            Self::Stdin(s) => s.read(buf),
        }
    }
}

fn unreadable(path: &Path, e: &std::io::Error) -> CliError {
    CliError::Failed(format!("{} cannot be read: {e}", path.display()))
}

fn failed(path: &Path, e: &dyn Display) -> CliError {
    CliError::Failed(format!("{}: {e}", path.display()))
}

/// Parses the keys given on the command line.
fn keys(given: &[String]) -> Result<ContentKeyRing> {
    if given.is_empty() {
        return Ok(ContentKeyRing::default());
    }
    ContentKeyRing::parse(None, &given.join(",")).map_err(|e| CliError::Usage(format!("--key: {e}")))
}
