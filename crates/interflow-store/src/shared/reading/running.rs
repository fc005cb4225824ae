//! Flows in progress, of all replicas: each publishes those that run for long, as its recorder has stored them so far, in
//! rows like those of finished flows, but without bodies and messages. Others read them from the database when somebody
//! looks.
//!
//! Nothing waits for this: a task reads the spool about once a second, and only writes what has changed. While the
//! database does not answer, it tries again at each interval.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use interflow_types::{Direction, FlowId, Timestamp};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio_postgres::{Client, Error};
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::model::{BodyRecord, FlowRecord, MissingReason};
use crate::shared::database::connect::PooledClient;
use crate::shared::database::copy_format::{CopyRows, CopyWriter};
use crate::shared::database::pool::Database;
use crate::shared::reading::select;
use crate::shared::reading::select::FlowTable;
use crate::shared::shipping::insert::make_temporary;
use crate::shared::shipping::spooled_flow::WRITTEN;
use crate::shared::state::instances::SILENT_SECONDS;
use crate::shared::state::pending::STATEMENT_PATIENCE;
use crate::shared::store::SharedStore;
use crate::store::{ListOptions, SqliteStore};
use crate::stored_flow::StoredFlow;

const INTERVAL: Duration = Duration::from_secs(1);
/// Flows that have run for less are not published: most end before. With the interval, a flow is seen elsewhere within two
/// seconds.
const MIN_AGE: Duration = Duration::from_millis(750);
/// What a replica publishes: the flows that have been running for longest, which have been invisible elsewhere for longest.
/// That choice is also the one that changes least.
const MAX_FLOWS: usize = 1000;
const MAX_BYTES: usize = 8 << 20;
/// After so many intervals it is made sure that the rows are still there: an unlogged table is empty after a crash of the
/// server, and others delete the rows of a process that was silent.
const CHECK_INTERVALS: u32 = 10;
/// Begins the notification that rows of a replica have changed; its revision follows, or nothing if rows were deleted.
pub(crate) const CHANGED: char = '~';

const NEW_RUNNING: &str =
    "CREATE TEMPORARY TABLE new_running ON COMMIT DELETE ROWS AS SELECT {columns} FROM running_flows WITH NO DATA";

/// The rows `running_flows f` that count, for another process than the one whose name is this parameter.
/// Each row is looked up in `flows` by itself, which reads one partition; a join might read all.
pub(crate) fn condition(own: &str) -> String {
    format!(
        "f.replica <> {own} AND {IS_UNFINISHED} AND EXISTS (SELECT 1 FROM instances i WHERE i.name = f.replica \
         AND i.seen >= clock_timestamp() - make_interval(secs => {SILENT_SECONDS}))"
    )
}

/// For the moment between the end of a flow and the next refresh of its replica.
pub(crate) const IS_UNFINISHED: &str = "(SELECT d.position FROM flows d WHERE d.id = f.id) IS NULL";

/// The row of another replica's flow as it is shown: its bodies are at that replica only.
pub(crate) fn without_bodies(mut stored: StoredFlow) -> StoredFlow {
    let hide = |body: &mut BodyRecord| {
        (body.kept, body.head_sha256) = (0, None);
        if body.size > 0 {
            body.missing = Some(MissingReason::Elsewhere);
        }
    };
    let row = &mut stored.row;
    row.request.iter_mut().for_each(|r| hide(&mut r.body));
    row.response.iter_mut().for_each(|r| hide(&mut r.body));
    if let Some(original) = row.original.as_deref_mut() {
        for side in [Direction::Request, Direction::Response] {
            original.edited_body_mut(side).into_iter().for_each(hide);
        }
    }
    stored.inline = Default::default();
    stored
}

impl SharedStore {
    /// A finished flow in the database.
    pub(crate) fn stored(&self, id: FlowId) -> Result<StoredFlow> {
        match select::get(&self.database, id)? {
            Some((stored, None)) => Ok(stored),
            Some((_, Some(replica))) => Err(StoreError::Elsewhere { id, replica }),
            None => Err(StoreError::NotFound(id)),
        }
    }

    /// The row of a flow in the database, which may be in progress at another replica.
    pub(crate) fn found_row(&self, id: FlowId) -> Result<FlowRecord> {
        match select::get(&self.database, id)? {
            Some((stored, _)) => Ok(stored.row),
            None => Err(StoreError::NotFound(id)),
        }
    }

    /// Calls `each` for the flows in progress at other replicas that a query selects.
    pub(crate) fn for_each_running(
        &self,
        options: &ListOptions,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
        each: &mut dyn FnMut(FlowRecord) -> ControlFlow<()>,
    ) -> Result<()> {
        if !self.database.has_unlogged_tables() {
            return Ok(());
        }
        let each = &mut |stored: StoredFlow| each(stored.row);
        select::for_each_match_in(FlowTable::Running, &self.database, &self.calls(), options, watch, each)
    }
}

