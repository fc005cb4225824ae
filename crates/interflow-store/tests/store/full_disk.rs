//! A disk that is really full: a small tmpfs, where the machine allows mounting one.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use interflow_fleet::SharedStore;
use interflow_query::Query;
use interflow_store::*;
use interflow_testkit::PostgresServer;
use interflow_types::Direction;
use interflow_types::units::ByteSize;

use super::*;

/// A file system of the given size, unmounted when dropped; `None` where mounting is not allowed.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(bytes: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).output();
        if !mounted.is_ok_and(|o| o.status.success()) {
            eprintln!("skipped: this user may not mount a file system");
            return None;
        }
        Some(Self(dir))
    }

    fn store(&self) -> std::path::PathBuf {
        self.0.path().join("record")
    }

    /// Uses up all free space.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.path().join("filler")).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
    }

    fn free(&self) {
        std::fs::remove_file(self.0.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

fn config() -> RecordConfig {
    RecordConfig { segment_bytes: ByteSize(1 << 20), ..RecordConfig::default() }
}

/// Records until the disk is full; returns the number of flows.
fn record_until_full(disk: &SmallDisk, store: &SqliteStore) -> u64 {
    let recorder = store.recorder().unwrap();
    for i in 0..400 {
        if store.stats().unwrap().suspended.is_some() {
            break;
        }
        if let Some(mut capture) = recorder.begin(&flow("a.test"), None) {
            capture.poll_ready(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready();
            drop(capture);
            exchange(&recorder, "a.test", "/", b"", &noise(250_000, i));
        }
        let _ = store.flush();
    }
    disk.fill();
    assert!(store.stats().unwrap().suspended.is_some(), "the disk never filled up");
    store.stats().unwrap().flows
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn records(store: &SqliteStore, dir: &Path) {
    until("recording never went on", || store.stats().unwrap().suspended.is_none());
    let flow = exchange(&store.recorder().unwrap(), "later.test", "/", b"", &noise(90_000, 9_999));
    store.flush().unwrap();
    let read = store.body(flow.id, Direction::Response, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap();
    assert_eq!(read, noise(90_000, 9_999), "{}", dir.display());
    let report = store.check(&mut |_, _| ()).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}

#[test]
fn flows_can_be_pruned_on_a_full_disk_and_recording_goes_on() {
    let Some(disk) = SmallDisk::new(24 << 20) else { return };
    let store = SqliteStore::open(&disk.store(), &config()).unwrap();
    let flows = record_until_full(&disk, &store);
    assert!(flows > 20, "{flows}");
    let before = disk_bytes(&disk);
    assert_eq!(store.prune(&Query::all()).unwrap(), flows);
    assert!(disk_bytes(&disk) + (8 << 20) < before, "{before} -> {}", disk_bytes(&disk));
    records(&store, &disk.store());
}

#[test]
fn pruning_frees_the_only_segment_on_a_disk_without_room_for_another_file() {
    let Some(disk) = SmallDisk::new(24 << 20) else { return };
    let store = SqliteStore::open(&disk.store(), &RecordConfig::default()).unwrap();
    for i in 0..40 {
        exchange(&store.recorder().unwrap(), "a.test", "/", b"", &noise(250_000, i));
    }
    store.flush().unwrap();
    // Nothing has tried to write since: the store does not know that the disk is full.
    disk.fill();
    assert_eq!(store.prune(&Query::all()).unwrap(), 40);
    assert!(disk_bytes(&disk) < 1 << 20, "{}", disk_bytes(&disk));
    records(&store, &disk.store());
}

fn disk_bytes(disk: &SmallDisk) -> u64 {
    super::disk(&disk.store().join("segments"))
}

#[test]
fn store_opens_on_a_full_disk_and_retention_frees_space() {
    let Some(disk) = SmallDisk::new(24 << 20) else { return };
    let flows = {
        let store = SqliteStore::open(&disk.store(), &config()).unwrap();
        record_until_full(&disk, &store)
    };
    disk.fill();
    let bounded = RecordConfig { retention_bytes: ByteSize(6 << 20), ..config() };
    let store = SqliteStore::open(&disk.store(), &bounded).unwrap();
    // Segment files are deleted first; their rows follow once the database has space.
    until("retention never freed space", || {
        let stats = store.stats().unwrap();
        stats.segment_bytes < 7 << 20 && stats.expired_flows > 0
    });
    assert!(store.stats().unwrap().flows < flows);
    records(&store, &disk.store());
}

#[test]
fn a_disk_too_full_to_open_the_store_suspends_recording() {
    let Some(disk) = SmallDisk::new(24 << 20) else { return };
    {
        let store = SqliteStore::open(&disk.store(), &config()).unwrap();
        exchange(&store.recorder().unwrap(), "a.test", "/", b"", &noise(200_000, 1));
    }
    std::fs::remove_file(disk.store().join("reserve")).unwrap();
    disk.fill();
    let store = SqliteStore::open(&disk.store(), &config()).unwrap();
    assert!(store.recovery().full);
    assert!(matches!(store.flush(), Err(StoreError::Suspended(_))));
    assert!(matches!(store.prune(&Query::all()), Err(_) | Ok(0)));
    let recorder = store.recorder().unwrap();
    assert!(recorder.begin(&flow("a.test"), None).is_none(), "traffic goes on unrecorded");
    disk.free();
    records_after_wait(&store, &disk);
}

fn records_after_wait(store: &SqliteStore, disk: &SmallDisk) {
    until("the store was never opened", || store.flush().is_ok());
    records(store, &disk.store());
}

#[test]
fn a_spool_that_has_filled_its_disk_records_again_once_its_flows_are_moved() {
    let Some(disk) = SmallDisk::new(24 << 20) else { return };
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let url = database.url().parse().unwrap();
    // All flows are in one segment, which is the newest.
    let store = SharedStore::open(&url, fixture::access(None), &disk.store(), &RecordConfig::default()).unwrap();
    database.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$; \
         CREATE TRIGGER refuse BEFORE INSERT ON interflow.flows FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    let spool = store.spool().unwrap();
    let flows = record_until_full(&disk, spool);
    assert!(flows > 20, "{flows}");
    assert_eq!(store.recording_state(), RecordingState::Suspended { shared: true });
    database.sql("DROP TRIGGER refuse ON interflow.flows");
    until("recording never went on", || store.recording_state() == RecordingState::Recording);
    until("the flows are never moved", || store.waiting_flows().unwrap() == 0);
    let stored: u64 = database.sql("SELECT count(*) FROM interflow.flows").parse().unwrap();
    assert!(stored >= flows, "{stored} of {flows}");
    let flow = exchange(&spool.recorder().unwrap(), "later.test", "/", b"", &noise(90_000, 9_999));
    store.flush_to_database().unwrap();
    let read = store.body(flow.id, Direction::Response, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap();
    assert_eq!(read, noise(90_000, 9_999));
    let report = store.check(&mut |_, _| ()).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    let shipped = store.stats().unwrap().shared.unwrap().shipped_flows;
    // A batch whose removal fails may be sent twice, of which the database keeps one; without a removal, all would be, for ever.
    assert!(shipped < 2 * stored, "flows were sent again and again: {shipped} for {stored}");
}
