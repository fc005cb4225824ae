//! The record that is archived: its flows in the order that an archive needs, and the place of the archive's progress.

use std::future::pending;
use std::pin::Pin;

use interflow_query::Query;
use interflow_store::{
    BodyRecord, FlowRecord, FlowState, FlowStore, FlowWithBodies, ListOptions, ListOrder, MissingReason, StoreError,
    StoredFlow,
};
use interflow_types::{Direction, FlowId};

use super::cursor::{ArchiveCursor, RecordMark};
use super::hour::{first_id, id_before};
use super::part_writer::PartWriter;
use super::{ArchiveError, Result};
use interflow_archive::BodySource;
use interflow_archive::parquet::MAX_BODY_BYTES;
use interflow_archive::{ReadableBodySource, is_damage};

use crate::SharedStore;
use crate::archiving::archive::ArchiveLease;
use crate::objects::ObjectUrl;

/// Flows read at a time.
const PAGE: usize = 200;
/// Late flows of an embedded store considered in one run.
const MAX_LATE: usize = 1_000_000;
/// Late flows of a shared store that are archived before the progress is stored.
const LATE_STEP: usize = 20_000;

/// What is archived.
#[derive(Clone, Copy)]
pub enum ArchivedRecord<'a> {
    /// The record of one process. The archive's folder has the progress.
    Embedded(&'a dyn FlowStore),
    /// The record of replicas, one of which archives. The database has the progress.
    Shared { store: &'a SharedStore, lease: &'a ArchiveLease },
}

/// Flows that began in what is archived already.
#[derive(Debug, Default)]
pub(super) struct LateFlows {
    pub ids: Vec<FlowId>,
    /// Up to where these are all.
    pub through: RecordMark,
}

impl<'a> ArchivedRecord<'a> {
    pub(super) fn load(&self, dir: &std::path::Path, place: &ObjectUrl) -> Result<ArchiveCursor> {
        match self {
            Self::Embedded(_) => ArchiveCursor::load(dir, place),
            Self::Shared { lease, .. } => ArchiveCursor::from_database(lease.load()?.as_deref(), place),
        }
    }

    pub(super) fn save(&self, dir: &std::path::Path, cursor: &ArchiveCursor) -> Result<()> {
        match self {
            Self::Embedded(_) => cursor.save(dir),
            Self::Shared { lease, .. } => {
                match lease.save(&cursor.to_text()?, cursor.keep_from(), cursor.mark.position)? {
                    true => Ok(()),
                    false => Err(ArchiveError::TakenOver),
                }
            }
        }
    }

    /// Tells the files of this process from those of one that took over.
    pub(super) const fn epoch(&self) -> u64 {
        match self {
            Self::Embedded(_) => 0,
            Self::Shared { lease, .. } => lease.epoch(),
        }
    }

