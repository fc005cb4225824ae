//! What the writer collects for one transaction.

use super::in_flight::InFlightFlow;
use super::pending_flow::WithheldResponse;
use super::subscriptions::Notification;

#[derive(Default)]
pub(super) struct WriteBatch {
    /// What the queue was charged for its updates, in bytes, and how many flows they are of.
    pub(super) charge: usize,
    pub(super) flows: usize,
    /// Ended flows, until the transaction is committed.
    #[expect(clippy::vec_box, reason = "they come boxed from the map, and a Vec that grows would copy them all")]
    pub(super) finished: Vec<Box<InFlightFlow>>,
    /// How many of these have their rows, and how many do not yet.
    pub(super) written: usize,
    pub(super) unwritten: usize,
    /// Of running flows that this transaction stores, and of all that a disk refuses: dropped with the batch.
    pub(super) withheld: Vec<WithheldResponse>,
    pub(super) told: Notification,
}
