//! The error type of the store.

use std::path::PathBuf;

use interflow_types::FlowId;

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// An error of the store. None of them interrupts proxied traffic: the recorder counts what it cannot write, and
/// commands return the error to their caller.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process holds the writer's lock of this store.
    #[error("the store in {0} is being written by another process; stop that one, or open it for reading")]
    Busy(PathBuf),
    #[error("there is no store in {0}; nothing has been recorded there yet")]
    Absent(PathBuf),
    #[error(
        "the database flows.db is missing in {0}, where bodies of recorded flows are: put it back from a backup; \
         `interflow run` sets the bodies aside and begins a new recording"
    )]
    DatabaseLost(PathBuf),
    #[error("the store has schema version {found}, this build knows up to {known}; use the newer build")]
    Newer { found: i64, known: i64 },
    /// The store was written by an earlier version and is opened read-only, so it cannot be migrated.
    #[error("the store has schema version {found}, this build writes {known}; `interflow run` brings it forward")]
    Older { found: i64, known: i64 },
    #[error("the store's database: {0}")]
    Sql(#[from] rusqlite::Error),
    #[error("{what} {path}: {source}")]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    /// Stored bytes fail verification; `place` is a segment and offset, or a row.
    #[error("{place} is damaged: {what}; `interflow flows check` lists everything that is")]
    Damaged { place: String, what: String },
    #[error("no flow {0} is recorded")]
    NotFound(FlowId),
    /// A replica shows what it knows of a flow that runs at another one; the rest is there.
    #[error("flow {id} runs at the replica {replica}; its bodies and messages can be read here once it has ended")]
    Elsewhere { id: FlowId, replica: String },
    /// Messages that an update builds on have been deleted: the conversation must be read again.
    #[error("messages of the conversation {0} were deleted meanwhile")]
    Stale(String),
    #[error("the store was opened for reading only")]
    ReadOnly,
    /// The writer has stopped, or failed to start.
    #[error("the store is closed")]
    Closed,
    #[error("cancelled")]
    Cancelled,
    /// The process-wide memory budget is exhausted.
    #[error("{}", .0.message())]
    Overloaded(interflow_types::Error),
    /// The shared store refuses values, and would again: they are longer than it takes, or of another form.
    #[error("{0}")]
    Refused(String),
    /// The shared store does not answer, or refuses what it was asked; the message names it and the remedy.
    #[error("{0}")]
    Shared(String),
    /// The disk is full or refuses writes for another reason.
    #[error("recording is suspended: {0}")]
    Suspended(String),
}

impl StoreError {
    /// Whether the disk is full or refuses writes.
    pub fn is_disk(&self) -> bool {
        use rusqlite::ErrorCode::{CannotOpen, DiskFull, ReadOnly, SystemIoFailure};
        match self {
            Self::Sql(rusqlite::Error::SqliteFailure(e, _)) => {
                // Each of them may end without any change to the store: space is freed, or the disk is mounted
                // writable again.
                matches!(e.code, DiskFull | SystemIoFailure | CannotOpen | ReadOnly)
            }
            Self::Io { .. } | Self::Suspended(_) => true,
            _ => false,
        }
    }

    /// Whether SQLite reports a corrupt database file.
    pub(crate) fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match self {
            Self::Sql(rusqlite::Error::SqliteFailure(e, _)) => matches!(e.code, DatabaseCorrupt | NotADatabase),
            Self::Damaged { place, .. } => place == "flows.db",
            _ => false,
        }
    }

    /// Whether bytes are damaged, or were deleted since the row was read.
    pub const fn is_lost_data(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::NotFound(_))
    }

    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    pub fn damaged(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Damaged { place: place.into(), what: what.into() }
    }
}
