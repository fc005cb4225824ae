//! The tables of the shared store and the place of bodies, made sure of when it is opened.

use std::sync::atomic::Ordering::SeqCst;

use interflow_store::Result;

use crate::database::migrate;
use crate::database::pool::Database;
use crate::shipping::objects;

impl Database {
    /// Makes or migrates the tables, and tries the place of bodies.
    pub(crate) fn prepare(&self) -> Result<()> {
        let database = self.clone();
        self.wait_for(async move {
            migrate::migrate(&database.connector).await?;
            migrate::require_writable(&database.connector).await?;
            let storage = database.objects.as_deref();
            objects::check_place(&database.connector, storage, true).await?;
            if let Some(storage) = storage { objects::try_out(storage).await } else { Ok(()) }
        })
    }

    /// Makes sure that the tables are those of this version, and bodies where they are looked for.
    pub(crate) fn require_prepared(&self) -> Result<()> {
        let database = self.clone();
        self.wait_for(async move {
            migrate::require_current(&database.connector).await?;
            let client = database.connector.client().await?;
            let recovery = client.query_one("SELECT pg_is_in_recovery()", &[]).await;
            let recovered = recovery.map_err(|e| database.connector.explain(&e))?;
            database.is_standby.store(recovered.get(0), SeqCst);
            objects::check_place(&database.connector, database.objects.as_deref(), false).await
        })
    }
}
