//! Hours of UTC, and the folders and files of a data set that is partitioned by them.

use interflow_types::FlowId;

const MILLIS: u64 = 3_600_000;

/// An hour of UTC, counted from 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hour(pub u64);

impl Hour {
    pub const fn of_millis(millis: u64) -> Self {
        Self(millis / MILLIS)
    }

    pub const fn start_millis(self) -> u64 {
        self.0 * MILLIS
    }

    pub const fn end_millis(self) -> u64 {
        (self.0 + 1) * MILLIS
    }

    /// The folder of the hour, in the form that query engines read partitions from (Hive's): `date=2026-11-24/hour=01`.
    pub fn folder(self) -> String {
        let seconds = i64::try_from(self.start_millis() / 1000).unwrap_or(i64::MAX);
        let at =
            jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX).to_zoned(jiff::tz::TimeZone::UTC);
        format!("date={}/hour={:02}", at.date(), at.hour())
    }

    /// A file of the hour, of one replica.
    pub fn file(self, replica: &str, number: u32) -> String {
        format!("{}/part-{replica}-{number:05}.parquet", self.folder())
    }
}

/// The number in the name of a file, if it is one of this replica.
pub fn file_number(name: &str, replica: &str) -> Option<u32> {
    let (_, name) = name.rsplit_once('/')?;
    name.strip_prefix("part-")?.strip_prefix(replica)?.strip_prefix('-')?.strip_suffix(".parquet")?.parse().ok()
}

/// The greatest id that sorts before all flows that begin in this millisecond or later.
pub const fn id_before(millis: u64) -> FlowId {
    FlowId::from_u128(((millis as u128) << 80).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_partitions_of_utc() {
        let hour = Hour::of_millis(1_795_485_599_999);
        assert_eq!(hour.folder(), "date=2026-11-24/hour=01");
        let name = Hour(hour.0 + 1).file("a1", 7);
        assert_eq!(name, "date=2026-11-24/hour=02/part-a1-00007.parquet");
        assert_eq!((file_number(&name, "a1"), file_number(&name, "b")), (Some(7), None));
        let begin = FlowId::new(interflow_types::Timestamp::from_micros(hour.start_millis() * 1000));
        assert!(id_before(hour.start_millis()) < begin && begin < id_before(hour.end_millis()));
    }
}
