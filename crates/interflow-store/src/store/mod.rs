//! The `FlowStore` trait and its embedded implementation (rows in SQLite, bodies in segment files).

mod connection_pool;
pub(crate) mod conversation_notes;
pub mod conversation_rows;
mod conversations;
pub mod details_blob;
#[cfg(test)]
mod fault_tests;
mod loading;
pub mod overview;
pub(crate) mod recording;
pub mod rows;
mod schema;
mod search;
pub mod segments;
mod select;
pub mod spool;
mod sqlite_store;
mod startup;
pub(crate) mod store_state;
mod subscriptions;
pub mod upkeep;

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_query::Query;
use interflow_types::{CertificateChain, Direction, FlowId};
use tokio::sync::broadcast;

pub use recording::header_masking::HeaderMasker;
pub use segments::body::BodyReader;
pub use select::{ListOptions, ListOrder, SearchProgress, SearchProgressFn};
pub use sqlite_store::SqliteStore;
pub use store_state::FlowAnnotation;
pub use upkeep::recover::StoreRecovery;
pub use upkeep::verify::CheckReport;

use crate::conversations::ConversationStore;
use crate::error::Result;
use crate::instances::{InstanceReport, InstanceRow};
use crate::model::{FlowRecord, FlowSummary, MessageRecord};
use crate::overview::{Overview, OverviewOptions};
use crate::stored_flow::{EachFlow, FlowParts, FlowWithBodies, LoadedFlow, Watch};
use interflow_types::schema::JsonSchema;

/// The folder of the segment files.
pub(crate) fn segments_dir(dir: &Path) -> PathBuf {
    dir.join("segments")
}

/// Statistics of a store and its recorder.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, JsonSchema)]
pub struct StoreStats {
    pub flows: u64,
    /// Whether new flows are recorded (`record.enabled`).
    pub recording: bool,
    /// Flows in progress that are being recorded.
    pub open_flows: u64,
    pub segments: u64,
    pub segment_bytes: u64,
    /// Bytes of the database and its write-ahead log.
    pub database_bytes: u64,
    /// Bytes queued for writing.
    pub queue_bytes: u64,
    /// Flows queued for writing.
    pub queue_flows: u64,
    /// Flows recorded to their end since the start.
    pub recorded_flows: u64,
    /// Flows not recorded at all: the recorder was behind and configured to drop, or suspended.
    pub dropped_flows: u64,
    /// Flows that were accepted but could not be written because of a disk error.
    pub lost_flows: u64,
    /// Bytes of bodies and messages that were not recorded for these reasons.
    pub dropped_bytes: u64,
    /// How often a flow had to wait for the recorder.
    pub waits: u64,
    /// How long at least one flow had to wait, in microseconds.
    #[serde(skip)]
    pub backpressure_micros: u64,
    /// Free bytes on the store's disk, if the system reports them.
    #[serde(skip)]
    pub disk_free_bytes: Option<u64>,
    /// Flows deleted by retention.
    pub expired_flows: u64,
    /// Damaged flow rows that were skipped in lists and exports since the store was opened.
    pub damaged_flows: u64,
    /// Why recording is suspended, if it is.
    pub suspended: Option<String>,
    /// Why nothing is deleted because of its age although `record.retention_age` says so: the clock has jumped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_waits: Option<String>,
    /// The shared store, if there is one: `flows` and `database_bytes` are then its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedStoreStats>,
}

/// The shared store as one replica sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, JsonSchema)]
pub struct SharedStoreStats {
    /// Where it is, without the password.
    pub address: String,
    /// Where bodies are; absent if they are in the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<String>,
    /// Bytes of the objects with bodies.
    pub object_bytes: u64,
    /// Finished flows on this replica's disk that were not moved to the shared store yet.
    pub waiting_flows: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// How long the oldest of them has been waiting, in seconds.
    pub waiting_seconds: u64,
    /// Flows that this replica has moved since its start.
    pub shipped_flows: u64,
    /// Attempts to move flows that failed since the start.
    pub failures: u64,
    /// Flows that cannot be moved and stay on this replica's disk; the log says why.
    pub stuck_flows: u64,
    /// By how much this machine's clock is ahead of the shared store's, in milliseconds.
    pub clock_ahead_millis: i64,
    /// Why the shared store cannot be reached or refuses flows; absent if it does neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Whether flows are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingState {
    Recording,
    /// They are, and wait on this machine's disk: the shared store does not answer.
    CutOff,
    /// As much as may wait for the shared store does, and traffic waits too (`overflow = "wait"`).
    Stalled,
    /// Nothing is recorded: the disk refuses writes. `shared` tells whether other processes record to the same store.
    Suspended {
        shared: bool,
    },
}

