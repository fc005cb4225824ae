//! What the writer collects for one transaction.

use crate::store::recording::in_flight::InFlightFlow;
use crate::store::recording::pending_flow::WithheldResponse;
use crate::store::subscriptions::Notification;

#[derive(Default)]
pub(crate) struct WriteBatch {
    /// What the queue was charged for its updates, in bytes, and how many flows they are of.
    pub(crate) charge: usize,
    pub(crate) flows: usize,
    /// Ended flows, until the transaction is committed.
    #[expect(clippy::vec_box, reason = "they come boxed from the map, and a Vec that grows would copy them all")]
    pub(crate) finished: Vec<Box<InFlightFlow>>,
    /// How many of these have their rows, and how many do not yet.
    pub(crate) written: usize,
    pub(crate) unwritten: usize,
    /// Of running flows that this transaction stores, and of all that a disk refuses: dropped with the batch.
    pub(crate) withheld: Vec<WithheldResponse>,
    pub(crate) told: Notification,
}
