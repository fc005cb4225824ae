//! Conversations as the binary starts them: over the recording, with the price list of the limits.

use std::sync::Arc;

use interflow_engine::conversations::Pricing;
use interflow_engine::conversations::live::Live;
use interflow_limits::{Limits, Prices, Tokens};
use interflow_llm::Usage;
use interflow_record::EmbeddedStore;

use crate::config::Config;
use crate::home::Home;

/// Starts putting conversations together as flows end.
///
/// # Errors
/// The system has no thread to give.
pub fn start(store: &Arc<EmbeddedStore>, limits: &Arc<Limits>) -> Result<Live, String> {
    let limits = Arc::clone(limits);
    let pricing: Arc<Pricing> =
        Arc::new(move |provider, model, usage| dollars(limits.cost(provider, Some(model), &tokens(usage))));
    Live::start(Arc::clone(store) as _, pricing).map_err(|e| format!("conversations cannot be put together: {e}"))
}

/// The prices by themselves, for commands that run without the corridor.
///
/// # Errors
/// What is wrong with the owner's price list.
pub fn pricing(config: &Config, home: &Home) -> Result<Arc<Pricing>, String> {
    let prices = match &config.quota.prices {
        None => Prices::default(),
        Some(path) => {
            let path = home.join(path);
            let text = std::fs::read_to_string(&path).map_err(|e| format!("quota.prices: {}: {e}", path.display()))?;
            Prices::with(&text).map_err(|e| format!("quota.prices: {}: {e}", path.display()))?
        }
    };
    Ok(Arc::new(move |provider, model, usage| dollars(prices.cost(provider, Some(model), &tokens(usage)))))
}

const fn tokens(usage: &Usage) -> Tokens {
    Tokens { input: usage.input, output: usage.output, cache_read: usage.cache_read, cache_write: usage.cache_write }
}

fn dollars(micros: Option<u64>) -> Option<f64> {
    micros.map(|m| m as f64 / 1e6)
}
