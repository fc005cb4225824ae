//! Where the configuration file is: the one that was given, or the one in the data directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use interflow_host::data_dir::DataDir;

use crate::instance::watched_files::FileStamps;

/// The configuration file of a command. It may not exist, unless it was given.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: Option<PathBuf>,
    is_given: bool,
    /// Whether it has existed when it was to be read.
    has_existed: Arc<AtomicBool>,
}

impl ConfigFile {
    /// Its name in the data directory.
    const NAME: &str = "interflow.toml";

    /// The given file; otherwise the one in the data directory, which is read if it exists.
    pub fn find(given: Option<&Path>, data_dir: Option<&Path>) -> Self {
        // Without a home directory there is no such file; commands that need the directory say so.
        let in_data_dir = || DataDir::find(data_dir).ok().map(|dir| dir.join(Self::NAME));
        let path = given.map(Path::to_owned).or_else(in_data_dir);
        Self { path, is_given: given.is_some(), has_existed: Arc::default() }
    }

    /// Where it is, or would be.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The file to read. One that was given or has existed is read in any case, so that its absence is an error: without
    /// it, all that it protects would be open.
    pub fn to_load(&self) -> Option<&Path> {
        self.path().filter(|path| {
            self.has_existed.fetch_or(path.exists(), Relaxed);
            self.is_given || self.has_existed.load(Relaxed)
        })
    }

    /// Its version, to be taken before it is loaded. Also of the file in the data directory that does not exist yet.
    pub fn stamps(&self) -> FileStamps {
        FileStamps::take(self.path().filter(|_| !self.is_stdin()).map(Path::to_owned))
    }

    pub fn is_given(&self) -> bool {
        self.is_given
    }

    /// The given file, unless it is standard input.
    pub fn given(&self) -> Option<&Path> {
        self.path().filter(|_| self.is_given && !self.is_stdin())
    }

    pub fn is_stdin(&self) -> bool {
        self.path() == Some(Path::new("-"))
    }
}
