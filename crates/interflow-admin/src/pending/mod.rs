//! Everything that waits for a decision, in one queue: approval questions, and flows held by rules; of this process, and
//! of the replicas that share its recording.

pub(crate) mod fleet;
pub(crate) mod item;
pub(crate) mod queue;

pub use fleet::FleetPending;
