//! The archive of a store by the hour: every flow is in it once, whenever it ends, and wherever a run is interrupted.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_archive::parquet::{ColumnKind, TableWriter};
use interflow_fleet::hourly::{
    ArchiveCursor, ArchiveError, ArchiveOptions, ArchiveUntil, ArchivedFlows, ArchivedRecord, HourlyArchive,
};
use interflow_fleet::objects::{ObjectAccess, ObjectStorage};
use interflow_store::{FlowStore, FlowWithBodies, RecordConfig, SqliteStore};
use interflow_types::{
    ClientInfo, EntryKind, Error, ErrorKind, Flow, FlowId, FlowOutcome, FlowRecording, HttpClient, Recorder, Request,
    ResponseFuture, Scheme, Timestamp,
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use sha2::{Digest, Sha256};

use super::exchange;

pub const HOUR: u64 = 3_600_000_000;
/// 2026-11-20T10:00:00Z
pub const TEN: u64 = 1_795_168_800_000_000;
pub const CLOSED: ArchiveUntil = ArchiveUntil::ClosedHours { delay_millis: 300_000 };

/// Folders need no client.
pub struct NoClient;

impl HttpClient for NoClient {
    fn send(&self, _: Request) -> ResponseFuture<'_> {
        Box::pin(async { Err(Error::new(ErrorKind::Connect, "no request is expected")) })
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    store: SqliteStore,
    file_bytes: u64,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Old flows must not be deleted while they are archived.
        let keep = RecordConfig { retention_age: "0s".parse().unwrap(), ..RecordConfig::default() };
        let store = SqliteStore::open(&folder.path().join("record"), &keep).unwrap();
        Self { folder, store, file_bytes: 64 << 20 }
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("archive")
    }

    /// Records a flow that began at this time, with this body.
    fn add(&self, micros: u64, body: &[u8]) -> FlowId {
        let mut flow: FlowWithBodies = exchange("POST", "/a?b=c", &[("Host", "h")], body, b"{}");
        flow.row.started = Timestamp::from_micros(micros);
        flow.row.id = FlowId::new(flow.row.started);
        let id = flow.row.id;
        assert!(self.store.insert(flow).unwrap());
        id
    }

    fn run(&self, now: u64, until: ArchiveUntil) -> ArchivedFlows {
        self.run_while(now, until, &mut |_| true)
    }

    fn run_while(&self, now: u64, until: ArchiveUntil, each: &mut dyn FnMut(&ArchiveCursor) -> bool) -> ArchivedFlows {
        self.try_run(now, until, each).unwrap()
    }

    fn try_run(
        &self,
        now: u64,
        until: ArchiveUntil,
        each: &mut dyn FnMut(&ArchiveCursor) -> bool,
    ) -> Result<ArchivedFlows, ArchiveError> {
        let url = format!("file://{}", self.place().display()).parse().unwrap();
        let access = ObjectAccess::from_env(Arc::new(NoClient));
        let storage = ObjectStorage::open(&url, &access).unwrap();
        let options = ArchiveOptions { bodies: true, file_bytes: self.file_bytes };
        let (record, dir) = (ArchivedRecord::Embedded(&self.store), self.folder.path().join("record"));
        let archive = HourlyArchive { record, dir: &dir, storage: &storage, options };
        archive.run(Timestamp::from_micros(now), until, each)
    }

    /// The folder of the archive's cursor.
    fn state(&self) -> PathBuf {
        self.folder.path().join("record/archive")
    }

    fn rows(&self) -> BTreeMap<String, (String, String)> {
        rows(&self.place())
    }

    fn names(&self) -> Vec<String> {
        files(&self.place()).iter().map(|f| f.strip_prefix(self.place()).unwrap().display().to_string()).collect()
    }
}

/// Every row: the partition, and the digest of the request's body by the flow. Fails if a flow is there twice.
pub fn rows(place: &Path) -> BTreeMap<String, (String, String)> {
    let mut rows = BTreeMap::new();
    for file in files(place) {
        let partition = file.parent().unwrap().strip_prefix(place).unwrap().display().to_string();
        let reader = SerializedFileReader::new(File::open(&file).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let value = |name: &str| row.get_column_iter().find(|(n, _)| *n == name).unwrap().1.clone();
            let Field::Str(id) = value("id") else { panic!("no id") };
            // A tunnel has none.
            let digest = match value("request_body") {
                Field::Bytes(body) => hex::encode(Sha256::digest(body.data())),
                _ => String::new(),
            };
            assert!(rows.insert(id, (partition.clone(), digest)).is_none(), "a flow is archived twice");
        }
    }
    rows
}

