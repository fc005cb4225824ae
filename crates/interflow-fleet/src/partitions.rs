//! Partitions by day, and retention by dropping them. One replica at a time does this; the others find it done.

use std::sync::Arc;
use std::time::Duration;

use interflow_store::Result;
use interflow_store::stored_form::RetentionClock;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, GenericClient, Transaction};
use uuid::Uuid;

use crate::archiving::archive::ArchivedFlows;
use crate::change::delete_where;
use crate::conversations::write::detach_flows;
use crate::database::migrate;
use crate::database::pool::Database;
use crate::shipping::objects::{self, COUNT_DOWN};
use crate::state::instances;

/// How often partitions are made and old ones dropped.
const INTERVAL: Duration = Duration::from_secs(600);
/// Days whose partitions are made: yesterday's for replicas whose clock is late, and those of the next days.
const DAYS: std::ops::RangeInclusive<i64> = -1..=3;
const DAY_MILLIS: i64 = 86_400_000;
/// The number of the advisory lock of whoever does this.
const LOCK: i64 = 0x1f10_3707_0003;
/// How long a replica that starts waits for another one that does this.
const LOCK_LIMIT: Duration = Duration::from_secs(120);
/// How long this may take; deleting imported flows may take long.
const MAINTENANCE_LIMIT: Duration = Duration::from_secs(1800);
/// How often a day is tried to be dropped while others read or write it, and for how long each time: whoever comes after
/// that waits behind it.
const DROP_ATTEMPTS: u32 = 5;
const DROP_LOCK_LIMIT: &str = "SET LOCAL lock_timeout = '2s'";
const DROP_PAUSE: Duration = Duration::from_secs(1);
/// How long objects are deleted in one turn.
const DELETE_LIMIT: Duration = Duration::from_secs(300);
/// A process whose clock differs by more than this from the server's does not apply retention, in microseconds: one of both is
/// wrong.
const MAX_CLOCK_DIFFERENCE: u64 = 10 * 60_000_000;
/// Partitioned tables, in the order in which transactions that store flows lock them.
const TABLES: [&str; 3] = ["bodies", "messages", "flows"];

/// Makes partitions and applies retention, now and then at intervals, until the runtime ends.
pub(crate) fn start(database: &Database, expired: impl Fn(u64) + Send + Sync + 'static) -> Result<()> {
    let (first, expired) = (database.clone(), Arc::new(expired));
    let counted = Arc::clone(&expired);
    // Waits for another replica that makes them: a flow that came before its partition would keep it from being made.
    database.wait_for(async move { maintain(&first, &*counted, true).await })?;
    let database = database.clone();
    database.clone().spawn(async move {
        loop {
            if let Err(error) = maintain(&database, &*expired, false).await {
                tracing::warn!(%error, "cannot create or drop partitions of the shared store; retrying");
            }
            let _ = tokio::time::timeout(INTERVAL, database.retention_due.notified()).await;
        }
    });
    Ok(())
}

async fn maintain(database: &Database, expired: &(dyn Fn(u64) + Send + Sync), wait: bool) -> Result<()> {
    // A connection of its own: with it ends the lock, however this ends.
    let mut client = database.connector.client().await?;
    let explain = |e: Error| database.connector.explain(&e);
    if wait {
        migrate::lock(&database.connector, &client, LOCK, LOCK_LIMIT).await?;
    } else {
        let lock = client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await.map_err(explain)?;
        if !lock.get::<_, bool>(0) {
            return Ok(());
        }
    }
    let work = make_and_drop(&mut client, database, expired);
    let done = tokio::time::timeout(MAINTENANCE_LIMIT, work).await;
    done.map_err(|_| database.connector.no_answer())?.map_err(explain)?;
    // At the start, others wait for this one.
    if !wait && let Err(error) = objects::delete_unneeded(database, DELETE_LIMIT).await {
        tracing::warn!(%error, "cannot delete unreferenced objects; retrying");
    }
    // The server notices the end of the connection a moment later: the turn that follows would find the lock held.
    client.query_one("SELECT pg_advisory_unlock($1)", &[&LOCK]).await.map(drop).map_err(explain)
}

