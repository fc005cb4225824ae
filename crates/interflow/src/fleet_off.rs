//! In place of `fleet`, in a build without that feature: nothing is shared, and a configuration that asks for it is refused.

use std::convert::Infallible;
use std::sync::Arc;

use interflow_admin::metrics::MetricsSource;
use interflow_admin::settings::SharedSettings;
use interflow_admin::{ArchiveProgressFn, FleetPending, LastEditors, ReloadFn};
use interflow_approvals::Approvals;
use interflow_host::data_dir::DataDir;
use interflow_host::doctor::DoctorFinding;
use interflow_limits::{NoRedis, RedisConnector, SpendDatabase};
use interflow_llm::CacheStoreKind;
use interflow_rules::ActiveRules;
use interflow_store::StoreError;
use interflow_store::shared_state::{GrantStore, IdentityStore};

use crate::Result;
use crate::components::record_store::RecordStore;
use crate::instance::config::InterflowConfig;
use crate::instance::reload::ReloadStatus;

pub const REDIS: &dyn RedisConnector = &NoRedis;

pub struct FleetIdentity {
    pub store: Arc<dyn IdentityStore>,
    pub grants: Arc<dyn GrantStore>,
    pub spend: Arc<dyn SpendDatabase>,
}

/// Refuses what needs the fleet.
///
/// # Errors
/// The first key that does.
pub fn check(config: &InterflowConfig) -> Result<(), String> {
    let keys = [
        ("record.store", config.record.store.is_some()),
        ("record.objects", config.record.objects.is_some()),
        ("record.archive", config.record.archive.is_some()),
        ("quota.shared.redis", config.quota.shared.redis.is_some()),
        ("llm.cache.store", config.llm.cache.store == CacheStoreKind::Redis),
    ];
    let set = keys.into_iter().find(|(_, is_set)| *is_set);
    set.map_or(Ok(()), |(key, _)| Err(format!("{key}: {}", NoRedis::MISSING)))
}

pub fn open_store(config: &InterflowConfig, home: &DataDir) -> Result<RecordStore, StoreError> {
    check(config).map_err(StoreError::Shared)?;
    RecordStore::open_embedded(&home.join(&config.record.dir), &config.record)
}

pub fn read_store(config: &InterflowConfig, home: &DataDir) -> Result<RecordStore, StoreError> {
    check(config).map_err(StoreError::Shared)?;
    RecordStore::read_embedded(&home.join(&config.record.dir))
}

pub const fn shared_address(_: &InterflowConfig) -> Result<Option<String>, StoreError> {
    Ok(None)
}

pub const fn open_identity(_: &InterflowConfig, _: &DataDir) -> Result<Option<FleetIdentity>, StoreError> {
    Ok(None)
}

pub const fn open_spend(_: &InterflowConfig) -> Result<Option<Arc<dyn SpendDatabase>>, StoreError> {
    Ok(None)
}

pub const fn share_pending(
    _: &RecordStore,
    _: &InterflowConfig,
    _: &Arc<Approvals>,
    _: &Arc<ActiveRules>,
) -> Option<Arc<FleetPending>> {
    None
}

pub const fn store_findings(_: &InterflowConfig, _: &DataDir) -> Vec<DoctorFinding> {
    Vec::new()
}

pub const fn redis_findings(_: &InterflowConfig, _: &DataDir) -> Vec<DoctorFinding> {
    Vec::new()
}

pub const fn archive_finding(_: &InterflowConfig, _: &DataDir) -> Option<DoctorFinding> {
    None
}

/// There is none.
pub struct RecordArchiver(Infallible);

impl RecordArchiver {
    pub async fn start(config: &InterflowConfig, _: &DataDir, _: &RecordStore) -> Result<Option<Self>, String> {
        check(config).map(|()| None)
    }

    pub fn progress(&self) -> ArchiveProgressFn {
        match self.0 {}
    }

    pub fn metrics(&self) -> MetricsSource {
        match self.0 {}
    }
}

/// There are none.
pub struct SettingsSync(Infallible);

impl SettingsSync {
    pub async fn start(config: &InterflowConfig, _: &DataDir, _: &Arc<ReloadStatus>) -> Result<Option<Self>> {
        Ok(check(config).map(|()| None)?)
    }

    pub fn for_admin(&self) -> SharedSettings {
        match self.0 {}
    }

    pub fn set_editors(&mut self, _: Arc<LastEditors>) {
        match self.0 {}
    }

    pub async fn try_earlier(&mut self) -> Result<bool> {
        match self.0 {}
    }

    pub fn accept_start(&mut self, _: Option<&str>) -> Result<()> {
        match self.0 {}
    }

    pub async fn run(self, _: ReloadFn) {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::instance::config::parse;

    #[test]
    fn a_configuration_that_needs_the_fleet_names_the_key_and_the_feature() {
        for (text, key) in [
            ("[record]\nstore = \"postgres://u@h/d\"\n", "record.store"),
            ("[record]\narchive = \"file:///tmp/a\"\n", "record.archive"),
            ("[quota.shared]\nredis = \"redis://h\"\n", "quota.shared.redis"),
            ("[llm.cache]\nstore = \"redis\"\n", "llm.cache.store"),
        ] {
            let config = parse(text, "c.toml", None, &[]).unwrap();
            let error = check(&config).unwrap_err();
            assert!(error.starts_with(&format!("{key}: ")) && error.contains("--features fleet"), "{error}");
        }
    }
}
