//! Starts the conversation indexer over the store, with the price list from the limits.

use std::sync::Arc;

use interflow_conversations::conversations::CallPricing;
use interflow_conversations::conversations::indexer::IndexerHandle;
use interflow_host::data_dir::DataDir;
use interflow_limits::{PriceList, UsageLimiter};

use crate::components::record_store::RecordStore;
use crate::instance::config::InterflowConfig;

/// Starts the thread that groups LLM exchanges into conversations as flows end.
///
/// # Errors
/// The thread could not be started.
pub fn start(store: &Arc<RecordStore>, limits: &Arc<UsageLimiter>) -> Result<IndexerHandle, String> {
    let limits = Arc::clone(limits);
    let pricing: Arc<CallPricing> =
        Arc::new(move |provider, model, usage| dollars(limits.cost(provider, Some(model), usage)));
    IndexerHandle::start(store.flows(), pricing).map_err(|e| format!("cannot start the conversation indexer: {e}"))
}

/// Loads the price list for commands that run without the proxy.
///
/// # Errors
/// The configured price list is invalid.
pub fn pricing(config: &InterflowConfig, home: &DataDir) -> Result<Arc<CallPricing>, String> {
    let prices = match &config.quota.prices {
        None => PriceList::default(),
        Some(path) => {
            let path = home.join(path);
            let text = std::fs::read_to_string(&path).map_err(|e| format!("quota.prices: {}: {e}", path.display()))?;
            PriceList::with_overrides(&text).map_err(|e| format!("quota.prices: {}: {e}", path.display()))?
        }
    };
    Ok(Arc::new(move |provider, model, usage| dollars(prices.cost(provider, Some(model), usage))))
}

fn dollars(micros: Option<u64>) -> Option<f64> {
    micros.map(|m| m as f64 / 1e6)
}
