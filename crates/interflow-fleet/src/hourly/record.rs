//! The record that is archived: its flows in the order that an archive needs, and the place of the archive's progress.

use std::future::pending;
use std::ops::ControlFlow;
use std::pin::Pin;

use interflow_archive::ReadableBodySource;
use interflow_archive::parquet::MAX_BODY_BYTES;
use interflow_query::Query;
use interflow_store::{FlowState, FlowStore, ListOptions, ListOrder, LoadedFlow, StoreError};
use interflow_types::FlowId;

use super::cursor::{ArchiveCursor, RecordMark};
use super::hour::{first_id, id_before};
use super::part_writer::PartWriter;
use super::{ArchiveError, Result};
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

    fn readable(&self) -> ReadableBodySource<'a> {
        match *self {
            Self::Embedded(store) => ReadableBodySource::new(store),
            Self::Shared { store, .. } => ReadableBodySource::new(store),
        }
    }

    /// Writes the flows that began in a span of time, but those recorded after `newest`; collects those in progress.
    pub(super) fn write_span(
        &self,
        (from, to): (u64, u64),
        newest: &RecordMark,
        parts: &mut PartWriter<'_>,
        open: &mut Vec<String>,
    ) -> Result<()> {
        let (mut after, readable) = (id_before(from), self.readable());
        match self {
            Self::Embedded(store) => loop {
                let page =
                    ListOptions { query: Query::all(), order: ListOrder::Oldest, after: Some(after), limit: PAGE };
                let page = store.list_loaded(&page, parts.parts(), &mut || ControlFlow::Continue(()))?;
                let last = page.last().filter(|_| page.len() == PAGE).map(|flow| flow.row.id);
                for flow in page {
                    if flow.row.id.unix_millis() >= to {
                        return Ok(());
                    }
                    let position = match flow.position {
                        None => store.recorded_position(flow.row.id)?,
                        position => position,
                    };
                    // The next run finds it by its position.
                    if position <= Some(newest.position) {
                        write_row(flow, &readable, parts, open)?;
                    }
                }
                let Some(last) = last else { return Ok(()) };
                after = last;
            },
            Self::Shared { store, .. } => loop {
                let (flows, last) = store.flows_between((after, first_id(to)), newest.position, PAGE)?;
                for flow in flows {
                    write_row(store.load(flow, parts.parts(), MAX_BODY_BYTES)?, &readable, parts, open)?;
                }
                let Some(last) = last else { return Ok(()) };
                after = last;
            },
        }
    }

    /// Writes these flows, in their order; collects those in progress. Deleted ones are left out.
    pub(super) fn write_flows(&self, ids: &[FlowId], parts: &mut PartWriter<'_>, open: &mut Vec<String>) -> Result<()> {
        let readable = self.readable();
        match self {
            Self::Embedded(store) => {
                for id in ids {
                    match store.get(*id) {
                        Ok(row) => write_row(LoadedFlow::new(row, parts.parts()), &readable, parts, open)?,
                        Err(StoreError::NotFound(_)) => {}
                        Err(e) => return Err(e.into()),
                    }
                }
            }
            Self::Shared { store, .. } => {
                for page in ids.chunks(PAGE) {
                    for flow in store.flows_of(page)? {
                        write_row(store.load(flow, parts.parts(), MAX_BODY_BYTES)?, &readable, parts, open)?;
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
    flow: LoadedFlow,
    readable: &ReadableBodySource<'_>,
    parts: &mut PartWriter<'_>,
    open: &mut Vec<String>,
) -> Result<()> {
    if flow.row.state == FlowState::Open {
        open.push(flow.row.id.to_string());
        return Ok(());
    }
    parts.add(&readable.row(flow)?, readable)
}
