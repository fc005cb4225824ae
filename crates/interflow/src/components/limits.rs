//! The limits component: virtual keys, quotas and their pass over LLM traffic.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use interflow_host::data_dir::DataDir;
use interflow_limits::{BudgetFile, KeyStore, SpendDatabase, SpendLedger, UsageLimiter, VirtualKeyRing};
use interflow_llm_gateway::gateway::{LlmGateway, check_provider_names};
use interflow_llm_gateway::limits::{KeyRules, LimitPass};

use super::{ApplyFn, Component};
use crate::instance::config::InterflowConfig;

pub struct LimitsComponent {
    home: PathBuf,
    pub keys: Arc<KeyStore>,
    pub limits: Arc<UsageLimiter>,
    pub pass: Arc<LimitPass>,
    /// None for a check, which leaves the file alone.
    budgets: Option<Arc<BudgetFile>>,
    /// Whether it was said that limits hold for each replica by itself.
    is_warned: Arc<AtomicBool>,
}

impl LimitsComponent {
    /// # Errors
    /// The configuration or the keys file is invalid.
    pub fn new(
        config: &InterflowConfig,
        home: &DataDir,
        limits: Arc<UsageLimiter>,
        gateway: &Arc<LlmGateway>,
    ) -> Result<Self, String> {
        check_provider_names(&config.quota.rule, &config.llm)?;
        let keys = Arc::new(KeyStore::open(home.join(&config.keys.file)).map_err(|e| e.to_string())?);
        let (rules, most) = (KeyRules::new(&config.keys)?, config.gateway.max_concurrent_requests);
        let pass = LimitPass::new(Arc::clone(&keys), rules, Arc::clone(&limits), Arc::clone(gateway), most);
        let budgets = (!home.is_read_only()).then(|| BudgetFile::restore(&limits, &home.join("budgets.json")));
        let is_warned = Arc::new(AtomicBool::new(false));
        warn_once(&is_warned, separate_limits_warning(config, &keys.ring()));
        Ok(Self { home: home.path().to_owned(), keys, limits, pass: Arc::new(pass), budgets, is_warned })
    }

    pub fn close(&self) {
        self.budgets.iter().for_each(|file| file.write(&self.limits));
        if let Some(Err(e)) = self.limits.spend_ledger().map(|ledger| ledger.send()) {
            tracing::warn!("limits: the spend of this replica goes to the database at the next start: {e}");
        }
    }
}

/// What to know about limits of replicas that share a store but no counters.
pub fn separate_limits_warning(config: &InterflowConfig, keys: &VirtualKeyRing) -> Option<String> {
    if config.record.store.is_none() || config.quota.shared.redis.is_some() {
        return None;
    }
    let of = match (!config.quota.rule.is_empty(), keys.has_limits()) {
        (true, true) => "of quota.rule and of virtual keys, teams or organisations",
        (true, false) => "of quota.rule",
        (false, true) => "of virtual keys, teams or organisations",
        (false, false) => return None,
    };
    Some(format!(
        "limits and budgets {of} hold for each replica by itself, so that several replicas allow several times as much: set \
         quota.shared.redis, the same at every replica, to count together"
    ))
}

fn warn_once(is_warned: &AtomicBool, warning: Option<String>) {
    // Again once it was mended in between.
    if !is_warned.swap(warning.is_some(), Relaxed)
        && let Some(text) = warning
    {
        tracing::warn!("limits: {text}");
    }
}

/// The ledger of an instance, or of a command while none is running: in the database that replicas share if there is one.
pub fn spend_ledger(
    config: &InterflowConfig,
    home: &DataDir,
    shared: Option<Arc<dyn SpendDatabase>>,
) -> Arc<SpendLedger> {
    let (folder, keep) = (home.join("spend"), config.quota.keep_spend.0);
    match shared {
        Some(store) => SpendLedger::open_shared(&folder, keep, store),
        None => SpendLedger::open(folder, keep),
    }
}

/// Files whose modification triggers a reload.
pub fn files(config: &InterflowConfig, home: &DataDir) -> Vec<PathBuf> {
    config.quota.prices.iter().chain([&config.keys.file]).map(|file| home.join(file)).collect()
}

impl Component for LimitsComponent {
    fn prepare(&self, config: &InterflowConfig) -> Result<ApplyFn, String> {
        let path = self.home.join(&config.keys.file);
        let ring = KeyStore::read(&path).map_err(|e| e.to_string())?;
        let rules = KeyRules::new(&config.keys)?;
        check_provider_names(&config.quota.rule, &config.llm)?;
        let (warning, is_warned) = (separate_limits_warning(config, &ring), Arc::clone(&self.is_warned));
        let (capacity, keep_spend) = (config.gateway.max_concurrent_requests, config.quota.keep_spend.0);
        let prepared = self.limits.prepare(&config.quota, &self.home).map_err(|e| e.to_string())?;
        let (keys, limits, pass) = (Arc::clone(&self.keys), Arc::clone(&self.limits), Arc::clone(&self.pass));
        Ok(Box::new(move || {
            warn_once(&is_warned, warning);
            keys.set(path, ring);
            limits.activate(prepared);
            limits.spend_ledger().iter().for_each(|ledger| ledger.retain(keep_spend));
            pass.activate(rules, capacity);
        }))
    }
}