    /// Waits until this process must write no more.
    pub(super) fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        match self {
            Self::Embedded(_) => Box::pin(pending()),
            Self::Shared { lease, .. } => Box::pin(lease.ended()),
        }
    }

    /// The flow that was recorded last: what comes after it is the next run's.
    pub(super) fn newest(&self) -> Result<Option<RecordMark>> {
        match self {
            Self::Embedded(store) => {
                let mut last = None;
                // Flows are recorded about in the order in which they begin, but one that was held is recorded after others
                // that began later.
                for row in store.list(&ListOptions { limit: PAGE, ..ListOptions::default() })? {
                    let position = store.recorded_position(row.id)?;
                    last = last.max(position.map(|position| (position, row.id)));
                }
                Ok(last.map(|(position, id)| RecordMark { flow: Some(id.to_string()), position }))
            }
            Self::Shared { store, .. } => {
                Ok(store.newest_position()?.map(|position| RecordMark { flow: None, position }))
            }
        }
    }

    /// When the first flow began that is not before this time, in milliseconds.
    pub(super) fn first_since(&self, millis: u64, newest: &RecordMark) -> Result<Option<u64>> {
        let after = id_before(millis);
        let first = match self {
            Self::Embedded(store) => {
                let first = ListOptions { query: Query::all(), order: ListOrder::Oldest, after: Some(after), limit: 1 };
                store.list(&first)?.pop().map(|row| row.id)
            }
            Self::Shared { store, .. } => store.first_flow_after(after, newest.position)?,
        };
        Ok(first.map(FlowId::unix_millis))
    }

    /// Writes the flows that began in a span of time, but those recorded after `newest`; collects those in progress.
    pub(super) fn write_span(
        &self,
        (from, to): (u64, u64),
        newest: &RecordMark,
        parts: &mut PartWriter<'_>,
        open: &mut Vec<String>,
    ) -> Result<()> {
        let mut after = id_before(from);
        match self {
            Self::Embedded(store) => loop {
                let page =
                    ListOptions { query: Query::all(), order: ListOrder::Oldest, after: Some(after), limit: PAGE };
                let page = store.list(&page)?;
                let bodies = ReadableBodySource::new(*store);
                for row in &page {
                    if row.id.unix_millis() >= to {
                        return Ok(());
                    }
                    // The next run finds it by its position.
                    if store.recorded_position(row.id)? <= Some(newest.position) {
                        write_row(row, &bodies, parts, open)?;
                    }
                }
                match page.last().filter(|_| page.len() == PAGE) {
                    Some(row) => after = row.id,
                    None => return Ok(()),
                }
            },
            Self::Shared { store, .. } => loop {
                let (flows, last) = store.flows_between((after, first_id(to)), newest.position, PAGE)?;
                for flow in flows {
                    write_shared(store, flow, parts)?;
                }
                match last {
                    Some(last) => after = last,
                    None => return Ok(()),
                }
            },
        }
    }

    /// Writes these flows, in their order; collects those in progress. Deleted ones are left out.
    pub(super) fn write_flows(&self, ids: &[FlowId], parts: &mut PartWriter<'_>, open: &mut Vec<String>) -> Result<()> {
        match self {
            Self::Embedded(store) => {
                let bodies = ReadableBodySource::new(*store);
                for id in ids {
                    match store.get(*id) {
                        Ok(row) => write_row(&row, &bodies, parts, open)?,
                        Err(StoreError::NotFound(_)) => {}
                        Err(e) => return Err(e.into()),
                    }
                }
            }
            Self::Shared { store, .. } => {
                for page in ids.chunks(PAGE) {
                    for flow in store.flows_of(page)? {
                        write_shared(store, flow, parts)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Flows recorded after a mark, up to another one, that began before this time.
    pub(super) fn late(&self, mark: &RecordMark, newest: &RecordMark, before: u64) -> Result<LateFlows> {
        match self {
            Self::Embedded(store) => {
                Ok(LateFlows { ids: late_in(*store, mark, newest, before)?, through: newest.clone() })
            }
            Self::Shared { store, .. } => {
                let positions = (mark.position, newest.position);
                let (ids, position) = store.arrived_between(positions, first_id(before), LATE_STEP)?;
                Ok(LateFlows { ids, through: RecordMark { flow: None, position } })
            }
        }
    }
}

/// As [`ArchivedRecord::late`], in an embedded store, where flows are found by their time.
fn late_in(store: &dyn FlowStore, mark: &RecordMark, newest: &RecordMark, before: u64) -> Result<Vec<FlowId>> {
    let Some(flow) = mark.flow.as_ref().and_then(|flow| flow.parse::<FlowId>().ok()) else { return Ok(Vec::new()) };
    let start = store.recorded_position(flow)?.unwrap_or(mark.position);
    // Those that began before the mark, and those that began between it and the end of what is archived.
    let mut late = store.rewind_cursor(flow, MAX_LATE)?;
    let mut after = Some(flow);
    loop {
        let page = ListOptions { query: Query::all(), order: ListOrder::Oldest, after, limit: PAGE };
        let page = store.list(&page)?;
        late.extend(page.iter().map(|row| row.id));
        after = page.last().map(|row| row.id);
        if page.len() < PAGE || after.is_some_and(|id| id.unix_millis() >= before) {
            break;
        }
    }
    let mut ids = Vec::new();
    for id in late.into_iter().filter(|id| id.unix_millis() < before) {
        let position = store.recorded_position(id)?;
        if position > Some(start) && position <= Some(newest.position) {
            ids.push(id);
        }
    }
    Ok(ids)
}

fn write_row(
    row: &FlowRecord,
    bodies: &ReadableBodySource<'_>,
    parts: &mut PartWriter<'_>,
    open: &mut Vec<String>,
) -> Result<()> {
    if row.state == FlowState::Open {
        open.push(row.id.to_string());
        return Ok(());
    }
    parts.add(&*bodies.row(row)?, bodies)
}

fn write_shared(store: &SharedStore, flow: StoredFlow, parts: &mut PartWriter<'_>) -> Result<()> {
    let flow = if parts.has_bodies() { with_bodies(store, &flow)? } else { FlowWithBodies::new(flow.row) };
    parts.add(&flow.row, &flow as &dyn BodySource)
}

/// Loads the bodies that are archived, each with one read. Damaged ones end at the damage.
fn with_bodies(store: &SharedStore, shared: &StoredFlow) -> Result<FlowWithBodies> {
    let mut flow = FlowWithBodies::new(shared.row.clone());
    for direction in [Direction::Request, Direction::Response] {
        let Some(body) = shared.row.body(direction).copied() else { continue };
        if body.kept == 0 || body.kept > MAX_BODY_BYTES {
            continue;
        }
        let mut reader = store.body_of(shared, direction, 0..body.kept);
        let mut bytes = Vec::new();
        loop {
            match reader.next_piece() {
                Ok(Some(piece)) => bytes.extend_from_slice(&piece),
                Ok(None) => break,
                Err(e) if is_damage(&e) => break,
                Err(e) => return Err(e.into()),
            }
        }
        let cut = (bytes.len() as u64) < body.kept;
        let lost = BodyRecord::partial(body.size, bytes.len() as u64, Some(MissingReason::Lost));
        let (loaded, recorded) = match direction {
            Direction::Request => (&mut flow.request_body, flow.row.request.as_mut().map(|r| &mut r.body)),
            Direction::Response => (&mut flow.response_body, flow.row.response.as_mut().map(|r| &mut r.body)),
        };
        *loaded = bytes.into();
        recorded.into_iter().filter(|_| cut).for_each(|body| *body = lost);
    }
    Ok(flow)
}
