//! Old flows are deleted, their disk space is freed, and chunks shared with newer flows survive.

use std::time::{Duration, Instant};

use interflow_fleet::SharedStore;
use interflow_query::Query;
use interflow_store::*;
use interflow_types::units::{ByteSize, HumanDuration};
use interflow_types::{CertificateChain, ClientTls, Direction, FlowId};

use super::*;

fn small_segments() -> RecordConfig {
    RecordConfig { segment_bytes: ByteSize(1 << 20), ..RecordConfig::default() }
}

fn whole(store: &SqliteStore, flow: &Flow) -> Vec<u8> {
    store.body(flow.id, Direction::Response, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap().to_vec()
}

/// A store from which 40 flows of `old.test` were pruned; and the remaining flow of `new.test`, the beginning of whose
/// body was shared with some of them.
fn pruned_store() -> (tempfile::TempDir, SqliteStore, Flow, Vec<u8>) {
    let (dir, store) = store(&small_segments());
    let recorder = store.recorder().unwrap();
    let shared = noise(400_000, 77);
    for i in 0..40 {
        let body = if i % 10 == 0 { shared.clone() } else { noise(250_000, i) };
        exchange(&recorder, "old.test", "/", b"", &body);
    }
    store.flush().unwrap();
    let mut grown = shared.clone();
    grown.extend(noise(50_000, 500));
    let newer = exchange(&recorder, "new.test", "/", b"", &grown);
    store.flush().unwrap();
    let before = disk(dir.path());
    assert!(before > 9_000_000, "{before}");
    assert_eq!(store.prune(&Query::parse("host:old.test").unwrap()).unwrap(), 40);
    (dir, store, newer, grown)
}

#[test]
fn pruning_frees_disk_space() {
    let (_dir, store, ..) = pruned_store();
    let stats = store.stats().unwrap();
    assert_eq!(stats.flows, 1);
    assert!(stats.segment_bytes < 1_000_000, "{stats:?}");
}

#[test]
fn pruning_keeps_chunks_shared_with_other_flows() {
    let (_dir, store, newer, body) = pruned_store();
    assert_eq!(whole(&store, &newer), body);
    let report = store.check(&mut |_, _| ()).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}

#[test]
fn bodies_that_are_moved_while_a_page_is_read_are_not_taken_for_damaged() {
    let (_dir, store) = store(&small_segments());
    let recorder = store.recorder().unwrap();
    let body = noise(400_000, 77);
    let flow = exchange(&recorder, "new.test", "/", b"", &body);
    (0..20).for_each(|i| drop(exchange(&recorder, "old.test", "/", b"", &noise(250_000, i))));
    store.flush().unwrap();
    let mut pruned = None;
    let page = ListOptions { query: Query::parse("host:new.test").unwrap(), ..ListOptions::default() };
    let loaded = store.list_loaded(&page, FlowParts::All, &mut || {
        pruned.get_or_insert_with(|| store.prune(&Query::parse("host:old.test").unwrap()).unwrap());
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(pruned, Some(20));
    let loaded = loaded.unwrap();
    assert_eq!((loaded.len(), loaded[0].row.id), (1, flow.id));
    assert!(loaded[0].bodies[1].as_deref() == Some(&body[..]));
}

#[test]
fn space_of_deleted_flows_that_is_not_given_back_is_by_the_next_start() {
    let (dir, store) = store(&small_segments());
    let recorder = store.recorder().unwrap();
    let flows: Vec<FlowId> = (0..20).map(|i| exchange(&recorder, "a.test", "/", b"", &noise(250_000, i)).id).collect();
    store.flush().unwrap();
    assert_eq!(store.delete(&flows).unwrap(), 20);
    drop(store);
    assert!(disk(&dir.path().join("segments")) > 4_000_000);
    let store = SqliteStore::open(dir.path(), &small_segments()).unwrap();
    let start = Instant::now();
    while store.stats().unwrap().segment_bytes > 1000 {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", store.stats().unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn pruned_content_is_stored_again_when_it_is_recorded_again() {
    let (_dir, store, ..) = pruned_store();
    let again = exchange(&store.recorder().unwrap(), "old.test", "/", b"", &noise(250_000, 3));
    store.flush().unwrap();
    assert_eq!(whole(&store, &again), noise(250_000, 3));
}

#[test]
fn flows_share_their_certificates_and_keep_them_when_others_are_pruned() {
    let (_dir, store) = store(&small_segments());
    let recorder = store.recorder().unwrap();
    let chain = CertificateChain::from_der([&noise(3_000, 1)[..], &noise(2_000, 2)]);
    let record = |host: &str| {
        let mut flow = flow(host);
        let tls = ClientTls { certificates: chain.clone(), ..ClientTls::default() };
        flow.client_tls = Some(Arc::new(tls));
        let mut capture = recorder.begin(&flow, Some(&request(&flow, "GET", "/"))).unwrap();
        capture.response(&flow, &response(200));
        capture.finish(&flow, FlowOutcome::Complete);
        flow
    };
    let [old, new] = ["old.test", "new.test"].map(record);
    store.flush().unwrap();
    let chunks = |store: &SqliteStore| store.check(&mut |_, _| ()).unwrap().chunks;
    assert_eq!((store.certificates(old.id).unwrap()[0].clone(), chunks(&store)), (chain.clone(), 1));
    assert_eq!(store.prune(&Query::parse("host:old.test").unwrap()).unwrap(), 1);
    assert_eq!(store.certificates(new.id).unwrap(), [chain, None]);
    store.prune(&Query::parse("").unwrap()).unwrap();
    assert_eq!(chunks(&store), 0);
}

#[test]
fn oldest_flows_are_deleted_above_the_size_limit() {
    let config = RecordConfig { retention_bytes: ByteSize(6 << 20), ..small_segments() };
    let dir = tempfile::tempdir().unwrap();
    let flows: Vec<Flow> = {
        let store =
            SqliteStore::open(dir.path(), &RecordConfig { retention_bytes: ByteSize(0), ..config.clone() }).unwrap();
        let recorder = store.recorder().unwrap();
        (0..60).map(|i| exchange(&recorder, "a.test", "/", b"", &noise(250_000, i))).collect()
    };
    assert!(disk(&dir.path().join("segments")) > 14 << 20);
    let store = SqliteStore::open(dir.path(), &config).unwrap();
    let start = Instant::now();
    while store.stats().unwrap().segment_bytes > 6 << 20 {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", store.stats().unwrap());
        store.flush().unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(store.stats().unwrap().expired_flows >= 30);
    assert!(matches!(store.get(flows[0].id), Err(StoreError::NotFound(_))));
    assert_eq!(whole(&store, &flows[59]), noise(250_000, 59));
    assert!(store.check(&mut |_, _| ()).unwrap().is_sound());
}

/// Records a flow, then closes the store and makes the flow two hours old.
fn two_hours_old(dir: &std::path::Path) -> Flow {
    let old = {
        let store = SqliteStore::open(dir, &small_segments()).unwrap();
        exchange(&store.recorder().unwrap(), "a.test", "/", b"", &noise(100_000, 1))
    };
    let db = rusqlite::Connection::open(dir.join("flows.db")).unwrap();
    assert_eq!(db.execute("UPDATE flows SET stored = stored - 7200000000", []).unwrap(), 1);
    old
}

fn kept_for(hours: u64) -> RecordConfig {
    RecordConfig { retention_age: HumanDuration(Duration::from_secs(hours * 3600)), ..small_segments() }
}

fn wait_until_deleted(store: &SqliteStore, flow: &Flow) {
    let start = Instant::now();
    while store.get(flow.id).is_ok() {
        assert!(start.elapsed() < Duration::from_secs(60), "it is not deleted");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn flows_over_the_age_limit_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let old = two_hours_old(dir.path());
    let store = SqliteStore::open(dir.path(), &kept_for(1)).unwrap();
    wait_until_deleted(&store, &old);
}

#[test]
fn flows_within_the_age_limit_survive_the_deletion_of_older_ones() {
    let dir = tempfile::tempdir().unwrap();
    let old = two_hours_old(dir.path());
    let fresh = {
        let store = SqliteStore::open(dir.path(), &kept_for(3)).unwrap();
        exchange(&store.recorder().unwrap(), "b.test", "/", b"", b"fresh")
    };
    let store = SqliteStore::open(dir.path(), &kept_for(1)).unwrap();
    wait_until_deleted(&store, &old);
    assert_eq!(whole(&store, &fresh), b"fresh");
}

const DAY_MICROS: u64 = 86_400_000_000;

#[test]
fn nothing_is_deleted_because_the_clock_has_jumped_until_it_has_run_for_a_day() {
    let dir = tempfile::tempdir().unwrap();
    let config = RecordConfig { retention_bytes: ByteSize(0), ..kept_for(30 * 24) };
    let record = |host: &str| {
        let store = SqliteStore::open(dir.path(), &config).unwrap();
        exchange(&store.recorder().unwrap(), host, "/", b"", b"body")
    };
    let ages = |days: u64| {
        let db = rusqlite::Connection::open(dir.path().join("flows.db")).unwrap();
        db.execute("UPDATE flows SET stored = stored - ?", [(days * DAY_MICROS) as i64]).unwrap();
    };
    let older = record("a.test");
    ages(20);
    let newer = record("b.test");
    // As if the clock had jumped forward by 40 days: the older flow is 20 days old by the time of before.
    ages(40);
    let clock_file = dir.path().join("retention-clock.json");
    std::fs::remove_file(&clock_file).unwrap();
    let store = SqliteStore::open(dir.path(), &config).unwrap();
    let start = Instant::now();
    while store.stats().unwrap().retention_waits.is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "retention does not say that it waits");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(store.count(&Query::all()).unwrap(), 2);
    // What was too old before is deleted as ever, and the next start does not take the new time for granted either.
    store.configure(&RecordConfig { retention_age: HumanDuration(Duration::from_secs(15 * 86_400)), ..config.clone() });
    wait_until_deleted(&store, &older);
    drop(store);
    let store = SqliteStore::open(dir.path(), &config).unwrap();
    let start = Instant::now();
    while store.stats().unwrap().retention_waits.is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "retention does not say that it waits");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(store.get(newer.id).is_ok());
    drop(store);
    // A day of running later, the new time holds.
    let mut clock: serde_json::Value = serde_json::from_slice(&std::fs::read(&clock_file).unwrap()).unwrap();
    clock["watched"] = DAY_MICROS.into();
    std::fs::write(&clock_file, clock.to_string()).unwrap();
    let store = SqliteStore::open(dir.path(), &config).unwrap();
    wait_until_deleted(&store, &newer);
    assert_eq!(store.stats().unwrap().retention_waits, None);
}

#[test]
fn a_shared_store_deletes_nothing_because_its_servers_clock_has_jumped() {
    let Some(StoreKind::Shared(database, _)) = StoreKind::shared() else { return };
    let dir = tempfile::tempdir().unwrap();
    let config = kept_for(30 * 24);
    let store =
        SharedStore::open(&database.url().parse().unwrap(), fixture::access(None), dir.path(), &config).unwrap();
    // In no partition of a day.
    let insert = || assert!(store.insert(flow_of_day(20_458)).unwrap());
    // As if the clock had jumped by 40 days since retention looked.
    database
        .sql(&format!("UPDATE interflow.retention_clock SET time = time - {0}, seen = seen - {0}", 40 * DAY_MICROS));
    let pass = || {
        let count = || database.sql("SELECT count(*) FROM interflow.flows WHERE stored = 0");
        insert();
        store.flush_to_database().unwrap();
        let now = "extract(epoch FROM clock_timestamp()) * 1000000";
        database.sql(&format!("UPDATE interflow.flows SET stored = 0 WHERE stored > {now} - 3600000000"));
        let start = Instant::now();
        while count() != "0" {
            assert!(start.elapsed() < Duration::from_secs(60), "retention does not pass");
            store.configure(&config);
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let flows = || database.sql("SELECT count(*) FROM interflow.flows");
    // One that began before the jump may be under way.
    pass();
    pass();
    insert();
    store.flush_to_database().unwrap();
    database.sql(&format!("UPDATE interflow.flows SET stored = stored - {}", 60 * DAY_MICROS));
    pass();
    assert_eq!(flows(), "1");
    let waits = SharedStore::open_read(&database.url().parse().unwrap(), fixture::access(None), dir.path());
    let waits = waits.unwrap().stats().unwrap().retention_waits.unwrap();
    assert!(waits.contains("moved forward by 40.0 days"), "{waits}");
    database.sql(&format!("UPDATE interflow.retention_clock SET watched = {DAY_MICROS}"));
    pass();
    assert_eq!(flows(), "0");
}

#[test]
fn flows_that_wait_for_the_archive_outlive_the_limits() {
    let dir = tempfile::tempdir().unwrap();
    let first = two_hours_old(dir.path());
    let second = {
        let store = SqliteStore::open(dir.path(), &small_segments()).unwrap();
        exchange(&store.recorder().unwrap(), "b.test", "/", b"", b"second")
    };
    let db = rusqlite::Connection::open(dir.path().join("flows.db")).unwrap();
    assert_eq!(db.execute("UPDATE flows SET stored = stored - 7200000000", []).unwrap(), 2);
    drop(db);
    let archive = Some("file:///archive".to_owned());
    let config = RecordConfig { archive, archive_before_delete: true, ..kept_for(1) };
    let store = SqliteStore::open(dir.path(), &config).unwrap();
    // Both are too old, and deleted in one step; the second is not archived.
    store.report_archived(second.id);
    store.configure(&config);
    wait_until_deleted(&store, &first);
    assert_eq!(whole(&store, &second), b"second");
}

/// A flow that began on this day since 1970.
fn flow_of_day(day: u64) -> FlowWithBodies {
    let started = Timestamp::from_micros(day * 86_400_000_000 + 5_000_000);
    let origin = "old.test:443".parse().unwrap();
    let mut row = FlowRecord::new(FlowId::new(started), started, EntryKind::Connect, Scheme::Https, origin);
    row.state = FlowState::Complete;
    FlowWithBodies {
        row,
        request_body: Bytes::new(),
        response_body: Bytes::new(),
        original_bodies: Default::default(),
        messages: Vec::new(),
        certificates: Default::default(),
    }
}

#[test]
fn days_of_a_shared_store_are_dropped_once_all_their_flows_are_archived() {
    const DAY: u64 = 20_458;
    let Some(StoreKind::Shared(database, _)) = StoreKind::shared() else { return };
    let dir = tempfile::tempdir().unwrap();
    let place = "file:///archive";
    let all = RecordConfig { retention_age: HumanDuration(Duration::ZERO), ..RecordConfig::default() };
    let store = SharedStore::open(&database.url().parse().unwrap(), fixture::access(None), dir.path(), &all).unwrap();
    // A day of long ago with partitions, as if it had been recorded then.
    let bound = |day: u64| format!("{:032x}", u128::from(day * 86_400_000) << 80);
    for table in ["flows", "bodies", "messages"] {
        database.sql(&format!(
            "CREATE TABLE interflow.{table}_20260105 PARTITION OF interflow.{table} FOR VALUES FROM ('{}') TO ('{}')",
            bound(DAY),
            bound(DAY + 1)
        ));
    }
    let insert = |day: u64| {
        assert!(store.insert(flow_of_day(day)).unwrap());
        store.flush_to_database().unwrap();
        store.newest_position().unwrap().unwrap()
    };
    // Flows of other days are in no partition of a day, and deleted one by one: those tell when retention has passed.
    let insert_other = || {
        let position = insert(DAY - 2000);
        database.sql("UPDATE interflow.flows_default SET stored = 0");
        position
    };
    let first_of = |day: u64| FlowId::from_u128(u128::from(day * 86_400_000) << 80);
    let turn = store.archive_turn(place);
    assert!(turn.claim(interflow_fleet::ArchiveClaim::Free).unwrap());
    let lease = turn.begin().unwrap().unwrap();
    let archive = Some(place.to_owned());
    let config = RecordConfig { archive, archive_before_delete: true, ..kept_for(1) };
    let flows = || {
        (
            database.sql("SELECT count(*) FROM interflow.flows"),
            database.sql("SELECT count(*) FROM interflow.flows_default"),
        )
    };
    let until = |expected: (&str, &str)| {
        let deadline = Instant::now() + Duration::from_secs(60);
        store.configure(&config);
        while flows() != (expected.0.to_owned(), expected.1.to_owned()) {
            assert!(Instant::now() < deadline, "{:?}, expected {expected:?}", flows());
            std::thread::sleep(Duration::from_millis(20));
        }
    };

    insert(DAY);
    let position = insert_other();
    // Not before the archive is known.
    store.configure(&config);
    store.begin_archiving(place);
    assert!(lease.save("{}", first_of(DAY), position).unwrap());
    until(("1", "0"));
    // The day is over for the archive, but a flow of it has arrived since.
    let position = insert_other();
    insert(DAY);
    assert!(lease.save("{}", first_of(DAY + 1), position).unwrap());
    until(("2", "0"));
    assert!(lease.save("{}", first_of(DAY + 1), position + 1).unwrap());
    until(("0", "0"));
    assert_eq!(database.sql("SELECT to_regclass('interflow.flows_20260105') IS NULL"), "t", "the partition is gone");
    assert_eq!(store.stats().unwrap().expired_flows, 4);
}

both_stores!(a_running_flow_cannot_be_deleted);

fn a_running_flow_cannot_be_deleted(kind: &StoreKind) {
    let store = kind.open(&small_segments());
    let fresh = flow("b.test");
    let mut capture = store.recorder().unwrap().begin(&fresh, Some(&request(&fresh, "GET", "/"))).unwrap();
    capture.response(&fresh, &response(200));
    store.flush().unwrap();
    assert_eq!(store.get(fresh.id).unwrap().state, FlowState::Open);
    assert_eq!(store.delete(&[fresh.id]).unwrap(), 0);
    assert!(store.get(fresh.id).is_ok());
}

/// Pushes like the request pipeline: waits while the recorder is behind.
fn push(recorder: &dyn Recorder, i: u64) {
    let flow = flow("load.test");
    let Some(mut capture) = recorder.begin(&flow, Some(&request(&flow, "GET", "/"))) else { return };
    capture.response(&flow, &response(200));
    let body = Bytes::from(noise(256 << 10, i));
    for at in (0..body.len()).step_by(64 << 10) {
        while capture.poll_ready(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending() {
            std::thread::yield_now();
        }
        capture.data(Direction::Response, &body.slice(at..at + (64 << 10)));
    }
    capture.finish(&flow, FlowOutcome::Complete);
}

#[test]
fn size_limit_holds_during_writes() {
    let bound = 16 << 20;
    let config = RecordConfig { retention_bytes: ByteSize(bound), ..RecordConfig::default() };
    let (dir, store) = store(&config);
    let recorder = store.recorder().unwrap();
    let reserve = 4 << 20;
    let mut most = 0;
    for i in 0..600 {
        push(&recorder, i);
        if i % 10 == 0 {
            most = most.max(disk(dir.path()));
        }
    }
    store.flush().unwrap();
    most = most.max(disk(dir.path()));
    // One batch may be in progress, and live chunks are copied before their segment is deleted.
    assert!(most - reserve < bound + (8 << 20), "{} MiB", most >> 20);
    let stats = store.stats().unwrap();
    assert!(stats.expired_flows > 400 && stats.suspended.is_none(), "{stats:?}");
    assert!(store.check(&mut |_, _| ()).unwrap().is_sound());
}

#[test]
fn flow_that_alone_exceeds_the_size_limit_is_truncated() {
    let config = RecordConfig { retention_bytes: ByteSize(4 << 20), ..RecordConfig::default() };
    let (dir, store) = store(&config);
    let recorder = store.recorder().unwrap();
    let flow = flow("stream.test");
    let mut capture = recorder.begin(&flow, Some(&request(&flow, "GET", "/"))).unwrap();
    capture.response(&flow, &response(200));
    for i in 0..200 {
        while capture.poll_ready(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending() {
            std::thread::yield_now();
        }
        capture.data(Direction::Response, &Bytes::from(noise(128 << 10, i)));
    }
    capture.finish(&flow, FlowOutcome::Complete);
    store.flush().unwrap();
    assert!(disk(dir.path()) < 24 << 20, "{} MiB", disk(dir.path()) >> 20);
}

#[test]
fn check_reports_no_problems_during_retention() {
    let config = RecordConfig { retention_bytes: ByteSize(6 << 20), ..RecordConfig::default() };
    let (_dir, store) = store(&config);
    let recorder = store.recorder().unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut i = 0;
            while !over.load(std::sync::atomic::Ordering::SeqCst) {
                push(&recorder, i);
                i += 1;
            }
        });
        let mut checked = 0;
        let start = Instant::now();
        while checked < 12 || store.stats().unwrap().expired_flows < 60 {
            let report = store.check(&mut |_, _| std::thread::sleep(Duration::from_millis(1))).unwrap();
            let sound = report.is_sound();
            if !sound || start.elapsed() > Duration::from_secs(120) {
                over.store(true, std::sync::atomic::Ordering::SeqCst);
            }
            assert!(sound, "{:?}", report.problems);
            checked += 1;
        }
        over.store(true, std::sync::atomic::Ordering::SeqCst);
    });
}
