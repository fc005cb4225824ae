//! The sums of a day in memory.

use std::collections::HashMap;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::{SpendAccount, UsageSums};

/// A row of a day.
#[derive(Clone, Copy, Default)]
pub(super) struct Row {
    pub sums: UsageSums,
    /// Whether the database, if there is one, has exactly these sums.
    pub is_sent: bool,
}

#[derive(Default)]
pub(super) struct Day {
    pub rows: HashMap<SpendAccount, Row>,
    /// Whether the file differs.
    pub is_changed: bool,
    /// The writer whose sums these are in the database; empty without one.
    pub writer: String,
}

pub(crate) fn today() -> Date {
    Timestamp::now().to_zoned(TimeZone::UTC).date()
}
