//! Rows that cannot be read: they are left out and counted, and everything else goes on.

use std::collections::HashSet;

use parking_lot::Mutex;
use rusqlite::Error as Sql;

use super::rows::StoredRow;
use crate::error::{Result, StoreError};

/// Damaged rows that are remembered one by one, so that each is counted once.
const MAX_REMEMBERED: usize = 100_000;

/// The damaged rows that were met.
#[derive(Default)]
pub(crate) struct DamagedRows(Mutex<HashSet<i64>>);

impl DamagedRows {
    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.0.lock().len() as u64
    }

    /// Lets a row by, or notes that it is damaged; other errors stay errors.
    pub(crate) fn skip_damaged(&self, seq: i64, read: Result<StoredRow>) -> Result<Option<StoredRow>> {
        match read {
            Ok(stored) => Ok(Some(stored)),
            Err(e) if is_of_row(&e) => {
                let mut met = self.0.lock();
                if met.len() < MAX_REMEMBERED && met.insert(seq) {
                    tracing::warn!(row = seq, error = %e, "a damaged flow is left out; `interflow flows check` lists every one");
                }
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

/// Whether an error concerns one row only.
pub(crate) fn is_of_row(error: &StoreError) -> bool {
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
