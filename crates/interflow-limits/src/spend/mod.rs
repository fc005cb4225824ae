//! What keys, teams and tags have spent: a ledger of daily sums that outlives the recorded flows, and reports from it.

mod day;
mod day_files;
mod ledger;
mod shared_sums;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use interflow_types::schema::JsonSchema;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::tags::TagSet;
use crate::usage::UsageSums;
pub(crate) use day::today;
pub use ledger::SpendLedger;
pub use shared_sums::SpendDatabase;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum SpendError {
    /// A file of the ledger cannot be read.
    #[error("{0}")]
    File(String),
    /// The database that replicas share does not answer.
    #[error("{0}")]
    Database(String),
}

/// What a row of the ledger is the sum of. Its JSON names the row in a database, where it has to stay what it is: a field
/// that is added is left out while it is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct SpendAccount {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organisation: Option<Arc<str>>,
    pub provider: Arc<str>,
    /// The model at the provider that served the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "TagSet::is_empty")]
    pub tags: Arc<TagSet>,
}

/// A column by which a report is grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpendBy {
    Key,
    User,
    Team,
    Organisation,
    Provider,
    Model,
    Day,
    Month,
    /// Each tag as `name=value`, or the values of one tag: `tag:NAME`.
    Tag(Option<String>),
}

const COLUMNS: [(&str, SpendBy); 9] = [
    ("key", SpendBy::Key),
    ("user", SpendBy::User),
    ("team", SpendBy::Team),
    ("organisation", SpendBy::Organisation),
    ("provider", SpendBy::Provider),
    ("model", SpendBy::Model),
    ("day", SpendBy::Day),
    ("month", SpendBy::Month),
    ("tag", SpendBy::Tag(None)),
];

impl FromStr for SpendBy {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let column = COLUMNS.iter().find(|(name, _)| *name == s).map(|(_, column)| column.clone());
        let tag =
            || s.strip_prefix("tag:").filter(|name| !name.is_empty()).map(|name| Self::Tag(Some(name.to_owned())));
        column
            .or_else(tag)
            .ok_or_else(|| format!("`{s}` is not one of {}, tag:NAME", COLUMNS.map(|(name, _)| name).join(", ")))
    }
}

impl fmt::Display for SpendBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(Some(name)) => write!(f, "tag:{name}"),
            column => f.write_str(COLUMNS.iter().find(|(_, listed)| listed == column).map_or("", |(name, _)| name)),
        }
    }
}

/// What a report is about: days in UTC, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpendQuery {
    pub by: Vec<SpendBy>,
    pub since: Date,
    pub until: Date,
}

impl SpendQuery {
    /// Parses the columns and the days, as `2026-11-01` or `2026-11` for a whole month. The default is this month by
    /// key.
    ///
    /// # Errors
    /// What is wrong and how it is written.
    pub fn parse(by: Option<&str>, since: Option<&str>, until: Option<&str>) -> Result<Self, String> {
        let by = by.unwrap_or("key").split(',').map(|column| column.trim().parse()).collect::<Result<Vec<_>, _>>();
        let day = |name: &str, text: &str, is_end: bool| {
            let whole = if text.len() == 7 { format!("{text}-01") } else { text.to_owned() };
            let day: Date =
                whole.parse().map_err(|_| format!("{name}: `{text}` is not a day: write 2026-11-01 or 2026-11"))?;
            Ok::<_, String>(if is_end && text.len() == 7 { day.last_of_month() } else { day })
        };
        let until = until.map_or_else(|| Ok(today()), |text| day("until", text, true))?;
        let since = since.map_or_else(|| Ok(until.first_of_month()), |text| day("since", text, false))?;
        if since > until {
            return Err(format!("since: {since} is after {until}"));
        }
        Ok(Self { by: by.map_err(|e| format!("by: {e}"))?, since, until })
    }
}

/// A row of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpendRow {
    /// The value of each column of `by`; one that is missing does not apply, such as the team of a key without one.
    pub group: BTreeMap<String, String>,
    pub dollars: f64,
    #[serde(flatten)]
    pub sums: UsageSums,
}

/// Spending by key, team, tag or other columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpendReport {
    /// The first day (UTC).
    pub since: String,
    /// The last day (UTC), included.
    pub until: String,
    pub by: Vec<String>,
    /// The most expensive first; by time, if a column is a day or a month. Of tags, a request with several counts in the
    /// row of each.
    pub rows: Vec<SpendRow>,
    /// Everything, each request once.
    pub total: SpendRow,
    /// Whether these are the sums of all replicas that share the database of `record.store`, rather than of one instance.
    #[serde(default)]
    pub all_replicas: bool,
}

