//! Starts the conversation indexer over the store, with the price list from the limits.

use std::sync::Arc;

use interflow_conversations::conversations::CallPricing;
use interflow_conversations::conversations::indexer::IndexerHandle;
use interflow_host::data_dir::DataDir;
use interflow_limits::{PriceList, UsageLimiter};

use crate::components::catalog;
use crate::components::record_store::RecordStore;
use crate::instance::config::InterflowConfig;

/// Starts the thread that groups LLM exchanges into conversations as flows end.
///
/// # Errors
/// The thread could not be started.
pub fn start(store: &Arc<RecordStore>, limits: &Arc<UsageLimiter>) -> Result<IndexerHandle, String> {
    let limits = Arc::clone(limits);
    let pricing: Arc<CallPricing> =
        Arc::new(move |provider, model, usage, at| limits.prices().dollars(provider, model, usage, at));
    IndexerHandle::start(store.flows(), pricing).map_err(|e| format!("cannot start the conversation indexer: {e}"))
}

/// The price list of the configuration.
///
/// # Errors
/// The operator's own list is invalid.
pub fn price_list(config: &InterflowConfig, home: &DataDir) -> Result<PriceList, String> {
    catalog::load(&config.quota.catalog, home)?;
    let own = config.quota.prices.as_ref().map(|path| PriceList::from_file(&home.join(path)));
    Ok(own.transpose()?.unwrap_or_default())
}

/// Loads the price list for commands that run without the proxy.
///
/// # Errors
/// The configured price list is invalid.
pub fn pricing(config: &InterflowConfig, home: &DataDir) -> Result<Arc<CallPricing>, String> {
    let prices = price_list(config, home)?;
    Ok(Arc::new(move |provider, model, usage, at| prices.dollars(provider, model, usage, at)))
}
