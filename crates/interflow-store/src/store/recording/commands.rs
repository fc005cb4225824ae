//! Commands for the writer, and the operations that they name: imports, annotations, deletions.

use std::collections::HashSet;

use interflow_types::{Direction, FlowId, StreamMessage};

use crate::error::{Result, StoreError};
use crate::model::{BodyRecord, FlowRecord, FlowState};
use crate::store::recording::in_flight::InFlightFlow;
use crate::store::recording::write_batch::WriteBatch;
use crate::store::recording::writer::{ROWS_AT_ONCE, StoreWriter};
use crate::store::rows;
use crate::store::segments::body_assembly::ChunkSink;
use crate::store::store_state::{FlowAnnotation, WriterCommand};
use crate::stored_flow::FlowWithBodies;

impl StoreWriter {
    pub(crate) fn run_command(&mut self, job: WriterCommand) {
        match job {
            WriterCommand::Flush(reply) => drop(reply.send(self.state())),
            WriterCommand::Insert(new, reply) => drop(reply.send(self.in_batch(|w| w.insert_all(new)))),
            WriterCommand::Annotate(id, change, reply) => drop(reply.send(self.in_batch(|w| w.annotate(id, &change)))),
            WriterCommand::Note(id, at, new, reply) => drop(reply.send(self.in_batch(|w| w.put_note(&id, at, &new)))),
            WriterCommand::AddNotes(notes, reply) => drop(reply.send(self.in_batch(|w| w.add_notes(&notes)))),
            WriterCommand::Delete(ids, reply) => drop(reply.send(self.run_delete(&ids))),
            WriterCommand::Release(rows, reply) => drop(reply.send(self.run_release(&rows))),
            WriterCommand::Keep(found, reply) => {
                drop(reply.send(self.in_batch(|w| w.save_conversation_update(&found))))
            }
            WriterCommand::ForgetConversations(reply) => drop(reply.send(self.in_batch(Self::forget_conversations))),
            WriterCommand::SaveColumns(blocks, reply) => drop(reply.send(self.in_batch(|w| w.save_columns(&blocks)))),
            WriterCommand::Collect(reply) => self.run_collect(reply),
        }
    }

    fn state(&self) -> Result<()> {
        self.shared.suspended().map_or(Ok(()), |why| Err(StoreError::Suspended(why)))
    }

    /// Runs a command in a transaction of its own.
    pub(crate) fn in_batch<T>(&mut self, job: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.state()?;
        self.begin()?;
        let done = job(self).and_then(|t| self.commit().map(|()| t));
        match &done {
            // The command's own failure: the disk is fine, and recording continues.
            Err(StoreError::NotFound(_) | StoreError::Damaged { .. } | StoreError::Stale(_)) => {
                self.db.execute_batch("ROLLBACK")?;
                self.segments.rollback();
                self.chunks.rollback();
            }
            Err(e) => {
                let e = StoreError::Suspended(e.to_string());
                self.handle_disk_error(&e, &mut WriteBatch::default());
            }
            Ok(_) => {}
        }
        done
    }

    /// Stores complete flows; returns how many are new.
    fn insert_all(&mut self, new: Vec<FlowWithBodies>) -> Result<u64> {
        let (mut batch, mut ids, mut stored) = (WriteBatch::default(), HashSet::new(), 0);
        for flow in new {
            // One that is in the list twice has no row yet when it comes again.
            stored += u64::from(ids.insert(flow.row.id) && self.insert(flow, &mut batch)?);
            if batch.unwritten >= ROWS_AT_ONCE {
                self.insert_finished(&mut batch)?;
            }
        }
        self.insert_finished(&mut batch)?;
        Ok(stored)
    }

