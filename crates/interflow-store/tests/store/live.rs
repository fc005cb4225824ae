//! What is visible while a flow runs.

use std::time::{Duration, Instant};

use interflow_query::Query;
use interflow_store::*;
use interflow_types::Direction;

use super::*;

both_stores!(
    subscribers_receive_begin_and_end_of_a_flow,
    filtered_subscription_receives_only_matching_flows,
    annotations_of_an_active_flow_are_stored,
);

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_running_stream_can_be_read_by_another_process() {
    let (dir, store) = store(&RecordConfig::default());
    let flow = flow("stream.test");
    let mut capture = store.recorder().unwrap().begin(&flow, Some(&request(&flow, "GET", "/"))).unwrap();
    let other = SqliteStore::open_read(dir.path()).unwrap();
    until("a row", || other.get(flow.id).is_ok());
    assert_eq!(other.get(flow.id).unwrap().state, FlowState::Open);
    capture.response(&flow, &response(200));
    let mut sent = Vec::new();
    for i in 0..12 {
        let piece = noise(if i == 6 { 400_000 } else { 1_000 }, i);
        capture.data(Direction::Response, &piece.clone().into());
        sent.extend(piece);
        let read =
            || other.body(flow.id, Direction::Response, 0..u64::MAX).and_then(|b| b.read_all(usize::MAX)).unwrap();
        until("the piece", || read() == sent);
        let row = other.get(flow.id).unwrap();
        assert_eq!(row.response.unwrap().body.kept, sent.len() as u64);
    }
    assert!(other.recorder().is_none());
    assert!(matches!(other.flush(), Err(StoreError::ReadOnly)));
    capture.finish(&flow, FlowOutcome::Complete);
    until("the end", || other.get(flow.id).unwrap().state == FlowState::Complete);
    assert!(store.check(&mut |_, _| ()).unwrap().is_sound());
}

fn subscribers_receive_begin_and_end_of_a_flow(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let mut events = store.subscribe();
    let recorder = store.recorder().unwrap();
    let flow = flow("live.test");
    let mut capture = recorder.begin(&flow, Some(&request(&flow, "GET", "/now"))).unwrap();
    store.flush().unwrap();
    capture.response(&flow, &response(204));
    capture.finish(&flow, FlowOutcome::Complete);
    store.flush().unwrap();
    store.close();
    drop(store);
    drop(recorder);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut seen = Vec::new();
    while let Some(event) = runtime.block_on(events.next()) {
        let StoreEvent::Flows(flows) = event else { panic!("{event:?}") };
        seen.extend(flows.iter().map(|f| (f.id, f.state, f.status)));
    }
    assert_eq!(seen.first(), Some(&(flow.id, FlowState::Open, None)));
    assert_eq!(seen.last(), Some(&(flow.id, FlowState::Complete, Some(204))));
}

fn filtered_subscription_receives_only_matching_flows(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let mut everything = store.subscribe();
    let (asked, count) = std::sync::mpsc::channel();
    let mut chosen = store.subscribe_to(Box::new(move |row| {
        asked.send(row.id).unwrap();
        row.host() == "b.test"
    }));
    // A dropped subscription does not disturb those created after it.
    drop(store.subscribe_to(Box::new(|_| true)));
    let mut late = store.subscribe_to(Box::new(|row| row.state != FlowState::Open));
    let recorder = store.recorder().unwrap();
    let flows: Vec<_> = ["a.test", "b.test", "a.test", "b.test"]
        .map(|host| {
            let flow = exchange(&recorder, host, "/", b"", b"");
            store.flush().unwrap();
            flow.id
        })
        .into();
    store.annotate(flows[1], FlowAnnotation { add_tags: vec!["seen".into()], ..FlowAnnotation::default() }).unwrap();
    store.close();
    drop((recorder, store));
    let ended = |events: &mut Subscription| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut ids = Vec::new();
        while let Some(event) = runtime.block_on(events.next()) {
            let StoreEvent::Flows(flows) = event else { panic!("{event:?}") };
            ids.extend(flows.iter().filter(|f| f.state == FlowState::Complete).map(|f| f.id));
        }
        ids
    };
    assert_eq!(ended(&mut chosen), [flows[1], flows[3], flows[1]]);
    assert_eq!(ended(&mut everything), [flows[0], flows[1], flows[2], flows[3], flows[1]]);
    assert_eq!(ended(&mut late), [flows[0], flows[1], flows[2], flows[3], flows[1]]);
    assert!(count.iter().count() >= 5);
}

#[test]
fn a_slow_subscriber_is_notified_of_missed_events() {
    let (_dir, store) = store(&RecordConfig::default());
    let mut events = store.subscribe();
    let recorder = store.recorder().unwrap();
    for _ in 0..300 {
        exchange(&recorder, "a.test", "/", b"", b"");
        store.flush().unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(matches!(runtime.block_on(events.next()), Some(StoreEvent::Lagged(n)) if n >= 44));
    assert!(matches!(runtime.block_on(events.next()), Some(StoreEvent::Flows(_))));
}

fn annotations_of_an_active_flow_are_stored(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let flow = flow("a.test");
    let mut capture = store.recorder().unwrap().begin(&flow, Some(&request(&flow, "GET", "/"))).unwrap();
    store.flush().unwrap();
    let mark = FlowAnnotation {
        add_tags: vec!["mine".into(), "other".into()],
        comment: Some("odd".into()),
        ..FlowAnnotation::default()
    };
    store.annotate(flow.id, mark).unwrap();
    capture.response(&flow, &response(200));
    capture.finish(&flow, FlowOutcome::Complete);
    store.flush().unwrap();
    let row = store.get(flow.id).unwrap();
    assert_eq!((row.tags, row.comment.as_deref()), (vec!["mine".into(), "other".into()], Some("odd")));
    let unmark =
        FlowAnnotation { remove_tags: vec!["mine".into()], comment: Some(String::new()), ..FlowAnnotation::default() };
    store.annotate(flow.id, unmark).unwrap();
    let row = store.get(flow.id).unwrap();
    assert_eq!((row.tags, row.comment), (vec!["other".to_owned()], None));
    assert_eq!(store.count(&Query::parse("tag:other").unwrap()).unwrap(), 1);
}

#[test]
fn only_one_process_can_open_the_store_for_writing() {
    let (dir, store) = store(&RecordConfig::default());
    assert!(matches!(SqliteStore::open(dir.path(), &RecordConfig::default()), Err(StoreError::Busy(_))));
    drop(store);
    assert!(SqliteStore::open(dir.path(), &RecordConfig::default()).is_ok());
    assert!(matches!(SqliteStore::open_read(&dir.path().join("none")), Err(StoreError::Absent(_))));
}
