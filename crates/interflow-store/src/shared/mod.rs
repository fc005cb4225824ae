//! The shared store: flows of many replicas in one PostgreSQL database. Every replica records into its embedded store
//! first, from which finished flows are moved.

mod bodies;
mod change;
mod connect;
mod conversation_writes;
mod conversations;
mod copy;
mod database;
mod dsn;
mod identity;
mod index;
mod insert;
mod instances;
mod live;
mod migrate;
mod overview;
mod overview_models;
mod partitions;
mod rows;
mod select;
mod settings;
mod shipper;
mod store;

pub use connect::{AsyncStream, BoxedStream, TlsClient, TlsClientFactory, TlsHandshake};
pub use copy::{CopyCounts, copy_from_shared, copy_to_shared};
pub use dsn::{PostgresTls, PostgresUrl, TlsVerification, masked};
pub use identity::{IdentityStore, SharedAuditLine, SharedToken};
pub use settings::{Announcements, NewSetting, SettingRevision, SettingStatus, SettingsStore};
pub use store::SharedStore;