async fn make_and_drop(
    client: &mut Client,
    database: &Database,
    expired: &(dyn Fn(u64) + Send + Sync),
) -> Result<(), Error> {
    // What an earlier attempt left behind.
    delete_detached(client).await?;
    objects::give_up_unfinished(client).await?;
    // By the server's clock: a replica's own one would judge the flows of all.
    let server = server_time(client).await?;
    for day in DAYS.map(|offset| day_of_time(server) + offset) {
        make_day(client, day).await?;
    }
    let (age, bytes) = {
        let config = database.config.load();
        (config.retention_age.0, config.retention_bytes.0)
    };
    let Some(now) = retention_time(client, age).await? else { return Ok(()) };
    let (today, age) = (day_of_time(now), age.as_micros() as i64);
    let archived = ArchivedFlows::read(client, database).await?;
    let mut days = existing_days(client).await?;
    if age > 0 {
        // A day is dropped once its last flow is too old.
        while let Some(day) = days.first().copied().filter(|day| (day + 1) * DAY_MILLIS * 1000 < now - age) {
            let Some(flows) = drop_day(client, day, archived).await? else { break };
            expired(flows);
            days.remove(0);
        }
        expired(delete_old_imports(client, now - age, archived).await?);
    }
    // The days that have ended, the oldest first, until the rest fits.
    while bytes > 0
        && days.first().is_some_and(|day| *day < today)
        && taken_bytes(client).await? + objects::taken_bytes(client).await? > bytes
    {
        let Some(flows) = drop_day(client, days.remove(0), archived).await? else { break };
        expired(flows);
    }
    Ok(())
}

/// The server's time in microseconds since the Unix epoch.
async fn server_time(client: &impl GenericClient) -> Result<i64, Error> {
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

const fn day_of_time(micros: i64) -> i64 {
    micros / 1000 / DAY_MILLIS
}

/// The time by which flows are too old or not, in microseconds since the Unix epoch: the server's, unless that has jumped.
/// `None` if the clock of this machine is another one, and it is not known which of both is wrong.
async fn retention_time(client: &mut Client, age: Duration) -> Result<Option<i64>, Error> {
    let ahead = instances::clock_ahead(client).await?;
    if ahead.unsigned_abs() > MAX_CLOCK_DIFFERENCE {
        tracing::warn!(
            "retention is left to other replicas: this machine's clock differs by {:+.0} s from that of the shared store; set \
             the one that is wrong, for example by NTP",
            ahead as f64 / 1e6
        );
        return Ok(None);
    }
    if age.is_zero() {
        return server_time(client).await.map(Some);
    }
    let transaction = client.transaction().await?;
    let mut clock = read_clock(&transaction, true).await?;
    clock.look(server_time(&transaction).await?.unsigned_abs(), age);
    let [time, seen, watched] = [clock.time, clock.seen, clock.watched].map(|micros| micros as i64);
    transaction
        .execute("UPDATE retention_clock SET time = $1, seen = $2, watched = $3", &[&time, &seen, &watched])
        .await?;
    transaction.commit().await?;
    Ok(Some(time))
}

/// Why retention by age waits, if it does.
pub(crate) async fn retention_waits(client: &Client) -> Result<Option<String>, Error> {
    Ok(read_clock(client, false).await?.waits_because())
}

async fn read_clock(client: &impl GenericClient, for_update: bool) -> Result<RetentionClock, Error> {
    let lock = if for_update { "FOR UPDATE" } else { "" };
    let row = client.query_one(&format!("SELECT time, seen, watched FROM retention_clock {lock}"), &[]).await?;
    let [time, seen, watched] = [0, 1, 2].map(|at| row.get::<_, i64>(at).unsigned_abs());
    Ok(RetentionClock { time, seen, watched })
}

async fn make_day(client: &Client, day: i64) -> Result<(), Error> {
    let name = day_name(day);
    for table in TABLES {
        let exists = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&format!("{table}_{name}")]).await?;
        if exists.get::<_, bool>(0) {
            continue;
        }
        let sql = format!(
            "CREATE TABLE IF NOT EXISTS {table}_{name} PARTITION OF {table} FOR VALUES FROM ('{}') TO ('{}')",
            first_id(day),
            first_id(day + 1)
        );
        if let Err(error) = client.batch_execute(&sql).await {
            // Flows of that day are in the default partition already, and stay there.
            let Some(refused) = error.as_db_error() else { return Err(error) };
            tracing::warn!(table, day = name, "no partition for this day: {}", refused.message());
        }
    }
    Ok(())
}

