//! The text and the JSON of a budget alert.

use interflow_types::Timestamp;
use serde::Serialize;

use super::PendingCheck;
use crate::counter_store::{BudgetPeriod, CounterLimit};
use crate::usage::format_dollars;

/// What is posted. Documented in docs/guides/virtual-keys.md: members are added, never renamed.
#[derive(Debug, Serialize)]
pub(super) struct BudgetAlert {
    #[serde(rename = "type")]
    kind: &'static str,
    /// For chat programs such as Slack, which show this member.
    text: String,
    /// `key`, `team`, `organisation`, or `rule` for a configured rule.
    level: &'static str,
    /// The key, team or organisation; for a rule, whom it counts.
    name: String,
    /// The organisation of a team.
    #[serde(skip_serializing_if = "Option::is_none")]
    organisation: Option<String>,
    /// The name of a configured rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    budget: &'static str,
    threshold: u8,
    used: f64,
    limit: f64,
    unit: &'static str,
    /// `2026-11` or `2026-11-23`.
    period: String,
    period_ends: String,
    /// Whether a request was rejected because of the budget.
    rejecting: bool,
    time: String,
}

impl BudgetAlert {
    pub fn new(check: &PendingCheck, threshold: u8, used: f64, now: Timestamp) -> Self {
        let budget = &check.budget;
        let seconds = now.micros() / 1_000_000;
        let period = budget.counter.period().unwrap_or(BudgetPeriod::Day);
        let (_, next) = period.period_at(seconds);
        let time = |seconds: u64| {
            let at = i64::try_from(seconds).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
            at.unwrap_or_default().to_string()
        };
        let today = time(seconds);
        let length = if period == BudgetPeriod::Day { 10 } else { 7 };
        let is_money = matches!(budget.counter, CounterLimit::MoneyBudget { .. });
        let unit = if is_money { 1e6 } else { 1.0 };
        let (used, limit) = (used / unit, budget.counter.capacity() / unit);
        let level = ["key", "team", "organisation"].into_iter().find(|level| *level == &*budget.rule).unwrap_or("rule");
        let amount = |n: f64| if is_money { format_dollars(n) } else { format!("{n} tokens") };
        let whose = match level {
            "rule" => format!("the limit {} for {}", budget.rule, budget.who),
            level => format!("the {level} {}", budget.who),
        };
        let rejects = if check.is_rejecting { " Requests are rejected." } else { "" };
        let text = format!(
            "Budget alert, {threshold} %: {whose} has used {} of its {} budget of {}.{rejects}",
            amount(used),
            period.as_str(),
            amount(limit)
        );
        Self {
            kind: "budget.threshold",
            text,
            level,
            name: budget.who.to_string(),
            organisation: check.organisation.as_deref().map(str::to_owned),
            rule: (level == "rule").then(|| budget.rule.to_string()),
            budget: budget.counter.as_str(),
            threshold,
            used,
            limit,
            unit: if is_money { "USD" } else { "tokens" },
            period: today.chars().take(length).collect(),
            period_ends: time(next),
            rejecting: check.is_rejecting,
            time: today,
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
