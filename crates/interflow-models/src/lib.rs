//! The catalog of language models: what a call costs, and what a model takes and refuses.

#![forbid(unsafe_code)]

mod capabilities;
mod catalog;
mod names;
mod price;
mod signed;

use std::sync::Arc;

use interflow_types::Timestamp;

pub use capabilities::{Capabilities, Effort, ThinkingBinding, ThinkingMode};
pub use catalog::{Catalog, CatalogHeader, Limits, Model, current, install};
pub use names::{base as base_name, plain as plain_name, plain_pattern};
pub use price::{LongPrompt, Price, PriceHours, Rates, TierPrice, Unit};
pub use signed::CatalogSource;

/// What a model can do, by its name at a provider as a request has it; `None` if neither it nor its family is in the
/// catalog. The name of the provider in the configuration may be any: the maker's entry then counts.
pub fn capabilities(provider: &str, model: &str) -> Option<Arc<Capabilities>> {
    current().capabilities(provider, model)
}

/// Whether the text is a day in the form of the dates in the catalog, whose order is that of the days.
pub fn is_day(text: &str) -> bool {
    text.parse::<jiff::civil::Date>().is_ok_and(|day| day.to_string() == text)
}

/// The day of a time, in UTC, in the form of the dates in the catalog: `2026-12-01`.
pub fn day(at: Timestamp) -> String {
    let at = i64::try_from(at.micros()).ok().and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    at.unwrap_or(jiff::Timestamp::MAX).to_zoned(jiff::tz::TimeZone::UTC).date().to_string()
}
