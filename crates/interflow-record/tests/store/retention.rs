//! Old flows go, their disk space comes back, and what newer flows share with them stays.

use std::time::{Duration, Instant};

use interflow_flow::Direction;
use interflow_flow::units::{ByteSize, Span};
use interflow_query::Query;
use interflow_record::*;

use super::*;

fn small_segments() -> RecordConfig {
    RecordConfig { segment_bytes: ByteSize(1 << 20), ..RecordConfig::default() }
}

fn whole(store: &EmbeddedStore, flow: &Flow) -> Vec<u8> {
    store.body(flow.id, Direction::Response, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap().to_vec()
}

#[test]
fn pruning_gives_disk_back_and_keeps_shared_chunks() {
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

    // What was thrown away is stored again when it comes again.
    let again = exchange(&recorder, "old.test", "/", b"", &noise(250_000, 3));
    store.flush().unwrap();
    assert_eq!(whole(&store, &again), noise(250_000, 3));
}

#[test]
fn the_oldest_flows_go_when_the_store_is_over_its_bound() {
    let config = RecordConfig { retention_bytes: ByteSize(6 << 20), ..small_segments() };
    let dir = tempfile::tempdir().unwrap();
    let flows: Vec<Flow> = {
        let store =
            EmbeddedStore::open(dir.path(), &RecordConfig { retention_bytes: ByteSize(0), ..config.clone() }).unwrap();
        let recorder = store.recorder().unwrap();
        (0..60).map(|i| exchange(&recorder, "a.test", "/", b"", &noise(250_000, i))).collect()
    };
    assert!(disk(&dir.path().join("segments")) > 14 << 20);
    let store = EmbeddedStore::open(dir.path(), &config).unwrap();
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
fn flows_over_the_age_go_and_running_ones_stay() {
    let config = RecordConfig { retention_age: Span(Duration::from_millis(300)), ..small_segments() };
    let dir = tempfile::tempdir().unwrap();
    let old = {
        let store = EmbeddedStore::open(dir.path(), &small_segments()).unwrap();
        exchange(&store.recorder().unwrap(), "a.test", "/", b"", &noise(100_000, 1))
    };
    std::thread::sleep(Duration::from_millis(350));
    let store = EmbeddedStore::open(dir.path(), &config).unwrap();
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
