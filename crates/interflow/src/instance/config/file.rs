//! Where the configuration file is: the one that was given, or the one in the data directory.

use std::path::{Path, PathBuf};

use interflow_host::data_dir::DataDir;

use crate::instance::watched_files::FileStamps;

/// The configuration file of a command. It may not exist, unless it was given.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: Option<PathBuf>,
    is_given: bool,
}

impl ConfigFile {
    /// Its name in the data directory.
    const NAME: &str = "interflow.toml";

    /// The given file; otherwise the one in the data directory, which is read if it exists.
    pub fn find(given: Option<&Path>, data_dir: Option<&Path>) -> Self {
        match given {
            Some(path) => Self { path: Some(path.to_owned()), is_given: true },
            // Without a home directory there is no such file; commands that need the directory say so.
            None => Self { path: DataDir::find(data_dir).ok().map(|dir| dir.join(Self::NAME)), is_given: false },
        }
    }

    /// Where it is, or would be.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The file to read. One that was given is read in any case, so that its absence is an error.
    pub fn to_load(&self) -> Option<&Path> {
        self.path().filter(|path| self.is_given || path.exists())
    }

    /// Its version, to be taken before it is loaded. Also of the file in the data directory that does not exist yet.
    pub fn stamps(&self) -> FileStamps {
        FileStamps::take(self.path().filter(|_| !self.is_stdin()).map(Path::to_owned))
    }

    pub fn is_given(&self) -> bool {
        self.is_given
    }

    pub fn is_stdin(&self) -> bool {
        self.path() == Some(Path::new("-"))
    }
}
