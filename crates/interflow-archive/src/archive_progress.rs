//! How far the archive of the record (`record.archive`) is.

use interflow_types::Timestamp;
use interflow_types::schema::JsonSchema;
use serde::Serialize;

/// The state of an archive, for people and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ArchiveProgress {
    /// The URL of the place, without secrets.
    pub place: String,
    /// Flows that began before are archived, but for `open_flows`.
    pub archived_to: Option<Timestamp>,
    /// Flows archived so far.
    pub flows: u64,
    pub files: u64,
    /// Bytes written, of files that were merged since as well.
    pub bytes: u64,
    /// Flows of archived hours that were still in progress.
    pub open_flows: u64,
    /// When the last run without an error began.
    pub last_success: Option<Timestamp>,
    /// Why the last run failed, if it did.
    pub last_error: Option<String>,
    /// The instance that archives for all that share the store; null if there is none, or the store is not shared.
    pub replica: Option<String>,
}
