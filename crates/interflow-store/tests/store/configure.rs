//! A configuration that changes while the store is open.

use std::time::{Duration, Instant};

use interflow_store::*;
use interflow_types::units::HumanDuration;

use super::*;

both_stores!(recording_is_turned_off_and_on_while_the_store_is_open, masks_and_body_sizes_hold_for_the_next_flow,);

fn recording_is_turned_off_and_on_while_the_store_is_open(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let recorder = store.recorder().unwrap();
    let before = exchange(&recorder, "before.test", "/", b"", b"one");
    let running = flow("running.test");
    let mut capture = recorder.begin(&running, Some(&request(&running, "GET", "/"))).unwrap();
    store.configure(&RecordConfig { enabled: false, ..RecordConfig::default() });
    assert!(!store.stats().unwrap().recording);
    let off = flow("off.test");
    assert!(recorder.begin(&off, Some(&request(&off, "GET", "/"))).is_none());
    // What was begun is recorded to its end.
    capture.response(&running, &response(200));
    capture.finish(&running, FlowOutcome::Complete);
    store.configure(&RecordConfig::default());
    let after = exchange(&recorder, "after.test", "/", b"", b"two");
    store.flush().unwrap();
    for (flow, kept) in [(&before, true), (&running, true), (&off, false), (&after, true)] {
        assert_eq!(store.get(flow.id).is_ok(), kept, "{}", flow.authority);
    }
    assert_eq!(store.get(running.id).unwrap().state, FlowState::Complete);
    assert!(store.stats().unwrap().recording);
}

fn masks_and_body_sizes_hold_for_the_next_flow(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let recorder = store.recorder().unwrap();
    let record = |path: &str| {
        let flow = exchange(&recorder, "a.test", path, b"", b"0123456789");
        store.flush().unwrap();
        let row = store.get(flow.id).unwrap();
        (row.request.unwrap().path.to_string(), row.response.unwrap().body.kept)
    };
    assert_eq!(record("/x?pin=1234"), ("/x?pin=1234".to_owned(), 10));
    store.configure(&RecordConfig { mask_query: vec!["pin".into()], bodies: false, ..RecordConfig::default() });
    assert_eq!(record("/x?pin=1234"), ("/x?pin=***".to_owned(), 0));
}

#[test]
fn a_shorter_retention_deletes_at_once() {
    let (_dir, store) = store(&RecordConfig::default());
    let flow = exchange(&store.recorder().unwrap(), "old.test", "/", b"", b"x");
    store.flush().unwrap();
    store
        .configure(&RecordConfig { retention_age: HumanDuration(Duration::from_micros(1)), ..RecordConfig::default() });
    // Below the interval of the regular check.
    let deadline = Instant::now() + Duration::from_secs(8);
    while store.get(flow.id).is_ok() {
        assert!(Instant::now() < deadline, "the flow is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}