/// Drops the partitions of a day; returns how many flows they held, or `None` if one of them is not archived yet.
async fn drop_day(client: &mut Client, day: i64, archived: Option<ArchivedFlows>) -> Result<Option<u64>, Error> {
    for attempt in 1.. {
        match try_drop_day(client, day, archived).await {
            Err(e) if e.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) && attempt < DROP_ATTEMPTS => {
                tokio::time::sleep(DROP_PAUSE).await;
            }
            done => return done,
        }
    }
    Ok(Some(0))
}

/// All in one transaction: flows must not stay behind without their bodies.
async fn try_drop_day(client: &mut Client, day: i64, archived: Option<ArchivedFlows>) -> Result<Option<u64>, Error> {
    let name = day_name(day);
    let transaction = client.transaction().await?;
    transaction.batch_execute(DROP_LOCK_LIMIT).await?;
    // Absent if an earlier build dropped the flows alone.
    let exists = transaction.query_one("SELECT to_regclass($1) IS NOT NULL", &[&format!("flows_{name}")]).await?;
    let exists = exists.get::<_, bool>(0);
    if let Some(archived) = archived.filter(|_| exists) {
        if archived.keep_from < first_id(day + 1) || has_arrived(&transaction, &name, archived.position).await? {
            tracing::debug!(day = name, "retention waits for the archive");
            return Ok(None);
        }
        // The locks that the drop takes, before the last look: nothing can arrive in between. In the order of those who
        // insert.
        let lock = "LOCK TABLE ONLY bodies, ONLY messages, ONLY flows IN ACCESS EXCLUSIVE MODE";
        transaction.batch_execute(lock).await?;
        if has_arrived(&transaction, &name, archived.position).await? {
            return Ok(None);
        }
    }
    detach_flows(&transaction, "flow >= $1 AND flow < $2", &[&first_id(day), &first_id(day + 1)]).await?;
    let flows = match exists {
        true => transaction.query_one(&format!("SELECT count(*) FROM flows_{name}"), &[]).await?.get::<_, i64>(0),
        false => 0,
    };
    // In the order in which they are written, or both would wait for each other. The rows of bodies are counted afterwards:
    // that takes longer than others should wait for these tables.
    let is_attached = "SELECT EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid = to_regclass($1))";
    if transaction.query_one(is_attached, &[&format!("bodies_{name}")]).await?.get::<_, bool>(0) {
        transaction.batch_execute(&format!("ALTER TABLE bodies DETACH PARTITION bodies_{name}")).await?;
    }
    for table in ["messages", "flows"] {
        transaction.batch_execute(&format!("DROP TABLE IF EXISTS {table}_{name}")).await?;
    }
    transaction.commit().await?;
    delete_detached(client).await?;
    tracing::info!(day = name, flows, "retention dropped a day of the shared store");
    Ok(Some(flows.unsigned_abs()))
}

/// Drops partitions of bodies that belong to no table any more, and counts down their objects.
async fn delete_detached(client: &mut Client) -> Result<(), Error> {
    let sql = "SELECT c.relname FROM pg_class c JOIN pg_class parent ON parent.oid = 'bodies'::regclass \
               WHERE c.relnamespace = parent.relnamespace AND c.relkind = 'r' AND c.relname ~ '^bodies_[0-9]{8}$' \
               AND NOT EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid = c.oid)";
    for row in client.query(sql, &[]).await? {
        let table: &str = row.get(0);
        let transaction = client.transaction().await?;
        objects::lock_counts(&transaction).await?;
        let sql = format!("WITH gone_bodies AS (SELECT object FROM {table}), {COUNT_DOWN} SELECT");
        transaction.execute(&sql, &[]).await?;
        transaction.batch_execute(&format!("DROP TABLE {table}")).await?;
        transaction.commit().await?;
    }
    Ok(())
}