/// Flows whose values are listed: the newest ones, so that the cost does not grow with the store.
pub const MAX_EXAMINED: usize = 3000;

/// Stores flows. Every method may block on the disk: call it from a blocking thread.
///
/// ```
/// use interflow_store::{FlowStore, ListOptions, RecordConfig, SqliteStore};
///
/// # fn main() -> interflow_store::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let store = SqliteStore::open(dir.path(), &RecordConfig::default())?;
/// let latest = store.list(&ListOptions { limit: 10, ..ListOptions::default() })?;
/// assert!(latest.is_empty());
/// store.close();
/// # Ok(()) }
/// ```
pub trait FlowStore: ConversationStore + Send + Sync {
    /// Flows selected by a query, page by page.
    ///
    /// # Errors
    /// A database or disk error.
    fn list(&self, options: &ListOptions) -> Result<Vec<FlowRecord>> {
        self.list_while(options, &mut || ControlFlow::Continue(()))
    }

    /// Like [`list`](Self::list), with cancellation: `watch` is called for every row examined.
    ///
    /// # Errors
    /// As for [`list`](Self::list), and [`Cancelled`](crate::StoreError::Cancelled).
    fn list_while(&self, options: &ListOptions, watch: &mut Watch<'_>) -> Result<Vec<FlowRecord>>;

    /// Like [`list_while`](Self::list_while), with what the store can read along with the rows: of the wanted parts those
    /// that are short, as many as a page may hold.
    ///
    /// # Errors
    /// As for [`list_while`](Self::list_while).
    fn list_loaded(&self, options: &ListOptions, parts: FlowParts, watch: &mut Watch<'_>) -> Result<Vec<LoadedFlow>> {
        Ok(self.list_while(options, watch)?.into_iter().map(|row| LoadedFlow::new(row, parts)).collect())
    }

    /// The hosts of the newest flows, with cancellation.
    ///
    /// # Errors
    /// As for [`list_while`](Self::list_while).
    fn recent_hosts(&self, watch: &mut Watch<'_>) -> Result<BTreeSet<String>> {
        let newest = ListOptions { limit: MAX_EXAMINED, ..ListOptions::default() };
        Ok(self.list_while(&newest, watch)?.iter().map(|row| row.authority.host.to_string()).collect())
    }

    /// Like [`list`](Self::list) for queries that must examine many rows or bodies: runs on several threads and calls
    /// `each` with matches as they are found, in no order; `progress` may cancel it.
    ///
    /// # Errors
    /// As for [`list`](Self::list), and [`Cancelled`](crate::StoreError::Cancelled).
    fn search(&self, query: &Query, progress: &SearchProgressFn<'_>, each: &mut EachFlow<'_>) -> Result<()>;

    /// # Errors
    /// [`NotFound`](crate::StoreError::NotFound) if there is none with this id.
    fn get(&self, id: FlowId) -> Result<FlowRecord>;

    /// Like [`get`](Self::get), with what the store can read along with the row, as [`list_loaded`](Self::list_loaded) does.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    fn get_loaded(&self, id: FlowId, parts: FlowParts) -> Result<LoadedFlow> {
        self.get(id).map(|row| LoadedFlow::new(row, parts))
    }

    /// The recorded bytes of a body within `range`, as sent (content coding kept).
    ///
    /// # Errors
    /// As for [`get`](Self::get); damage is reported when the bytes are read.
    fn body(&self, id: FlowId, direction: Direction, range: Range<u64>) -> Result<BodyReader>;

    /// The recorded bytes of a body within `range` as received, before it was edited; for an unedited body the same as
    /// [`body`](Self::body).
    ///
    /// # Errors
    /// As for [`body`](Self::body).
    fn original_body(&self, id: FlowId, direction: Direction, range: Range<u64>) -> Result<BodyReader>;

    /// The certificate chains of the flow's connections: the one presented to the client, and the one that the origin
    /// presented. `None` without TLS, for imported flows, and for flows recorded by an earlier version.
    ///
    /// # Errors
    /// As for [`get`](Self::get), and damage.
    fn certificates(&self, id: FlowId) -> Result<[Option<CertificateChain>; 2]>;

    /// The flow's messages whose indexes are in `range`.
    ///
    /// # Errors
    /// As for [`get`](Self::get), and damage.
    fn messages(&self, id: FlowId, range: Range<u64>) -> Result<Vec<MessageRecord>>;

    /// The number of flows that a query selects.
    ///
    /// # Errors
    /// As for [`list`](Self::list).
    fn count(&self, query: &Query) -> Result<u64> {
        self.count_while(query, &mut || ControlFlow::Continue(()))
    }

