//! The store of a configuration: embedded, or shared by several replicas.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use interflow_files::resolve_secret_ref;

use crate::config::RecordConfig;
use crate::error::{Result, StoreError};
use crate::recorder::StoreRecorder;
use crate::shared::{PostgresUrl, SharedAccess, SharedStore};
use crate::store::{FlowStore, SqliteStore, StoreRecovery};

/// A store as `[record]` describes it.
pub enum RecordStore {
    Embedded(Arc<SqliteStore>),
    Shared(Arc<SharedStore>),
}

impl RecordStore {
    /// Opens the store for recording. `dir` is the folder of the embedded store, or the spool of the shared one.
    ///
    /// # Errors
    /// As for [`SqliteStore::open`] and [`SharedStore::open`]; `record.store` cannot be resolved or is not a URL.
    pub fn open(dir: &Path, config: &RecordConfig, access: SharedAccess) -> Result<Self> {
        Ok(match shared_url(config)? {
            None => Self::Embedded(Arc::new(SqliteStore::open(dir, config)?)),
            Some(url) => Self::Shared(Arc::new(SharedStore::open(&url, access, dir, config)?)),
        })
    }

    /// As [`open`](Self::open), under the name of this replica.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_as(dir: &Path, config: &RecordConfig, access: SharedAccess, name: &str) -> Result<Self> {
        Ok(match shared_url(config)? {
            None => Self::Embedded(Arc::new(SqliteStore::open(dir, config)?)),
            Some(url) => Self::Shared(Arc::new(SharedStore::open_as(&url, access, dir, config, Some(name))?)),
        })
    }

    /// Opens the store for reading, also while another process records there.
    ///
    /// # Errors
    /// As for [`SqliteStore::open_read`] and [`SharedStore::open_read`].
    pub fn open_read(dir: &Path, config: &RecordConfig, access: SharedAccess) -> Result<Self> {
        Ok(match shared_url(config)? {
            None => Self::Embedded(Arc::new(SqliteStore::open_read(dir)?)),
            Some(url) => Self::Shared(Arc::new(SharedStore::open_read(&url, access, dir)?)),
        })
    }

    /// The store for those who share it.
    pub fn flows(&self) -> Arc<dyn FlowStore> {
        match self {
            Self::Embedded(store) => Arc::clone(store) as _,
            Self::Shared(store) => Arc::clone(store) as _,
        }
    }

    /// The embedded store, if it is the whole of it.
    pub fn embedded(&self) -> Option<&Arc<SqliteStore>> {
        match self {
            Self::Embedded(store) => Some(store),
            Self::Shared(_) => None,
        }
    }

    fn local(&self) -> Option<&SqliteStore> {
        match self {
            Self::Embedded(store) => Some(store),
            Self::Shared(store) => store.spool().map(|spool| &**spool),
        }
    }

    /// The recorder for the request pipeline; `None` if the store was opened read-only.
    pub fn recorder(&self) -> Option<StoreRecorder> {
        self.local()?.recorder()
    }

    /// What recovery found when the local part was opened.
    pub fn recovery(&self) -> StoreRecovery {
        self.local().map(SqliteStore::recovery).unwrap_or_default()
    }

    /// Finished flows on this machine's disk that are not in the shared store yet.
    ///
    /// # Errors
    /// A database error.
    pub fn waiting_flows(&self) -> Result<u64> {
        match self {
            Self::Embedded(_) => Ok(0),
            Self::Shared(store) => store.waiting_flows(),
        }
    }

    /// As [`SqliteStore::release_reserve`].
    pub fn release_reserve(&self) -> bool {
        self.local().is_some_and(SqliteStore::release_reserve)
    }

    /// Applies a changed configuration; where the store is stays as it was.
    pub fn configure(&self, config: &RecordConfig) {
        match self {
            Self::Embedded(store) => store.configure(config),
            Self::Shared(store) => store.configure(config),
        }
    }

    /// Writes everything recorded so far and ends recording.
    pub fn close(&self) {
        match self {
            Self::Embedded(store) => store.close(),
            Self::Shared(store) => store.close(),
        }
    }
}

impl Deref for RecordStore {
    type Target = dyn FlowStore;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Embedded(store) => &**store,
            Self::Shared(store) => &**store,
        }
    }
}

/// The URL of the shared store, if the configuration names one.
///
/// # Errors
/// The variable or file that holds it does not exist; it is not a URL of PostgreSQL.
pub fn shared_url(config: &RecordConfig) -> Result<Option<PostgresUrl>> {
    let Some(text) = &config.store else { return Ok(None) };
    let url = resolve_secret_ref(text).map_err(|e| StoreError::Shared(format!("record.store: {e}")))?;
    url.parse().map(Some)
}