/// Whether a day has flows that arrived after a position.
async fn has_arrived(client: &Transaction<'_>, day: &str, position: i64) -> Result<bool, Error> {
    let sql = format!("SELECT EXISTS (SELECT FROM flows_{day} WHERE position > $1)");
    Ok(client.query_one(&sql, &[&position]).await?.get(0))
}

/// Deletes flows of the default partition that were stored too long ago, and are archived if they must be.
async fn delete_old_imports(
    client: &mut Client,
    stored_before: i64,
    archived: Option<ArchivedFlows>,
) -> Result<u64, Error> {
    let (keep_from, position) = (archived.map(|a| a.keep_from), archived.map(|a| a.position));
    let old = "stored < $1 AND ($2::uuid IS NULL OR (id < $2 AND position <= $3::bigint))";
    let params: [&(dyn ToSql + Sync); 3] = [&stored_before, &keep_from, &position];
    let transaction = client.transaction().await?;
    let deleted = delete_where(&transaction, "flows_default", old, &params).await?;
    transaction.commit().await?;
    Ok(deleted)
}

/// The days that have a partition, the oldest first.
async fn existing_days(client: &Client) -> Result<Vec<i64>, Error> {
    let sql = "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
               WHERE i.inhparent IN ('flows'::regclass, 'bodies'::regclass, 'messages'::regclass)";
    let names = client.query(sql, &[]).await?;
    let mut days: Vec<i64> = names.iter().filter_map(|row| day_of(row.get(0))).collect();
    days.sort_unstable();
    days.dedup();
    Ok(days)
}

/// Bytes that the tables take on the server's disk, with their indexes.
pub(crate) async fn taken_bytes(client: &Client) -> Result<u64, Error> {
    let sql = "SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0)::bigint FROM pg_inherits \
               WHERE inhparent IN ('flows'::regclass, 'bodies'::regclass, 'messages'::regclass)";
    Ok(client.query_one(sql, &[]).await?.get::<_, i64>(0).unsigned_abs())
}

/// The day on which a flow began.
pub(crate) fn day_of_id(id: interflow_types::FlowId) -> i64 {
    id.unix_millis() as i64 / DAY_MILLIS
}

/// Makes the partitions of a day of which flows are about to be copied.
pub(crate) fn make_for_copy(database: &Database, day: i64) -> Result<()> {
    let shared = database.clone();
    database.wait_for(async move {
        let client = shared.client().await?;
        make_day(&client, day).await.map_err(|e| shared.connector.explain(&e))
    })
}

/// The lowest id of a flow that begins on a day.
fn first_id(day: i64) -> Uuid {
    Uuid::from_u128(((day * DAY_MILLIS).unsigned_abs() as u128) << 80)
}

/// The date of a day since 1970, as eight digits.
fn day_name(day: i64) -> String {
    let at = jiff::Timestamp::from_second(day * 86_400).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    at.to_zoned(jiff::tz::TimeZone::UTC).strftime("%Y%m%d").to_string()
}

fn day_of(partition: &str) -> Option<i64> {
    let digits = partition.rsplit_once('_')?.1;
    if digits.len() != 8 {
        return None;
    }
    let date = jiff::civil::Date::strptime("%Y%m%d", digits).ok()?;
    Some(date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second() / 86_400)
}

#[cfg(test)]
mod tests {
    use interflow_types::Timestamp;

    use super::*;

    #[test]
    fn days_have_names_that_are_read_back() {
        assert_eq!(day_name(20_781), "20261124");
        assert_eq!(day_of("flows_20261124"), Some(20_781));
        assert_eq!((day_of("flows_default"), day_of("flows_99999999")), (None, None));
    }

    #[test]
    fn ids_of_a_day_are_between_its_bounds() {
        let at = Timestamp::from_micros(20_781 * 86_400_000_000 + 5);
        let id = Uuid::from_u128(interflow_types::FlowId::new(at).to_u128());
        assert!(first_id(20_781) <= id && id < first_id(20_782));
    }
}
