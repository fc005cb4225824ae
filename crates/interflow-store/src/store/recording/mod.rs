//! The way of a flow from its events to its row: queue, writer, masks.

pub(crate) mod commands;
pub(crate) mod header_masking;
pub(crate) mod in_flight;
pub(crate) mod pending_flow;
pub(crate) mod queue;
pub(crate) mod reconfigure;
pub(crate) mod write_batch;
pub(crate) mod writer;