pub fn files(place: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(place).into_iter().flatten().map(Result::unwrap) {
        if entry.path().is_dir() { found.extend(files(&entry.path())) } else { found.push(entry.path()) }
    }
    found.sort();
    found
}

fn partitions(names: &[String]) -> Vec<&str> {
    names.iter().map(|name| name.rsplit_once('/').unwrap().0).collect()
}

#[test]
fn closed_hours_are_archived_once_with_their_bodies() {
    let archive = Fixture::new();
    let mut sent = BTreeMap::new();
    for i in 0..500_u64 {
        let body = format!("body {i} {}", "x".repeat((i * 37 % 5000) as usize));
        let id = archive.add(TEN + i * 20_000_000, body.as_bytes());
        sent.insert(id.to_string(), hex::encode(Sha256::digest(body.as_bytes())));
    }
    // 500 flows, one every 20 seconds: two hours, and most of a third.
    let now = TEN + 3 * HOUR + 299_000_000;
    assert_eq!(archive.run(now, CLOSED).flows, 360, "the last hour ended less than five minutes ago");
    assert_eq!(partitions(&archive.names()), ["date=2026-11-20/hour=10", "date=2026-11-20/hour=11"]);
    assert_eq!(archive.run(now, CLOSED), ArchivedFlows::default(), "nothing is written again");
    assert_eq!(archive.run(now + 1_000_000, CLOSED).flows, 140);
    let rows = archive.rows();
    let digests: BTreeMap<_, _> = rows.iter().map(|(id, (_, digest))| (id.clone(), digest.clone())).collect();
    assert_eq!(digests, sent);
    assert_eq!(archive.names().len(), 3);
}

#[test]
fn running_hour_can_be_archived_in_parts_that_are_merged_at_its_end() {
    let archive = Fixture::new();
    for minute in 0..3 {
        archive.add(TEN + minute * 60_000_000, b"a");
        assert_eq!(archive.run(TEN + minute * 60_000_000 + 30_000_000, ArchiveUntil::Now).files, 1);
    }
    assert_eq!(archive.names().len(), 3);
    archive.add(TEN + 59 * 60_000_000, b"b");
    assert_eq!(archive.run(TEN + HOUR + 400_000_000, CLOSED).flows, 1);
    assert_eq!((archive.names().len(), archive.rows().len()), (1, 4), "merged");
    assert!(archive.names()[0].ends_with("-00004.parquet"), "after those that it replaces");
    // Both ways of reading a file agree on what was merged.
    let reader = SerializedFileReader::new(File::open(&files(&archive.place())[0]).unwrap()).unwrap();
    assert_eq!((reader.metadata().num_row_groups(), reader.metadata().file_metadata().num_rows()), (4, 4));
}

#[test]
fn files_with_other_columns_stay_beside_those_of_this_version() {
    let archive = Fixture::new();
    let first = archive.add(TEN, b"a");
    assert_eq!(archive.run(TEN + 30_000_000, ArchiveUntil::Now).files, 1);
    // As another version would have written it.
    let older = &files(&archive.place())[0];
    let columns = [("id", ColumnKind::Text), ("request_body", ColumnKind::Bytes)];
    let mut table = TableWriter::new(File::create(older).unwrap(), "flow", &columns, Some("1")).unwrap();
    table.columns()[0].text(Some(&first.to_string()));
    table.columns()[1].null();
    table.end_row().unwrap();
    table.finish().unwrap();
    let bytes = std::fs::read(older).unwrap();
    archive.add(TEN + 59 * 60_000_000, b"b");
    assert_eq!(archive.run(TEN + HOUR + 400_000_000, CLOSED).flows, 1);
    assert_eq!((archive.names().len(), archive.rows().len()), (2, 2), "not merged");
    assert!(std::fs::read(older).unwrap() == bytes);
    assert_eq!(archive.run(TEN + 2 * HOUR, CLOSED), ArchivedFlows::default(), "nor tried again");
}

