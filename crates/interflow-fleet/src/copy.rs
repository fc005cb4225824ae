//! Copies of a whole store, from the embedded to the shared one and back. A copy that was interrupted is begun again:
//! what is there already is left out.

use std::collections::HashSet;
use std::ops::ControlFlow;

use bytes::Bytes;
use interflow_query::Query;
use interflow_store::stored_form::NoteOf;
use interflow_store::{
    ConversationNote, ConversationStore as _, FlowRecord, FlowState, FlowStore, FlowWithBodies, ListOptions, ListOrder,
    RecordConfig, Result, SqliteStore, StoreError,
};
use interflow_types::{Direction, FlowId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::database::connect::{SharedAccess, is_about_data};
use crate::database::dsn::PostgresUrl;
use crate::database::pool::Database;
use crate::database::rows::clean;
use crate::partitions;
use crate::shipping::insert_error::InsertError;
use crate::shipping::shipper::{BATCH_BYTES, store_batch, stored_bytes};
use crate::shipping::spooled_flow::SpooledFlow;
use crate::store::SharedStore;

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
    /// Notes on conversations and their messages. One that the target has already is not copied.
    pub notes: u64,
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
    while let (flows, Some(last)) = source.finished_after(after, BATCH, &SpooledFlow::read)? {
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
    let read = |last: Option<&NoteOf>| source.notes_after(last, BATCH);
    counts.notes = copy_notes(read, |notes| add_notes(&database, notes))?;
    Ok(counts)
}

/// Copies all notes, some at a time; returns how many are new.
fn copy_notes(
    read: impl Fn(Option<&NoteOf>) -> Result<Vec<NoteOf>>,
    add: impl Fn(Vec<NoteOf>) -> Result<u64>,
) -> Result<u64> {
    let (mut last, mut added) = (None, 0);
    loop {
        let notes = read(last.as_ref())?;
        if notes.is_empty() {
            return Ok(added);
        }
        last = notes.last().cloned();
        added += add(notes)?;
    }
}

/// Adds notes where there are none; returns how many. Their conversations are put together later, with the same ids.
fn add_notes(database: &Database, notes: Vec<NoteOf>) -> Result<u64> {
    let ids: Vec<String> = notes.iter().map(|(id, _)| clean(id)).collect();
    let messages: Vec<Option<Uuid>> = notes.iter().map(|(_, note)| note.message.map(Uuid::from_u128)).collect();
    // No tag has a line break.
    let tags: Vec<String> = notes.iter().map(|(_, note)| clean(&note.tags.join("\n"))).collect();
    let comments: Vec<Option<String>> = notes.iter().map(|(_, note)| note.comment.as_deref().map(clean)).collect();
    database.run(move |client| async move {
        let sql = "INSERT INTO conversation_notes(conversation, message, tags, comment) \
                   SELECT t.id, t.message, string_to_array(t.tags, E'\\n'), t.comment \
                   FROM unnest($1::text[], $2::uuid[], $3::text[], $4::text[]) AS t(id, message, tags, comment) \
                   ON CONFLICT DO NOTHING";
        client.execute(sql, &[&ids, &messages, &tags, &comments]).await
    })
}

/// Notes of all conversations in their order, after this one.
fn notes_after(database: &Database, last: Option<&NoteOf>) -> Result<Vec<NoteOf>> {
    let message = |note: &ConversationNote| note.message.map(|m| Uuid::from_u128(m).to_string()).unwrap_or_default();
    let (id, message) = last.map(|(id, note)| (id.clone(), message(note))).unwrap_or_default();
    let rows = database.run(move |client| async move {
        let sql = "SELECT conversation, message, tags, comment FROM conversation_notes \
                   WHERE (conversation, coalesce(message::text, '') COLLATE \"C\") > ($1, $2) \
                   ORDER BY conversation, coalesce(message::text, '') COLLATE \"C\" LIMIT $3";
        client.query(sql, &[&id, &message, &(BATCH as i64)]).await
    })?;
    let note = |row: &Row| ConversationNote {
        message: row.get::<_, Option<Uuid>>(1).map(|m| m.as_u128()),
        tags: row.get(2),
        comment: row.get(3),
    };
    Ok(rows.iter().map(|row| (row.get(0), note(row))).collect())
}

/// Those of these flows that are not in the database.
fn missing(database: &Database, flows: Vec<SpooledFlow>) -> Result<Vec<SpooledFlow>> {
    let ids: Vec<_> = flows.iter().map(|flow| flow.uuid()).collect();
    let rows = database
        .run(move |client| async move { client.query("SELECT id FROM flows WHERE id = ANY($1)", &[&ids]).await })?;
    let present: HashSet<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    Ok(flows.into_iter().filter(|flow| !present.contains(&flow.uuid())).collect())
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
    let read = |last: Option<&NoteOf>| notes_after(&source.database, last);
    counts.notes = copy_notes(read, |notes| target.add_notes(notes))?;
    if target.endpoints()?.is_empty() {
        target.write_endpoints(&source.endpoints()?)?;
    }
    target.flush()?;
    Ok(counts)
}

fn load(source: &SharedStore, row: FlowRecord) -> Result<FlowWithBodies> {
    let id: FlowId = row.id;
    let body = |direction| -> Result<Bytes> { source.body(id, direction, 0..u64::MAX)?.read_all(MAX_BODY) };
    let original = |direction| -> Result<Bytes> {
        match row.recorded_body(direction, true) {
            Some(_) => source.original_body(id, direction, 0..u64::MAX)?.read_all(MAX_BODY),
            None => Ok(Bytes::new()),
        }
    };
    Ok(FlowWithBodies {
        request_body: body(Direction::Request)?,
        response_body: body(Direction::Response)?,
        original_bodies: [original(Direction::Request)?, original(Direction::Response)?],
        certificates: source.certificates(id)?,
        messages: if row.messages > 0 { source.messages(id, 0..u64::MAX)? } else { Vec::new() },
        row,
    })
}
