//! A pool of database connections for reading.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;

use super::schema;
use crate::error::Result;

const MAX_IDLE: usize = 4;

#[derive(Clone, Default)]
pub(crate) struct ReadPool(Arc<Mutex<Vec<Connection>>>);

impl ReadPool {
    pub(crate) fn with_connection(first: Connection) -> Self {
        Self(Arc::new(Mutex::new(vec![first])))
    }

    /// Takes an idle connection, or opens a new one to the store in `dir`.
    pub(crate) fn acquire(&self, dir: &Path) -> Result<PooledConnection> {
        let idle = self.0.lock().pop();
        // A burst of readers opens more than the pool keeps.
        let db = idle.map_or_else(|| schema::open_reader(dir), Ok)?;
        Ok(PooledConnection { db: Some(db), home: self.clone() })
    }
}

/// A connection that returns to the pool when dropped.
pub(crate) struct PooledConnection {
    db: Option<Connection>,
    home: ReadPool,
}

impl Deref for PooledConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.db.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        let mut idle = self.home.0.lock();
        // More connections than this are opened during bursts, and closed afterwards.
        if idle.len() < MAX_IDLE {
            idle.extend(self.db.take());
        }
    }
}
