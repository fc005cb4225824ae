//! The archive of the shared store: who writes it, and the flows it is made from.

pub(crate) mod archive;
pub(crate) mod archive_flows;
