//! The stores under test: tests that speak through the traits alone run against both.

use std::ops::Deref;
use std::sync::Arc;

use interflow_store::shared::{BoxedStream, PostgresTls, TlsClient, TlsHandshake};
use interflow_store::{FlowStore, RecordConfig, SharedStore, SqliteStore, StoreRecorder};
use interflow_testkit::{PostgresDatabase, PostgresServer};

/// Makes a test of each function for each kind of store: `embedded::name` and `shared::name`.
macro_rules! both_stores {
    ($($name:ident),+ $(,)?) => {
        mod embedded {
            $(#[test] fn $name() { super::$name(&crate::StoreKind::Embedded) })+
        }
        mod shared {
            $(#[test] fn $name() {
                if let Some(kind) = crate::StoreKind::shared() {
                    super::$name(&kind)
                }
            })+
        }
    };
}

pub enum StoreKind {
    Embedded,
    /// In a database of its own.
    Shared(PostgresDatabase),
}

/// An open store, its folder, and its database.
pub struct TestStore {
    inner: Inner,
    dir: Arc<tempfile::TempDir>,
}

enum Inner {
    Embedded(SqliteStore),
    Shared(SharedStore),
}

impl StoreKind {
    /// `None` where PostgreSQL is not installed.
    pub fn shared() -> Option<Self> {
        PostgresServer::shared().map(|server| Self::Shared(server.database()))
    }

    /// Opens a store in a new folder. A second one shares the database, if there is one, as another replica does.
    pub fn open(&self, config: &RecordConfig) -> TestStore {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let inner = match self {
            Self::Embedded => Inner::Embedded(SqliteStore::open(dir.path(), config).unwrap()),
            Self::Shared(database) => {
                let url = database.url().parse().unwrap();
                Inner::Shared(SharedStore::open(&url, plain_only, dir.path(), config).unwrap())
            }
        };
        TestStore { inner, dir }
    }

    /// Closes a store and opens it for reading.
    pub fn reopen_read(&self, store: TestStore) -> TestStore {
        let dir = Arc::clone(&store.dir);
        drop(store);
        let inner = match self {
            Self::Embedded => Inner::Embedded(SqliteStore::open_read(dir.path()).unwrap()),
            Self::Shared(database) => {
                let url = database.url().parse().unwrap();
                Inner::Shared(SharedStore::open_read(&url, plain_only, dir.path()).unwrap())
            }
        };
        TestStore { inner, dir }
    }
}

impl TestStore {
    pub fn recorder(&self) -> Option<StoreRecorder> {
        match &self.inner {
            Inner::Embedded(store) => store.recorder(),
            Inner::Shared(store) => store.spool()?.recorder(),
        }
    }

    /// Until all is where it stays: on disk, or in the database.
    pub fn flush(&self) -> interflow_store::Result<()> {
        match &self.inner {
            Inner::Embedded(store) => store.flush(),
            Inner::Shared(store) => store.flush_to_database(),
        }
    }

    pub fn configure(&self, config: &RecordConfig) {
        match &self.inner {
            Inner::Embedded(store) => store.configure(config),
            Inner::Shared(store) => store.configure(config),
        }
    }

    pub fn close(&self) {
        match &self.inner {
            Inner::Embedded(store) => store.close(),
            Inner::Shared(store) => store.close(),
        }
    }
}

impl Deref for TestStore {
    type Target = dyn FlowStore;

    fn deref(&self) -> &Self::Target {
        match &self.inner {
            Inner::Embedded(store) => store,
            Inner::Shared(store) => store,
        }
    }
}

struct NoTls;

impl TlsClient for NoTls {
    fn handshake(&self, _: &str, _: BoxedStream) -> TlsHandshake {
        Box::pin(async { Err(std::io::Error::other("the server of these tests has no TLS")) })
    }
}

pub fn plain_only(_: &PostgresTls) -> Result<Arc<dyn TlsClient>, String> {
    Ok(Arc::new(NoTls))
}