/// A flow in the form in which it is published.
#[derive(Clone)]
pub(crate) struct RunningFlow {
    pub(crate) id: Uuid,
    pub(crate) seq: i64,
    /// Its row, in the columns of [`WRITTEN`].
    pub(crate) row: CopyRows,
}

/// The first of these flows that are within the bounds, which come in the order of their beginnings.
fn bounded(flows: Vec<RunningFlow>, max_flows: usize, max_bytes: usize) -> Vec<RunningFlow> {
    let mut bytes = 0;
    let mut published: Vec<_> = flows
        .into_iter()
        .take_while(|flow| {
            bytes += flow.row.as_bytes().len();
            bytes <= max_bytes
        })
        .collect();
    published.truncate(max_flows);
    published
}

/// Ends when dropped.
pub(crate) struct RunningPublisher(AbortHandle);

impl Drop for RunningPublisher {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl RunningPublisher {
    /// Ends publishing; what was published stays until somebody deletes it.
    pub(crate) fn stop(&self) {
        self.0.abort();
    }

    pub(crate) fn start(database: &Database, spool: &Arc<SqliteStore>) -> Self {
        let publishing = Publishing {
            database: database.clone(),
            spool: Arc::downgrade(spool),
            published: HashMap::new(),
            is_known: true,
            revision: i64::try_from(Timestamp::now().micros()).unwrap_or_default(),
            unchecked: 0,
        };
        Self(database.spawn_abortable(publishing.run()))
    }
}

struct Publishing {
    database: Database,
    spool: Weak<SqliteStore>,
    /// What was published last.
    published: HashMap<Uuid, RunningFlow>,
    /// Whether exactly that is in the database. After an error it is unknown what is there.
    is_known: bool,
    revision: i64,
    /// Intervals since it was last made sure that the rows are there.
    unchecked: u32,
}

impl Publishing {
    async fn run(mut self) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            match self.read().await {
                Err(StoreError::Closed) => return,
                Err(error) => tracing::debug!(%error, "flows in progress cannot be read"),
                Ok(None) => {}
                Ok(Some(running)) => match self.refresh(running).await {
                    Ok(()) => {}
                    Err(error) => {
                        self.is_known = false;
                        tracing::debug!(%error, "flows in progress are seen at their own replica only for now");
                    }
                },
            }
        }
    }

    /// What is to be published; `None` if neither anything runs nor anything is published.
    async fn read(&self) -> Result<Option<Vec<RunningFlow>>> {
        let spool = self.spool.upgrade().ok_or(StoreError::Closed)?;
        if self.is_known && self.published.is_empty() && !spool.has_open_flows() {
            return Ok(None);
        }
        let published: Vec<i64> = self.published.values().map(|flow| flow.seq).collect();
        let before = Timestamp::from_micros(Timestamp::now().micros().saturating_sub(MIN_AGE.as_micros() as u64));
        let replica = Arc::clone(&self.database.replica);
        // Its last owner may be this task, and closing it blocks.
        let read = spawn_blocking(move || spool.running_flows(before, &published, MAX_FLOWS, &replica)).await;
        let (mut running, ended) = read.map_err(|_| StoreError::Closed)??;
        // One that has ended stays as it was until the table of flows has it.
        running.extend(self.published.values().filter(|flow| ended.contains(&flow.seq)).cloned());
        Ok(Some(bounded(running, MAX_FLOWS, MAX_BYTES)))
    }

    /// Makes the rows of this replica equal to these, in one transaction.
    async fn refresh(&mut self, running: Vec<RunningFlow>) -> Result<()> {
        if self.unchecked >= CHECK_INTERVALS && self.is_known && !self.published.is_empty() {
            let replica = Arc::clone(&self.database.replica);
            let count = async move |client: PooledClient| {
                let sql = "SELECT count(*) FROM running_flows WHERE replica = $1";
                client.query_one(sql, &[&&*replica]).await
            };
            let found: i64 = run(&self.database, count).await?.get(0);
            self.unchecked = 0;
            self.is_known = usize::try_from(found) == Ok(self.published.len());
        }
        self.unchecked += 1;
        let running: HashMap<Uuid, RunningFlow> = running.into_iter().map(|flow| (flow.id, flow)).collect();
        let is_current = |flow: &RunningFlow| {
            self.is_known
                && self.published.get(&flow.id).is_some_and(|known| known.row.as_bytes() == flow.row.as_bytes())
        };
        let changed: Vec<RunningFlow> = running.values().filter(|flow| !is_current(flow)).cloned().collect();
        let gone: Vec<Uuid> = self.published.keys().filter(|id| !running.contains_key(*id)).copied().collect();
        if self.is_known && changed.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let gone = self.is_known.then_some(gone);
        self.revision += 1;
        // Before it is written: a row that was not is written again.
        self.published = running;
        let (database, revision) = (self.database.clone(), self.revision);
        run(&self.database, async move |client| write(client, &database, revision, &changed, gone).await).await?;
        self.is_known = true;
        Ok(())
    }
}

