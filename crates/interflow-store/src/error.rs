//! What can go wrong with a store.

use std::path::PathBuf;

use interflow_types::FlowId;

/// The result of whatever touches a store.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// An error of a store; none of them ends the traffic.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process writes this store.
    #[error("the store in {0} is being written by another process; stop that one, or open it for reading")]
    Busy(PathBuf),
    /// There is no store to read.
    #[error("there is no store in {0}; nothing has been recorded there yet")]
    Absent(PathBuf),
    /// A later version wrote it.
    #[error("the store has schema version {found}, this build knows up to {known}; use the newer build")]
    Newer {
        /// The version in the store.
        found: i64,
        /// The version of this build.
        known: i64,
    },
    /// An earlier version wrote it, and it is opened for reading only.
    #[error("the store has schema version {found}, this build writes {known}; `interflow run` brings it forward")]
    Older {
        /// The version in the store.
        found: i64,
        /// The version of this build.
        known: i64,
    },
    /// SQLite said no.
    #[error("the store's database: {0}")]
    Sql(#[from] rusqlite::Error),
    /// The disk said no.
    #[error("{what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Bytes on disk are not what was written.
    #[error("{place} is damaged: {what}; `interflow flows check` lists everything that is")]
    Damaged {
        /// Segment and offset, or the row.
        place: String,
        /// What is wrong with it.
        what: String,
    },
    /// No flow of this id.
    #[error("no flow {0} is recorded")]
    NotFound(FlowId),
    /// Messages that new ones go on from have been deleted: it must be read anew.
    #[error("messages of the conversation {0} were deleted meanwhile")]
    Stale(String),
    /// The store was opened for reading.
    #[error("the store was opened for reading only")]
    ReadOnly,
    /// The writer has ended.
    #[error("the store is closed")]
    Closed,
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// The process's budget of held bytes has not enough left for reading.
    #[error("{}", .0.message())]
    Overloaded(interflow_types::Error),
    /// The disk is full or otherwise refuses to be written.
    #[error("recording is suspended: {0}")]
    Suspended(String),
}

impl StoreError {
    /// Whether the disk is full, or refuses for another reason of its own.
    pub fn is_disk(&self) -> bool {
        use rusqlite::ErrorCode::{CannotOpen, DiskFull, ReadOnly, SystemIoFailure};
        match self {
            Self::Sql(rusqlite::Error::SqliteFailure(e, _)) => {
                matches!(e.code, DiskFull | SystemIoFailure | CannotOpen | ReadOnly)
            }
            Self::Io { .. } | Self::Suspended(_) => true,
            _ => false,
        }
    }

    /// Whether the database's file is not what SQLite wrote.
    pub(crate) fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match self {
            Self::Sql(rusqlite::Error::SqliteFailure(e, _)) => matches!(e.code, DatabaseCorrupt | NotADatabase),
            Self::Damaged { place, .. } => place == "flows.db",
            _ => false,
        }
    }

    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    pub(crate) fn damaged(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Damaged { place: place.into(), what: what.into() }
    }
}
