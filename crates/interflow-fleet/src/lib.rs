//! What goes beyond one machine: the store that replicas share in a PostgreSQL database, with object storage for bodies and
//! for the archive of the record, and counters in Redis.
//!
//! Every replica records into its embedded store first, from which finished flows are moved. Only the binary knows this
//! crate; what other crates use of it are traits of `interflow-store` and `interflow-limits`.
#![forbid(unsafe_code)]

mod archiving;
mod change;
mod conversations;
mod copy;
mod counters;
mod database;
#[cfg(test)]
mod fault_tests;
mod flow_store;
pub mod hourly;
pub mod objects;
mod partitions;
mod prepare;
mod reading;
mod shipping;
mod state;
mod store;

pub use archiving::archive::{ArchiveClaim, ArchiveLease, ArchiveTurn, SharedArchiveState};
pub use copy::{CopyCounts, copy_from_shared, copy_to_shared};
pub use counters::{RedisClient, RedisConnections};
pub use database::connect::{AsyncStream, BoxedStream, SharedAccess, TlsClient, TlsClientFactory, TlsHandshake};
pub use database::dsn::{PostgresTls, PostgresUrl, TlsVerification, shared_url};
pub use database::row_key::RowKey;
pub use state::identity::PostgresIdentity;
pub use state::pending::PostgresPending;
pub use state::settings::{Announcements, NewSetting, PostgresSettings};
pub use state::spend::SpendStore;
pub use store::SharedStore;