    /// Takes a complete flow into a batch; returns false if its id exists already.
    fn insert(&mut self, new: FlowWithBodies, batch: &mut WriteBatch) -> Result<bool> {
        let FlowWithBodies { mut row, request_body, response_body, original_bodies, certificates, messages } = new;
        if self.open.contains_key(&row.id) || self.seq_of(row.id)?.is_some() {
            return Ok(false);
            // A running flow keeps its row until it ends.
        }
        if row.state == FlowState::Open {
            // Nothing will ever complete it here.
            row.state = FlowState::Cut;
        }
        // Counted again below, as the messages are stored.
        row.messages = 0;
        self.mask_row(&mut row);
        let recorded = [Direction::Request, Direction::Response].map(|d| row.body(d).copied().unwrap_or_default());
        let edited = [Direction::Request, Direction::Response].map(|d| row.recorded_body(d, true).copied());
        let [mut request_original, mut response_original] = original_bodies;
        // If nothing was edited, the body sent on is also the body received.
        if edited[0].is_none() {
            request_original.clear();
        }
        if edited[1].is_none() {
            response_original.clear();
        }
        let seq = self.seq();
        let mut flow = InFlightFlow::begin(None, row, seq);
        // Through the same assembly as live bodies, so that equal content shares its chunks.
        let chains = certificates.map(|chain| chain.map(|chain| chain.as_bytes().clone()).unwrap_or_default());
        let bodies = [request_body, response_body, request_original, response_original].into_iter().chain(chains);
        for (side, body) in bodies.enumerate() {
            if !body.is_empty() {
                let mut shelf = ChunkSink { db: &self.db, segments: &mut self.segments, chunks: &mut self.chunks };
                flow.bodies[side].push(&mut shelf, seq, side, vec![body])?;
            }
        }
        // An import may know a size without having the bytes.
        let sizes = [0, 1].map(|side: usize| recorded[side].size.max(flow.bodies[side].stored_bytes()));
        flow.measure(sizes, recorded.map(|b: BodyRecord| b.missing));
        let originals = edited.map(Option::unwrap_or_default);
        let sizes = [0, 1].map(|side: usize| originals[side].size.max(flow.bodies[2 + side].stored_bytes()));
        flow.measure_originals(sizes, originals.map(|b| b.missing));
        let messages: Vec<(StreamMessage, u64)> = messages
            .into_iter()
            .map(|m| (StreamMessage { direction: m.direction, kind: m.kind, payload: m.payload, at: m.at }, m.size))
            .collect();
        // In blocks, so that no statement holds all messages.
        for block in messages.chunks(1000) {
            self.take_messages(&mut flow, block)?;
        }
        self.end(&mut flow)?;
        batch.unwritten += usize::from(flow.ends.is_some());
        batch.finished.push(flow);
        Ok(true)
    }

    /// Changes tags and comment, also of a running flow.
    pub(crate) fn annotate(&mut self, id: FlowId, change: &FlowAnnotation) -> Result<()> {
        // A running flow is changed in memory; its next row write carries the change.
        if let Some(flow) = self.open.get_mut(&id) {
            flow.dirty = true;
            flow.marked.retain(|t| !change.remove_tags.contains(t));
            flow.marked.extend(change.add_tags.iter().cloned());
            annotate(&mut flow.row, change);
            // Live views see the change at once.
            self.shared.feeds.notify_row(&flow.row);
            return Ok(());
        }
        let mut stored = rows::get(&self.db, id)?;
        annotate(&mut stored.row, change);
        self.logged += rows::update(&self.db, &stored.as_new())?;
        self.shared.feeds.notify_row(&stored.row);
        Ok(())
    }

    /// The rows of those flows of a list that have ended, in the same order.
    pub(crate) fn seqs_of(&self, ids: &[FlowId]) -> Result<Vec<i64>> {
        // Running flows are left out: their rows would be written again.
        let ids: HashSet<FlowId> = ids.iter().copied().filter(|id| !self.open.contains_key(id)).collect();
        let seqs = ids.into_iter().filter_map(|id| self.seq_of(id).transpose());
        let mut seqs = seqs.collect::<Result<Vec<_>>>()?;
        // In the order of the table, which is faster to delete in.
        seqs.sort_unstable();
        Ok(seqs)
    }

    fn seq_of(&self, id: FlowId) -> Result<Option<i64>> {
        use rusqlite::OptionalExtension;
        let mut statement = self.db.prepare_cached("SELECT seq FROM flows WHERE id = ?")?;
        statement.query_row([id.to_u128().to_be_bytes()], |r| r.get(0)).optional().map_err(StoreError::from)
    }
}

/// Applies a change of tags and comment to a row.
fn annotate(row: &mut FlowRecord, change: &FlowAnnotation) {
    change.apply(&mut row.tags, &mut row.comment);
}

impl FlowAnnotation {
    pub fn apply(&self, tags: &mut Vec<String>, recorded: &mut Option<String>) {
        tags.retain(|t| !self.remove_tags.contains(t));
        for tag in &self.add_tags {
            // Tags are separated by line breaks in the database.
            // Otherwise one tag would be read back as two.
            let tag = tag.replace(['\n', '\r'], " ");
            if !tag.trim().is_empty() && !tags.contains(&tag) {
                tags.push(tag);
            }
        }
        if let Some(comment) = &self.comment {
            // An empty comment removes it.
            *recorded = (!comment.is_empty()).then(|| comment.clone());
        }
    }
}
