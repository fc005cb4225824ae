//! What replicas share besides flows: settings, identities, spend, pending requests, instances.

pub(crate) mod grants;
pub(crate) mod identity;
pub(crate) mod instances;
pub(crate) mod pending;
pub(crate) mod pending_sync;
pub(crate) mod settings;
pub(crate) mod spend;
