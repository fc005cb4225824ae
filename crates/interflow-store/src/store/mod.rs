//! The store: a trait, and the embedded one behind it (rows in SQLite, bodies in segment files).

pub(crate) mod body;
pub(crate) mod body_assembly;
pub(crate) mod chunk_refs;
pub(crate) mod chunker;
pub(crate) mod chunks;
mod commands;
mod compress;
mod connection_pool;
mod conversations;
mod damage;
mod details_blob;
mod disk_reserve;
mod disk_space;
#[cfg(test)]
mod fault_tests;
mod header_masking;
mod in_flight;
mod messages;
pub(crate) mod pending_flow;
mod quarantine;
pub(crate) mod queue;
mod recover;
mod retention;
mod rows;
mod schema;
mod search;
mod segment;
mod select;
mod sqlite_store;
mod startup;
mod store_state;
mod subscriptions;
mod varint;
mod verify;
mod writer;

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_query::Query;
use interflow_types::{Direction, FlowId};
use tokio::sync::broadcast;

pub use body::BodyReader;
pub use header_masking::HeaderMasker;
pub use recover::StoreRecovery;
pub use select::{ListOptions, ListOrder, SearchProgress};
pub use sqlite_store::SqliteStore;
pub use store_state::{FlowAnnotation, NewFlow};
pub use verify::CheckReport;

use crate::conversations::ConversationStore;
use crate::error::Result;
use crate::model::{FlowRow, FlowSummary, MessageRow};

/// Where the segments of a store lie.
pub(crate) fn segments_dir(dir: &Path) -> PathBuf {
    dir.join("segments")
}

/// Figures of a store and its recorder.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct StoreStats {
    /// Flows in the store.
    pub flows: u64,
    /// Flows that run and are being recorded.
    pub open_flows: u64,
    /// Segment files.
    pub segments: u64,
    /// Bytes of the segment files.
    pub segment_bytes: u64,
    /// Bytes of the database and its log.
    pub database_bytes: u64,
    /// Bytes that wait for the disk.
    pub queue_bytes: u64,
    /// Flows that wait for the disk.
    pub queue_flows: u64,
    /// Flows recorded to their end since the start.
    pub recorded_flows: u64,
    /// Flows of which nothing was kept: the recorder was behind and set to drop, or suspended.
    pub dropped_flows: u64,
    /// Flows that were taken up but could not be written, since the disk refused.
    pub lost_flows: u64,
    /// Bytes of bodies and messages that were not kept for these reasons.
    pub dropped_bytes: u64,
    /// How often a flow had to wait for the recorder.
    pub waits: u64,
    /// Flows dropped by age or size.
    pub expired_flows: u64,
    /// Flows whose rows are damaged and were left out of lists and exports since the store was opened.
    pub damaged_flows: u64,
    /// Why nothing is recorded at the moment.
    pub suspended: Option<String>,
}

/// Keeps flows. Every method may block on the disk: call it from a blocking thread.
pub trait FlowStore: ConversationStore + Send + Sync {
    /// Flows of a query, page by page.
    ///
    /// # Errors
    /// The database or disk said no.
    fn list(&self, options: &ListOptions) -> Result<Vec<FlowRow>> {
        self.list_while(options, &mut || ControlFlow::Continue(()))
    }

    /// The same, given up when `watch` says so: it is asked at every row that is looked at.
    ///
    /// # Errors
    /// As [`list`](Self::list), and [`Cancelled`](crate::StoreError::Cancelled).
    fn list_while(&self, options: &ListOptions, watch: &mut dyn FnMut() -> ControlFlow<()>) -> Result<Vec<FlowRow>>;

