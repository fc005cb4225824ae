//! Quotas: rates, concurrency and budgets. Whatever is unset is unlimited.

use interflow_types::config_sections;

use super::RateLimit;
use crate::counter_store::BudgetPeriod;

config_sections! {
    /// How much a rule allows each party it counts.
    pub struct Quota {
        /// Requests: `60/m`. The bucket starts full.
        pub requests: Option<RateLimit>,
        /// Maximum burst of requests; the rate's number if unset.
        pub burst: Option<u64>,
        /// Input and output tokens: `100000/m`. Estimated when a request starts, settled from its usage.
        pub tokens: Option<RateLimit>,
        /// Concurrent requests.
        pub concurrent: Option<u32>,
        /// Tokens per day (UTC).
        pub tokens_per_day: Option<u64>,
        /// Tokens per calendar month (UTC).
        pub tokens_per_month: Option<u64>,
        /// Dollars per day (UTC).
        pub money_per_day: Option<f64>,
        /// Dollars per calendar month (UTC).
        pub money_per_month: Option<f64>,
    }
}

/// A sanity bound that keeps sums far from overflow.
const MAX_DOLLARS: f64 = 1e9;

impl Quota {
    /// Validates the numbers.
    ///
    /// # Errors
    /// The invalid one.
    pub fn check(&self) -> Result<(), String> {
        if self.burst == Some(0) || self.burst.is_some() && self.requests.is_none() {
            return Err("burst: it is at least 1 and belongs to requests".into());
        }
        if self.concurrent == Some(0) {
            return Err("concurrent: at least 1".into());
        }
        for (name, money) in [("money_per_day", self.money_per_day), ("money_per_month", self.money_per_month)] {
            if money.is_some_and(|m| !(0.0..=MAX_DOLLARS).contains(&m)) {
                return Err(format!("{name}: dollars from 0 to {MAX_DOLLARS}"));
            }
        }
        for (name, tokens) in [("tokens_per_day", self.tokens_per_day), ("tokens_per_month", self.tokens_per_month)] {
            // Above 2^53, `f64` arithmetic would lose single tokens.
            if tokens.is_some_and(|t| t > 1 << 53) {
                return Err(format!("{name}: at most 2^53"));
            }
        }
        Ok(())
    }

    pub(crate) fn token_budgets(&self) -> impl Iterator<Item = (u64, BudgetPeriod)> {
        [(self.tokens_per_day, BudgetPeriod::Day), (self.tokens_per_month, BudgetPeriod::Month)]
            .into_iter()
            .filter_map(|(max, period)| Some((max?, period)))
    }

    /// Money budgets in millionths of a dollar.
    pub(crate) fn money_budgets(&self) -> impl Iterator<Item = (u64, BudgetPeriod)> {
        [(self.money_per_day, BudgetPeriod::Day), (self.money_per_month, BudgetPeriod::Month)]
            .into_iter()
            .filter_map(|(max, period)| Some(((max? * 1e6).round() as u64, period)))
    }

    /// These limits, with those that are set in `change` in place of their own.
    pub fn changed(self, change: Self) -> Self {
        Self {
            requests: change.requests.or(self.requests),
            burst: change.burst.or(self.burst),
            tokens: change.tokens.or(self.tokens),
            concurrent: change.concurrent.or(self.concurrent),
            tokens_per_day: change.tokens_per_day.or(self.tokens_per_day),
            tokens_per_month: change.tokens_per_month.or(self.tokens_per_month),
            money_per_day: change.money_per_day.or(self.money_per_day),
            money_per_month: change.money_per_month.or(self.money_per_month),
        }
    }

    /// As a table of a keys file; `None` if nothing is limited.
    pub(crate) fn to_table(&self) -> Option<toml_edit::InlineTable> {
        let whole = |n: Option<u64>| n.and_then(|n| i64::try_from(n).ok()).map(toml_edit::Value::from);
        let rate = |r: Option<RateLimit>| r.map(|r| toml_edit::Value::from(r.to_string()));
        let money = |m: Option<f64>| m.map(toml_edit::Value::from);
        let members = [
            ("requests", rate(self.requests)),
            ("burst", whole(self.burst)),
            ("tokens", rate(self.tokens)),
            ("concurrent", whole(self.concurrent.map(u64::from))),
            ("tokens_per_day", whole(self.tokens_per_day)),
            ("tokens_per_month", whole(self.tokens_per_month)),
            ("money_per_day", money(self.money_per_day)),
            ("money_per_month", money(self.money_per_month)),
        ];
        let table: toml_edit::InlineTable = members.into_iter().filter_map(|(n, v)| Some((n, v?))).collect();
        (!table.is_empty()).then_some(table)
    }
}