#[test]
fn large_hours_are_several_files_that_stay() {
    let mut archive = Fixture::new();
    archive.file_bytes = 100_000;
    let bytes: Vec<u8> = (0..60_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    // Groups of rows are written when they hold 32 MiB.
    for i in 0..1200 {
        archive.add(TEN + i, &bytes);
    }
    let done = archive.run(TEN + 2 * HOUR, CLOSED);
    assert!(done.files >= 2 && done.flows == 1200, "{done:?}");
    assert_eq!(archive.rows().len(), 1200);
    assert_eq!(archive.run(TEN + 3 * HOUR, CLOSED), ArchivedFlows::default());
    assert_eq!(archive.names().len() as u64, done.files);
}

#[test]
fn flows_recorded_later_follow_in_their_hour() {
    let archive = Fixture::new();
    archive.add(TEN, b"a");
    archive.add(TEN + HOUR, b"b");
    assert_eq!(archive.run(TEN + 3 * HOUR, CLOSED).flows, 2);
    let late = archive.add(TEN + 1000, b"late");
    archive.add(TEN + 4 * HOUR, b"c");
    assert_eq!(archive.run(TEN + 5 * HOUR + 300_000_000, CLOSED).flows, 2);
    assert_eq!(archive.rows()[&late.to_string()].0, "date=2026-11-20/hour=10");
    assert_eq!((archive.rows().len(), archive.names().len()), (4, 3), "merged into the file of its hour");
    assert_eq!(archive.run(TEN + 6 * HOUR, CLOSED), ArchivedFlows::default());
}

/// Flows are recorded when their head is known, which may be long after they began: neither what was archived meanwhile
/// nor the order in which they began may hide them, and no newer flow need follow.
#[test]
fn flows_held_back_from_the_record_are_archived_without_a_newer_one() {
    let archive = Fixture::new();
    archive.add(TEN, b"a");
    assert_eq!(archive.run(TEN + 2 * HOUR, CLOSED).flows, 1);
    // Began after the newest flow of the run, in the hour that it archived.
    archive.add(TEN + 1_800_000_000, b"held");
    assert_eq!(archive.run(TEN + 3 * HOUR, CLOSED).flows, 1);
    assert_eq!(archive.run(TEN + 4 * HOUR, CLOSED), ArchivedFlows::default());
    // Recorded in the opposite order.
    let base = TEN + 5 * HOUR;
    archive.add(base + 2_000, b"second");
    archive.add(base + 1_000, b"first");
    assert_eq!(archive.run(base + 60_000_000, ArchiveUntil::Now).flows, 2);
    assert_eq!(archive.run(base + 2 * HOUR, CLOSED).flows, 0);
    assert_eq!((archive.rows().len(), archive.names().len()), (4, 2));
}

fn begin_flow() -> Flow {
    let client = Arc::new(ClientInfo {
        connection: 1,
        peer: "127.0.0.1:1".parse().unwrap(),
        local: "127.0.0.1:2".parse().unwrap(),
        listener: "proxy".into(),
        accepted: Timestamp::now(),
        process: None,
        container: None,
    });
    Flow::begin(client, EntryKind::Connect, Scheme::Https, "h:443".parse().unwrap())
}

#[test]
fn a_run_that_fails_after_its_first_file_repeats_no_flow() {
    let archive = Fixture::new();
    for hour in 0..3 {
        archive.add(TEN + hour * HOUR, b"in time");
    }
    assert_eq!(archive.run(TEN + 4 * HOUR, CLOSED).flows, 3);
    let now = TEN + 5 * HOUR;
    for hour in 0..2 {
        archive.add(TEN + hour * HOUR + 1000, b"late");
    }
    // A folder where the second hour's file would be.
    let first = archive.names()[1].replace("-00000.parquet", "-00001.parquet");
    let in_the_way = archive.place().join(first);
    std::fs::create_dir(&in_the_way).unwrap();
    archive.try_run(now, CLOSED, &mut |_| true).unwrap_err();
    assert_eq!(archive.rows().len(), 4, "one of them was written");
    std::fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(archive.run(now, CLOSED).flows, 2);
    assert_eq!((archive.rows().len(), archive.names().len()), (5, 3));
}

/// A flow that is held before its head is known is recorded later than it began, and then still in progress.
#[test]
fn flow_in_progress_that_is_recorded_later_replaces_nothing_of_its_hour() {
    let archive = Fixture::new();
    let flow = begin_flow();
    let started = flow.clock.started_at().micros();
    archive.add(started + 1, b"beside it");
    assert_eq!(archive.run(started + 2 * HOUR, CLOSED).flows, 1);
    let recording = archive.store.recorder().unwrap().begin(&flow, None).unwrap();
    archive.store.flush().unwrap();
    assert_eq!(archive.run(started + 3 * HOUR, CLOSED).flows, 0);
    recording.finish(&flow, FlowOutcome::Complete);
    archive.store.flush().unwrap();
    assert_eq!(archive.run(started + 4 * HOUR, CLOSED).flows, 1);
    assert_eq!((archive.rows().len(), archive.names().len()), (2, 1));
}

#[test]
fn flow_in_progress_follows_when_it_has_ended() {
    let archive = Fixture::new();
    let flow = begin_flow();
    let recorder = archive.store.recorder().unwrap();
    let recording: Box<dyn FlowRecording> = recorder.begin(&flow, None).unwrap();
    let started = flow.clock.started_at().micros();
    archive.add(started, b"beside it");
    archive.store.flush().unwrap();
    assert_eq!(archive.run(started + 2 * HOUR, CLOSED).flows, 1);
    let keep_from = || {
        let url = format!("file://{}", archive.place().display()).parse().unwrap();
        ArchiveCursor::load(&archive.folder.path().join("record"), &url).unwrap().keep_from()
    };
    assert_eq!(keep_from(), flow.id, "retention waits for it");
    assert_eq!(archive.run(started + 3 * HOUR, CLOSED).flows, 0);
    recording.finish(&flow, FlowOutcome::Complete);
    archive.store.flush().unwrap();
    let done = archive.run(started + 4 * HOUR, CLOSED);
    assert_eq!((done.flows, archive.names().len()), (1, 1));
    assert!(keep_from() > flow.id);
}

/// All files of a folder, with their contents.
type Snapshot = BTreeMap<PathBuf, Vec<u8>>;

fn snapshot(place: &Path) -> Snapshot {
    files(place).into_iter().map(|file| (file.clone(), std::fs::read(file).unwrap())).collect()
}

fn restore(place: &Path, snapshot: &Snapshot) {
    std::fs::remove_dir_all(place).unwrap();
    for (file, bytes) in snapshot {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }
}

#[test]
fn interrupted_runs_are_continued_without_loss_or_repetition() {
    let archive = Fixture::new();
    for hour in 0..3 {
        for i in 0..5 {
            archive.add(TEN + hour * HOUR + i, format!("{hour} {i}").as_bytes());
        }
    }
    let (state, place) = (archive.state(), archive.place());
    let mut steps: Vec<(Snapshot, Snapshot)> = Vec::new();
    let mut keep = |_: &ArchiveCursor| {
        steps.push((snapshot(&state), snapshot(&place)));
        true
    };
    archive.run_while(TEN + 5 * HOUR, CLOSED, &mut keep);
    archive.add(TEN + 1000, b"late");
    archive.add(TEN + HOUR + 1000, b"late too");
    archive.add(TEN + 6 * HOUR, b"newer");
    archive.run_while(TEN + 8 * HOUR, CLOSED, &mut keep);
    let whole = archive.rows();
    assert_eq!((whole.len(), archive.names().len()), (18, 4));
    let mut tried = 0;
    for (i, (cursor, written)) in steps.iter().enumerate() {
        // Stopped right after a step, and after its successor had written files, but not the cursor.
        let next = steps.get(i + 1).map(|(_, next)| next).filter(|next| written.keys().all(|f| next.contains_key(f)));
        for written in [Some(written), next].into_iter().flatten() {
            restore(&state, cursor);
            restore(&place, written);
            archive.run(TEN + 8 * HOUR, CLOSED);
            assert_eq!(archive.rows(), whole, "step {i}");
            assert_eq!(archive.names().len(), 4, "step {i}");
            tried += 1;
        }
    }
    assert!(tried > 10, "{tried}");
}