    /// The same for queries that have to look into many rows or bodies: several threads, `each` is shown what was
    /// found as it is found, in no order; `progress` may stop it.
    ///
    /// # Errors
    /// As [`list`](Self::list), and [`Cancelled`](crate::StoreError::Cancelled).
    fn search(
        &self,
        query: &Query,
        progress: &(dyn Fn(SearchProgress) -> ControlFlow<()> + Sync),
        each: &mut (dyn FnMut(FlowRow) -> ControlFlow<()> + Send),
    ) -> Result<()>;

    /// One flow.
    ///
    /// # Errors
    /// [`NotFound`](crate::StoreError::NotFound) when there is none of this id.
    fn get(&self, id: FlowId) -> Result<FlowRow>;

    /// The kept bytes of a body within `range`, as sent (content coding kept).
    ///
    /// # Errors
    /// As [`get`](Self::get); damaged bytes show when they are read.
    fn body(&self, id: FlowId, direction: Direction, range: Range<u64>) -> Result<BodyReader>;

    /// The kept bytes of a body within `range` as it came in, before it was edited; of one that was not edited, as sent.
    ///
    /// # Errors
    /// As [`body`](Self::body).
    fn original_body(&self, id: FlowId, direction: Direction, range: Range<u64>) -> Result<BodyReader>;

    /// The flow's messages whose numbers are in `range`.
    ///
    /// # Errors
    /// As [`get`](Self::get), and damage.
    fn messages(&self, id: FlowId, range: Range<u64>) -> Result<Vec<MessageRow>>;

    /// How many flows a query selects.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn count(&self, query: &Query) -> Result<u64>;

    /// Stores a flow from an archive; false when one of this id is there.
    ///
    /// # Errors
    /// The store is read-only or cannot be written.
    fn insert(&self, flow: NewFlow) -> Result<bool>;

    /// Changes tags and comment.
    ///
    /// # Errors
    /// As [`insert`](Self::insert); no flow of this id.
    fn annotate(&self, id: FlowId, change: FlowAnnotation) -> Result<()>;

    /// Deletes these flows; how many there were. Flows that still run stay.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    fn delete(&self, ids: &[FlowId]) -> Result<u64>;

    /// Deletes every flow that a query selects and gives the disk space back; how many there were.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    fn prune(&self, query: &Query) -> Result<u64>;

    /// Waits until everything told before is written.
    ///
    /// # Errors
    /// Recording is suspended, or the store is closed or read-only.
    fn flush(&self) -> Result<()>;

    /// Verifies everything. `progress(done, of)` counts chunks.
    ///
    /// # Errors
    /// The check itself could not be made; what it finds is in the report.
    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport>;

    /// Flows whose rows are damaged and were left out of what was read since the store was opened.
    fn damaged_flows(&self) -> u64 {
        0
    }

    /// Figures.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn stats(&self) -> Result<StoreStats>;

    /// Flows as they begin, go on and end.
    fn subscribe(&self) -> Subscription;

    /// The same for the flows that `wanted` lets by: others cost nothing but the question.
    fn subscribe_to(&self, wanted: FlowFilterFn) -> Subscription;
}

/// Says whether a subscriber wants to hear of a flow as it is now. Asked by the thread that writes, for every piece of news.
pub type FlowFilterFn = Box<dyn FnMut(&FlowRow) -> bool + Send>;

/// What a subscriber is told.
#[derive(Clone, Debug)]
pub enum StoreEvent {
    /// Flows that began, changed or ended.
    Flows(Arc<[FlowSummary]>),
    /// The subscriber was too slow: so many batches passed it by.
    Lagged(u64),
}

/// Flows as they begin, go on and end.
pub struct Subscription(pub(crate) broadcast::Receiver<Arc<[FlowSummary]>>);

impl Subscription {
    /// What happens next; `None` when the store is closed. Cancel-safe.
    pub async fn next(&mut self) -> Option<StoreEvent> {
        match self.0.recv().await {
            Ok(flows) => Some(StoreEvent::Flows(flows)),
            Err(broadcast::error::RecvError::Lagged(n)) => Some(StoreEvent::Lagged(n)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
