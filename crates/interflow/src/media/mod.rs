//! `interflow media`: one file per subcommand.

mod decrypt;
mod file;
mod inspect;
mod probe;
mod ts;
mod url;

use std::fs::File;
use std::io::{Read, Stdin};
use std::path::Path;

use clap::Subcommand;
use interflow_media::cenc::KeyRing;

use crate::Failure;
use crate::config::Config;
use crate::home::Home;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum MediaCommand {
    /// Show the boxes of an MP4 file, its tracks, codecs, encryption and key ids.
    Inspect(inspect::InspectArgs),
    /// Say what a file is, which keys it needs, and whether the keys given open it.
    Probe(probe::ProbeArgs),
    /// Decrypt an MP4 file or a media segment with keys that you have.
    Decrypt(decrypt::DecryptArgs),
    /// Make a link for a player, sealed so that nobody can read or change it.
    Url(url::UrlArgs),
}

/// Runs one.
pub fn run(command: &MediaCommand, config: &Config, home: Option<&Path>) -> Result<(), Failure> {
    match command {
        MediaCommand::Inspect(args) => inspect::run(args),
        MediaCommand::Probe(args) => probe::run(args),
        MediaCommand::Decrypt(args) => decrypt::run(args),
        MediaCommand::Url(args) => url::run(args, config, &Home::find(home.or(config.home.as_deref()))?),
    }
}

/// A file, or standard input when it is `-`.
enum Input {
    File(File),
    Stdin(Stdin),
}

impl Input {
    fn open(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self::Stdin(std::io::stdin()));
        }
        File::open(path).map(Self::File).map_err(|e| Failure::Failed(format!("{} cannot be read: {e}", path.display())))
    }
}

impl Read for Input {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::File(f) => f.read(buf),
            Self::Stdin(s) => s.read(buf),
        }
    }
}

/// The keys of the command line.
fn keys(given: &[String]) -> Result<KeyRing, Failure> {
    if given.is_empty() {
        return Ok(KeyRing::default());
    }
    KeyRing::parse(None, &given.join(",")).map_err(|e| Failure::Usage(format!("--key: {e}")))
}
