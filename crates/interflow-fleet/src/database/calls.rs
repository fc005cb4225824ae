//! Calls to the database that block their thread, for no longer than a time limit: somebody waits for them.

use std::sync::Arc;
use std::time::Duration;

use interflow_store::{RecordConfig, Result};
use tokio_postgres::Error;

use crate::database::connect::{PooledClient, SharedAccess, TlsClientFactory};
use crate::database::dsn::PostgresUrl;
use crate::database::migrate;
use crate::database::pool::{ConnectionRuntime, Database};
use crate::database::row_key::RowKey;

const TIMEOUT: Duration = Duration::from_secs(10);

/// The connections of tables beside the record. Cheap to clone; may be used from any thread.
#[derive(Clone)]
pub(crate) struct DatabaseCalls {
    database: Database,
    _connections: Arc<ConnectionRuntime>,
}

impl DatabaseCalls {
    /// Connects, and makes or migrates the tables.
    pub fn open(url: &PostgresUrl, tls: TlsClientFactory, row_key: Option<RowKey>) -> Result<Self> {
        let access = SharedAccess { tls, objects: None, row_key };
        let (mut database, connections) = Database::new(url, access, &RecordConfig::default(), None)?;
        database.statement_limit = TIMEOUT;
        let connector = database.connector.clone();
        database.wait_for(async move { migrate::migrate(&connector).await })?;
        Ok(Self { database, _connections: Arc::new(connections) })
    }

    pub fn run<T, F>(&self, job: impl FnOnce(PooledClient) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        self.database.run(job)
    }
}
