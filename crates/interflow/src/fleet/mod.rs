//! What goes beyond this machine: the store that replicas share, object storage, and counts in Redis.
//!
//! A build without the feature `fleet` has `fleet_off.rs` in its place.

pub mod access;
mod diagnosis;
pub mod record_archive;
mod settings_sync;
pub mod store_tls;

use std::sync::Arc;

use interflow_admin::FleetPending;
use interflow_approvals::Approvals;
use interflow_fleet::{PostgresIdentity, RedisConnections, SpendStore, shared_url};
use interflow_host::data_dir::DataDir;
use interflow_limits::{RedisConnector, SpendDatabase};
use interflow_rules::ActiveRules;
use interflow_store::Result;
use interflow_store::shared_state::{CarryOutFn, GrantStore, IdentityStore, SharedPending};

pub use access::{open_store, read_store};
pub use diagnosis::{redis_findings, store_findings};
pub use record_archive::{RecordArchiver, finding as archive_finding};
pub use settings_sync::SettingsSync;

use crate::components::record_store::RecordStore;
use crate::instance::config::InterflowConfig;

/// The client of Redis servers.
pub const REDIS: &dyn RedisConnector = &RedisConnections;

/// Where replicas share API tokens, the audit trail, the grants of MCP users and the spend.
pub struct FleetIdentity {
    pub store: Arc<dyn IdentityStore>,
    pub grants: Arc<dyn GrantStore>,
    pub spend: Arc<dyn SpendDatabase>,
}

/// Checks the keys of the fleet without a connection.
///
/// # Errors
/// One is wrong; the message begins with it.
pub fn check(config: &InterflowConfig) -> std::result::Result<(), String> {
    access::check(&config.record)?;
    record_archive::check(&config.record)
}

/// The address of the shared store without its password, if the configuration names one.
///
/// # Errors
/// `record.store` cannot be resolved or is not a URL.
pub fn shared_address(config: &InterflowConfig) -> Result<Option<String>> {
    Ok(shared_url(&config.record)?.map(|url| url.to_string()))
}

/// What replicas share in the database besides flows, if their store is shared.
///
/// # Errors
/// It does not answer or refuses.
pub fn open_identity(config: &InterflowConfig, home: &DataDir) -> Result<Option<FleetIdentity>> {
    let Some(url) = shared_url(&config.record)? else { return Ok(None) };
    let store = PostgresIdentity::open(&url, store_tls::client, access::row_key(home)?)?;
    let (spend, grants) = (Arc::new(store.spend()), Arc::new(store.grants()));
    Ok(Some(FleetIdentity { store: Arc::new(store), grants, spend }))
}

/// The spend of all replicas, if their store is shared.
///
/// # Errors
/// As for [`open_identity`].
pub fn open_spend(config: &InterflowConfig) -> Result<Option<Arc<dyn SpendDatabase>>> {
    let Some(url) = shared_url(&config.record)? else { return Ok(None) };
    Ok(Some(Arc::new(SpendStore::open(&url, store_tls::client)?)))
}

/// Begins to share requests that wait for a decision, if the store is shared and they are to be.
pub fn share_pending(
    store: &RecordStore,
    config: &InterflowConfig,
    approvals: &Arc<Approvals>,
    rules: &Arc<ActiveRules>,
) -> Option<Arc<FleetPending>> {
    let RecordStore::Shared(store) = store else { return None };
    config.fleet.share_pending.then(|| {
        let share = |replica: &str, carry_out: CarryOutFn| -> Arc<dyn SharedPending> {
            Arc::new(store.share_pending(replica, carry_out))
        };
        FleetPending::start(share, config.fleet.replica_name(), Arc::clone(approvals), Arc::clone(rules))
    })
}
