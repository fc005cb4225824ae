//! The error of an attempt to store a batch.

use interflow_store::StoreError;
use tokio_postgres::Error;

/// Why a batch was not stored.
pub(crate) enum InsertError {
    /// A flow of the batch cannot be read where it is now.
    Flow(StoreError),
    Database(Error),
    /// No connection, or the bucket does not take bodies.
    Unreachable(StoreError),
    /// Nothing happened for too long.
    Stalled,
}

impl From<Error> for InsertError {
    fn from(e: Error) -> Self {
        Self::Database(e)
    }
}
