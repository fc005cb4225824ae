//! The stores under test: tests that speak through the traits alone run against all.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interflow_fleet::objects::{ObjectAccess, ObjectStorage};
use interflow_fleet::{BoxedStream, PostgresTls, SharedAccess, SharedStore, TlsClient, TlsHandshake};
use interflow_store::{FlowStore, RecordConfig, SqliteStore, StoreRecorder};
use interflow_testkit::{PostgresDatabase, PostgresServer};
use interflow_types::{Error, ErrorKind, HttpClient, Request, ResponseFuture};

/// Makes a test of each function for each kind of store: `embedded::name`, `shared::name` and `objects::name`.
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
        mod objects {
            $(#[test] fn $name() {
                if let Some(kind) = crate::StoreKind::with_objects() {
                    super::$name(&kind)
                }
            })+
        }
    };
}

pub enum StoreKind {
    Embedded,
    /// In a database of its own, with bodies in a folder if there is one.
    Shared(PostgresDatabase, Option<tempfile::TempDir>),
}

/// An open store, its folder, and its database.
pub struct TestStore {
    inner: Inner,
    dir: Arc<tempfile::TempDir>,
}

enum Inner {
    Embedded(SqliteStore),
    Shared(Box<SharedStore>),
}

impl StoreKind {
    /// `None` where PostgreSQL is not installed.
    pub fn shared() -> Option<Self> {
        PostgresServer::shared().map(|server| Self::Shared(server.database(), None))
    }

    /// The same with bodies in a folder.
    pub fn with_objects() -> Option<Self> {
        PostgresServer::shared().map(|server| Self::Shared(server.database(), Some(tempfile::tempdir().unwrap())))
    }

    pub fn folder(&self) -> Option<&tempfile::TempDir> {
        let Self::Shared(_, folder) = self else { return None };
        folder.as_ref()
    }

    pub fn objects(&self) -> &Path {
        self.folder().expect("it has objects").path()
    }

    pub fn database(&self) -> &PostgresDatabase {
        let Self::Shared(database, _) = self else { panic!("it has no database") };
        database
    }

    /// Opens a store in a new folder. A second one shares the database, if there is one, as another replica does.
    pub fn open(&self, config: &RecordConfig) -> TestStore {
        self.open_in(Arc::new(tempfile::tempdir().unwrap()), config)
    }

    /// Closes a store and opens it again.
    pub fn reopen(&self, store: TestStore, config: &RecordConfig) -> TestStore {
        let dir = Arc::clone(&store.dir);
        drop(store);
        self.open_in(dir, config)
    }

    fn open_in(&self, dir: Arc<tempfile::TempDir>, config: &RecordConfig) -> TestStore {
        let inner = match self {
            Self::Embedded => Inner::Embedded(SqliteStore::open(dir.path(), config).unwrap()),
            Self::Shared(database, folder) => {
                let url = database.url().parse().unwrap();
                Inner::Shared(Box::new(SharedStore::open(&url, access(folder.as_ref()), dir.path(), config).unwrap()))
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
            Self::Shared(database, folder) => {
                let url = database.url().parse().unwrap();
                Inner::Shared(Box::new(SharedStore::open_read(&url, access(folder.as_ref()), dir.path()).unwrap()))
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

    pub fn shared(&self) -> &SharedStore {
        let Inner::Shared(store) = &self.inner else { panic!("it is embedded") };
        store
    }

    /// The part of a shared store that is on this machine.
    pub fn spool(&self) -> &SqliteStore {
        self.shared().spool().expect("it was opened for recording")
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
            Inner::Shared(store) => &**store,
        }
    }
}

struct NoTls;

impl TlsClient for NoTls {
    fn handshake(&self, _: &str, _: BoxedStream) -> TlsHandshake {
        Box::pin(async { Err(std::io::Error::other("the server of these tests has no TLS")) })
    }
}

/// Folders need no requests.
struct NoRequests;

impl HttpClient for NoRequests {
    fn send(&self, _: Request) -> ResponseFuture<'_> {
        Box::pin(async { Err(Error::new(ErrorKind::Connect, "there is no network")) })
    }
}

/// Access to the server of these tests, and to a folder of bodies.
pub fn access(folder: Option<&tempfile::TempDir>) -> SharedAccess {
    let objects = folder.map(|folder| Arc::new(storage(folder.path())));
    SharedAccess { tls: plain_only, objects, row_key: None }
}

pub fn storage(folder: &Path) -> ObjectStorage {
    let requests = ObjectAccess { client: Arc::new(NoRequests), variables: Vec::new(), retry_for: Duration::ZERO };
    ObjectStorage::open(&format!("file://{}", folder.display()).parse().unwrap(), &requests).unwrap()
}

fn plain_only(_: &PostgresTls) -> Result<Arc<dyn TlsClient>, String> {
    Ok(Arc::new(NoTls))
}
