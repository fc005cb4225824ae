//! Old flows are deleted, their disk space is freed, and chunks shared with newer flows survive.

use std::time::{Duration, Instant};

use interflow_query::Query;
use interflow_store::*;
use interflow_types::Direction;
use interflow_types::units::{ByteSize, HumanDuration};

use super::*;

fn small_segments() -> RecordConfig {
    RecordConfig { segment_bytes: ByteSize(1 << 20), ..RecordConfig::default() }
}

fn whole(store: &SqliteStore, flow: &Flow) -> Vec<u8> {
    store.body(flow.id, Direction::Response, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap().to_vec()
}

#[test]
fn pruning_frees_disk_space_and_keeps_shared_chunks() {
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
    let stats = store.stats().unwrap();
    assert_eq!(stats.flows, 1);
    assert!(stats.segment_bytes < 1_000_000, "{stats:?}");
    assert_eq!(whole(&store, &newer), grown);
    let report = store.check(&mut |_, _| ()).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);

    // Deleted content is stored again when it is recorded again.
    let again = exchange(&recorder, "old.test", "/", b"", &noise(250_000, 3));
    store.flush().unwrap();
    assert_eq!(whole(&store, &again), noise(250_000, 3));
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

#[test]
fn flows_over_the_age_limit_are_deleted_and_active_ones_kept() {
    let config = RecordConfig { retention_age: HumanDuration(Duration::from_millis(300)), ..small_segments() };
    let dir = tempfile::tempdir().unwrap();
    let old = {
        let store = SqliteStore::open(dir.path(), &small_segments()).unwrap();
        exchange(&store.recorder().unwrap(), "a.test", "/", b"", &noise(100_000, 1))
    };
    std::thread::sleep(Duration::from_millis(350));
    let store = SqliteStore::open(dir.path(), &config).unwrap();
    let start = Instant::now();
    while store.get(old.id).is_ok() {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    let fresh = flow("b.test");
    let mut capture = store.recorder().unwrap().begin(&fresh, Some(&request(&fresh, "GET", "/"))).unwrap();
    capture.response(&fresh, &response(200));
    store.flush().unwrap();
    assert_eq!(store.get(fresh.id).unwrap().state, FlowState::Open);
    assert_eq!(store.delete(&[fresh.id]).unwrap(), 0);
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
