//! The instance itself: its state, machine and routes, and who may use the API.

pub(crate) mod audit;
pub(crate) mod instance;
pub(crate) mod llm;
pub(crate) mod mcp_accounts;
pub(crate) mod me;
#[cfg(feature = "media")]
pub(crate) mod media;
pub(crate) mod setup;
pub(crate) mod tokens;
