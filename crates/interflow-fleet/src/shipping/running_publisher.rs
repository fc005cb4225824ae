//! Publishes the flows in progress at this replica: see `reading/running.rs`.
//!
//! Nothing waits for this: a task reads the spool about once a second, and only writes what has changed. While the
//! database does not answer, it tries again at each interval.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use interflow_store::stored_form::SpooledRow;
use interflow_store::{Result, SqliteStore, StoreError};
use interflow_tasks::AbortOnDrop;
use interflow_types::Timestamp;
use tokio::task::spawn_blocking;
use tokio_postgres::Error;
use uuid::Uuid;

use crate::database::connect::PooledClient;
use crate::database::copy_format::{CopyRows, CopyWriter};
use crate::database::pool::{Database, STATEMENT_PATIENCE};
use crate::reading::running::CHANGED;
use crate::shipping::insert::{make_temporary, notify};
use crate::shipping::spooled_flow::{SpooledFlow, WRITTEN};

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

const NEW_RUNNING: &str =
    "CREATE TEMPORARY TABLE new_running ON COMMIT DELETE ROWS AS SELECT {columns} FROM running_flows WITH NO DATA";

/// A flow in the form in which it is published.
#[derive(Clone)]
struct RunningFlow {
    id: Uuid,
    seq: i64,
    /// Its row, in the columns of [`WRITTEN`].
    row: CopyRows,
}

impl RunningFlow {
    fn new(flow: &SpooledFlow, replica: &str) -> Result<Self> {
        let mut row = CopyRows::with_capacity(1024);
        flow.write_head(&mut row, replica)?;
        Ok(Self { id: flow.uuid(), seq: flow.seq, row })
    }
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
pub(crate) struct RunningPublisher(AbortOnDrop<()>);

impl RunningPublisher {
    /// Ends publishing; what was published stays until somebody deletes it.
    pub(crate) fn stop(&self) {
        self.0.0.abort();
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
        let read = spawn_blocking(move || {
            let publish = |row: SpooledRow<'_>| RunningFlow::new(&SpooledFlow::read(row)?, &replica);
            spool.running_flows(before, &published, MAX_FLOWS, &publish)
        })
        .await;
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
            let row_count: i64 = run(&self.database, count).await?.get(0);
            self.unchecked = 0;
            self.is_known = usize::try_from(row_count) == Ok(self.published.len());
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
    database
        .complete(database.no_answer_after(STATEMENT_PATIENCE), job)
        .await?
        .map_err(|e| database.connector.explain(&e))
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
        notify(&transaction, database, &format!("{CHANGED}{revision}")).await?;
    }
    transaction.commit().await
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
