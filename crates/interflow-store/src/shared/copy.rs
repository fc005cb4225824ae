//! Copies of a whole store, from the embedded to the shared one and back. A copy that was interrupted is begun again:
//! what is there already is left out.

use std::collections::HashSet;
use std::ops::ControlFlow;

use bytes::Bytes;
use interflow_query::Query;
use interflow_types::{Direction, FlowId};

use super::connect::{SharedAccess, is_about_data};
use super::database::Database;
use super::dsn::PostgresUrl;
use super::insert::InsertError;
use super::partitions;
use super::shipper::{BATCH_BYTES, store_batch, stored_bytes};
use super::spooled_flow::SpooledFlow;
use super::store::SharedStore;
use crate::config::RecordConfig;
use crate::conversations::ConversationStore as _;
use crate::error::{Result, StoreError};
use crate::model::FlowState;
use crate::store::{FlowStore, ListOptions, ListOrder, NewFlow, SqliteStore};

/// Flows per transaction, and read at a time.
const BATCH: usize = 500;
/// The longest body that is copied out of the shared store, which goes through memory.
const MAX_BODY: usize = 1 << 30;

/// What a copy did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCounts {
    pub copied: u64,
    /// Flows that were there already.
    pub present: u64,
    /// Flows that could not be read or stored; the log says why.
    pub failed: u64,
    /// Flows that are still running, and were left out.
    pub open: u64,
}

impl CopyCounts {
    fn total(&self) -> u64 {
        self.copied + self.present + self.failed + self.open
    }
}

/// Copies the flows of an embedded store into a shared one, whose tables are made if necessary. `progress(done, total)` may
/// end it.
///
/// # Errors
/// Either store cannot be read or written.
pub fn copy_to_shared(
    source: &SqliteStore,
    url: &PostgresUrl,
    access: SharedAccess,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<CopyCounts> {
    let (database, _runtime) = Database::new(url, access, &RecordConfig::default(), None)?;
    database.prepare()?;
    let total = source.count(&Query::all())?;
    let mut counts = CopyCounts { open: total - source.spool_totals()?.flows.min(total), ..CopyCounts::default() };
    let (mut after, mut days) = (-1, HashSet::new());
    while let (flows, Some(last)) = source.finished_after(after, BATCH)? {
        after = last;
        let read = flows.len();
        let missing = missing(&database, flows)?;
        counts.present += (read - missing.len()) as u64;
        for flow in &missing {
            let day = partitions::day_of_id(flow.id);
            if days.insert(day) {
                partitions::make_for_copy(&database, day)?;
            }
        }
        let mut rest = &missing[..];
        while !rest.is_empty() {
            let (first, others) = rest.split_at(fitting(rest));
            copy_batch(&database, source, first, &mut counts)?;
            rest = others;
        }
        if progress(counts.total(), total).is_break() {
            return Err(StoreError::Cancelled);
        }
    }
    Ok(counts)
}

/// Those of these flows that are not in the database.
fn missing(database: &Database, flows: Vec<SpooledFlow>) -> Result<Vec<SpooledFlow>> {
    let ids: Vec<_> = flows.iter().map(|flow| flow.uuid()).collect();
    let found = database
        .run(move |client| async move { client.query("SELECT id FROM flows WHERE id = ANY($1)", &[&ids]).await })?;
    let found: HashSet<uuid::Uuid> = found.iter().map(|row| row.get(0)).collect();
    Ok(flows.into_iter().filter(|flow| !found.contains(&flow.uuid())).collect())
}

/// How many of these flows go into one transaction.
fn fitting(flows: &[SpooledFlow]) -> usize {
    let mut bytes = 0;
    let is_full = |flow: &SpooledFlow| {
        bytes += stored_bytes(flow);
        bytes >= BATCH_BYTES
    };
    flows.iter().position(is_full).map_or(flows.len(), |last| last + 1)
}

/// Stores a batch; if one of its flows is the reason why that fails, the others without it.
fn copy_batch(database: &Database, source: &SqliteStore, flows: &[SpooledFlow], counts: &mut CopyCounts) -> Result<()> {
    let error = match database.block_on(store_batch(database, source, flows, true)) {
        Ok(new) => {
            counts.copied += new;
            counts.present += flows.len() as u64 - new;
            return Ok(());
        }
        Err(InsertError::Flow(error)) => error,
        Err(InsertError::Database(e)) if is_about_data(&e) => database.connector.explain(&e),
        Err(InsertError::Database(e)) => return Err(database.connector.explain(&e)),
        Err(InsertError::Unreachable(error)) => return Err(error),
        Err(InsertError::Stalled) => return Err(database.connector.no_answer()),
    };
    if let [flow] = flows {
        tracing::warn!(flow = %flow.id, "not copied: {error}");
        counts.failed += 1;
        return Ok(());
    }
    let (first, second) = flows.split_at(flows.len() / 2);
    copy_batch(database, source, first, counts)?;
    copy_batch(database, source, second, counts)
}

/// Copies the flows of a shared store into an embedded one.
///
/// # Errors
/// Either store cannot be read or written.
pub fn copy_from_shared(
    source: &SharedStore,
    target: &SqliteStore,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<CopyCounts> {
    let total = source.count(&Query::all())?;
    let mut counts = CopyCounts::default();
    let mut options = ListOptions { order: ListOrder::Oldest, limit: BATCH, ..ListOptions::default() };
    loop {
        let page = source.list(&options)?;
        let Some(last) = page.last().map(|row| row.id) else { break };
        options.after = Some(last);
        for row in page {
            let id = row.id;
            if row.state == FlowState::Open {
                counts.open += 1;
                continue;
            }
            match load(source, row).and_then(|flow| target.insert(flow)) {
                Ok(true) => counts.copied += 1,
                Ok(false) => counts.present += 1,
                Err(error @ (StoreError::Damaged { .. } | StoreError::NotFound(_))) => {
                    tracing::warn!(flow = %id, "not copied: {error}");
                    counts.failed += 1;
                }
                Err(error) => return Err(error),
            }
        }
        if progress(counts.total(), total).is_break() {
            return Err(StoreError::Cancelled);
        }
    }
    if target.endpoints()?.is_empty() {
        target.set_endpoints(&source.endpoints()?)?;
    }
    target.flush()?;
    Ok(counts)
}

fn load(source: &SharedStore, row: crate::model::FlowRow) -> Result<NewFlow> {
    let id: FlowId = row.id;
    let body = |direction| -> Result<Bytes> { source.body(id, direction, 0..u64::MAX)?.read_all(MAX_BODY) };
    let original = |direction| -> Result<Bytes> {
        match row.original.as_deref().and_then(|o| o.edited_body(direction)) {
            Some(_) => source.original_body(id, direction, 0..u64::MAX)?.read_all(MAX_BODY),
            None => Ok(Bytes::new()),
        }
    };
    Ok(NewFlow {
        request_body: body(Direction::Request)?,
        response_body: body(Direction::Response)?,
        original_bodies: [original(Direction::Request)?, original(Direction::Response)?],
        certificates: source.certificates(id)?,
        messages: if row.messages > 0 { source.messages(id, 0..u64::MAX)? } else { Vec::new() },
        row,
    })
}
