//! Hours of UTC, and the folders and files of a data set that is partitioned by them.

use std::fmt;

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

    /// A file of the hour.
    pub fn file(self, writer: &FileWriter<'_>, number: u32) -> String {
        format!("{}/part-{writer}-{number:05}.parquet", self.folder())
    }
}

/// Who writes a file: a part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileWriter<'a> {
    /// The name of the store, so that several may share a place.
    pub store: &'a str,
    /// Grows with every process that takes over from another one; 0 where only one process can write.
    pub epoch: u64,
}

impl fmt::Display for FileWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.store)?;
        if self.epoch > 0 { write!(f, ".{}", self.epoch) } else { Ok(()) }
    }
}

/// The epoch and the number in the name of a file, if it is one of this store.
pub fn parse_file(name: &str, store: &str) -> Option<(u64, u32)> {
    let (_, name) = name.rsplit_once('/')?;
    let rest = name.strip_prefix("part-")?.strip_prefix(store)?.strip_suffix(".parquet")?;
    let (epoch, number) = rest.rsplit_once('-')?;
    let epoch = if epoch.is_empty() { 0 } else { epoch.strip_prefix('.')?.parse().ok()? };
    Some((epoch, number.parse().ok()?))
}

/// The id that sorts before all flows that begin in this millisecond or later, and after all others.
pub const fn first_id(millis: u64) -> FlowId {
    FlowId::from_u128((millis as u128) << 80)
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
        let name = |epoch| Hour(hour.0 + 1).file(&FileWriter { store: "a1", epoch }, 7);
        assert_eq!(name(0), "date=2026-11-24/hour=02/part-a1-00007.parquet");
        assert_eq!(name(3), "date=2026-11-24/hour=02/part-a1.3-00007.parquet");
        assert_eq!([0, 3].map(|epoch| parse_file(&name(epoch), "a1")), [Some((0, 7)), Some((3, 7))]);
        assert_eq!([0, 3].map(|epoch| parse_file(&name(epoch), "a")), [None, None]);
        let begin = FlowId::new(interflow_types::Timestamp::from_micros(hour.start_millis() * 1000));
        assert!(id_before(hour.start_millis()) < begin && begin < id_before(hour.end_millis()));
    }
}
