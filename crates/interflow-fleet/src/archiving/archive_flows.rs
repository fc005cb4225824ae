//! Flows of the shared store as its archive reads them: each once, whichever replica recorded it and whenever it arrived.
//!
//! Flows that wait in a replica's spool are not read: they get their position when they arrive, and are found by it then.

use interflow_store::stored_form::is_of_row;
use interflow_store::{BODIES, FlowParts, LoadedFlow, Result, StoredFlow};
use interflow_types::FlowId;
use tokio_postgres::Row;

use crate::archiving::archive::{ArchiveTurn, SharedArchiveState};
use crate::conversations::columns::{flow_of, number};
use crate::database::rows::{self, READ, clean, signed, uuid_of};
use crate::reading::bodies;
use crate::store::SharedStore;

impl SharedStore {
    /// A flow with its bodies, each loaded with one read up to where it is damaged, unless it is longer than this.
    pub fn load(&self, flow: StoredFlow, parts: FlowParts, longest: u64) -> Result<LoadedFlow> {
        let mut loaded = LoadedFlow::new(flow.row, parts);
        for (side, (direction, received)) in BODIES.into_iter().enumerate().take(parts.bodies()) {
            let length = loaded.row.recorded_body(direction, received).map_or(0, |body| body.kept);
            if length > 0 && length <= longest {
                let reader = bodies::reader(&self.database, loaded.row.id, side, flow.inline[side].clone(), 0..length);
                loaded.bodies[side] = Some(reader.read_intact()?);
            }
        }
        Ok(loaded)
    }

    pub fn archive_turn(&self, place: &str) -> ArchiveTurn {
        ArchiveTurn::new(&self.database, place)
    }

    /// # Errors
    /// A database error.
    pub fn archive_state(&self, place: &str) -> Result<SharedArchiveState> {
        let destination = clean(place);
        let row = self.database.run(move |client| async move {
            let sql =
                "SELECT cursor, CASE WHEN expires > clock_timestamp() THEN holder END FROM archives WHERE place = $1";
            client.query_opt(sql, &[&destination]).await
        })?;
        Ok(row.map_or_else(SharedArchiveState::default, |row| SharedArchiveState {
            cursor: row.get(0),
            holder: row.get(1),
        }))
    }

    /// The record is archived to this place from now on: with `archive_before_delete`, retention asks how far it is there, and
    /// until then deletes nothing.
    pub fn begin_archiving(&self, place: &str) {
        let _ = self.database.archive_place.set(place.into());
        self.database.retention_due.notify_one();
    }

    /// The position of the flow that arrived last; `None` if there is none.
    ///
    /// # Errors
    /// A database error, here and below.
    pub fn newest_position(&self) -> Result<Option<u64>> {
        let row = self
            .database
            .run(|client| async move { client.query_one("SELECT max(position) FROM flows", &[]).await })?;
        Ok(row.get::<_, Option<i64>>(0).map(i64::unsigned_abs))
    }

    /// The first flow after this one that arrived up to a position.
    pub fn first_flow_after(&self, after: FlowId, through: u64) -> Result<Option<FlowId>> {
        let (after, through) = (uuid_of(after), signed(through));
        let rows = self.database.run(move |client| async move {
            let sql = "SELECT id FROM flows WHERE id > $1 AND position <= $2 ORDER BY id LIMIT 1";
            client.query_opt(sql, &[&after, &through]).await
        })?;
        Ok(rows.map(|row| flow_of(row.get(0))))
    }

    /// Flows between two ids, without these, that arrived up to a position; the first `limit` of them in the order of their
    /// ids, and the last id that was read. Damaged ones are left out.
    pub fn flows_between(
        &self,
        (after, before): (FlowId, FlowId),
        through: u64,
        limit: usize,
    ) -> Result<(Vec<StoredFlow>, Option<FlowId>)> {
        let (after, before, through) = (uuid_of(after), uuid_of(before), signed(through));
        let limit = limit as i64;
        let rows = self.database.run(move |client| async move {
            let sql = format!(
                "SELECT {READ} FROM flows f WHERE f.id > $1 AND f.id < $2 AND f.position <= $3 ORDER BY f.id LIMIT $4"
            );
            let statement = client.prepare_cached(&sql).await?;
            client.query(&statement, &[&after, &before, &through, &limit]).await
        })?;
        let last = rows.last().filter(|_| rows.len() as i64 == limit).map(|row| flow_of(row.get(0)));
        Ok((self.read_flows(&rows)?, last))
    }

    /// Those of these flows that are there, in the order of their ids.
    pub fn flows_of(&self, ids: &[FlowId]) -> Result<Vec<StoredFlow>> {
        let ids: Vec<_> = ids.iter().copied().map(uuid_of).collect();
        let rows = self.database.run(move |client| async move {
            let sql = format!("SELECT {READ} FROM flows f WHERE f.id = ANY($1) ORDER BY f.id");
            let statement = client.prepare_cached(&sql).await?;
            client.query(&statement, &[&ids]).await
        })?;
        self.read_flows(&rows)
    }

    /// Flows that began before one and arrived after a position, up to another one; the first `limit` of them in the order
    /// of their arrival, and the position up to which these are all.
    pub fn arrived_between(
        &self,
        (after, through): (u64, u64),
        before: FlowId,
        limit: usize,
    ) -> Result<(Vec<FlowId>, u64)> {
        let (from, to, before) = (signed(after), signed(through), uuid_of(before));
        let rows = limit as i64;
        let found = self.database.run(move |client| async move {
            let sql = "SELECT id, position FROM flows WHERE position > $1 AND position <= $2 AND id < $3 \
                 ORDER BY position LIMIT $4";
            client.query(sql, &[&from, &to, &before, &rows]).await
        })?;
        let complete = found.last().filter(|_| found.len() == limit).map_or(through, |row| number(row, 1));
        Ok((found.iter().map(|row| flow_of(row.get(0))).collect(), complete))
    }

    fn read_flows(&self, found: &[Row]) -> Result<Vec<StoredFlow>> {
        let mut flows = Vec::with_capacity(found.len());
        for row in found {
            match rows::read(row) {
                Ok(stored) => flows.push(stored),
                Err(error) if is_of_row(&error) => {
                    tracing::warn!(%error, "a damaged flow of the shared store is not archived");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(flows)
    }
}
