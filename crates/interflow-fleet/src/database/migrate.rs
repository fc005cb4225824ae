//! The schema of the shared store: versioned migrations, applied by one replica at a time.

use std::time::{Duration, Instant};

use interflow_store::{Result, StoreError};
use refinery::Target;
use tokio_postgres::Client;

use crate::database::connect::{Connector, STANDBY};
use crate::database::row_key;

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The number of the advisory lock under which migrations run; any number that nobody else takes.
const LOCK: i64 = 0x1f10_3707_0001;
/// The version from which on rows of settings and API tokens have codes: see [`row_key`].
const AUTHENTICATED: i64 = 15;
/// How long a replica that starts waits for one that migrates: indexes of a large store take long.
const MIGRATION_LIMIT: Duration = Duration::from_secs(600);
const LOCK_STEP: Duration = Duration::from_millis(200);
/// Settings of a session that holds an advisory lock, which is released when it has sent nothing for this long: its process
/// may be frozen. Servers before PostgreSQL 14 do not know the setting.
const LOCKING_SESSION: &str = "SET idle_session_timeout = '60s'";

/// The schema that is there.
struct FoundSchema {
    version: i64,
    /// The oldest version that a build may know and still use it.
    oldest: i64,
}

impl FoundSchema {
    /// Whether this build uses it as it is. One of the release after this one may be compatible: replicas of both run while
    /// one after the other is replaced.
    fn is_usable(&self) -> Result<bool> {
        let (found, known) = (self.version, known());
        if found > known && self.oldest > known {
            return Err(StoreError::Newer { found, known });
        }
        Ok(found >= known)
    }
}

/// The newest version that this build knows.
fn known() -> i64 {
    embedded::migrations::runner().get_migrations().iter().map(|m| i64::from(m.version())).max().unwrap_or(0)
}

/// Brings the schema to this build's version, creating it if necessary.
///
/// # Errors
/// The schema is newer than this build, and not compatible with it; rights are missing; the server does not answer.
pub(crate) async fn migrate(connector: &Connector) -> Result<()> {
    migrate_to(connector, None).await
}

/// As [`migrate`], up to a version.
pub(crate) async fn migrate_to(connector: &Connector, version: Option<i32>) -> Result<()> {
    let mut client = connector.client().await?;
    if let Some(found) = found(connector, &client).await?
        && found.is_usable()?
    {
        return Ok(());
    }
    let explain = |e: &tokio_postgres::Error| connector.explain(e);
    // Held to the end of this connection, so that of many replicas that start together one migrates, and the others
    // find it done.
    lock(connector, &client, LOCK, MIGRATION_LIMIT).await?;
    let schema = &connector.url.schema;
    let exists = client
        .query_one("SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)", &[schema])
        .await
        .map_err(|e| explain(&e))?;
    if !exists.get::<_, bool>(0) {
        client.batch_execute(&format!("CREATE SCHEMA \"{schema}\"")).await.map_err(|e| explain(&e))?;
    }
    let before = found(connector, &client).await?;
    if let Some(found) = &before
        && found.is_usable()?
    {
        return Ok(());
    }
    let before = before.map_or(i64::MAX, |found| found.version);
    let adopts_rows = before < AUTHENTICATED && version.is_none();
    if adopts_rows && connector.row_key.is_none() && has_rows(connector, &client, before).await? {
        return Err(StoreError::Older { found: before, known: known() });
    }
    let target = version.map_or(Target::Latest, Target::Version);
    let run = embedded::migrations::runner().set_target(target).run_async(&mut client).await;
    run.map_err(|e| {
        let mut text = e.to_string();
        let mut below = std::error::Error::source(&e);
        while let Some(cause) = below {
            if let Some(db) = cause.downcast_ref::<tokio_postgres::Error>() {
                return explain(db);
            }
            text = format!("{text}: {cause}");
            below = cause.source();
        }
        StoreError::Shared(format!("the schema of the shared store {} could not be made: {text}", connector.url))
    })?;
    match &connector.row_key {
        Some(key) if adopts_rows => row_key::adopt_rows(&mut client, key).await.map_err(|e| explain(&e)),
        _ => Ok(()),
    }
}