    /// Like [`count`](Self::count), with cancellation: `watch` is called now and then.
    ///
    /// # Errors
    /// As for [`list_while`](Self::list_while).
    fn count_while(&self, query: &Query, watch: &mut Watch<'_>) -> Result<u64>;

    /// Stores imported flows, all or none of them; returns how many are new. One whose id exists already is left out.
    ///
    /// # Errors
    /// The store is read-only or cannot be written.
    fn insert_all(&self, flows: Vec<FlowWithBodies>) -> Result<u64>;

    /// Stores an imported flow; returns false if its id exists already.
    ///
    /// # Errors
    /// As for [`insert_all`](Self::insert_all).
    fn insert(&self, flow: FlowWithBodies) -> Result<bool> {
        Ok(self.insert_all(vec![flow])? > 0)
    }

    /// Changes tags and comment.
    ///
    /// # Errors
    /// As for [`insert_all`](Self::insert_all), or no flow with this id.
    fn annotate(&self, id: FlowId, change: FlowAnnotation) -> Result<()>;

    /// Deletes these flows and returns how many; running flows are not deleted.
    ///
    /// # Errors
    /// As for [`insert_all`](Self::insert_all).
    fn delete(&self, ids: &[FlowId]) -> Result<u64>;

    /// Deletes all flows selected by a query and frees their disk space; returns how many.
    ///
    /// # Errors
    /// As for [`insert_all`](Self::insert_all).
    fn prune(&self, query: &Query) -> Result<u64>;

    /// Waits until everything recorded before is written.
    ///
    /// # Errors
    /// Recording is suspended, or the store is closed or read-only.
    fn flush(&self) -> Result<()>;

    /// Verifies the whole store. `progress(done, total)` counts chunks.
    ///
    /// # Errors
    /// The check itself failed; damage that it finds is in the report.
    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport>;

    /// Damaged flow rows that were skipped since the store was opened.
    fn damaged_flows(&self) -> u64 {
        0
    }

    /// Figures of the flows that began in a span of time. Over many flows that were never summarised it answers within
    /// a second with those of the newest ones, and the next call continues.
    ///
    /// # Errors
    /// As for [`list_while`](Self::list_while).
    fn overview(&self, options: &OverviewOptions, watch: &mut Watch<'_>) -> Result<Overview>;

    /// Statistics of the store.
    ///
    /// # Errors
    /// As for [`list`](Self::list).
    fn stats(&self) -> Result<StoreStats>;

    /// Whether flows are recorded now. Known without asking the disk or the shared store.
    fn recording_state(&self) -> RecordingState {
        RecordingState::Recording
    }

    /// The processes that record to the store, if several can; the longest running first.
    ///
    /// # Errors
    /// As for [`list`](Self::list).
    fn instances(&self) -> Result<Vec<InstanceRow>> {
        Ok(Vec::new())
    }

    /// Reports this process to the others that record to the store; call it every few seconds.
    ///
    /// # Errors
    /// The store is read-only or does not answer.
    fn report_instance(&self, _: InstanceReport) -> Result<()> {
        Ok(())
    }

    /// Subscribes to flows as they begin, change and end.
    fn subscribe(&self) -> Subscription;

    /// Like [`subscribe`](Self::subscribe), for the flows that the filter accepts; others cost only the call of the
    /// filter.
    fn subscribe_to(&self, wanted: FlowFilterFn) -> Subscription;
}

/// Decides whether a subscriber receives a flow in its current state. Called on the writer thread for every update.
pub type FlowFilterFn = Box<dyn FnMut(&FlowRecord) -> bool + Send>;

/// An event of a subscription.
#[derive(Clone, Debug)]
pub enum StoreEvent {
    /// Flows that began, changed or ended.
    Flows(Arc<[FlowSummary]>),
    /// The subscriber was too slow and missed this many batches.
    Lagged(u64),
}

/// A stream of flow events.
pub struct Subscription(pub(crate) broadcast::Receiver<Arc<[FlowSummary]>>);

impl Subscription {
    /// That of a store that has no events.
    pub fn ended() -> Self {
        Self(broadcast::channel(1).1)
    }

    /// The next event; `None` once the store is closed. Cancel-safe.
    pub async fn next(&mut self) -> Option<StoreEvent> {
        match self.0.recv().await {
            // Written for a gap in what came from other replicas.
            Ok(flows) if flows.is_empty() => Some(StoreEvent::Lagged(1)),
            Ok(flows) => Some(StoreEvent::Flows(flows)),
            // Lagging is reported once, then the stream continues with the oldest batch that is left.
            Err(broadcast::error::RecvError::Lagged(n)) => Some(StoreEvent::Lagged(n)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
