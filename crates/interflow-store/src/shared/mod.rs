//! The shared store: flows of many replicas in one PostgreSQL database. Every replica records into its embedded store
//! first, from which finished flows are moved.

mod archive;
mod archive_flows;
mod bodies;
mod calls;
mod change;
mod connect;
mod conversation_writes;
mod conversations;
mod copy;
pub(crate) mod copy_format;
mod database;
mod dsn;
#[cfg(test)]
mod fault_tests;
mod identity;
mod index;
mod insert;
mod instances;
mod live;
mod migrate;
mod objects;
mod overview;
mod overview_models;
mod partitions;
mod pending;
mod pending_sync;
mod pieces;
mod row_key;
mod rows;
pub(crate) mod running;
mod select;
mod settings;
mod shipper;
mod spend;
pub(crate) mod spooled_flow;
mod store;
mod verify;

pub use archive::{ArchiveClaim, ArchiveLease, ArchiveTurn, SharedArchiveState};
pub use archive_flows::SharedFlow;
pub use connect::{AsyncStream, BoxedStream, SharedAccess, TlsClient, TlsClientFactory, TlsHandshake};
pub use copy::{CopyCounts, copy_from_shared, copy_to_shared};
pub use dsn::{PostgresTls, PostgresUrl, TlsVerification, masked};
pub use identity::{IdentityStore, SharedAuditLine, SharedToken};
pub use pending::{
    CarryOutFn, MAX_PENDING_ITEM_BYTES, RemoteDecision, RemoteOutcome, RemotePending, RemotePendingItem, SharedPending,
};
pub use row_key::RowKey;
pub use settings::{Announcements, NewSetting, RollBack, SettingRevision, SettingStatus, SettingsStore};
pub use spend::{SharedSpend, SpendStore};
pub use store::SharedStore;