/// Whether tables of before [`AUTHENTICATED`] have rows that need a code.
async fn has_rows(connector: &Connector, client: &Client, version: i64) -> Result<bool> {
    for (table, since) in [("settings", 3), ("api_tokens", 7)] {
        if version >= since {
            let sql = format!("SELECT EXISTS (SELECT FROM \"{}\".{table})", connector.url.schema);
            let row = client.query_one(&sql, &[]).await.map_err(|e| connector.explain(&e))?;
            if row.get(0) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The version of the schema of readers, which change nothing.
pub(crate) async fn require_current(connector: &Connector) -> Result<()> {
    let client = connector.client().await?;
    match found(connector, &client).await? {
        Some(found) if found.is_usable()? => Ok(()),
        Some(found) => Err(StoreError::Older { found: found.version, known: known() }),
        None => Err(StoreError::Shared(format!(
            "the shared store {} has no tables yet; `interflow run` makes them",
            connector.url
        ))),
    }
}

/// Takes an advisory lock, to be held until the connection ends.
///
/// # Errors
/// Another process holds it for longer than the limit; a database error.
pub(crate) async fn lock(connector: &Connector, client: &Client, number: i64, limit: Duration) -> Result<()> {
    let _ = client.batch_execute(LOCKING_SESSION).await;
    let begun = Instant::now();
    loop {
        let lock = client.query_one("SELECT pg_try_advisory_lock($1)", &[&number]).await;
        if lock.map_err(|e| connector.explain(&e))?.get::<_, bool>(0) {
            return Ok(());
        }
        if begun.elapsed() >= limit {
            return Err(connector.failure(format_args!(
                "another process has been changing its tables for {} s; if it hangs, find it with \
                 SELECT pid, client_addr FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory', \
                 and end it with SELECT pg_terminate_backend(pid)",
                limit.as_secs()
            )));
        }
        tokio::time::sleep(LOCK_STEP).await;
    }
}

/// Checks what recording needs, so that what is missing is reported at the start, and not by each flow.
///
/// # Errors
/// The server is a standby; rights are missing.
pub(crate) async fn require_writable(connector: &Connector) -> Result<()> {
    let client = connector.client().await?;
    let sql = "SELECT pg_is_in_recovery(), has_database_privilege(current_database(), 'TEMPORARY'), \
         current_database()::text, current_user::text, \
         (SELECT string_agg(c.relname, ', ' ORDER BY c.relname) FROM pg_class c WHERE c.relnamespace = to_regnamespace($1) \
            AND c.relkind IN ('r', 'p') AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT') \
            AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))), \
         (SELECT r.rolname::text FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner \
            WHERE c.oid = to_regclass($2) AND NOT pg_has_role(c.relowner, 'USAGE'))";
    let schema = format!("\"{}\"", connector.url.schema);
    let row = client.query_one(sql, &[&schema, &format!("{schema}.flows")]).await.map_err(|e| connector.explain(&e))?;
    let (database, role): (String, String) = (row.get(2), row.get(3));
    let problem = if row.get(0) {
        STANDBY.to_owned()
    } else if let Some(owner) = row.get::<_, Option<String>>(5) {
        format!(
            "its tables belong to the role {owner}, and only their owner makes and drops partitions: GRANT \"{owner}\" TO \
             \"{role}\""
        )
    } else if let Some(tables) = row.get::<_, Option<String>>(4) {
        format!(
            "the role {role} may not read and write {tables}: GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA \
             {schema} TO \"{role}\""
        )
    } else if !row.get::<_, bool>(1) {
        format!(
            "the role {role} may not make temporary tables: GRANT TEMPORARY ON DATABASE \"{database}\" TO \"{role}\""
        )
    } else {
        return Ok(());
    };
    Err(connector.failure(problem))
}

/// The schema that is there; `None` if there is none yet.
async fn found(connector: &Connector, client: &Client) -> Result<Option<FoundSchema>> {
    // With its schema: another program may have such a table in a schema further down the search path.
    let in_schema = |table: &str| format!("\"{}\".{table}", connector.url.schema);
    let (history, compatibility) = (in_schema("refinery_schema_history"), in_schema("schema_compatibility"));
    let explain = |e: tokio_postgres::Error| connector.explain(&e);
    let sql = "SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL";
    let exists = client.query_one(sql, &[&history, &compatibility]).await.map_err(explain)?;
    if !exists.get::<_, bool>(0) {
        return Ok(None);
    }
    let newest = format!("SELECT max(version)::bigint FROM {history}");
    let version: Option<i64> = client.query_one(&newest, &[]).await.map_err(explain)?.get(0);
    let Some(version) = version else { return Ok(None) };
    let mut oldest = version;
    if exists.get(1) {
        let sql = format!("SELECT oldest FROM {compatibility}");
        oldest = client.query_one(&sql, &[]).await.map_err(explain)?.get(0);
    }
    Ok(Some(FoundSchema { version, oldest }))
}
