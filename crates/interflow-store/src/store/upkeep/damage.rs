//! Tracks unreadable rows: they are skipped and counted, and everything else continues.

use std::collections::HashSet;

use parking_lot::Mutex;
use rusqlite::Error as Sql;

use crate::error::{Result, StoreError};

/// Damaged rows remembered individually, so that each is counted once.
const MAX_REMEMBERED: usize = 100_000;

#[derive(Default)]
pub(crate) struct DamagedRows(Mutex<HashSet<i64>>);

impl DamagedRows {
    pub(crate) fn count(&self) -> u64 {
        self.0.lock().len() as u64
    }

    /// Returns a row, or `None` after counting it as damaged; other errors are returned.
    pub(crate) fn skip_damaged<T>(&self, seq: i64, read: Result<T>) -> Result<Option<T>> {
        match read {
            Ok(stored) => Ok(Some(stored)),
            // Only data that belongs to the row is skipped; a failing disk concerns everything.
            Err(e) if is_of_row(&e) => {
                let mut met = self.0.lock();
                // Each row is reported once, as long as it is remembered.
                if met.len() < MAX_REMEMBERED && met.insert(seq) {
                    tracing::warn!(row = seq, error = %e, "a damaged flow is left out; `interflow flows check` lists every one");
                }
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

/// Whether an error concerns a single row.
pub fn is_of_row(error: &StoreError) -> bool {
    match error {
        StoreError::Damaged { .. } => true,
        StoreError::Sql(e) => {
            matches!(
                e,
                Sql::QueryReturnedNoRows
                    | Sql::FromSqlConversionFailure(..)
                    | Sql::IntegralValueOutOfRange(..)
                    | Sql::InvalidColumnType(..)
                    | Sql::Utf8Error(..)
            ) || error.is_damage()
        }
        _ => false,
    }
}
