//! This process among those that may index the conversations of all replicas.

use parking_lot::Mutex;
use uuid::Uuid;

/// This process among those that may index.
pub(crate) struct IndexTurn {
    pub(crate) holder: Uuid,
    /// The epoch in which this process indexes, if it does.
    pub(crate) epoch: Mutex<Option<i64>>,
}

impl Default for IndexTurn {
    fn default() -> Self {
        Self { holder: Uuid::from_u128(fastrand::u128(..)), epoch: Mutex::default() }
    }
}