impl SpendReport {
    /// Reads the ledger in a folder. What a running instance has not written yet is missing.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(folder: &Path, query: &SpendQuery) -> Result<Self, String> {
        Ok(Self::new(query, day_files::read_days(folder, query)?, false))
    }

    fn new(query: &SpendQuery, sums: Vec<(Date, SpendAccount, UsageSums)>, all_replicas: bool) -> Self {
        let mut rows: BTreeMap<Vec<Option<String>>, UsageSums> = BTreeMap::new();
        let mut total = UsageSums::default();
        for (day, account, sums) in sums {
            total.add(&sums);
            for group in groups(&query.by, day, &account) {
                rows.entry(group).or_default().add(&sums);
            }
        }
        let by: Vec<String> = query.by.iter().map(SpendBy::to_string).collect();
        let row = |group: &[Option<String>], sums: UsageSums| SpendRow {
            group: by.iter().zip(group).filter_map(|(name, value)| Some((name.clone(), value.clone()?))).collect(),
            dollars: sums.dollars(),
            sums,
        };
        let mut rows: Vec<_> = rows.into_iter().collect();
        if !query.by.iter().any(|by| matches!(by, SpendBy::Day | SpendBy::Month)) {
            // Stable: rows of the same cost stay in the order of their names.
            rows.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.micro_dollars));
        }
        let rows = rows.into_iter().map(|(group, sums)| row(&group, sums)).collect();
        let (since, until) = (query.since.to_string(), query.until.to_string());
        Self { since, until, rows, total: row(&[], total), by, all_replicas }
    }

    /// The figures of a row, with their names, in the order of exports.
    pub fn figures(sums: &UsageSums) -> [(&'static str, u64); 6] {
        [
            ("requests", sums.requests),
            ("estimated", sums.estimated),
            ("input_tokens", sums.input_tokens),
            ("output_tokens", sums.output_tokens),
            ("cached_tokens", sums.cached_tokens),
            ("unpriced", sums.unpriced),
        ]
    }

    /// As CSV (RFC 4180) with a header.
    pub fn to_csv(&self) -> String {
        let names = Self::figures(&UsageSums::default()).map(|(name, _)| name.to_owned());
        let header = self.by.iter().cloned().chain(names).chain(["usd".to_owned()]);
        let mut text = header.map(|cell| csv_cell(&cell)).collect::<Vec<_>>().join(",") + "\r\n";
        for row in &self.rows {
            let group = self.by.iter().map(|by| csv_cell(row.group.get(by).map_or("", String::as_str)));
            let figures = Self::figures(&row.sums).map(|(_, n)| n.to_string());
            let dollars = format!("{:.6}", row.dollars);
            text += &group.chain(figures).chain([dollars]).collect::<Vec<_>>().join(",");
            text += "\r\n";
        }
        text
    }
}

/// A cell, quoted if it has to be. Models are named by clients: a text that a spreadsheet would take for a formula gets
/// an apostrophe.
fn csv_cell(text: &str) -> String {
    let text = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text.to_owned() };
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// The rows that a row of the ledger counts in: one, but of tags one for each.
fn groups(by: &[SpendBy], day: Date, account: &SpendAccount) -> Vec<Vec<Option<String>>> {
    let mut groups = vec![Vec::with_capacity(by.len())];
    for by in by {
        let text = |value: &Option<Arc<str>>| vec![value.as_deref().map(str::to_owned)];
        let values = match by {
            SpendBy::Key => text(&account.key),
            SpendBy::User => text(&account.user),
            SpendBy::Team => text(&account.team),
            SpendBy::Organisation => text(&account.organisation),
            SpendBy::Model => text(&account.model),
            SpendBy::Provider => vec![Some(account.provider.to_string())],
            SpendBy::Day => vec![Some(day.to_string())],
            SpendBy::Month => vec![Some(day.strftime("%Y-%m").to_string())],
            SpendBy::Tag(Some(name)) => vec![account.tags.get(name).cloned()],
            SpendBy::Tag(None) if account.tags.is_empty() => vec![None],
            SpendBy::Tag(None) => account.tags.iter().map(|(name, value)| Some(format!("{name}={value}"))).collect(),
        };
        groups = groups
            .into_iter()
            .flat_map(|group| {
                values.iter().map(move |value| [&group[..], std::slice::from_ref(value)].concat()).collect::<Vec<_>>()
            })
            .collect();
    }
    groups
}

#[cfg(test)]
mod shared_sums_tests;
#[cfg(test)]
mod tests;
