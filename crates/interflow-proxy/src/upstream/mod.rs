//! The origin side: route plans, upstream routes and fingerprints, and requests that Interflow sends itself.

pub(crate) mod fingerprint;
pub(crate) mod local_client;
pub(crate) mod local_request;
pub(crate) mod plan;
pub(crate) mod route;
