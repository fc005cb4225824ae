//! Responses that are withheld until their flows are stored.

use std::path::Path;
use std::time::Duration;

use interflow_store::*;
use interflow_types::{Direction, FlowStored};

use super::*;

/// Waits until a response is not withheld any more.
async fn wait_for(stored: FlowStored) {
    tokio::time::timeout(Duration::from_secs(20), stored).await.expect("withheld for ever");
}

/// Checks a flow whose response is `noise(5_000, 1)`, as after a kill: without what only the writer knows.
fn assert_stored(dir: &Path, flow: &Flow, state: FlowState) {
    let reader = SqliteStore::open_read(dir).unwrap();
    assert_eq!(reader.get(flow.id).unwrap().state, state);
    let body = reader.body(flow.id, Direction::Response, 0..u64::MAX).unwrap();
    assert_eq!(body.read_all(usize::MAX).unwrap(), noise(5_000, 1));
}

fn synchronous() -> RecordConfig {
    RecordConfig { synchronous: Some(true), ..RecordConfig::default() }
}

#[tokio::test]
async fn a_response_is_withheld_until_its_flow_is_stored() {
    let (dir, store) = store(&synchronous());
    let recorder = store.recorder().unwrap();
    let flow = flow("a.test");
    let mut capture = recorder.begin(&flow, Some(&request(&flow, "GET", "/"))).unwrap();
    let mut stored = capture.until_stored().unwrap();
    capture.response(&flow, &response(200));
    feed(&mut *capture, Direction::Response, &noise(5_000, 1));
    let early = tokio::time::timeout(Duration::from_millis(400), &mut stored).await;
    assert!(early.is_err(), "the flow has not ended");
    capture.finish(&flow, FlowOutcome::Complete);
    wait_for(stored).await;
    assert_stored(dir.path(), &flow, FlowState::Complete);
}

#[tokio::test]
async fn a_flow_with_work_beside_it_withholds_its_response_until_that_is_stored() {
    let (dir, store) = store(&synchronous());
    let recorder = store.recorder().unwrap();
    let flow = flow("a.test");
    let mut capture = recorder.begin(&flow, Some(&request(&flow, "GET", "/"))).unwrap();
    let stored = capture.until_stored().unwrap();
    capture.response(&flow, &response(200));
    feed(&mut *capture, Direction::Response, &noise(5_000, 1));
    capture.store_now(&flow);
    wait_for(stored).await;
    assert_stored(dir.path(), &flow, FlowState::Open);
    capture.finish(&flow, FlowOutcome::Complete);
    store.flush().unwrap();
    assert_stored(dir.path(), &flow, FlowState::Complete);
    assert!(store.check(&mut |_, _| ()).unwrap().is_sound());
}

#[tokio::test]
async fn no_response_waits_for_a_store_that_has_ended() {
    let (_dir, store) = store(&synchronous());
    let recorder = store.recorder().unwrap();
    let flow = flow("a.test");
    let mut capture = recorder.begin(&flow, Some(&request(&flow, "GET", "/"))).unwrap();
    let stored = capture.until_stored().unwrap();
    drop(store);
    capture.finish(&flow, FlowOutcome::Complete);
    wait_for(stored).await;
}

#[test]
fn responses_are_not_withheld_otherwise() {
    let (_dir, store) = store(&RecordConfig::default());
    let flow = flow("a.test");
    let recorder = store.recorder().unwrap();
    let mut capture = recorder.begin(&flow, Some(&request(&flow, "GET", "/"))).unwrap();
    assert!(capture.until_stored().is_none());
}
