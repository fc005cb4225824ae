//! Usage totals by key, user, provider and model since the process started. For display only: limits are enforced by
//! the counters.

use std::collections::HashMap;
use std::sync::Arc;

use interflow_types::schema::JsonSchema;
use parking_lot::Mutex;
use serde::Serialize;

use crate::prices::TokenCounts;
use crate::rules::{MCP_PROVIDER, RequestAttributes};

/// Maximum number of rows; further combinations are summed in the row `other`.
const MAX_ROWS: usize = 5_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct UsageKey {
    key: Option<Arc<str>>,
    user: Option<Arc<str>>,
    provider: Arc<str>,
    model: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct UsageSums {
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

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UsageRow {
    /// The virtual key's id.
    pub key: Option<Arc<str>>,
    /// The authenticated user, or the key's owner.
    pub user: Option<Arc<str>>,
    pub provider: Arc<str>,
    /// The model as requested by the client.
    pub model: Option<Arc<str>>,
    #[serde(flatten)]
    pub sums: UsageSums,
}

#[derive(Debug, Default)]
pub struct UsageTotals(Mutex<HashMap<UsageKey, UsageSums>>);

impl UsageTotals {
    fn update_row(&self, subject: &RequestAttributes, change: impl FnOnce(&mut UsageSums)) {
        let row = UsageKey {
            key: subject.key.as_ref().map(|k| Arc::clone(&k.id)),
            user: subject.user().map(Into::into),
            provider: Arc::clone(&subject.provider),
            model: subject.model.clone(),
        };
        let mut rows = self.0.lock();
        // Model names are chosen by clients, so the number of rows is bounded.
        let full = rows.len() >= MAX_ROWS && !rows.contains_key(&row);
        let row = if full { UsageKey { key: None, user: None, provider: "other".into(), model: None } } else { row };
        change(rows.entry(row).or_default());
    }

    /// Adds an ended request, or with 0 `requests` what a further deployment used for it. `micros` is its cost in
    /// millionths of a dollar, or `None` if its model has no price.
    pub fn record_usage(&self, subject: &RequestAttributes, tokens: &TokenCounts, micros: Option<u64>, requests: u64) {
        self.update_row(subject, |s| {
            s.requests += requests;
            s.mcp_calls += if &*subject.provider == MCP_PROVIDER { requests } else { 0 };
            s.input_tokens = s.input_tokens.saturating_add(tokens.input);
            s.output_tokens = s.output_tokens.saturating_add(tokens.output);
            s.cached_tokens = s.cached_tokens.saturating_add(tokens.cache_read);
            match micros {
                Some(micros) => s.dollars += micros as f64 / 1e6,
                // A request that used nothing costs nothing, price or not.
                None => s.unpriced += if tokens.total() > 0 { requests } else { 0 },
            }
        });
    }

    pub fn record_rejection(&self, subject: &RequestAttributes) {
        self.update_row(subject, |s| s.refused += 1);
    }

    /// Every row, sorted by key, user, provider and model. Sums may lag behind requests that are in progress.
    pub fn rows(&self) -> Vec<UsageRow> {
        let mut rows: Vec<_> = self.0.lock().iter().map(|(r, s)| (r.clone(), *s)).collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        let usage_row = |(r, sums): (UsageKey, UsageSums)| UsageRow {
            key: r.key,
            user: r.user,
            provider: r.provider,
            model: r.model,
            sums,
        };
        rows.into_iter().map(usage_row).collect()
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
        let tokens = TokenCounts { input: 10, output: 5, cache_read: 4, ..TokenCounts::default() };
        book.record_usage(&subject("a"), &tokens, Some(2_000_000), 1);
        book.record_usage(&subject("a"), &tokens, None, 1);
        book.record_rejection(&subject("a"));
        let sums = book.rows()[0].sums;
        assert_eq!((sums.requests, sums.refused, sums.input_tokens, sums.unpriced), (2, 1, 20, 1));
        assert_eq!(sums.dollars, 2.0);
        let most = TokenCounts { input: u64::MAX, output: u64::MAX, cache_read: u64::MAX, ..TokenCounts::default() };
        book.record_usage(&subject("a"), &most, None, 1);
        let sums = book.rows()[0].sums;
        assert_eq!((sums.input_tokens, sums.output_tokens, sums.cached_tokens), (u64::MAX, u64::MAX, u64::MAX));
        (0..MAX_ROWS + 100).for_each(|i| book.record_usage(&subject(&format!("m{i}")), &tokens, None, 1));
        assert!(book.rows().len() <= MAX_ROWS + 1);
    }
}
