//! Days and months in UTC as consecutive numbers, the same as in the Lua scripts.

use interflow_types::labelled_enum;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

labelled_enum! {
    /// The period of a budget. The operator's time zone plays no role: processes that share a budget may run in different
    /// ones.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum BudgetPeriod {
        /// From midnight to midnight, UTC.
        Day "daily",
        /// A calendar month, UTC.
        Month "monthly",
    }
}

const DAY_SECONDS: u64 = 86_400;

impl BudgetPeriod {
    /// The number of the period (days since 1970, months since the year 0) that contains this Unix time, and the Unix time at which the next one begins.
    pub fn period_at(self, seconds: u64) -> (u64, u64) {
        let day = seconds / DAY_SECONDS;
        match self {
            Self::Day => (day, (day + 1) * DAY_SECONDS),
            Self::Month => {
                let at = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
                let date = at.unwrap_or(Timestamp::MAX).to_zoned(TimeZone::UTC).date();
                let months = i64::from(date.year()) * 12 + i64::from(date.month()) - 1;
                let left = date.days_in_month() - date.day() + 1;
                (months.unsigned_abs(), (day + u64::from(left.unsigned_abs())) * DAY_SECONDS)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> u64 {
        text.parse::<jiff::Timestamp>().unwrap().as_second() as u64
    }

    #[test]
    fn periods_end_at_calendar_boundaries() {
        for (at, day_ends, month_ends) in [
            ("2026-11-20T13:00:00Z", "2026-11-21T00:00:00Z", "2026-12-01T00:00:00Z"),
            ("2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("2028-02-28T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z"),
            ("2027-02-28T00:00:00Z", "2027-03-01T00:00:00Z", "2027-03-01T00:00:00Z"),
            ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-02-01T00:00:00Z"),
        ] {
            let now = seconds(at);
            assert_eq!(BudgetPeriod::Day.period_at(now).1, seconds(day_ends), "{at}");
            assert_eq!(BudgetPeriod::Month.period_at(now).1, seconds(month_ends), "{at}");
        }
    }

    #[test]
    fn month_numbers_increase_by_one_per_month() {
        let mut before = BudgetPeriod::Month.period_at(seconds("2026-01-01T00:00:00Z")).0;
        let mut now = seconds("2026-01-01T00:00:00Z");
        for _ in 0..60 {
            let (_, next) = BudgetPeriod::Month.period_at(now);
            assert_eq!(BudgetPeriod::Month.period_at(next - 1).0, before);
            assert_eq!(BudgetPeriod::Month.period_at(next).0, before + 1);
            (before, now) = (before + 1, next);
        }
        assert_eq!(now, seconds("2031-01-01T00:00:00Z"));
    }
}
