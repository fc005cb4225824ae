//! The store that `[record]` describes: embedded, or shared by several replicas.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "fleet")]
use interflow_fleet::SharedStore;
use interflow_store::{FlowStore, RecordConfig, Result, SqliteStore, StoreRecorder};

/// A store as `[record]` describes it.
pub enum RecordStore {
    Embedded(Arc<SqliteStore>),
    #[cfg(feature = "fleet")]
    Shared(Arc<SharedStore>),
}

impl RecordStore {
    /// Opens an embedded store for recording.
    ///
    /// # Errors
    /// As for [`SqliteStore::open`].
    pub fn open_embedded(dir: &Path, config: &RecordConfig) -> Result<Self> {
        Ok(Self::Embedded(Arc::new(SqliteStore::open(dir, config)?)))
    }

    /// Opens an embedded store for reading, also while another process records there.
    ///
    /// # Errors
    /// As for [`SqliteStore::open_read`].
    pub fn read_embedded(dir: &Path) -> Result<Self> {
        Ok(Self::Embedded(Arc::new(SqliteStore::open_read(dir)?)))
    }

    /// The store for those who share it.
    pub fn flows(&self) -> Arc<dyn FlowStore> {
        match self {
            Self::Embedded(store) => Arc::clone(store) as _,
            #[cfg(feature = "fleet")]
            Self::Shared(store) => Arc::clone(store) as _,
        }
    }

    /// The embedded store, if it is the whole of it.
    pub const fn embedded(&self) -> Option<&Arc<SqliteStore>> {
        match self {
            Self::Embedded(store) => Some(store),
            #[cfg(feature = "fleet")]
            Self::Shared(_) => None,
        }
    }

    fn local(&self) -> Option<&SqliteStore> {
        match self {
            Self::Embedded(store) => Some(store),
            #[cfg(feature = "fleet")]
            Self::Shared(store) => store.spool().map(|spool| &**spool),
        }
    }

    /// The recorder for the request pipeline; `None` if the store was opened read-only.
    pub fn recorder(&self) -> Option<StoreRecorder> {
        self.local()?.recorder()
    }

    /// As [`SqliteStore::release_reserve`].
    pub fn release_reserve(&self) -> bool {
        self.local().is_some_and(SqliteStore::release_reserve)
    }

    /// Applies a changed configuration; where the store is stays as it was.
    pub fn configure(&self, config: &RecordConfig) {
        match self {
            Self::Embedded(store) => store.configure(config),
            #[cfg(feature = "fleet")]
            Self::Shared(store) => store.configure(config),
        }
    }

    /// Writes everything recorded so far and ends recording.
    pub fn close(&self) {
        match self {
            Self::Embedded(store) => store.close(),
            #[cfg(feature = "fleet")]
            Self::Shared(store) => store.close(),
        }
    }
}

impl Deref for RecordStore {
    type Target = dyn FlowStore;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Embedded(store) => &**store,
            #[cfg(feature = "fleet")]
            Self::Shared(store) => &**store,
        }
    }
}
