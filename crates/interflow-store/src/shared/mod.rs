//! The shared store: flows of many replicas in one PostgreSQL database. Every replica records into its embedded store
//! first, from which finished flows are moved.

pub(crate) mod archiving;
mod change;
mod conversations;
mod copy;
pub(crate) mod database;
#[cfg(test)]
mod fault_tests;
mod partitions;
pub(crate) mod reading;
pub(crate) mod shipping;
pub(crate) mod state;
mod store;

pub use archiving::archive::{ArchiveClaim, ArchiveLease, ArchiveTurn, SharedArchiveState};
pub use copy::{CopyCounts, copy_from_shared, copy_to_shared};
pub use database::connect::{AsyncStream, BoxedStream, SharedAccess, TlsClient, TlsClientFactory, TlsHandshake};
pub use database::dsn::{PostgresTls, PostgresUrl, TlsVerification, masked};
pub use database::row_key::RowKey;
pub use state::identity::{IdentityStore, SharedAuditLine, SharedToken};
pub use state::pending::{
    CarryOutFn, MAX_PENDING_ITEM_BYTES, RemoteDecision, RemoteOutcome, RemotePending, RemotePendingItem, SharedPending,
};
pub use state::settings::{Announcements, NewSetting, RollBack, SettingRevision, SettingStatus, SettingsStore};
pub use state::spend::{SharedSpend, SpendStore};
pub use store::SharedStore;
