//! Sums of usage, and their totals by key, user, provider and model since the process started. The totals are for display
//! only: limits are enforced by the counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use interflow_types::schema::JsonSchema;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::rules::{MCP_PROVIDER, RequestAttributes, ServedModel};
use interflow_types::CallUsage;

/// Maximum number of rows; further combinations are summed in the row `other`.
const MAX_ROWS: usize = 5_000;

/// What a deployment used for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeploymentUsage {
    pub tokens: CallUsage,
    /// The deployment, by which it is priced; `None` if it is not known.
    pub served: Option<ServedModel>,
    /// The model that the response names; its price is used when the deployment or the requested model is an alias or has
    /// no price.
    pub answered: Option<Arc<str>>,
    /// Whether the tokens were counted or estimated, since the provider did not report them.
    pub is_estimated: bool,
}

/// Sums of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageSums {
    pub requests: u64,
    /// Requests whose provider reported no usage, which are charged by an estimate.
    pub estimated: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// The part of `input_tokens` read from a cache.
    pub cached_tokens: u64,
    /// Millionths of a dollar.
    pub micro_dollars: u64,
    /// Requests without a known price, which cost nothing here.
    pub unpriced: u64,
}

impl UsageSums {
    /// What a deployment used for a request, which counts as this many `requests`: 0 for a further deployment. `micros` is
    /// its cost in millionths of a dollar, or `None` if its model has no price.
    pub(crate) fn of(tokens: &CallUsage, is_estimated: bool, micros: Option<u64>, requests: u64) -> Self {
        // A request that used nothing costs nothing, price or not.
        let charged = if tokens.is_zero() { 0 } else { requests };
        Self {
            requests,
            estimated: if is_estimated { charged } else { 0 },
            input_tokens: tokens.input,
            output_tokens: tokens.output,
            cached_tokens: tokens.cache_read,
            micro_dollars: micros.unwrap_or_default(),
            unpriced: if micros.is_none() { charged } else { 0 },
        }
    }

    pub(crate) fn add(&mut self, more: &Self) {
        let (mut sums, more) = (self.to_array(), more.to_array());
        for (sum, n) in sums.iter_mut().zip(more) {
            *sum = sum.saturating_add(n);
        }
        *self = Self::from_array(sums);
    }

    /// In the order of the fields.
    pub const fn to_array(self) -> [u64; 7] {
        let Self { requests, estimated, input_tokens, output_tokens, cached_tokens, micro_dollars, unpriced } = self;
        [requests, estimated, input_tokens, output_tokens, cached_tokens, micro_dollars, unpriced]
    }

    /// As [`to_array`](Self::to_array) gives them.
    pub const fn from_array(sums: [u64; 7]) -> Self {
        let [requests, estimated, input_tokens, output_tokens, cached_tokens, micro_dollars, unpriced] = sums;
        Self { requests, estimated, input_tokens, output_tokens, cached_tokens, micro_dollars, unpriced }
    }

    pub fn dollars(&self) -> f64 {
        self.micro_dollars as f64 / 1e6
    }
}

/// An amount of dollars, with cents and as many more digits as it has, to a millionth.
pub fn format_dollars(amount: f64) -> String {
    let text = format!("${amount:.6}");
    text[..text.trim_end_matches('0').len().max(text.len() - 4)].to_owned()
}

/// The usage of a key, user, provider and model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct UsageRow {
    /// The virtual key's id.
    pub key: Option<Arc<str>>,
    /// The authenticated user, or the key's owner.
    pub user: Option<Arc<str>>,
    pub provider: Arc<str>,
    /// The model as requested by the client, or else the one that served.
    pub model: Option<Arc<str>>,
    /// Requests that were admitted and have ended.
    pub requests: u64,
    /// The part of `requests` that were calls of the MCP gateway.
    pub mcp_calls: u64,
    /// Requests that a limit rejected.
    pub refused: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// The part of `input_tokens` read from a cache.
    pub cached_tokens: u64,
    pub dollars: f64,
    /// Requests without a known price, which `dollars` does not include.
    pub unpriced: u64,
}

type UsageKey = (Option<Arc<str>>, Option<Arc<str>>, Arc<str>, Option<Arc<str>>);

/// What was admitted and rejected, by key, user, provider and model.
#[derive(Debug, Default)]
pub struct UsageTotals(Mutex<BTreeMap<UsageKey, (UsageSums, u64)>>);

