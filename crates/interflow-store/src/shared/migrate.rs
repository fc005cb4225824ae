//! The schema of the shared store: versioned migrations, applied by one replica at a time.

use tokio_postgres::Client;

use super::connect::Connector;
use crate::error::{Result, StoreError};

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The number of the advisory lock under which migrations run; any number that nobody else takes.
const LOCK: i64 = 0x1f10_3707_0001;

/// The newest version that this build knows.
fn known() -> i64 {
    embedded::migrations::runner().get_migrations().iter().map(|m| i64::from(m.version())).max().unwrap_or(0)
}

/// Brings the schema to this build's version, creating it if necessary.
///
/// # Errors
/// The schema is newer than this build; rights are missing; the server does not answer.
pub(crate) async fn migrate(connector: &Connector) -> Result<()> {
    let mut client = connector.client().await?;
    if found(&client, &connector.url.schema).await? == Some(known()) {
        return Ok(());
    }
    let explain = |e: &tokio_postgres::Error| connector.explain(e);
    // Held to the end of this connection, so that of many replicas that start together one migrates, and the others
    // find it done.
    client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await.map_err(|e| explain(&e))?;
    let schema = &connector.url.schema;
    let exists = client
        .query_one("SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)", &[schema])
        .await
        .map_err(|e| explain(&e))?;
    if !exists.get::<_, bool>(0) {
        client.batch_execute(&format!("CREATE SCHEMA \"{schema}\"")).await.map_err(|e| explain(&e))?;
    }
    match found(&client, &connector.url.schema).await? {
        Some(version) if version == known() => return Ok(()),
        Some(version) if version > known() => return Err(StoreError::Newer { found: version, known: known() }),
        _ => {}
    }
    let run = embedded::migrations::runner().run_async(&mut client).await;
    run.map(drop).map_err(|e| {
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
    })
}

/// The version of the schema of readers, which change nothing.
pub(crate) async fn require_current(connector: &Connector) -> Result<()> {
    let client = connector.client().await?;
    match found(&client, &connector.url.schema).await? {
        Some(found) if found == known() => Ok(()),
        Some(found) if found > known() => Err(StoreError::Newer { found, known: known() }),
        Some(found) => Err(StoreError::Older { found, known: known() }),
        None => Err(StoreError::Shared(format!(
            "the shared store {} has no tables yet; `interflow run` makes them",
            connector.url
        ))),
    }
}

/// The version of the schema; `None` if there is none yet.
async fn found(client: &Client, schema: &str) -> Result<Option<i64>> {
    // With its schema: another program may have such a table in a schema further down the search path.
    let table = format!("\"{schema}\".refinery_schema_history");
    let plain = |e: tokio_postgres::Error| StoreError::Shared(format!("the shared store: {e}"));
    let exists = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await.map_err(plain)?;
    if !exists.get::<_, bool>(0) {
        return Ok(None);
    }
    let newest = format!("SELECT max(version)::bigint FROM {table}");
    client.query_one(&newest, &[]).await.map(|row| row.get(0)).map_err(plain)
}
