//! What outlives a reload of the rules: counters, held flows, sessions, services, recordings.

pub(crate) mod hold;
pub(crate) mod recording;
pub(crate) mod replay;
pub(crate) mod runtime;
pub(crate) mod sessions;