/// Runs statements for as long as a database that answers needs.
async fn run<T, F>(database: &Database, job: impl FnOnce(PooledClient) -> F) -> Result<T>
where
    F: Future<Output = Result<T, Error>>,
{
    let end = async {
        tokio::time::sleep(STATEMENT_PATIENCE).await;
        database.connector.no_answer()
    };
    database.complete(end, job).await?.map_err(|e| database.connector.explain(&e))
}

/// Writes rows, and deletes those that are gone; all others of this replica if it is not known which are there.
async fn write(
    mut client: PooledClient,
    database: &Database,
    revision: i64,
    changed: &[RunningFlow],
    gone: Option<Vec<Uuid>>,
) -> Result<(), Error> {
    let replica = &*database.replica;
    if !changed.is_empty() {
        make_temporary(&client, "new_running", NEW_RUNNING).await?;
    }
    let transaction = client.transaction().await?;
    match gone {
        Some(gone) if gone.is_empty() => {}
        Some(gone) => {
            let sql = "DELETE FROM running_flows WHERE replica = $1 AND id = ANY($2)";
            transaction.execute(sql, &[&replica, &gone]).await?;
        }
        None => drop(transaction.execute("DELETE FROM running_flows WHERE replica = $1", &[&replica]).await?),
    }
    if !changed.is_empty() {
        let mut writer = CopyWriter::begin(&transaction, &format!("new_running({WRITTEN})")).await?;
        for flow in changed {
            writer.rows.values(&flow.row);
            writer.send_piece().await?;
        }
        writer.finish().await?;
        let assignments: Vec<String> =
            WRITTEN.split(',').map(str::trim).map(|column| format!("{column} = excluded.{column}")).collect();
        let sql = format!(
            "INSERT INTO running_flows(position, {WRITTEN}) SELECT $1, {WRITTEN} FROM new_running \
             ON CONFLICT (id) DO UPDATE SET position = excluded.position, {}",
            assignments.join(", ")
        );
        transaction.execute(&sql, &[&revision]).await?;
        crate::shared::shipping::insert::notify(&transaction, database, &format!("{CHANGED}{revision}")).await?;
    }
    transaction.commit().await
}

/// Deletes the rows of processes that are silent; returns whether there were any.
pub(crate) async fn delete_silent(client: &Client, database: &Database) -> Result<bool, Error> {
    let sql = "WITH gone AS (DELETE FROM running_flows f WHERE NOT EXISTS (SELECT 1 FROM instances i \
                 WHERE i.name = f.replica AND i.seen >= clock_timestamp() - make_interval(secs => $1)) RETURNING 1), \
               found AS (SELECT count(*) AS rows FROM gone) \
               SELECT rows, CASE WHEN rows > 0 THEN pg_notify($2, $3)::text END FROM found";
    let payload = format!("{} {CHANGED}", database.replica);
    let deleted = client.query_one(sql, &[&SILENT_SECONDS, &database.channel(), &payload]).await?;
    Ok(deleted.get::<_, i64>(0) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(seq: i64, bytes: usize) -> RunningFlow {
        let mut row = CopyRows::default();
        // Its length comes before a value.
        row.bytes(&vec![0; bytes - 4]);
        RunningFlow { id: Uuid::from_u128(seq as u128), seq, row }
    }

    #[test]
    fn the_longest_running_flows_are_published_up_to_a_number_and_a_size() {
        let published = |flows: &[usize]| -> Vec<i64> {
            let flows = flows.iter().zip(0..).map(|(bytes, seq)| flow(seq, *bytes)).collect();
            bounded(flows, 3, 100).iter().map(|flow| flow.seq).collect()
        };
        assert_eq!(published(&[]), [0; 0]);
        assert_eq!(published(&[10, 10, 10]), [0, 1, 2]);
        assert_eq!(published(&[10, 10, 10, 10]), [0, 1, 2]);
        assert_eq!(published(&[60, 40, 10]), [0, 1]);
        assert_eq!(published(&[101]), [0; 0]);
        // None is left out for one that began later.
        assert_eq!(published(&[10, 200, 10]), [0]);
    }
}
