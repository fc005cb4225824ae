//! The processes that record to the shared store: each writes a row every few seconds.

use interflow_store::{InstanceReport, InstanceRow, Result};
use interflow_types::Timestamp;
use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

use crate::conversations::columns::{micros, number};
use crate::database::pool::Database;
use crate::database::rows::{clean, signed};
use crate::reading::running::{self, SILENT_SECONDS};

/// Rows of processes that have been silent for this long are deleted.
const FORGOTTEN: &str = "1 hour";

/// By how much this machine's clock is ahead of the server's, in microseconds.
pub(crate) async fn clock_ahead(client: &Client) -> Result<i64, Error> {
    let before = Timestamp::now().micros();
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let server: i64 = client.query_one(sql, &[]).await?.get(0);
    // Halfway between question and answer.
    let here = before.midpoint(Timestamp::now().micros());
    Ok(signed(here).saturating_sub(server))
}

/// What a report says besides what the caller knows.
pub(crate) struct OwnReport {
    pub(crate) report: InstanceReport,
    pub(crate) waiting_flows: u64,
    /// This process among those that may index.
    pub(crate) holder: Uuid,
}

/// Writes the row of this process, and deletes those of processes that are silent. Returns by how much this machine's clock is
/// ahead, and whether flows of silent processes were deleted.
pub(crate) fn write_report(database: &Database, own: OwnReport) -> Result<(i64, bool)> {
    let shared = database.clone();
    database.transact(async move |client| {
        let OwnReport { report, waiting_flows, holder } = own;
        let ahead = clock_ahead(&client).await?;
        let sql = "INSERT INTO instances(name, version, address, config_digest, started, open_flows, connections, \
             waiting_flows, clock_ahead, holder, seen) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, clock_timestamp()) \
             ON CONFLICT (name) DO UPDATE SET address = excluded.address, config_digest = excluded.config_digest, \
             open_flows = excluded.open_flows, connections = excluded.connections, \
             waiting_flows = excluded.waiting_flows, clock_ahead = excluded.clock_ahead, seen = excluded.seen";
        let (version, address, digest) =
            (clean(&report.version), clean(&report.address), clean(&report.config_digest));
        let [open, connections, waiting] = [report.open_flows, report.connections, waiting_flows].map(signed);
        let (name, started) = (&*shared.replica, micros(report.started));
        let statement = client.prepare_cached(sql).await?;
        client
            .execute(
                &statement,
                &[&name, &version, &address, &digest, &started, &open, &connections, &waiting, &ahead, &holder],
            )
            .await?;
        let sql = format!("DELETE FROM instances WHERE seen < clock_timestamp() - interval '{FORGOTTEN}'");
        client.execute(&sql, &[]).await?;
        Ok((ahead, running::delete_silent(&client, &shared).await?))
    })
}

/// Removes the row of this process, which ends.
pub(crate) fn remove_report(database: &Database) {
    let name = database.replica.to_string();
    let removed = database.run(async move |client| {
        client.execute("DELETE FROM running_flows WHERE replica = $1", &[&name]).await?;
        client.execute("DELETE FROM instances WHERE name = $1", &[&name]).await
    });
    if let Err(error) = removed {
        tracing::debug!(%error, "this process stays in the list of instances for a while");
    }
}

pub(crate) fn read_reports(database: &Database) -> Result<Vec<InstanceRow>> {
    let own = database.replica.to_string();
    database.run(async move |client| {
        let sql = "SELECT i.name, i.version, i.address, i.config_digest, i.started, i.open_flows, i.connections, \
             i.waiting_flows, i.clock_ahead, (extract(epoch FROM i.seen) * 1000000)::bigint, \
             i.seen < clock_timestamp() - make_interval(secs => $1), \
             coalesce(c.holder = i.holder AND c.expires > clock_timestamp(), false), \
             EXISTS (SELECT FROM archives a WHERE a.holder = i.name AND a.expires > clock_timestamp()) \
             FROM instances i CROSS JOIN conversation_index c ORDER BY i.started, i.name";
        let rows = client.query(sql, &[&SILENT_SECONDS]).await?;
        Ok(rows.iter().map(|row| instance(row, &own)).collect())
    })
}

fn instance(row: &Row, own: &str) -> InstanceRow {
    let time = |at| Timestamp::from_micros(number(row, at));
    let name: String = row.get(0);
    InstanceRow {
        own: name == own,
        name,
        version: row.get(1),
        address: row.get(2),
        config_digest: row.get(3),
        started: time(4),
        open_flows: number(row, 5),
        connections: number(row, 6),
        waiting_flows: number(row, 7),
        clock_ahead_millis: row.get::<_, i64>(8) / 1000,
        seen: time(9),
        silent: row.get(10),
        indexes_conversations: row.get(11),
        archives: row.get(12),
    }
}