impl UsageTotals {
    fn update_row(
        &self,
        subject: &RequestAttributes,
        served: Option<&Arc<str>>,
        change: impl FnOnce(&mut (UsageSums, u64)),
    ) {
        let (key, user) = (subject.key.as_ref().map(|k| Arc::clone(&k.id)), subject.user().map(Into::into));
        let row = (key, user, Arc::clone(&subject.provider), subject.model.as_ref().or(served).cloned());
        let mut rows = self.0.lock();
        // Model names are chosen by clients, so the number of rows is bounded.
        let is_full = rows.len() >= MAX_ROWS && !rows.contains_key(&row);
        let row = if is_full { (None, None, "other".into(), None) } else { row };
        change(rows.entry(row).or_default());
    }

    /// Adds an ended request, or what a further deployment used for it.
    pub(crate) fn record_usage(&self, subject: &RequestAttributes, used: &DeploymentUsage, charged: &UsageSums) {
        // A WebSocket may name its model only after it was opened.
        let served = used.served.as_ref().map(|served| &served.model).or(used.answered.as_ref());
        self.update_row(subject, served, |(sums, _)| sums.add(charged));
    }

    pub fn record_rejection(&self, subject: &RequestAttributes) {
        self.update_row(subject, None, |(_, refused)| *refused += 1);
    }

    /// Every row, sorted by key, user, provider and model. Sums may lag behind requests that are in progress.
    pub fn rows(&self) -> Vec<UsageRow> {
        let row = |((key, user, provider, model), (sums, refused)): (&UsageKey, &(UsageSums, u64))| UsageRow {
            key: key.clone(),
            user: user.clone(),
            provider: provider.clone(),
            model: model.clone(),
            requests: sums.requests,
            mcp_calls: if &**provider == MCP_PROVIDER { sums.requests } else { 0 },
            refused: *refused,
            input_tokens: sums.input_tokens,
            output_tokens: sums.output_tokens,
            cached_tokens: sums.cached_tokens,
            dollars: sums.dollars(),
            unpriced: sums.unpriced,
        };
        self.0.lock().iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_rows_are_summed_and_bounded() {
        let book = UsageTotals::default();
        let subject = |model: &str| RequestAttributes {
            user: Some("ann".into()),
            provider: "openai".into(),
            model: Some(model.into()),
            ..RequestAttributes::default()
        };
        let tokens = CallUsage { input: 10, output: 5, cache_read: 4, ..CallUsage::default() };
        let unknown = DeploymentUsage::default();
        book.record_usage(&subject("a"), &unknown, &UsageSums::of(&tokens, false, Some(2_000_000), 1));
        book.record_usage(&subject("a"), &unknown, &UsageSums::of(&tokens, false, None, 1));
        book.record_rejection(&subject("a"));
        let sums = book.rows().remove(0);
        assert_eq!((sums.requests, sums.refused, sums.input_tokens, sums.unpriced), (2, 1, 20, 1));
        assert_eq!(sums.dollars, 2.0);
        let most = CallUsage { input: u64::MAX, output: u64::MAX, cache_read: u64::MAX, ..CallUsage::default() };
        book.record_usage(&subject("a"), &unknown, &UsageSums::of(&most, false, None, 1));
        let sums = book.rows().remove(0);
        assert_eq!((sums.input_tokens, sums.output_tokens, sums.cached_tokens), (u64::MAX, u64::MAX, u64::MAX));
        let used = UsageSums::of(&tokens, false, None, 1);
        (0..MAX_ROWS + 100).for_each(|i| book.record_usage(&subject(&format!("m{i}")), &unknown, &used));
        assert!(book.rows().len() <= MAX_ROWS + 1);
    }

    #[test]
    fn usage_without_a_requested_model_is_in_the_row_of_the_model_that_served() {
        let served = |model: &str| Some(crate::rules::ServedModel { provider: "gemini".into(), model: model.into() });
        let asked = |model: Option<&str>| RequestAttributes { model: model.map(Into::into), ..Default::default() };
        for (requested, served, answered, listed) in [
            (None, served("live"), Some("live-001"), Some("live")),
            (None, None, Some("live-001"), Some("live-001")),
            (Some("route"), served("live"), None, Some("route")),
            (None, None, None, None),
        ] {
            let book = UsageTotals::default();
            let usage = DeploymentUsage { served, answered: answered.map(Into::into), ..DeploymentUsage::default() };
            book.record_usage(&asked(requested), &usage, &UsageSums::default());
            assert_eq!(book.rows()[0].model.as_deref(), listed);
        }
    }
}
